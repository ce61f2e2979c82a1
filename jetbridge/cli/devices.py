"""jetbridge devices: what can be given to servers, and who has it; and how a used one comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from jetbridge.cli import completion
from jetbridge.cli.options import Json, Password, ServiceStateDir, Url, User

Host = Annotated[
    str | None,
    typer.Option("--host", help="Only this host.", autocompletion=completion.hosts, show_default="all hosts"),
]

devices = typer.Typer(invoke_without_command=True)


@devices.callback()
def listing(
    context: typer.Context,
    host: Host = None,
    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            help="Only in this status (available, claimed, allocated, ...) or condition (cleaning, held, unknown, lost, ...).",
            autocompletion=completion.statuses,
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option("--server", help="Only those of this server (id or name).", autocompletion=completion.servers),
    ] = None,
    as_json: Json = False,
    url: Url = None,
    state_dir: ServiceStateDir = None,
    user: User = None,
    password: Password = None,
) -> None:
    """List the devices that can be given to servers, and who has them.

    A device is [green]available[/green], [yellow]claimed[/yellow] while a build lands on it,
    [cyan]allocated[/cyan] once its server runs; [dim]unavailable[/dim] while another function
    of its card is in use. A device that waits to be cleaned is offered to nobody.

    [bold]Examples[/bold]

      jetbridge devices --host gpu001

      jetbridge devices --status allocated --json | jq -r '.[].address'
    """
    if context.invoked_subcommand is not None:
        return
    from jetbridge.cli.client import connect
    from jetbridge.cli.output import print_json, print_table

    client = connect(url, state_dir, user, password)
    found = client.get("/jetbridge/v1/devices", host=host, status=status, server=server)["devices"]
    if as_json:
        print_json(found)
        return
    columns = ("HOST", "ADDRESS", "VENDOR:PRODUCT", "TYPE", "NUMA", "STATUS", "SERVER", "TAGS")
    rows = [
        (
            each["host"],
            each["address"],
            f"{each['vendor_id']}:{each['product_id']}",
            each["dev_type"],
            each["numa_node"],
            shown_status(each),
            each["server_name"] or each["instance_uuid"],
            shown_tags(each["tags"]),
        )
        for each in found
    ]
    print_table(columns, rows, empty=_nothing(host or status or server))
    for each in found:
        note = cleaning_note(each)
        if note:
            typer.echo(f"{each['host']} {each['address']}: {note}")


def shown_tags(tags: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without the one that every function of an SR-IOV card has unless it is told otherwise."""
    return {tag: value for tag, value in tags.items() if (tag, value) != ("remote_managed", "false")}


def shown_status(device: Mapping[str, Any]) -> str:
    """The status, or the condition that keeps a device from being offered."""
    condition = "used" if device["condition"] == "ok" and device["used"] else device["condition"]
    return str(device["status"]) if condition == "ok" else f"{device['status']} ({condition})"


def cleaning_note(device: Mapping[str, Any]) -> str | None:
    """What is known of a device that waits to be cleaned."""
    if device["condition"] != "cleaning" and not device["used"]:
        return None
    clean = f"jetbridge devices clean {device['host']} {device['address']}"
    cleaning = device["cleaning"]
    if cleaning is None or cleaning["state"] in ("done", "cut"):
        return f"used, and not cleaned yet: {clean}"
    if cleaning["state"] == "running":
        return f"its cleaner runs since {cleaning['started_at']}"
    lines = f"; its last lines: {cleaning['output']}" if cleaning["output"] else ""
    return f"{cleaning['reason']} (after {cleaning['seconds'] or 0:.1f} s){lines}; put it right, then: {clean}"


def _nothing(narrowed: object) -> str:
    if narrowed:
        return "no devices match"
    return "there are no devices: name some in [pci]device_spec (`jetbridge scan --host HOST` prints the lines)"


@devices.command()
def clean(
    host: Annotated[str, typer.Argument(help="The device's host.", autocompletion=completion.hosts)],
    address: Annotated[str, typer.Argument(help="Its address, such as 0000:3b:00.0.")],
    by_hand: Annotated[
        bool, typer.Option("--by-hand", help="It is clean already: don't run the host's cleaner.")
    ] = False,
    as_json: Json = False,
    url: Url = None,
    state_dir: ServiceStateDir = None,
    user: User = None,
    password: Password = None,
) -> None:
    r"""Give a device that was used to servers again.

    Runs the host's cleaner (\[pci]cleaner) once more. Without a cleaner, or with
    --by-hand, your word counts: the device is given at once, and what is
    reserved of it in Placement is lowered. A device that waits for no cleaning
    stays as it is, which is told and no error.

    [bold]Examples[/bold]

      jetbridge devices clean gpu001 0000:3b:00.0

      jetbridge devices clean gpu001 0000:3b:00.0 --by-hand
    """
    from jetbridge.cli.client import connect, segment
    from jetbridge.cli.output import print_json

    path = f"/jetbridge/v1/hosts/{segment(host)}/devices/{segment(address)}/clean"
    answer = connect(url, state_dir, user, password).post(path, {"by_hand": by_hand})
    if as_json:
        print_json(answer)
    elif answer["state"] == "running":
        typer.echo("its cleaner runs: `jetbridge devices` tells how it goes")
    elif answer["state"] == "not waiting":
        typer.echo("it waits for no cleaning: nothing was done, `jetbridge devices` shows how it stands")
    else:
        typer.echo("it can be given to servers again")
