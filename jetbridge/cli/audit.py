"""jetbridge audit: whether our tables, the hypervisors and Placement say the same."""

from __future__ import annotations

import typer

from jetbridge.cli.devices import Host
from jetbridge.cli.failures import FAILURE
from jetbridge.cli.options import Json, Password, ServiceStateDir, Url, User
from jetbridge.reasons import counted


def audit(
    host: Host = None,
    as_json: Json = False,
    url: Url = None,
    state_dir: ServiceStateDir = None,
    user: User = None,
    password: Password = None,
) -> None:
    """Compare the three ledgers: devices and vGPUs in our tables, what the hypervisors have, allocations in Placement.

    Nothing is changed. What the hosts' agents put right by themselves is gone
    after their next pass; what stays is for a person. Exit code 0: all agree;
    1: something doesn't, or a host can't be asked.

    [bold]Examples[/bold]

      jetbridge audit

      jetbridge audit --host gpu001 --json
    """
    from jetbridge.cli.client import connect
    from jetbridge.cli.output import print_json, print_table

    answer = connect(url, state_dir, user, password).get("/jetbridge/v1/audit", host=host)
    if as_json:
        print_json(answer)
    else:
        rows = [(each["host"], each["ledger"], each["subject"], each["text"]) for each in answer["findings"]]
        print_table(("HOST", "LEDGER", "WHAT", "DRIFT"), rows, empty=agreement(answer["hosts"], len(answer["unseen"])))
        for name, error in answer["unseen"].items():
            typer.echo(f"{name}: can't be asked: {error}")
    if answer["findings"] or answer["unseen"]:
        raise typer.Exit(FAILURE)


def agreement(hosts: int, unseen: int) -> str:
    """What is said when no drift was found: nothing of hosts that could not be asked."""
    if unseen:
        return f"{hosts - unseen} of {hosts} hosts agree, {unseen} can't be asked:"
    return f"{counted(hosts, 'host')}: all ledgers agree"
