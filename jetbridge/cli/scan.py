"""jetbridge scan: every PCI function of a host, and the lines to paste for those that can be passed through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from jetbridge.cli import completion
from jetbridge.cli.failures import CliError
from jetbridge.cli.options import Json, Password, ServiceStateDir, Url, User


def scan(
    host: Annotated[
        str | None,
        typer.Option(
            "--host", help="A host of the service.", autocompletion=completion.hosts, show_default="this machine"
        ),
    ] = None,
    as_json: Json = False,
    url: Url = None,
    state_dir: ServiceStateDir = None,
    user: User = None,
    password: Password = None,
) -> None:
    """Show every PCI function of a host, and the lines to paste to pass it through.

    Driver, IOMMU group, NUMA node; what stands in the way of passing it through;
    the [bold]device_spec[/bold], [bold]alias[/bold] and flavor lines for it. Only looks: no driver is
    touched. Without --host it reads this machine's sysfs: no service and no
    libvirt are needed.

    [bold]Examples[/bold]

      jetbridge scan

      jetbridge scan --host gpu001 --json | jq -r '.[].suggestion.device_spec // empty'
    """
    from jetbridge.cli.output import print_json, print_table

    if host is None:
        functions: Sequence[Mapping[str, Any]] = this_machine()
    else:
        from jetbridge.cli.client import connect

        functions = connect(url, state_dir, user, password).get("/jetbridge/v1/scan", host=host)["functions"]
    if as_json:
        print_json(functions)
        return
    columns = ("ADDRESS", "IDS", "TYPE", "NUMA", "IOMMU", "DRIVER", "CLASS", "NAME")
    rows = [
        (
            each["address"],
            f"{each['vendor_id']}:{each['product_id']}",
            each["dev_type"],
            each["numa_node"],
            each["iommu_group"],
            each["driver"],
            each["class_name"],
            each["name"],
        )
        for each in functions
    ]
    print_table(columns, rows, empty=f"{host or 'this machine'} has no PCI functions")
    _print_notes(functions)


def this_machine() -> list[dict[str, Any]]:
    """What the kernel of this machine shows. Raises ``CliError`` where there is no sysfs of PCI devices."""
    from jetbridge.virt.libvirt.files import LocalHostFiles
    from jetbridge.virt.scan import scan as scan_documents
    from jetbridge.virt.sysfs_documents import DEVICES, pci_documents

    files = LocalHostFiles()
    documents = pci_documents(files)
    if not documents:
        raise CliError(f"{DEVICES} lists no PCI function on this machine (a container, or not Linux?)")
    return [function.to_json() for function in scan_documents(documents, files)]


def _print_notes(functions: Iterable[Mapping[str, Any]]) -> None:
    from jetbridge.cli.output import console

    out = console()
    for function in functions:
        for warning in function["warnings"]:
            out.print(f"! {warning}", style="yellow", markup=False)
    lines = paste_lines(functions)
    if not lines:
        out.print("None of these is something one passes through to guests.", markup=False)
    for line in lines:
        out.print(line, style="dim" if line.startswith("#") else None, markup=False)


def paste_lines(functions: Iterable[Mapping[str, Any]]) -> list[str]:
    """The configuration of all suggested devices, and the flavor property of each kind."""
    suggested = [function for function in functions if function["suggestion"]]
    if not suggested:
        return []
    kinds: dict[str, Mapping[str, Any]] = {}
    lines = [
        "",
        "# Into the configuration of the host and of the service; leave out what guests shall not have:",
        "[pci]",
    ]
    for function in suggested:
        suggestion = function["suggestion"]
        if suggestion["caution"]:
            lines += [f"# {function['address']} {function['name']}, {suggestion['caution']}:"]
            lines += [f"#{suggestion['device_spec']}", f"#{suggestion['alias']}"]
        else:
            lines += [f"# {function['address']} {function['name']}", suggestion["device_spec"]]
            kinds.setdefault(suggestion["alias"], function)
    lines += list(kinds)
    if not kinds:
        return lines
    lines += ["", "# Into a flavor, one of:"]
    lines += [
        f"openstack flavor set FLAVOR --property {function['suggestion']['flavor']}" for function in kinds.values()
    ]
    return lines
