"""Short ways to write the values that tests of devices need, and the reader of the case files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from jetbridge.pci.device import DeviceType, PciDevice
from jetbridge.pci.device_spec import DeviceSpec, parse_device_specs
from jetbridge.pci.pool import Pool
from jetbridge.pci.request import NumaPolicy, PciRequest

CASES = Path(__file__).parents[2] / "cases"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is ten times as fast


def cases(file: str) -> list[Any]:
    """One parameter per case of ``tests/cases/FILE``, named by the case, after the fault it holds where it holds one."""
    with open(CASES / file, encoding="utf-8") as stream:
        found = yaml.load(stream, Loader=_LOADER)
    return [
        pytest.param(case, id="-".join(str(case[key]) for key in ("fault", "name") if key in case)) for case in found
    ]


@dataclass(frozen=True)
class Facts:
    """A host's facts as tables."""

    totalvfs: Mapping[str, int] = field(default_factory=dict)
    netdevs: Mapping[str, str] = field(default_factory=dict)
    ids: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    vf_ids: Mapping[str, str] = field(default_factory=dict)

    def sriov_totalvfs(self, address: str) -> int | None:
        return self.totalvfs.get(address)

    def netdev_address(self, devname: str) -> str | None:
        return self.netdevs.get(devname)

    def pf_ids(self, address: str) -> tuple[str, str] | None:
        return self.ids.get(address)

    def vf_product_id(self, pf_address: str) -> str | None:
        return self.vf_ids.get(pf_address)


def specs(*values: str, facts: Facts | None = None, report_in_placement: bool = False) -> tuple[DeviceSpec, ...]:
    return parse_device_specs(values, facts or Facts(), report_in_placement=report_in_placement)


def _words(text: str) -> tuple[list[str], dict[str, str | None]]:
    plain = [word for word in text.split() if "=" not in word]
    pairs = dict(word.split("=", 1) for word in text.split() if "=" in word)
    return plain, {name: None if value == "null" else value for name, value in pairs.items()}


def pool(text: str) -> Pool:
    """``VENDOR:PRODUCT TYPE ADDRESS [count=N] [node=N] [ifname=X] [rp=X] [TAG=VALUE ...]``"""
    (ids, dev_type, address), pairs = _words(text)
    vendor, product = ids.split(":")
    node = pairs.pop("node", None)
    return Pool(
        vendor_id=vendor,
        product_id=product,
        numa_node=None if node is None else int(node),
        dev_type=DeviceType(dev_type),
        address=address,
        count=int(pairs.pop("count", None) or 1),
        parent_ifname=pairs.pop("ifname", None),
        rp_uuid=pairs.pop("rp", None),
        tags=pairs,
    )


def request(document: Mapping[str, Any]) -> PciRequest:
    """``alias`` or ``port`` names it (the request id is ``r-`` and that), ``want`` is its alternatives."""
    name = document.get("alias") or document.get("port")
    policy = document.get("policy")
    return PciRequest(
        request_id=document.get("id", f"r-{name}"),
        count=document.get("count", 1),
        spec=tuple(document["want"]),
        alias_name=document.get("alias"),
        requester_id=document.get("port"),
        numa_policy=NumaPolicy(policy) if policy else None,
    )


def report(address: str, ids: str = "10de:1eb8", dev_type: str = "type-PCI", **others: Any) -> dict[str, Any]:
    vendor, product = ids.split(":")
    return {
        "address": address,
        "vendor_id": vendor,
        "product_id": product,
        "dev_type": dev_type,
        "dev_id": "pci_" + address.replace(":", "_").replace(".", "_"),
        "label": f"label_{vendor}_{product}",
        "numa_node": None,
        **others,
    }


def device(address: str, dev_type: DeviceType = DeviceType.PCI, **others: Any) -> PciDevice:
    values = {"vendor_id": "10de", "product_id": "1eb8", "uuid": f"uuid-{address}", **others}
    return PciDevice(compute_node_id=7, address=address, dev_type=dev_type, **values)


def by_address(*devices: PciDevice) -> dict[str, PciDevice]:
    return {device.address: device for device in devices}
