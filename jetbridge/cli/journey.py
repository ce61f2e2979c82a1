"""jetbridge journey: which way a server's requests took, from service to service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from jetbridge.cli.options import Json, Password, ServiceStateDir, Url, User
from jetbridge.cli.servers import Server


def journey(
    server: Server,
    request: Annotated[
        str | None,
        typer.Option("--request", help="Only this request.", metavar="REQ-ID", show_default="all of the server"),
    ] = None,
    as_json: Json = False,
    url: Url = None,
    state_dir: ServiceStateDir = None,
    user: User = None,
    password: Password = None,
) -> None:
    r"""Show which way a server's requests took, from service to service.

    Every step is a seam that a request crossed, under the one that led to it:
    REST (over HTTP), CAST (a message, no answer awaited), CALL (a message and
    its answer), LIBRARY (the hypervisor). Works for deleted servers too, as
    long as the steps are kept (\[jetbridge]keep_days).

    [bold]Examples[/bold]

      jetbridge journey my-server

      jetbridge journey my-server --json | jq '.requests[].spans[] | select(.seconds > 1)'
    """
    from jetbridge.cli.client import connect, segment
    from jetbridge.cli.failures import NOT_FOUND, CliError
    from jetbridge.cli.output import console, print_json

    answer = connect(url, state_dir, user, password).get(f"/jetbridge/v1/servers/{segment(server)}/journey")
    if request is not None:
        answer["requests"] = [each for each in answer["requests"] if each["request_id"] == request]
        if not answer["requests"]:
            raise CliError(f"no step of request {request} is known for server {server}", NOT_FOUND)
    if as_json:
        print_json(answer)
        return
    from rich.text import Text

    out = console()
    for line in lines(answer):
        out.print(Text.assemble(*line))


def lines(answer: Mapping[str, Any]) -> Sequence[Sequence[tuple[str, str]]]:
    """The answer as lines of pieces with their styles."""
    from jetbridge.cli.output import SEAM_STYLES

    shown: list[list[tuple[str, str]]] = [[(f"{answer['name']} ({answer['server']})", "bold")]]
    if not answer["requests"]:
        shown.append([("nothing is known: its requests are older than [jetbridge]keep_days", "")])
    for request in answer["requests"]:
        heading = f"{request['request_id']}  {request['started_at']}  {_ms(request['seconds'])}"
        shown.append([(heading, "dim")])
        ways = [f"{'  ' * span['depth']}{span['from']} -> {span['to']}" for span in request["spans"]]
        width = max(map(len, ways), default=0)
        for way, span in zip(ways, request["spans"], strict=True):
            shown.append(
                [
                    (f"  {span['at'] * 1000:6.0f} ms  ", "dim"),
                    (f"{span['seam']:<9}", SEAM_STYLES.get(span["seam"], "")),
                    (way.ljust(width) + "  ", ""),
                    (span["what"], "bold"),
                    # How long a message took to hand over says nothing; when it led to something is seen in the next line.
                    ("" if span["seam"] == "CAST" else f"  {_ms(span['seconds'])}", "dim"),
                    (_essentials(span["essentials"]), "dim"),
                ]
            )
            if span["error"]:
                shown.append([(f"{' ' * 22}{span['error']}", "red")])
    return shown


def _essentials(essentials: Mapping[str, str]) -> str:
    from jetbridge.cli.output import cell

    return f"  {cell(essentials)}" if essentials else ""


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 10 else f"{seconds:.1f} s"
