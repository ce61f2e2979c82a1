"""jetbridge up: the whole service in one process."""

from __future__ import annotations

import gc
import shlex
from pathlib import Path
from typing import Annotated

import typer

from jetbridge.cli.options import ConfigFile, DatabaseUrl, StateDir, state_dir_or_default
from jetbridge.cli.stop_signal import StopSignal, leave
from jetbridge.reasons import counted

DEFAULT_PORT = 8774
PLACEMENT_PORT = 8778
DRAIN_SECONDS = 30.0
"""As the bus has it (``rpc.inprocess``), which is only imported by what serves."""


def parse_port(text: str | int) -> int:
    # Typer's own message for a wrong number leaves out which one it was.
    if not str(text).isdecimal() or int(text) > 65535:
        raise typer.BadParameter(f"{text!r} is no port: write a number from 1 to 65535, or 0 for a free one")
    return int(text)


def free_or(port: int, placement_port: int | None) -> int:
    """Placement's port: as given, or a free one beside a free one."""
    if placement_port is not None:
        return placement_port
    return PLACEMENT_PORT if port else 0


def up(
    config_file: ConfigFile = None,
    fleet: Annotated[
        Path | None, typer.Option("--fleet", help="Simulate the hosts of this fleet file.", show_default="this machine")
    ] = None,
    state_dir: StateDir = None,
    listen: Annotated[
        str,
        typer.Option("--listen", help="Address to serve on. Any but loopback needs \\[api]auth_strategy=http_basic."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", parser=parse_port, metavar="PORT", help="Port to serve on; 0 takes a free one.")
    ] = DEFAULT_PORT,
    placement_port: Annotated[
        int | None,
        typer.Option(
            "--placement-port",
            parser=parse_port,
            metavar="PORT",
            help="Port of the embedded Placement; 0 takes a free one.",
            show_default=f"{PLACEMENT_PORT}, or a free one with --port 0",
        ),
    ] = None,
    database: DatabaseUrl = None,
) -> None:
    """Serve: API, conductor, scheduler and the agents of all hosts, in one process.

    Placement runs beside it as a process of its own, unless \\[placement] names
    another one. Without --fleet it manages this machine through libvirt. State (database,
    log, images, clouds.yaml) is kept in the state folder. Prints a line to
    paste for `openstack`, then [bold]ready URL[/bold]. SIGTERM or Ctrl-C stops it.

    [bold]Examples[/bold]

      jetbridge up --fleet fleet.yaml

      jetbridge up --config-file /etc/nova/nova.conf

      jetbridge up --config-file jetbridge.conf --listen 0.0.0.0
    """
    # Signals first: one that comes while the service starts must stop it as cleanly as later ones.
    stop = StopSignal()
    from jetbridge.cli.configuration import settings_of
    from jetbridge.cli.output import log_warnings_shown, note
    from jetbridge.config.fleet import load_fleet
    from jetbridge.service.allinone import AllInOne

    settings = settings_of(config_file, database)
    folder = state_dir_or_default(state_dir)
    service = AllInOne(
        settings,
        load_fleet(fleet) if fleet else None,
        folder,
        listen,
        port,
        placement_port=free_or(port, placement_port),
    )
    with log_warnings_shown(service.state.log):
        base_url = service.start()
    try:
        if settings.auth_strategy == "http_basic":
            note(f"clients need OS_USERNAME and OS_PASSWORD too, of a user in {settings.http_basic_auth_user_file}")
        typer.echo(f"export OS_CLIENT_CONFIG_FILE={shlex.quote(str(folder / 'clouds.yaml'))} OS_CLOUD=jetbridge")
        typer.echo(f"ready {base_url}")
        stop.wait()
        note(stopping(service.builds_under_way()))
    finally:
        service.stop()
    note("stopped")
    leave(at_once=service.left_behind)
    gc.freeze()  # else the interpreter looks through all objects several times before it ends: seconds


def stopping(builds: int) -> str:
    """What is said while the service stops: it may take a while, and a second Ctrl-C would leave builds half done."""
    if not builds:
        return "stopping"
    return f"stopping: waiting for {counted(builds, 'build')} (at most {DRAIN_SECONDS:g} s)"
