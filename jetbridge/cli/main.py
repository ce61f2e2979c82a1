"""The command ``jetbridge``. What a command needs is imported when it runs, so that --help and TAB are quick."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from jetbridge.cli import (
    audit,
    database,
    demo,
    devices,
    fleet,
    inventory,
    journey,
    scan,
    servers,
    services,
    status,
    up,
    vgpu,
)
from jetbridge.cli.failures import FAILURE, NOT_FOUND, USAGE, CliError
from jetbridge.cli.help import with_plain_values
from jetbridge.errors import JetbridgeError

INTERRUPTED = 130

app = typer.Typer(
    name="jetbridge",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)

_RUN = "Run"
_SEPARATE = "Run as separate services"
_LOOK = "Look"
_HARDWARE = "Hardware"

app.command(rich_help_panel=_RUN)(up.up)
app.command(rich_help_panel=_RUN)(demo.demo)
for _service in (services.api, services.conductor, services.scheduler, services.compute, services.placement):
    app.command(rich_help_panel=_SEPARATE)(_service)
app.command(rich_help_panel=_LOOK)(status.status)
app.command(rich_help_panel=_LOOK)(servers.servers)
app.command(rich_help_panel=_LOOK)(servers.explain)
app.command(rich_help_panel=_LOOK)(journey.journey)
app.command(rich_help_panel=_LOOK)(servers.xml)
app.add_typer(devices.devices, name="devices", rich_help_panel=_LOOK)
app.command(rich_help_panel=_LOOK)(inventory.pools)
app.command(rich_help_panel=_LOOK)(inventory.hosts)
app.command(rich_help_panel=_LOOK)(audit.audit)
app.command(rich_help_panel=_LOOK)(database.sql)
app.command(rich_help_panel=_HARDWARE)(scan.scan)
app.add_typer(vgpu.vgpu, name="vgpu", rich_help_panel=_LOOK)
app.add_typer(fleet.fleet, name="fleet", rich_help_panel=_HARDWARE)
app.add_typer(database.db, name="db", rich_help_panel=_RUN)
app.command(rich_help_panel=_LOOK)(status.version)


def _print_version(wanted: bool) -> None:
    if wanted:
        status.version()
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Get a GPU, or any PCI device, into a virtual machine: from one line in a flavor to a <hostdev> in the guest.

    [bold]First steps[/bold]

      jetbridge demo             watch a device travel into a (simulated) guest

      jetbridge scan             what this machine has, and how to configure it

      jetbridge up --fleet FILE  serve a simulated fleet; without: this machine

    [bold]Exit codes[/bold]: 0 done, 1 failed, 2 usage, 3 not found, 4 no service answers.
    """


def main() -> None:
    """Runs the command line and exits. No traceback reaches a person, unless JETBRIDGE_DEBUG is set."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit code."""
    for argument in arguments:
        if not _is_text(argument):
            return _fail(f"{argument!a} on the command line is not UTF-8: write it as text", USAGE)
    try:
        command = with_plain_values(typer.main.get_command(app))
        code = command(arguments, prog_name="jetbridge", standalone_mode=False)
        sys.stdout.flush()
    except CliError as error:
        return _fail(error.message, error.code)
    except JetbridgeError as error:
        return _fail(error.message, NOT_FOUND if error.http_status == 404 else FAILURE)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`jetbridge devices | head`); Python would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except Exception as error:  # noqa: BLE001  the last stop: a person gets a sentence, not a traceback
        return _unforeseen(error)
    return code if isinstance(code, int) else 0


def _is_text(argument: str) -> bool:
    try:
        argument.encode()
    except UnicodeEncodeError:  # bytes that Python kept as lone surrogates
        return False
    return True


def _unforeseen(error: Exception) -> int:
    message = getattr(error, "format_message", None)
    if message is not None:  # a mistake on the command line, told by the parser
        context: Any = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "jetbridge"
        text = message()
        if not text:
            return USAGE
        end = "" if text.endswith(("?", ".")) else "."
        return _fail(f"{text}{end} See `{command} --help`", int(getattr(error, "exit_code", USAGE)))
    if type(error).__name__ == "Abort":
        return INTERRUPTED
    if os.environ.get("JETBRIDGE_DEBUG"):
        raise error
    return _fail(f"unexpected {type(error).__name__}: {error} (JETBRIDGE_DEBUG=1 shows where)", FAILURE)


def _fail(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
