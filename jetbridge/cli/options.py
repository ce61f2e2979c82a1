"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def default_state_dir() -> Path:
    """~/.local/state/jetbridge, or below XDG_STATE_HOME where that is set (XDG Base Directory Specification)."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "jetbridge"


def state_dir_or_default(state_dir: Path | None) -> Path:
    return (state_dir or default_state_dir()).absolute()


_SERVICE = "Which service"

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        envvar="JETBRIDGE_STATE_DIR",
        help="Folder of the service's state.",
        show_default="~/.local/state/jetbridge",
    ),
]
ConfigFile = Annotated[
    list[Path] | None,
    typer.Option(
        "--config-file",
        envvar="JETBRIDGE_CONFIG_FILE",
        help="Configuration, also an existing nova.conf. Can be repeated; later files win.",
        show_default=False,
    ),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database",
        envvar="JETBRIDGE_DATABASE",
        metavar="URL",
        help="Instead of \\[database]connection. With a password better given by the variable: others can read a command line.",
        show_default="STATE-DIR/jetbridge.sqlite3",
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="JETBRIDGE_URL",
        help="Address of the service.",
        show_default="from STATE-DIR/clouds.yaml",
        rich_help_panel=_SERVICE,
    ),
]
ServiceStateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        envvar="JETBRIDGE_STATE_DIR",
        help="Where to look for clouds.yaml when no --url is given.",
        show_default="~/.local/state/jetbridge",
        rich_help_panel=_SERVICE,
    ),
]
User = Annotated[
    str | None, typer.Option("--user", envvar="JETBRIDGE_USER", help="User for http_basic.", rich_help_panel=_SERVICE)
]
Password = Annotated[
    str | None,
    typer.Option(
        "--password",
        envvar="JETBRIDGE_PASSWORD",
        help="Password for http_basic (better given by the variable).",
        rich_help_panel=_SERVICE,
    ),
]
