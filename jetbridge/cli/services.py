"""jetbridge api, conductor, scheduler, compute: the services as processes of their own."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jetbridge.cli.options import StateDir, state_dir_or_default
from jetbridge.cli.stop_signal import StopSignal, leave
from jetbridge.cli.up import DEFAULT_PORT, PLACEMENT_PORT, parse_port

if TYPE_CHECKING:
    from jetbridge.config.fleet import Fleet
    from jetbridge.config.settings import Settings
    from jetbridge.service.process import Process

ConfigFile = Annotated[
    list[Path] | None,
    typer.Option(
        "--config-file", help="Configuration; a jetbridge.conf has to say [DEFAULT]transport_url. Can be repeated."
    ),
]
FleetFile = Annotated[
    Path | None, typer.Option("--fleet", help="The simulated fleet all services serve.", show_default="real hosts")
]


def api(
    config_file: ConfigFile = None,
    fleet: FleetFile = None,
    state_dir: StateDir = None,
    listen: Annotated[
        str,
        typer.Option("--listen", help="Address to serve on. Any but loopback needs \\[api]auth_strategy=http_basic."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", parser=parse_port, metavar="PORT", help="Port to serve on; 0 takes a free one.")
    ] = DEFAULT_PORT,
) -> None:
    """Serve the HTTP APIs alone; the other services are reached over RabbitMQ.

    Prints [bold]ready URL[/bold]. SIGTERM or Ctrl-C stops it.

    [bold]Examples[/bold]

      jetbridge api --config-file /etc/jetbridge/jetbridge.conf
    """
    stop = StopSignal()
    from jetbridge.service.api import ApiProcess

    settings, loaded = _load(config_file, fleet)
    _serve(ApiProcess(settings, loaded, state_dir_or_default(state_dir), listen, port), stop)


def conductor(config_file: ConfigFile = None, fleet: FleetFile = None, state_dir: StateDir = None) -> None:
    """Serve as a conductor: who builds and deletes what next.

    Several share the work, on one machine or on many. SIGTERM stops it.

    [bold]Examples[/bold]

      jetbridge conductor --config-file /etc/jetbridge/jetbridge.conf
    """
    stop = StopSignal()
    from jetbridge.service.conductor import ConductorProcess

    settings, loaded = _load(config_file, fleet)
    _serve(ConductorProcess(settings, loaded, state_dir_or_default(state_dir)), stop)


def scheduler(config_file: ConfigFile = None, fleet: FleetFile = None, state_dir: StateDir = None) -> None:
    """Serve as a scheduler: which host a server goes to.

    Several share the work, on one machine or on many. SIGTERM stops it.

    [bold]Examples[/bold]

      jetbridge scheduler --config-file /etc/jetbridge/jetbridge.conf
    """
    stop = StopSignal()
    from jetbridge.service.scheduler import SchedulerProcess

    settings, loaded = _load(config_file, fleet)
    _serve(SchedulerProcess(settings, loaded, state_dir_or_default(state_dir)), stop)


def compute(
    config_file: ConfigFile = None,
    fleet: FleetFile = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            help="Of the fleet only this host, or those of a pattern such as 'gpu0*'. Can be repeated.",
            show_default="all",
        ),
    ] = None,
    state_dir: StateDir = None,
) -> None:
    """Serve as the agent of this machine, or of hosts of a simulated fleet.

    SIGTERM stops it, SIGHUP reads the fleet file again.

    [bold]Examples[/bold]

      jetbridge compute --config-file /etc/nova/nova.conf --config-file /etc/jetbridge/jetbridge.conf

      jetbridge compute --config-file jetbridge.conf --fleet fleet.yaml --host 'gpu0*'
    """
    stop = StopSignal()
    from jetbridge.service.compute import ComputeProcess

    settings, loaded = _load(config_file, fleet)
    process = ComputeProcess(settings, loaded, state_dir_or_default(state_dir), host or ())
    # Reading takes a while and asks the database: nothing for a signal handler.
    signal.signal(signal.SIGHUP, lambda number, frame: threading.Thread(target=process.reload, name="reload").start())
    _serve(process, stop)


def placement(
    config_file: ConfigFile = None,
    state_dir: StateDir = None,
    listen: Annotated[
        str,
        typer.Option("--listen", help="Address to serve on. Any but loopback needs \\[api]auth_strategy=http_basic."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", parser=parse_port, metavar="PORT", help="Port to serve on; 0 takes a free one.")
    ] = PLACEMENT_PORT,
) -> None:
    """Serve Placement alone, for services as processes of their own.

    One for all of them; its state is placement.sqlite3 in the state folder.
    `jetbridge up` runs one by itself, and whoever has a Placement needs none.
    Prints [bold]ready URL[/bold], for \\[placement]endpoint_override of the others.
    SIGTERM or Ctrl-C stops it.

    [bold]Examples[/bold]

      jetbridge placement --state-dir /var/lib/jetbridge
    """
    stop = StopSignal()
    from jetbridge.service.placement_process import PlacementProcess

    settings, _ = _load(config_file, None)
    _serve(PlacementProcess(settings, state_dir_or_default(state_dir), listen, port), stop)


def _load(config_file: list[Path] | None, fleet: Path | None) -> tuple[Settings, Fleet | None]:
    from jetbridge.cli.output import warn
    from jetbridge.config.fleet import load_fleet
    from jetbridge.config.load import load_settings

    loaded = load_settings(config_file or [])
    for warning in loaded.warnings:
        warn(warning)
    return loaded.settings, load_fleet(fleet) if fleet else None


def _serve(process: Process, stop: StopSignal) -> None:
    from jetbridge.cli.output import log_warnings_shown

    with log_warnings_shown(f"the logs in {process.state.path}"):
        where = process.start()
    try:
        typer.echo(f"ready {where}")
        stop.wait()
    finally:
        process.stop()
    leave(at_once=process.left_behind)
