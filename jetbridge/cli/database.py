"""jetbridge sql, db: the database, without the service."""

from __future__ import annotations

from typing import Annotated

import typer

from jetbridge.cli.failures import NOT_FOUND, CliError
from jetbridge.cli.options import ConfigFile, DatabaseUrl, Json, StateDir, state_dir_or_default

db = typer.Typer(no_args_is_help=True, help="Look after the database.")


def sql(
    query: Annotated[str, typer.Argument(help="One SELECT, WITH or EXPLAIN.", metavar="QUERY")],
    as_json: Json = False,
    config_file: ConfigFile = None,
    database: DatabaseUrl = None,
    state_dir: StateDir = None,
) -> None:
    """Run one query on the database. It can only read.

    Tables and columns have the names operators know; the prefixes [bold]nova.[/bold] and
    [bold]nova_api.[/bold] may stay.

    [bold]Examples[/bold]

      jetbridge sql "SELECT address, status, dev_type, vendor_id, product_id FROM nova.pci_devices WHERE deleted=0"

      jetbridge sql "SELECT spec FROM nova_api.request_specs WHERE instance_uuid='$UUID'"
    """
    from jetbridge.cli.configuration import database_url, settings_of
    from jetbridge.cli.output import print_json, print_table
    from jetbridge.db.sql import run_query

    folder = state_dir_or_default(state_dir)
    settings = settings_of(config_file, database)
    url = database_url(settings, folder)
    if settings.database_connection is None and not (folder / "jetbridge.sqlite3").is_file():
        raise CliError(
            f"there is no database in {folder}: `jetbridge up` makes one, --state-dir names another folder. That of services as processes of"
            " their own is named by their options: give their --config-file",
            NOT_FOUND,
        )
    result = run_query(url, query)
    if as_json:
        print_json([dict(zip(result.columns, map(_plain, row), strict=True)) for row in result.rows])
        return
    print_table(result.columns, result.rows, empty="no rows")


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


@db.command()
def upgrade(
    as_json: Json = False,
    config_file: ConfigFile = None,
    database: DatabaseUrl = None,
    state_dir: StateDir = None,
) -> None:
    """Bring the database to the schema of this version, keeping what is in it.

    `jetbridge up` does so by itself when it starts.

    [bold]Examples[/bold]

      jetbridge db upgrade --state-dir /var/lib/jetbridge

      jetbridge db upgrade --config-file /etc/jetbridge/jetbridge.conf
    """
    from jetbridge.cli.configuration import database_url, settings_of
    from jetbridge.cli.output import print_json
    from jetbridge.db.engine import Database

    folder = state_dir_or_default(state_dir)
    settings = settings_of(config_file, database)
    url = database_url(settings, folder)
    if settings.database_connection is None:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise CliError(f"{folder}: {error.strerror}") from None
    opened = Database(url)
    try:
        changed = opened.upgrade()
    finally:
        opened.close()
    if as_json:
        print_json({"database": opened.shown_url, "upgraded": changed})
    else:
        name = opened.url.database if opened.is_sqlite else opened.shown_url
        typer.echo(f"{name}: {'upgraded' if changed else 'is up to date'}")
