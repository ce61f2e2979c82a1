"""Which transactions were committed.

When the connection is lost while a server database commits, nobody knows whether it did. Each transaction therefore begins by writing
a token of its own: running it again with the same token is refused by the primary key exactly when the first run was committed.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.engine import Connection

from jetbridge.db.clock import utcnow
from jetbridge.db.tables import commits


def insert(conn: Connection, token: str) -> None:
    """Raises ``IntegrityError`` when a transaction with the token was committed; waits for one that is being committed."""
    conn.execute(commits.insert().values(token=token, created_at=utcnow()))


def purge(conn: Connection, older_than: datetime) -> int:
    """Forget transactions that ended before; how many. Nobody asks about one that is older than ``engine.PATIENCE_SECONDS``."""
    return conn.execute(commits.delete().where(commits.c.created_at < older_than)).rowcount
