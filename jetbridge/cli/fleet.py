"""jetbridge fleet: the fleet file of a simulated fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from jetbridge.cli.options import Json, Password, ServiceStateDir, Url, User

fleet = typer.Typer(no_args_is_help=True, help="Change the simulated fleet, and see what hardware can be simulated.")


@fleet.command()
def reload(
    as_json: Json = False,
    url: Url = None,
    state_dir: ServiceStateDir = None,
    user: User = None,
    password: Password = None,
) -> None:
    """Read the fleet file again: hardware that appears, vanishes or changes, faults to play.

    The running service reads the file it was started with; edit that, then reload.

    [bold]Examples[/bold]

      jetbridge fleet reload && jetbridge devices
    """
    from jetbridge.cli.client import connect
    from jetbridge.cli.output import print_json

    answer: dict[str, Any] = connect(url, state_dir, user, password).post("/jetbridge/v1/fleet/reload")
    if as_json:
        print_json(answer)
        return
    for line in reload_lines(answer):
        typer.echo(line)


def reload_lines(answer: Mapping[str, Sequence[str]]) -> list[str]:
    kept = answer.get("kept", ())
    shown = {**answer, "removed": [name for name in answer["removed"] if name not in kept]}
    lines = [f"{what}: {', '.join(shown[what])}" for what in ("added", "removed", "changed") if shown.get(what)]
    lines += [f"{name} left the fleet but has servers: counts as down" for name in kept]
    moved = bool(lines)
    if answer.get("unserved"):
        lines.append(
            f"unserved: {', '.join(answer['unserved'])} (no jetbridge compute that is up picks them by --host)"
        )
    return lines if moved else [*lines, "nothing has changed"]


@fleet.command()
def templates(as_json: Json = False) -> None:
    """List the hardware templates a fleet file can name under [bold]hardware:[/bold].

    [bold]Examples[/bold]

      jetbridge fleet templates
    """
    from jetbridge.cli.output import print_json, print_table
    from jetbridge.config.fleet import templates as known

    found = known()
    if as_json:
        print_json(
            [
                {
                    "name": template.name,
                    "description": template.description,
                    "devices": [
                        {"address": each.address, "vendor_id": each.vendor_id, "product_id": each.product_id}
                        for each in template.devices
                    ],
                }
                for template in found.values()
            ]
        )
        return
    rows = [(each.name, len(each.devices), each.description) for each in found.values()]
    print_table(("NAME", "DEVICES", "WHAT IT IS"), rows, empty="there are no templates")
