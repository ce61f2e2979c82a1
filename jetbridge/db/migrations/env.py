"""Not used to run revisions (``runner`` hands Alembic its connection): only for ``alembic revision --autogenerate`` by developers.

.venv/bin/alembic -x url=sqlite:////tmp/new.sqlite3 -c jetbridge/db/migrations/alembic.ini revision --autogenerate -m "why"
"""

from __future__ import annotations

from alembic import context

from jetbridge.db.engine import Database
from jetbridge.db.schema import metadata


def main() -> None:
    database = Database(context.get_x_argument(as_dictionary=True)["url"])
    with database.engine.connect() as connection:
        context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
        with context.begin_transaction():
            context.run_migrations()


main()
