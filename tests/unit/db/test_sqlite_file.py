"""SQLite files of other programs, which open a connection for each transaction."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from jetbridge.db.sqlite_file import prepare, tune_engine


def test_a_file_is_not_written_back_whenever_a_connection_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite3"
    assert prepare(path)
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.NullPool)
    tune_engine(engine)
    with engine.begin() as conn:
        conn.execute(sa.text("CREATE TABLE t (x INTEGER)"))
    log = path.with_name("other.sqlite3-wal")
    assert log.exists()


def test_what_keeps_the_file_open_lets_its_log_be_emptied(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite3"
    prepare(path)
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.NullPool)
    tune_engine(engine)
    with engine.begin() as conn:
        conn.execute(sa.text("CREATE TABLE t (x INTEGER)"))
    with engine.connect() as conn:
        assert conn.execute(sa.text("PRAGMA wal_checkpoint(TRUNCATE)")).one()[0] == 0
