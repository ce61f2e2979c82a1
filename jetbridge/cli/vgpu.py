"""jetbridge vgpu: the types that cards can carry, and the vGPUs that exist."""

from __future__ import annotations

import typer

from jetbridge.cli.devices import Host
from jetbridge.cli.options import Json, Password, ServiceStateDir, Url, User

vgpu = typer.Typer(no_args_is_help=True, help="See which vGPU types cards can carry, and who has which vGPU.")


@vgpu.command()
def types(
    host: Host = None,
    as_json: Json = False,
    url: Url = None,
    state_dir: ServiceStateDir = None,
    user: User = None,
    password: Password = None,
) -> None:
    """List what the hosts' cards could carry, and what of it is offered.

    Types without a CLASS are not offered: name them in
    [bold]\\[devices]enabled_mdev_types[/bold], and their cards in
    [bold]\\[mdev_TYPE]device_addresses[/bold]. An SR-IOV card is one line for
    each type, whatever number of VFs it has: TOTAL is what fits on it.

    [bold]Examples[/bold]

      jetbridge vgpu types --host gpu001

      jetbridge vgpu types --json | jq -r '.[] | select(.total) | .parent'
    """
    from jetbridge.cli.client import connect
    from jetbridge.cli.output import print_json, print_table

    found = connect(url, state_dir, user, password).get("/jetbridge/v1/vgpus/types", host=host)["types"]
    if as_json:
        print_json(found)
        return
    columns = ("HOST", "PARENT", "TYPE", "NAME", "KIND", "CLASS", "USED", "TOTAL")
    rows = [
        (
            each["host"] + (" (down)" if each["host_state"] == "down" else ""),
            each["parent"],
            each["type"],
            each["name"],
            each["kind"],
            each["resource_class"],
            each["used"],
            each["total"],
        )
        for each in found
    ]
    print_table(columns, rows, empty="no card carries vGPUs" if host is None else f"no card of {host} carries vGPUs")


@vgpu.command("list")
def list_vgpus(
    host: Host = None,
    as_json: Json = False,
    url: Url = None,
    state_dir: ServiceStateDir = None,
    user: User = None,
    password: Password = None,
) -> None:
    """List the vGPUs that exist, and who has them.

    Those of no server are kept for the next one. [dim]foreign[/dim]: somebody else
    made it; it is never given to a server, changed or removed.

    [bold]Examples[/bold]

      jetbridge vgpu list

      jetbridge vgpu list --json | jq -r '.[] | select(.owner == "foreign") | .uuid'
    """
    from jetbridge.cli.client import connect
    from jetbridge.cli.output import print_json, print_table

    found = connect(url, state_dir, user, password).get("/jetbridge/v1/vgpus", host=host)["vgpus"]
    if as_json:
        print_json(found)
        return
    columns = ("UUID", "HOST", "PARENT", "TYPE", "STATE", "SERVER")
    rows = [
        (
            each["uuid"],
            each["host"],
            each["parent"],
            each["type"],
            each["state"] if each["owner"] == "jetbridge" else f"{each['state']} ({each['owner']})",
            each["server_name"] or each["instance_uuid"],
        )
        for each in found
    ]
    print_table(columns, rows, empty="there are no vGPUs" if host is None else f"there are no vGPUs on {host}")
