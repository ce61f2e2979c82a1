"""Column types that mean the same on every database.

* Text compares and sorts by its bytes, letter case and trailing blanks included. PostgreSQL sorts by the locale of the database otherwise;
  MariaDB gets its collation from the database (``migrations.runner``).
* Long text holds up to 16 MiB: MariaDB's TEXT ends at 64 KiB, which the JSON of a large host exceeds.
* Times have microseconds: MariaDB's DATETIME has whole seconds otherwise.

Migrations use these too: what a type makes of a column must not change any more.
"""

from __future__ import annotations

from sqlalchemy import DateTime, String, Text
from sqlalchemy.dialects import mysql, postgresql

MARIADB = ("mysql", "mariadb")
MARIADB_COLLATION = "utf8mb4_nopad_bin"
POSTGRESQL_COLLATION = "C"


def short_text(length: int) -> String:
    """At most ``length`` characters."""
    return String(length).with_variant(postgresql.VARCHAR(length, collation=POSTGRESQL_COLLATION), "postgresql")


def long_text() -> Text:
    return (
        Text()
        .with_variant(mysql.MEDIUMTEXT(), *MARIADB)
        .with_variant(postgresql.TEXT(collation=POSTGRESQL_COLLATION), "postgresql")
    )


def moment() -> DateTime:
    """UTC without zone, with microseconds."""
    return DateTime().with_variant(mysql.DATETIME(fsp=6), *MARIADB)
