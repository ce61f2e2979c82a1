"""jetbridge servers, xml, explain: servers with their devices, and why they are where they are."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from jetbridge.cli import completion
from jetbridge.cli.options import Json, Password, ServiceStateDir, Url, User

Server = Annotated[
    str, typer.Argument(help="Id or name of the server.", metavar="SERVER", autocompletion=completion.servers)
]


def servers(
    as_json: Json = False,
    url: Url = None,
    state_dir: ServiceStateDir = None,
    user: User = None,
    password: Password = None,
) -> None:
    """List servers with their hosts and devices, vGPUs (mediated devices by UUID) and accelerators included.

    [bold]Examples[/bold]

      jetbridge servers

      jetbridge servers --json | jq -r '.[] | select(.vm_state == "error") | .fault'
    """
    from jetbridge.cli.client import connect
    from jetbridge.cli.output import print_json, print_table

    found = connect(url, state_dir, user, password).get("/jetbridge/v1/servers")["servers"]
    if as_json:
        print_json(found)
        return
    columns = ("ID", "NAME", "STATE", "TASK", "HOST", "FLAVOR", "DEVICES")
    rows = [
        (
            each["id"],
            each["name"],
            each["vm_state"],
            each["task_state"],
            each.get("host"),
            each["flavor"],
            _held(each),
        )
        for each in found
    ]
    print_table(columns, rows, empty="there are no servers: make one with `openstack server create`")


def _held(server: Mapping[str, Any]) -> list[str]:
    """PCI addresses, and UUIDs of mediated devices."""
    return [
        *(device["address"] for device in server["devices"]),
        *(each["held_as"] for kind in ("vgpus", "accelerators") for each in server[kind] if each["held_as"]),
    ]


def xml(
    server: Server,
    as_json: Json = False,
    url: Url = None,
    state_dir: ServiceStateDir = None,
    user: User = None,
    password: Password = None,
) -> None:
    """Print a server's domain XML as the hypervisor holds it now.

    Of a server that runs it is the live one, with what libvirt added:
    the devices' addresses in the guest and their aliases.

    [bold]Examples[/bold]

      jetbridge xml my-server | grep -A4 hostdev
    """
    from jetbridge.cli.client import connect, segment
    from jetbridge.cli.output import print_json

    answer = connect(url, state_dir, user, password).get(f"/jetbridge/v1/servers/{segment(server)}/xml")
    if as_json:
        print_json(answer)
        return
    sys.stdout.write(answer["xml"].rstrip("\n") + "\n")


def explain(
    server: Server,
    as_json: Json = False,
    url: Url = None,
    state_dir: ServiceStateDir = None,
    user: User = None,
    password: Password = None,
) -> None:
    r"""Tell why a server is where it is, or why no host took it.

    Every host's answer, grouped by reason: the rule, how many devices it left,
    and what would have let it pass. Works for deleted servers too, as long as
    their explanations are kept (\[jetbridge]keep_days).

    [bold]Examples[/bold]

      jetbridge explain my-server
    """
    from jetbridge.cli.client import connect, segment
    from jetbridge.cli.output import print_json

    answer = connect(url, state_dir, user, password).get(f"/jetbridge/v1/servers/{segment(server)}/verdicts")
    if as_json:
        print_json(answer)
        return
    from jetbridge.cli.output import console

    out = console()
    for line, style in explanation(answer):
        out.print(line, style=style or None, markup=False)


def explanation(answer: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """The answer as lines with their styles."""
    place = f" on {answer['host']}" if answer.get("host") else ""
    lines = [(f"{answer['name']} ({answer['server']}): {answer['vm_state']}{place}", "bold")]
    if answer["fault"]:
        lines.append((f"fault: {answer.get('details') or answer['fault']}", "red"))  # the details are the whole message
    lines += [(f"warning: {text}", "yellow") for text in answer.get("warnings", ())]
    attempt = None
    for verdict in answer["verdicts"]:
        if verdict["attempt"] != attempt:
            attempt = verdict["attempt"]
            lines.append((f"attempt {attempt}, {verdict['created_at']}, {verdict['request_id']}", "dim"))
        lines += _verdict_lines(verdict)
    if any(verdict["hosts"] is None for verdict in answer["verdicts"]):
        lines.append(("which hosts these are is for administrators to see", "dim"))
    if not answer["verdicts"]:
        lines.append(("no host has been asked, or the explanation is older than [jetbridge]keep_days", ""))
    return lines


def _verdict_lines(verdict: Mapping[str, Any]) -> list[tuple[str, str]]:
    count = verdict["host_count"]
    who = "1 host" if count == 1 else f"{count} hosts"
    if verdict["passed"]:
        chosen = f" and was {verdict['text']}" if verdict["text"] else ""
        lines = [(f"  {who} passed every filter{chosen}", "green")]
    else:
        request = f" [{verdict['request']}]" if verdict["request"] else ""
        left = ""
        if verdict["before"] and verdict["after"] is not None:  # of none nothing can be lost
            candidates = "1 candidate" if verdict["before"] == 1 else f"{verdict['before']} candidates"
            left = f" ({candidates} before this rule, {verdict['after']} after)"
        lines = [
            (f"  {who} refused by {verdict['filter']}{request}: {verdict['text']}{left}", "yellow"),
            (f"    rule {verdict['rule']}", "dim"),
        ]
        if verdict["hint"]:
            lines.append((f"    would pass: {verdict['hint']}", "cyan"))
    if verdict["hosts"]:
        shown = ", ".join(verdict["hosts"][:10])
        more = f", and {count - 10} more" if count > 10 else ""
        lines.append((f"    {shown}{more}", "dim"))
    return lines
