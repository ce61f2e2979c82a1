"""Guests that a hypervisor refuses, and its words: ``cases/libvirt_refusals.yaml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Case = Mapping[str, Any]
CASES: list[Case] = yaml.safe_load((Path(__file__).parent / "cases" / "libvirt_refusals.yaml").read_text())


def guest(name: str, case: Case, *addresses: str, kernel: str) -> str:
    """The domain document of a case. ``kernel``: one that is there."""
    devices = "".join(_hostdev(address, case.get("managed", "yes")) for address in addresses)
    return f"""<domain type='qemu'>
  <name>{name}</name> <memory unit='KiB'>32768</memory> <vcpu>1</vcpu> {case.get("extra", "")}
  <os><type arch='x86_64' machine='q35'>hvm</type><kernel>{case.get("kernel", kernel)}</kernel></os> <features><acpi/></features>
  <devices> <memballoon model='none'/> {devices} {case.get("devices", "")} </devices>
</domain>"""


def _hostdev(address: str, managed: str) -> str:
    domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    where = f"domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'"
    return f"<hostdev mode='subsystem' type='pci' managed='{managed}'><source><address {where}/></source></hostdev>"


def says(case: Case, output: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in case["text"].split("..."))
    return re.search(pattern, output) is not None
