"""docs/reference.md names every table and column."""

from __future__ import annotations

import re
from pathlib import Path

from jetbridge.db.schema import metadata
from jetbridge.mdev.values import State
from jetbridge.pci.device import Condition, DeviceType, Status

REFERENCE = Path(__file__).parents[3] / "docs" / "reference.md"
COMMON = {"id", "created_at", "updated_at", "deleted", "deleted_at"}


def test_every_table_and_column_is_documented() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` (\|.*)$", REFERENCE.read_text(), re.MULTILINE))
    for table in metadata.tables.values():
        assert table.name in rows, f"docs/reference.md, Tables: {table.name} is missing"
        named = set(re.findall(r"`(\w+)`", rows[table.name]))
        missing = set(table.c.keys()) - COMMON - named
        assert not missing, f"docs/reference.md, Tables: {table.name} lacks {sorted(missing)}"
        assert named <= set(table.c.keys()), (
            f"docs/reference.md, Tables: {table.name} has no {sorted(named - set(table.c.keys()))}"
        )


def test_the_words_that_operators_query_are_documented() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` (\|.*)$", REFERENCE.read_text(), re.MULTILINE))
    for table, words in (("pci_devices", (*Status, *Condition, *DeviceType)), ("vgpus", (*State,))):
        missing = [word for word in words if not re.search(rf"\b{word}\b", rows[table])]
        assert not missing, f"docs/reference.md, Tables: {table} lacks {missing}"
