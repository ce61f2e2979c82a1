"""Pools of one host with very many devices: `python -m benchmarks.pools --devices 10000`."""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.fleets import GPU
from benchmarks.measure import cpu_seconds, ratio, report
from jetbridge.pci.device import DeviceType, PciDevice
from jetbridge.pci.pool import pools_of
from tests.peer.process import peer

LINES = ['{"vendor_id": "10de", "product_id": "1eb8"}']


def address(number: int) -> str:
    return f"{number >> 13:04x}:{(number >> 5) & 255:02x}:{number & 31:02x}.0"


def devices(count: int) -> list[PciDevice]:
    """Every one a pool of its own."""
    return [
        PciDevice(1, address(number), **GPU, dev_type=DeviceType.PCI, numa_node=number % 2, uuid=str(number))
        for number in range(count)
    ]


def rows(count: int) -> list[dict[str, Any]]:
    return [{**GPU, "address": address(n), "dev_type": "type-PCI", "numa_node": n % 2} for n in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=10000)
    parser.add_argument("--peer-devices", type=int, help="Fewer for the peer, whose time grows with the square.")
    options = parser.parse_args()
    half, whole = devices(options.devices // 2), devices(options.devices)
    for_peer = options.peer_devices or options.devices
    own, half_s = cpu_seconds(lambda: pools_of(whole)), cpu_seconds(lambda: pools_of(half))
    with peer() as nova:
        answer = nova.ask("time_pools", specs=LINES, devices=rows(for_peer))
        version = nova.ask("ask_version")
    report(
        {
            "devices": options.devices,
            "pools": len(pools_of(whole)),
            "pools_s": round(own, 4),
            "growth": round(own / half_s, 2),
            "peer_devices": for_peer,
            "peer_s": round(answer["seconds"], 3),
            "peer_version": version,
            "ratio": ratio(answer["seconds"], own) if for_peer == options.devices else None,
        }
    )


if __name__ == "__main__":
    main()
