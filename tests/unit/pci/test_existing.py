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


def test_what_keeps_a_device_from_being_given_is_said() -> None:
    request = PciRequest("r", 1, ({"vendor_id": "10de"},), alias_name="GPU")
    one = [Existing("10de", "1eb8", DeviceType.PCI, 3, 0, cleaning=1, reserved=1)]
    assert in_all([request], lambda: one)["GPU"] == (
        "3 devices of GPU in all, none of them free, 1 waits for its cleaning (jetbridge devices tells how it goes), "
        "1 is reserved in Placement (used one-time-use: jetbridge devices clean HOST ADDRESS)"
    )
    more = [*one, Existing("10de", "2235", DeviceType.PF, 3, 1, cleaning=1, reserved=1)]
    told = in_all([request], lambda: more)["GPU"]
    assert "1 of them free, 2 wait for their cleaning (" in told
    assert ", 2 are reserved in Placement (" in told


def test_with_a_class_only_devices_of_it() -> None:
    kinds = [
        Existing("10de", "1eb8", DeviceType.PCI, 8, 2, resource_class="CUSTOM_A"),
        Existing("10de", "1eb8", DeviceType.PCI, 1, 1, resource_class="CUSTOM_B"),
        Existing("10de", "2235", DeviceType.PF, 4, 4, resource_class="CUSTOM_B"),
    ]

    def told(**properties: str) -> str:
        request = PciRequest("r", 1, (properties,), alias_name="GPU")
        return in_all([request], lambda: kinds, {"r": "CUSTOM_B"}).get("GPU", "")

    assert told(resource_class="b") == "5 devices of GPU in all, 5 of them free"
    assert told(resource_class="b", product_id="1eb8") == "1 device of GPU in all, 1 of them free"
    assert told(resource_class="b", product_id="1eb9") == ""
