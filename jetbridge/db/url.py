"""Database URLs as operators write them, and as they may be shown."""

from __future__ import annotations

import re
from urllib.parse import unquote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from jetbridge.errors import DatabaseUnusable

EXAMPLES = (
    "write sqlite:////path/to/file, postgresql://user:password@host/database or mariadb://user:password@host/database"
)

# To the driver that is installed, whichever a URL of another service names.
DRIVERS = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mariadb+pymysql",
    "mariadb": "mariadb+pymysql",
}
_SECRET_KEYS = re.compile(r"pass|secret|token", re.IGNORECASE)


def parse(text: str) -> URL:
    """The URL, with the driver that is used for its kind of database. Raises ``DatabaseUnusable``."""
    try:
        url = make_url(text.strip())
        url = url.set(drivername=DRIVERS.get(url.drivername.partition("+")[0], url.drivername))
        url.get_dialect()
    except NoSuchModuleError as error:
        kind = text.strip().partition(":")[0]
        raise DatabaseUnusable(
            url=without_password(text), reason=f"unknown kind of database {kind!r}; {EXAMPLES}"
        ) from error
    except (ArgumentError, ValueError) as error:
        raise DatabaseUnusable(url=without_password(text), reason=f"not a database URL; {EXAMPLES}") from _without_text(
            error
        )
    kind = url.get_backend_name()
    if kind == "sqlite":
        return _checked_file(url)
    if kind not in ("postgresql", "mariadb"):
        raise DatabaseUnusable(url=without_password(text), reason=f"{kind} is not supported; {EXAMPLES}")
    if "@" in (url.host or "") or "/" in (url.database or ""):
        raise DatabaseUnusable(
            url=without_password(text),
            reason="host or database can't be told from the password; write / as %2F and @ as %40 in user and password",
        )
    if not url.database:
        raise DatabaseUnusable(url=shown(url), reason=f"it names no database; {EXAMPLES}")
    if kind == "mariadb":
        # The tables are utf8mb4; with a smaller character set on the way names would be mangled.
        url = url.update_query_dict({"charset": "utf8mb4"})
    return url


def shown(url: URL) -> str:
    """For messages: without password, and without those among the parameters."""
    hidden = {key: "***" for key in url.query if _SECRET_KEYS.search(key)}
    public = url.update_query_dict(hidden).difference_update_query(["charset"])
    address, mark, parameters = public.render_as_string(hide_password=True).partition("?")
    return re.sub(r"^(\w+)\+\w+", r"\1", address) + mark + unquote(parameters)


def without_password(text: str) -> str:
    """Any text that was meant as a URL, fit to be shown: what stands between the first colon of its address and its last @ is left out,
    since a password may hold any of the characters that divide a URL."""
    shortened = re.sub(r"^(\s*[\w+.-]+://)?([^:@]*):.*@", r"\1\2:***@", text, flags=re.DOTALL)
    return re.sub(r"([?&][^=&]*(?:pass|secret|token)[^=&]*=)[^&]*", r"\1***", shortened, flags=re.IGNORECASE)


def _checked_file(url: URL) -> URL:
    if url.database in (None, "", ":memory:"):
        raise DatabaseUnusable(
            url=str(url),
            reason="an SQLite database needs a file, since several connections share it; write sqlite:////path",
        )
    return url


def _without_text(error: Exception) -> Exception | None:
    # SQLAlchemy's own message repeats the text, password and all, and would be logged as the cause.
    return None if isinstance(error, ArgumentError) else error
