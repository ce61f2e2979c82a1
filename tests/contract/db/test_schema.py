from __future__ import annotations

from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from jetbridge.db import flavors
from jetbridge.db.engine import Database
from jetbridge.db.sql import run_query
from jetbridge.db.tables import metadata
from jetbridge.errors import InvalidQuery
from tests.contract.db.rows import flavor


def test_the_revisions_lead_to_the_tables_of_the_program(database: Database) -> None:
    with database.read() as conn:
        context = MigrationContext.configure(conn, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_an_upgraded_database_needs_nothing_more(database: Database) -> None:
    assert database.upgrade() is False
    database.check_schema()


def test_an_error_takes_everything_back(database: Database) -> None:
    def fill(conn: Any) -> None:
        flavors.create(conn, flavor("a"))
        raise LookupError("half-way")

    with pytest.raises(LookupError):
        database.write(fill)
    with database.read() as conn:
        assert flavors.find(conn) == ()


def test_queries_by_hand(database: Database) -> None:
    database.write(lambda conn: flavors.create(conn, flavor("100% gpu")))
    url = database.url.render_as_string(hide_password=False)
    result = run_query(url, "SELECT name, vcpus FROM nova.flavors WHERE name LIKE '100%' -- a % in a literal")
    assert (result.columns, result.rows) == (("name", "vcpus"), (("100% gpu", 2),))
    with pytest.raises(InvalidQuery):
        run_query(url, "SELECT nothing FROM nowhere")
