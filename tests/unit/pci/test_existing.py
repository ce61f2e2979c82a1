"""How many devices of an alias there are, whoever has them."""

from __future__ import annotations

from jetbridge.pci.device import DeviceType
from jetbridge.pci.existing import Existing, in_all
from jetbridge.pci.request import PciRequest

KINDS = [
    Existing("10de", "1eb8", DeviceType.PCI, 8, 0),
    Existing("10de", "2235", DeviceType.PF, 2, 2),
    Existing("10de", "2235", DeviceType.VF, 32, 1),
]


def told(*alternatives: dict[str, str | None], alias: str | None = "GPU") -> str | None:
    request = PciRequest("r", 1, alternatives, alias_name=alias, requester_id="port")
    return in_all([request], lambda: KINDS).get("GPU")


def test_devices_of_its_ids_and_its_type() -> None:
    assert told({"vendor_id": "10DE", "product_id": "1EB8"}) == "8 devices of GPU in all, none of them free"
    assert told({"product_id": "2235", "dev_type": "type-VF"}) == "32 devices of GPU in all, 1 of them free"
    assert told({"product_id": "2235"}) == "34 devices of GPU in all, 3 of them free"


def test_of_any_alternative_each_once() -> None:
    assert told({"product_id": "1eb8"}, {"vendor_id": "10de"}) == "42 devices of GPU in all, 3 of them free"


def test_nothing_of_ids_that_nobody_has_nor_of_requests_without_ids_nor_of_ports() -> None:
    assert told({"product_id": "1eb9"}) is None
    assert told({"resource_class": "PGPU"}) is None
    assert told({"vendor_id": "10de"}, alias=None) is None
