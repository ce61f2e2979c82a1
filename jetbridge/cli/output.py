"""What commands print: tables for people, JSON for scripts. Colours only on a terminal (and never with NO_COLOR)."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 10_000
"""A table that is piped is never cut or wrapped: `grep` and `awk` see whole lines."""

WARNINGS_SHOWN = 10

STYLES = {
    "available": "green",
    "active": "green",
    "up": "green",
    "ok": "green",
    "claimed": "yellow",
    "building": "yellow",
    "cleaning": "yellow",
    "allocated": "cyan",
    "unavailable": "dim",
    "unclaimable": "dim",
    "stopped": "dim",
    "unknown": "red",
    "lost": "red",
    "error": "bold red",
    "down": "bold red",
    "disabled": "red",
}

SEAM_STYLES = {"CAST": "magenta", "CALL": "blue", "REST": "yellow", "LIBRARY": "cyan"}


def console() -> Console:
    """Standard output."""
    from rich.console import Console

    return Console(
        width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False, soft_wrap=not sys.stdout.isatty()
    )


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """``empty`` is said (on stderr) instead of a table without rows."""
    lines = [[cell(value) for value in row] for row in rows]
    if not lines:
        print(empty, file=sys.stderr)
        return
    if not sys.stdout.isatty():
        sys.stdout.write(plain_table(columns, lines))
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for line in lines:
        table.add_row(*(Text(text, style=STYLES.get(text.lower(), "")) for text in line))
    console().print(table)


def plain_table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Aligned columns, two blanks apart, one line per row."""
    widths = [max(len(line[at]) for line in [columns, *lines]) for at in range(len(columns))]
    return "".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() + "\n"
        for line in [columns, *lines]
    )


def cell(value: Any) -> str:
    """A value as it stands in a table: nothing for None, ``key=value`` for mappings. On one line, without control characters."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        text = ", ".join(f"{key}={item}" for key, item in value.items()) or "-"
    elif isinstance(value, list | tuple):
        text = ", ".join(str(item) for item in value) or "-"
    else:
        text = str(value)
    return "".join(character if character.isprintable() else " " for character in text)


def warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def note(message: str) -> None:
    print(f"note: {message}", file=sys.stderr)


@contextlib.contextmanager
def log_warnings_shown(log: object) -> Iterator[None]:
    """What the program warns about meanwhile also goes to the terminal: whoever starts a service sees a misspelt key of a
    device_spec there, and not only in ``log``. After ten it is left to the log."""
    handler = _Terminal(logging.WARNING)
    logger = logging.getLogger("jetbridge")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        if handler.count > WARNINGS_SHOWN:
            warn(f"{handler.count - WARNINGS_SHOWN} more warnings are in {log}")


class _Terminal(logging.Handler):
    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        if self.count <= WARNINGS_SHOWN:
            warn(record.getMessage())
