"""Runs the revisions. Refuses databases whose tables aren't ours: another system's data is never touched."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy.engine import Connection

from jetbridge.db.connect import url_unusable
from jetbridge.db.migrations.head import VERSION_TABLE
from jetbridge.db.retry import first_line
from jetbridge.db.schema import metadata
from jetbridge.db.types import MARIADB_COLLATION
from jetbridge.errors import DatabaseUnusable
from jetbridge.reasons import some

if TYPE_CHECKING:
    from jetbridge.db.engine import Database

logger = logging.getLogger(__name__)


class _Interrupted(DatabaseUnusable):
    """There are tables and no revision: MariaDB commits every change of the schema by itself."""


def upgrade(database: Database) -> bool:
    """True when anything had to be done. Raises ``DatabaseUnusable``."""
    scripts = _scripts()
    head = scripts.get_current_head()
    try:
        if _stored_revision(database, scripts) == head:
            return False
    except _Interrupted:
        pass  # or another process is in the middle of it: whoever holds the lock sees which

    def run(connection: Connection) -> bool:
        # Looked at again inside the transaction: another process may have been faster.
        before = _revision(database, connection, scripts)
        if before == head:
            return False
        if database.kind == "mariadb" and before is None:
            # Every table gets the collation of its database: the server's own takes "gpu" and "GPU" for the same name.
            connection.exec_driver_sql(f"ALTER DATABASE CHARACTER SET utf8mb4 COLLATE {MARIADB_COLLATION}")
        _run(connection, scripts, transactional=database.kind != "mariadb")
        logger.info("Database %s upgraded from revision %s to %s", database.shown_url, before or "none", head)
        return True

    database.use_wal()
    try:
        return database.change_schema(run)
    except sa.exc.DBAPIError as error:
        raise DatabaseUnusable(
            url=database.shown_url, reason=f"its tables can't be changed: {first_line(error)}"
        ) from error


def check(database: Database) -> None:
    """Raises ``DatabaseUnusable`` unless the schema is at the newest revision."""
    scripts = _scripts()
    head = scripts.get_current_head()
    revision = _stored_revision(database, scripts)
    if revision != head:
        state = "has no tables yet" if revision is None else f"is at revision {revision}, this program needs {head}"
        raise DatabaseUnusable(url=database.shown_url, reason=f"it {state}; run: jetbridge db upgrade")


def _scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    return ScriptDirectory.from_config(config)


def _stored_revision(database: Database, scripts: ScriptDirectory) -> str | None:
    try:
        # Without the patience of ``Database.read``: whoever starts the program should hear at once that the database is not there.
        with ExitStack() as stack:
            return _revision(database, _connected(database, stack), scripts)
    except (sa.exc.DBAPIError, sqlite3.DatabaseError) as error:
        raise DatabaseUnusable(url=database.shown_url, reason=first_line(error)) from error


def _connected(database: Database, stack: ExitStack) -> Connection:
    try:
        return stack.enter_context(database.read_once())
    except (TypeError, ValueError, OSError) as error:
        raise url_unusable(database.shown_url, error) from error


def _revision(database: Database, connection: Connection, scripts: ScriptDirectory) -> str | None:
    tables = set(sa.inspect(connection).get_table_names())
    if not tables:
        return None
    if VERSION_TABLE not in tables:
        raise DatabaseUnusable(
            url=database.shown_url,
            reason=f"it holds tables of another program ({_some(tables)}) and is left alone; give Jetbridge a database of its own",
        )
    revisions = MigrationContext.configure(connection).get_current_heads()
    if len(revisions) > 1:
        raise DatabaseUnusable(
            url=database.shown_url,
            reason=f"it is at several revisions at once ({some(revisions)} in {VERSION_TABLE}) and is left alone; restore a copy of it",
        )
    revision = revisions[0] if revisions else None
    ours = metadata.tables.keys() & tables
    if revision is None and not ours:
        return None
    try:
        known = revision is not None and scripts.get_revision(revision) is not None
    except CommandError:
        known = False
    if revision is None and ours and not tables - metadata.tables.keys() - {VERSION_TABLE}:
        if any(_has_rows(connection, name) for name in ours):
            raise DatabaseUnusable(
                url=database.shown_url,
                reason=f"it holds data of Jetbridge, but {VERSION_TABLE} has no revision any more, so that nobody knows what it needs; put back that"
                " table from a copy of the database",
            )
        raise _Interrupted(
            url=database.shown_url,
            reason="its first upgrade was interrupted and nothing can be in it yet; drop and create the database, then upgrade again",
        )
    if not known or not ours:
        raise DatabaseUnusable(
            url=database.shown_url,
            reason=(
                f"its revision {revision} is not known to this version of Jetbridge: it is of a newer version, or of another "
                f"program ({_some(tables)}); it is left alone"
            ),
        )
    return revision


def _has_rows(connection: Connection, table: str) -> bool:
    return connection.execute(sa.select(sa.literal(1)).select_from(sa.table(table)).limit(1)).first() is not None


def _some(tables: set[str]) -> str:
    return some(tables - {VERSION_TABLE})


def _run(connection: Connection, scripts: ScriptDirectory, *, transactional: bool) -> None:
    def to_head(revision: Any, context: MigrationContext) -> Any:
        return scripts._upgrade_revs("head", revision)

    with EnvironmentContext(Config(), scripts, fn=to_head) as environment:
        # SQLite can roll back changes of the schema, though Alembic does not count on it.
        environment.configure(connection=connection, target_metadata=metadata, transactional_ddl=transactional)
        environment.run_migrations()
