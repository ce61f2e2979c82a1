"""One query by hand, read only: what ``jetbridge sql`` runs.

The prefixes ``nova.`` and ``nova_api.`` of tables are dropped, so that queries operators have written down run as they are; no other database
is ever reached.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from jetbridge.db.engine import Database
from jetbridge.db.retry import first_line
from jetbridge.db.schema import metadata
from jetbridge.db.url import parse
from jetbridge.errors import DatabaseUnusable, InvalidQuery

READING_WORDS = ("SELECT", "WITH", "EXPLAIN")

# Literals, quoted identifiers and comments are taken whole: nothing in them is looked at.
_PIECES = re.compile(
    r"""
      (?P<literal> '(?:[^']|'')*' )
    | (?P<quoted>  "(?:[^"]|"")*" | `(?:[^`]|``)*` )
    | (?P<comment> --[^\n]* | /\*.*?\*/ )
    | (?P<end>     ; )
    | (?P<open>    ['"`] | /\* )
    | (?P<code>    (?:(?!--|/\*)[^'"`;])+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_PREFIX = re.compile(r"(?<![\w.$])(?:nova_api|nova)\s*\.\s*(?=[\w\"`*])", re.IGNORECASE)
_QUOTED_PREFIX = re.compile(r"(?<![\w.$])([\"`])(?:nova_api|nova)\1\s*\.\s*(?=[\w\"`])", re.IGNORECASE)


@dataclass(frozen=True)
class QueryResult:
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class _Piece:
    kind: Literal["literal", "quoted", "comment", "end", "code"]
    text: str


def run_query(url: str, query: str) -> QueryResult:
    """Run one reading query on the database at ``url`` (SQLAlchemy's form).

    Raises ``InvalidQuery`` for anything but a single SELECT, WITH or EXPLAIN and for what the database refuses, ``DatabaseUnusable`` when the
    database can't be opened.
    """
    text = prepared(query)
    parsed = parse(url)
    if parsed.get_backend_name() == "sqlite":
        return _run_on_sqlite(parsed, text)
    return _run_on_server(url, text)


def prepared(query: str) -> str:
    """The query as it is run: checked, without its final semicolon, table prefixes dropped. Raises ``InvalidQuery``."""
    pieces = list(_pieces(query))
    code = [piece for piece in pieces if piece.kind != "comment" and piece.text.strip()]
    while code and code[-1].kind == "end":
        code.pop()
    if not code:
        raise InvalidQuery(reason="it is empty; write for example SELECT address, status FROM pci_devices")
    if any(piece.kind == "end" for piece in code):
        raise InvalidQuery(reason="it holds more than one statement; run them one by one")
    word = re.match(r"[\s(]*(\w*)", code[0].text)
    first = word[1].upper() if word else ""
    if code[0].kind != "code" or first not in READING_WORDS:
        raise InvalidQuery(
            reason=f"it begins with {first or code[0].text.strip()!r}; only {', '.join(READING_WORDS)} are run, since jetbridge sql "
            "never changes anything"
        )
    if any(piece.kind == "code" and re.search(r"\binto\s+(outfile|dumpfile)\b", piece.text, re.I) for piece in code):
        raise InvalidQuery(reason="INTO OUTFILE writes a file; let the shell redirect the output instead")
    if any(piece.kind == "comment" and re.match(r"/\*M?!", piece.text) for piece in pieces):
        raise InvalidQuery(reason="MariaDB runs what stands in comments like /*! */; write it without")
    return _without_prefixes([piece for piece in pieces if piece.kind != "end"])


def _pieces(query: str) -> Iterator[_Piece]:
    for match in _PIECES.finditer(query):
        kind = match.lastgroup
        if kind == "open":
            raise InvalidQuery(reason=f"{match[0]} at character {match.start() + 1} is never closed")
        yield _Piece(kind, match[0])  # type: ignore[arg-type]


def _without_prefixes(pieces: Sequence[_Piece]) -> str:
    # Prefix and table may be quoted each for itself, so they can lie in different pieces: literals and comments are
    # replaced by marks, the whole is rewritten, and the marks are filled in again.
    kept: list[str] = []
    text = ""
    for piece in pieces:
        if piece.kind in ("literal", "comment"):
            text += f"\0{len(kept)}\0"
            kept.append(piece.text)
        else:
            text += piece.text.replace("\0", "")
    text = _QUOTED_PREFIX.sub("", _PREFIX.sub("", text))
    return re.sub("\0(\\d+)\0", lambda match: kept[int(match[1])], text).strip()


def _run_on_sqlite(url: URL, query: str) -> QueryResult:
    path = Path(url.database or "")
    if not path.is_file():
        raise DatabaseUnusable(
            url=str(url), reason="the file does not exist; name the state folder of a Jetbridge that was started before"
        )
    with contextlib.closing(_opened_for_reading(url, path)) as connection:
        try:
            return _result(connection.execute(query))
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise InvalidQuery(reason=_explained(str(error), query)) from error


def _opened_for_reading(url: URL, path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=5.0)
    try:
        connection.execute("PRAGMA schema_version")  # the file is opened only when it is asked something
    except sqlite3.Error as error:
        connection.close()
        raise DatabaseUnusable(url=str(url), reason=str(error)) from error
    return connection


def _run_on_server(url: str, query: str) -> QueryResult:
    # A reader's connection: both servers refuse changes in its transactions, those of functions too.
    database = Database(url)
    try:
        with database.read_once() as connection:
            driver = connection.connection.cursor()
            try:
                if database.kind == "postgresql":
                    # As a prepared statement it can't be more than one, whatever the text makes us believe.
                    driver.execute(query, prepare=True)  # type: ignore[call-arg]
                else:
                    driver.execute(query)
                return _result(driver)
            except connection.dialect.loaded_dbapi.Error as error:
                raise InvalidQuery(reason=_explained(_said(error), query)) from error
            finally:
                driver.close()
    except DBAPIError as error:
        raise DatabaseUnusable(url=database.shown_url, reason=first_line(error)) from error
    finally:
        database.close()


def _said(error: Exception) -> str:
    # PyMySQL's errors are a number and a text; psycopg's text goes on with the place in the query.
    text = error.args[1] if len(error.args) == 2 else str(error)
    return str(text).splitlines()[0]


def _result(cursor: Any) -> QueryResult:
    columns = tuple(str(column[0]) for column in cursor.description or ())
    return QueryResult(columns, tuple(tuple(row) for row in cursor.fetchall()))


_READ_ONLY = re.compile(r"readonly database|read-only transaction|READ ONLY transaction")
_NO_TABLE = re.compile(
    r"no such table: (?:\w+\.)?(\w+)|relation \"(?:\w+\.)?(\w+)\" does not|Table '(?:[^'.]+\.)?(\w+)' doesn't"
)
_NO_COLUMN = re.compile(
    r"no such column: (?:\w+\.)*(\w+)|column \"?(?:\w+\.)*(\w+)\"? does not|Unknown column '(?:\w+\.)*(\w+)'"
)


def _explained(message: str, query: str) -> str:
    if _READ_ONLY.search(message):
        return "it would change the database, and jetbridge sql never changes anything"
    table = _NO_TABLE.search(message)
    if table:
        return f"{message}; {_nearest(table[table.lastindex or 0], metadata.tables, 'the tables are')}"
    column = _NO_COLUMN.search(message)
    if column:
        return message + _columns(column[column.lastindex or 0], query)
    return message


def _columns(word: str, query: str) -> str:
    """The column that was meant, and those of the tables that the query names."""
    words = set(re.findall(r"\w+", query.lower()))
    asked = {name: table.columns.keys() for name, table in metadata.tables.items() if name in words}
    names = {column for columns in asked.values() for column in columns}
    near = difflib.get_close_matches(word, sorted(names), n=1)
    text = f"; did you mean {near[0]}?" if near else ""
    return text + "".join(
        f"; the columns of {name} are {', '.join(columns)}" for name, columns in sorted(asked.items())
    )


def _nearest(word: str, known: Any, otherwise: str) -> str:
    near = difflib.get_close_matches(word, sorted(known), n=1)
    return f"did you mean {near[0]}?" if near else f"{otherwise} {', '.join(sorted(known))}"
