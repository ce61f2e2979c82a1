from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

from tests.mutants.changes import changes

ROOT = Path(__file__).parents[3]
LISTED = yaml.safe_load((ROOT / "tests/mutants/equivalent.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("a == b", {"Eq -> NotEq": "a != b"}),
        ("a < b", {"Lt -> LtE": "a <= b", "Lt -> GtE": "a >= b"}),
        ("a and b", {"And -> Or": "a or b"}),
        ("not a", {"not removed": "a"}),
        ("a + b", {"Add -> Sub": "a - b"}),
        ("a -= b", {"Sub= -> Add=": "a += b"}),
        ("f(3, True, 'word')", {"3 -> 4": "f(4, True, 'word')", "True -> False": "f(3, False, 'word')", "'word' -> 'wordx'": "f(3, True, 'wordx')"}),
        ("def f():\n    return a", {"returns None": "def f():\n    return None"}),
        ("b if a else c", {"condition negated": "b if not a else c"}),
        ("[a for a in b if c]", {"filter c dropped": "[a for a in b]"}),
        ("any(a)", {"any -> all": "all(a)"}),
        ("for a in b:\n    continue", {"continue -> break": "for a in b:\n    break"}),
    ],
)  # fmt: skip
def test_one_node_is_changed(source: str, found: dict[str, str]) -> None:
    assert {change.what: change.source for change in changes("f.py", source)} == found


@pytest.mark.parametrize(
    "source",
    [
        '"""Docstring."""',
        "x: dict[str, 'int'] = y",
        "from a import b",
        "f('some prose')",
        "f(f'{a}word')",
        "Names = Mapping[str, int]",
        "__all__ = ['a']",
    ],
)
def test_what_decides_nothing_is_left_alone(source: str) -> None:
    assert changes("f.py", source) == []


def test_a_change_is_known_by_its_line() -> None:
    (change,) = changes("f.py", "x = 'some prose'\n\n    \nif (a ==\n        b):\n    pass\n")
    assert (change.file, change.number, change.line) == ("f.py", 4, "if (a ==")


def test_planting_one_leaves_the_others_as_they_were() -> None:
    first, second = changes("f.py", "f(1, 2)")
    assert (first.source, second.source, first.source) == ("f(2, 2)", "f(1, 3)", "f(2, 2)")


@pytest.mark.parametrize("entry", LISTED, ids=lambda entry: f"{entry['file']}: {entry['line']}")
def test_every_listed_change_is_still_there(entry: dict[str, object]) -> None:
    file = ROOT / str(entry["file"])
    there = {(one.line, one.what) for one in changes(str(entry["file"]), file.read_text(encoding="utf-8"))}
    assert {(entry["line"], change) for change in entry["changes"]} <= there  # type: ignore[attr-defined]
    assert str(entry["reason"]).strip()


def test_changed_files_still_compile() -> None:
    file = ROOT / "jetbridge/pci/pool.py"
    for change in changes("jetbridge/pci/pool.py", file.read_text(encoding="utf-8")):
        ast.parse(change.source)
