"""jetbridge status, version."""

from __future__ import annotations

import typer

from jetbridge import __version__
from jetbridge.cli.options import Json, Password, ServiceStateDir, Url, User


def version(as_json: Json = False) -> None:
    """Print the version of this program."""
    from jetbridge.cli.output import print_json

    if as_json:
        print_json({"jetbridge": __version__})
    else:
        typer.echo(f"jetbridge {__version__}")


def status(
    as_json: Json = False,
    url: Url = None,
    state_dir: ServiceStateDir = None,
    user: User = None,
    password: Password = None,
) -> None:
    """Tell how the service is doing.

    Hosts up and down, whether Placement answers, devices and servers by state, discovery that fails.

    [bold]Examples[/bold]

      jetbridge status

      jetbridge status --json | jq .hosts.down
    """
    from jetbridge.cli.client import connect
    from jetbridge.cli.output import cell, console, print_json
    from jetbridge.reasons import counted

    client = connect(url, state_dir, user, password)
    answer = client.get("/jetbridge/v1/status")
    if as_json:
        print_json({"url": client.base, **answer})
        return
    out = console()
    out.print(f"{client.base}: jetbridge {answer['version']}", style="bold", markup=False)
    out.print(f"database {answer['database']}", markup=False)
    for service in answer["services"]:
        down = service["state"] == "down"
        seen = f", last seen {service['last_seen_up'] or 'never'}" if down else ""
        out.print(f"{service['binary']} on {service['host']}: {service['state']}{seen}", style="red" if down else None)
    hosts = answer["hosts"]
    unreported = f", {hosts['not_reported']} not reported to Placement yet" if hosts["not_reported"] else ""
    out.print(f"hosts    {hosts['up']} up, {hosts['down']} down{unreported}", style="red" if hosts["down"] else None)
    placement = answer["placement"]
    told = f"{counted(placement['reported'], 'host')} reported, {placement['waiting']} waiting to be reported"
    where = placement["error"] or (f"{placement['url']} answers" if placement["url"] else "not asked by this service")
    away = placement["answers"] is False
    out.print(f"placement {where}; {told}", style="red" if away else None, markup=False)
    hidden = answer["devices_of_down_hosts"]
    out.print(
        f"devices  {cell(answer['devices'])}" + (f"; {hidden} more on hosts that are down" if hidden else ""),
        markup=False,
    )
    out.print(f"servers  {cell(answer['servers'])}", markup=False)
    out.print(f"aliases  {cell(answer['aliases'])}", markup=False)
    for host, error in answer["probe_errors"].items():
        out.print(f"{host}: discovery fails, its devices are unknown: {error}", style="red", markup=False)
    for host, error in answer["report_errors"].items():
        out.print(f"{host}: its report to Placement fails: {error}", style="red", markup=False)
