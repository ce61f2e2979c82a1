from __future__ import annotations

import pytest

from jetbridge.db.url import parse, shown, without_password
from jetbridge.errors import DatabaseUnusable


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        ("postgresql://u@h/d", "postgresql+psycopg"),
        ("postgres://u@h/d", "postgresql+psycopg"),
        ("postgresql+psycopg2://u@h/d", "postgresql+psycopg"),  # as other services' files have it
        ("mysql+pymysql://u@h/d", "mariadb+pymysql"),
        ("mysql+mysqldb://u@h/d", "mariadb+pymysql"),
        ("mariadb://u@h/d", "mariadb+pymysql"),
        (" sqlite:////x/y.sqlite3\n", "sqlite"),
    ],
)
def test_the_kind_of_database_is_enough(text: str, driver: str) -> None:
    assert parse(text).drivername == driver


def test_names_on_their_way_to_mariadb_are_never_mangled() -> None:
    assert parse("mysql+pymysql://u@h/d?charset=utf8").query["charset"] == "utf8mb4"


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("postgresql://u:secret@h:5433/d", "postgresql://u:***@h:5433/d"),
        ("postgresql://u@h/d?password=secret&sslmode=require", "postgresql://u@h/d?password=***&sslmode=require"),
        ("mariadb://u:sec%40ret@h/d", "mariadb://u:***@h/d"),
        ("sqlite:////x/y.sqlite3", "sqlite:////x/y.sqlite3"),
    ],
)
def test_a_password_is_not_shown(text: str, public: str) -> None:
    assert shown(parse(text)) == public


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:secret@h/d",
        "postgresql://u:se@secret/x@h/d",
        "postgresql://u:secret:secret@h",
        "u:secret@h",
        "nonsense://h/d?sslpassword=secret",
        " postgresql+x://u:secret@h/d",
        "postgresql://u:\nsecret@h/d",
    ],
)
def test_nor_one_in_a_text_that_is_no_url(text: str) -> None:
    assert "secret" not in without_password(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("postgresql://u:pass@secret@h/d", "write / as %2F and @ as %40"),
        ("postgresql://u:secret@h", "it names no database"),
        ("mssql+pyodbc://u:secret@h/d", "mssql is not supported"),
        ("postgresql://u:secret@h:port/d", "not a database URL"),
    ],
)
def test_what_is_wrong_with_a_url_is_said_without_its_password(text: str, said: str) -> None:
    with pytest.raises(DatabaseUnusable, match=said) as caught:
        parse(text)
    assert "secret" not in str(caught.value)
    assert "secret" not in str(caught.value.__cause__)
