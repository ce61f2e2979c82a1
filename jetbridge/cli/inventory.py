"""jetbridge pools, hosts: what there is, and how much of it is free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jetbridge.cli import completion
from jetbridge.cli.devices import Host, shown_tags
from jetbridge.cli.options import Json, Password, ServiceStateDir, Url, User


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
            shown_tags(pool["tags"]),
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
    notes = (host["probe_error"], _report_note(host), forced, host["disabled_reason"])
    return "; ".join(note for note in notes if note) or "-"


def _report_note(host: Mapping[str, Any]) -> str | None:
    error = host["report_error"]
    if not host["reported"]:
        return f"not reported to Placement yet{f': {error}' if error else ''}"
    return f"its report to Placement fails: {error}" if error else None


def _by_status(counts: Mapping[str, int]) -> Mapping[str, int]:
    """In the order of a device's life; statuses unknown here come last."""
    known = [status for status in completion.STATUSES if status in counts]
    return {status: counts[status] for status in [*known, *(counts.keys() - set(known))]}
