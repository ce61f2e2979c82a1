"""docs/reference.md lists every error as the program knows it."""

from __future__ import annotations

from pathlib import Path

from jetbridge import errors
from jetbridge.errors import JetbridgeError

REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"


def error_table() -> str:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, JetbridgeError)]
    lines = ["| code | HTTP | message |", "|---|---|---|"]
    for kind in sorted(kinds, key=lambda kind: kind.__name__):
        message = kind.template.replace("|", "\\|")
        lines.append(f"| `{kind.__name__}` | {kind.http_status} | {message} |")
    return "\n".join(lines)


def test_every_error_is_documented() -> None:
    assert error_table() in REFERENCE.read_text(), "docs/reference.md, Errors, should read:\n\n" + error_table()


def test_an_error_is_made_of_its_facts_or_of_one_message() -> None:
    made = errors.PciDeviceInvalidStatus(node_id=1, address="0000:3b:00.0", status="claimed", wanted="available")
    assert str(made) == "PCI device 1:0000:3b:00.0 is claimed instead of available"
    assert (made.code, made.http_status, made.facts["status"]) == ("PciDeviceInvalidStatus", 400, "claimed")
    assert str(errors.Conflict("taken")) == "taken"
