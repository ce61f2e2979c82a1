"""Fleet hosts for tests: written as YAML, opened in a folder."""

from __future__ import annotations

import textwrap
from pathlib import Path

from jetbridge.config.fleet import load_fleet
from jetbridge.model.fleet import FleetHost
from jetbridge.virt.simulated import SimulatedConnection, SimulatedHostFiles, open_fleet_host

LAB = Path(__file__).parents[2] / "data" / "lab-l1"


def host(folder: Path, body: str) -> FleetHost:
    """One host; ``body`` are its keys as YAML, besides the name."""
    path = folder / "fleet.yaml"
    path.write_text("hosts:\n  - name: node1\n" + textwrap.indent(textwrap.dedent(body), "    "))
    return load_fleet(path).hosts[0]


def opened(folder: Path, body: str) -> tuple[SimulatedConnection, SimulatedHostFiles]:
    return open_fleet_host(host(folder, body), folder / "sim")


def domain(
    name: str = "instance-00000001",
    *hostdevs: str,
    managed: str = "yes",
    uuid: str | None = None,
    extra: str = "",
    kind: str = "kvm",
) -> str:
    number = int(name.rsplit("-", 1)[-1], 16)
    devices = "".join(hostdev(address, managed) for address in hostdevs)
    return f"""<domain type='{kind}'>
  <name>{name}</name>
  <uuid>{uuid or f"00000000-0000-0000-0000-{number:012x}"}</uuid>
  <memory unit='KiB'>1048576</memory>
  <vcpu>2</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <devices>{devices}{extra}</devices>
</domain>"""


def hostdev(address: str, managed: str = "yes") -> str:
    pci_domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    where = f"domain='0x{pci_domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'"
    return f"<hostdev mode='subsystem' type='pci' managed='{managed}'><source><address {where}/></source></hostdev>"
