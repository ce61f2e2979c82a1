"""jetbridge devices, pools, hosts: what there is, and who has it."""

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


def devices(
    host: Host = None,
    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            help="Only in this status: available, claimed, allocated, ...",
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
    of its card is in use.

    [bold]Examples[/bold]

      jetbridge devices --host gpu001

      jetbridge devices --status allocated --json | jq -r '.[].address'
    """
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
            _shown_tags(each["tags"]),
        )
        for each in found
    ]
    print_table(columns, rows, empty=_nothing("devices", host or status or server))


def _shown_tags(tags: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without the one that every function of an SR-IOV card has unless it is told otherwise."""
    return {tag: value for tag, value in tags.items() if (tag, value) != ("remote_managed", "false")}


def shown_status(device: Mapping[str, Any]) -> str:
    """The status, or the condition that keeps a device from being offered."""
    condition = device["condition"]
    return str(device["status"]) if condition == "ok" else f"{device['status']} ({condition})"


def pools(
    host: Host = None,
    as_json: Json = False,
    url: Url = None,
    state_dir: ServiceStateDir = None,
    user: User = None,
    password: Password = None,
) -> None:
    """List the pools: how many equal devices are free, by host.

    The VFs of one physical function that are alike make a pool; any other
    device is a pool of its own. ADDRESS is that of the device, or of the
    VFs' physical function. Pools are counted from the devices at this
    moment; nothing is stored that could be out of date.

    [bold]Examples[/bold]

      jetbridge pools

      jetbridge pools --host gpu001 --json
    """
    from jetbridge.cli.client import connect
    from jetbridge.cli.output import print_json, print_table

    found = connect(url, state_dir, user, password).get("/jetbridge/v1/pools", host=host)["pools"]
    if as_json:
        print_json(found)
        return
    columns = ("HOST", "VENDOR:PRODUCT", "TYPE", "NUMA", "ADDRESS", "FREE", "TAGS")
    rows = [
        (
            pool["host"],
            f"{pool['vendor_id']}:{pool['product_id']}",
            pool["dev_type"],
            pool["numa_node"],
            pool["address"],
            pool["count"],
            _shown_tags(pool["tags"]),
        )
        for pool in found
    ]
    print_table(columns, rows, empty="no device is free" + (f" on {host}" if host else ""))


def hosts(
    as_json: Json = False,
    url: Url = None,
    state_dir: ServiceStateDir = None,
    user: User = None,
    password: Password = None,
) -> None:
    r"""List the hosts: whether they are up, what of them is used, their devices.

    A host is down when its service was silent for \[DEFAULT]service_down_time,
    or is forced down. Devices are counted by status.

    [bold]Examples[/bold]

      jetbridge hosts

      jetbridge hosts --json | jq -r '.[] | select(.state == "down") | .host'
    """
    from jetbridge.cli.client import connect
    from jetbridge.cli.output import print_json, print_table

    found = connect(url, state_dir, user, password).get("/jetbridge/v1/hosts")["hosts"]
    if as_json:
        print_json(found)
        return
    columns = ("HOST", "STATE", "STATUS", "SERVERS", "VCPUS", "MEMORY MIB", "DISK GIB", "DEVICES", "NOTE")
    rows = [
        (
            each["host"],
            each["state"],
            each["status"],
            each["servers"],
            f"{each['vcpus_used']}/{each['vcpus']}",
            f"{each['memory_mb_used']}/{each['memory_mb']}",
            f"{each['disk_gb_used']}/{each['disk_gb']}",
            _by_status(each["devices"]),
            _note(each),
        )
        for each in found
    ]
    print_table(columns, rows, empty="there are no hosts yet")


def _note(host: Mapping[str, Any]) -> str:
    """What a person should know: why its devices are unknown, why it takes no servers."""
    forced = "forced down" if host["forced_down"] else None
    return "; ".join(note for note in (host["probe_error"], forced, host["disabled_reason"]) if note) or "-"


def _by_status(counts: Mapping[str, int]) -> Mapping[str, int]:
    """In the order of a device's life; statuses unknown here come last."""
    known = [status for status in completion.STATUSES if status in counts]
    return {status: counts[status] for status in [*known, *(counts.keys() - set(known))]}


def _nothing(what: str, narrowed: object) -> str:
    if narrowed:
        return f"no {what} match"
    return f"there are no {what}: name some in [pci]device_spec (`jetbridge scan --host HOST` prints the lines)"
