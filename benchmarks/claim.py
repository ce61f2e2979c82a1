"""The host's side: take devices and give them back: `python -m benchmarks.claim`.

The peer changes lists in memory. Ours fits and picks the same way, from rows; a claim is then one transaction, which is reported beside it.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

from benchmarks.fleets import GPU, request_for_peer
from benchmarks.measure import cpu_seconds, ratio, report
from jetbridge.pci.device import DeviceType, PciDevice, claim, free
from jetbridge.pci.fit import Choice, fit, pick_devices
from jetbridge.pci.pool import pools_of
from jetbridge.pci.request import PciRequest
from tests.peer.process import peer

LINES = ['{"vendor_id": "10de"}']
VF = {"vendor_id": "10de", "product_id": "26ba"}
TIMES = 20


def gpus(count: int) -> list[PciDevice]:
    return [
        PciDevice(1, f"0000:{at:02x}:00.0", **GPU, dev_type=DeviceType.PCI, numa_node=at * 2 // count)
        for at in range(count)
    ]


def vfs(count: int) -> list[PciDevice]:
    """Eight a card."""
    return [
        PciDevice(
            1,
            f"0000:{at // 8:02x}:{(at % 8 + 1) >> 3:02x}.{(at % 8 + 1) & 7}",
            **VF,
            dev_type=DeviceType.VF,
            numa_node=at * 2 // count,
            parent_addr=f"0000:{at // 8:02x}:00.0",
        )
        for at in range(count)
    ]


def request(properties: dict[str, str], count: int) -> PciRequest:
    return PciRequest("r1", count, (properties,), alias_name="gpu")


def take_and_give_back(devices: list[PciDevice], wanted: PciRequest) -> None:
    choice = fit(pools_of(devices), [wanted])
    assert isinstance(choice, Choice)
    book = {device.address: device for device in devices}
    for device in pick_devices(devices, choice)["r1"]:
        book.update(claim(book, device.address, "server", "r1"))
    for device in [one for one in book.values() if one.owned]:
        book.update(free(book, device.address, "server"))


def case(nova: Any, name: str, devices: list[PciDevice], properties: dict[str, str], count: int) -> dict[str, Any]:
    wanted = request(properties, count)
    own = cpu_seconds(lambda: [take_and_give_back(devices, wanted) for _ in range(TIMES)]) / TIMES
    keys = ("address", "vendor_id", "product_id", "numa_node", "parent_addr")
    rows = [{**{key: getattr(one, key) for key in keys}, "dev_type": one.dev_type.value} for one in devices]
    theirs = nova.ask("time_claim", specs=LINES, devices=rows, requests=[request_for_peer(wanted)], repeat=TIMES)[
        "seconds"
    ]
    return {
        "devices": f"{len(devices)} {name}",
        "count": count,
        "claim_us": round(1e6 * own, 1),
        "peer_us": round(1e6 * theirs, 1),
        "ratio": ratio(theirs, own),
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with peer() as nova, tempfile.TemporaryDirectory() as folder:
        from benchmarks.stored import claim_ms

        cases = [
            case(nova, name, devices, properties, count)
            for name, devices, properties in (("GPUs", gpus(8), GPU), ("VFs", vfs(64), VF), ("VFs", vfs(128), VF))
            for count in (1, 8)
        ]
        report(
            {
                "cases": cases,
                "transaction_ms": claim_ms(f"sqlite:///{folder}/claim.sqlite3"),
                "peer_version": nova.ask("ask_version"),
            }
        )


if __name__ == "__main__":
    main()
