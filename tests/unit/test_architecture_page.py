"""docs/architecture.md says of every room what it imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PURE = {"errors", "reasons", "pci", "numa", "mdev", "model"}


def rooms_of_the_page() -> dict[str, set[str]]:
    """What each may import, by the table Rooms."""
    lines = (ROOT / "docs" / "architecture.md").read_text().splitlines()
    rows = [re.fullmatch(r"\| `(\w+)(?:/|\.py)`.* \| ([^|]*) \|", line) for line in lines]
    found: dict[str, set[str]] = {}
    for row in filter(None, rows):
        name, may = row[1], set(re.findall(r"\w+", re.sub(r"\(.*\)", "", row[2]).replace("pure rooms", " ".join(PURE))))
        assert name not in found, f"{name} has two rows"
        found[name] = may
    return found


def imported(room: Path) -> Iterator[str]:
    for file in [room] if room.suffix else room.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jetbridge."):
                yield str(node.module).split(".")[1]


def test_rooms_import_what_the_page_says() -> None:
    told = rooms_of_the_page()
    assert told.pop("errors") == {"nothing"}
    assert told.pop("service") == {"everything", "but", "cli"}
    rooms = {path.name for path in (ROOT / "jetbridge").iterdir() if (path / "__init__.py").exists()}
    assert rooms - told.keys() == {"service"}
    for name, may in told.items():
        path = ROOT / "jetbridge" / name
        wrong = {*imported(path if path.exists() else path.with_suffix(".py"))} - may - {name, "errors", "reasons"}
        assert not wrong, f"docs/architecture.md, Rooms: {name} imports {sorted(wrong)}"
