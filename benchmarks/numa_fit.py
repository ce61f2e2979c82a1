"""Guest cells on host cells: `python -m benchmarks.numa_fit`."""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.fleets import GPU, cell, cell_for_peer, request_for_peer
from benchmarks.measure import cpu_seconds, ratio, report
from jetbridge.numa.fit import fit_server
from jetbridge.numa.serial import guest_topology_to_json
from jetbridge.numa.topology import GuestCell, GuestTopology, HostTopology
from jetbridge.pci.device import DeviceType
from jetbridge.pci.fit import Refusal
from jetbridge.pci.pool import Pool
from jetbridge.pci.request import NumaPolicy, PciRequest
from tests.peer.process import peer

LINES = ['{"vendor_id": "10de"}']


def guest(cells: int) -> GuestTopology:
    return GuestTopology(
        tuple(GuestCell(at, frozenset(range(4 * at, 4 * at + 4)), frozenset(), 8192) for at in range(cells))
    )


def nowhere() -> list[Pool]:
    """Devices whose node is unknown: policy required refuses them on every placement."""
    return [
        Pool(**GPU, numa_node=None, dev_type=DeviceType.PCI, address=f"0000:{at:02x}:00.0", count=1)
        for at in range(1, 9)
    ]


def request() -> PciRequest:
    return PciRequest("r1", 1, (dict(GPU),), alias_name="gpu", numa_policy=NumaPolicy.REQUIRED)


def case(guests: int, hosts: int, *, fits: bool, nova: Any = None) -> dict[str, Any]:
    topology = HostTopology(tuple(cell(at) for at in range(hosts)))
    wanted, pools = guest(guests), [] if fits else nowhere()
    requests = [] if fits else [request()]
    own = cpu_seconds(lambda: fit_server(topology, wanted, pools, requests))
    answer = fit_server(topology, wanted, pools, requests)
    assert isinstance(answer, Refusal) != fits
    found: dict[str, Any] = {"guest_cells": guests, "host_cells": hosts, "fits": fits, "fit_s": round(own, 6)}
    if nova is None:
        return found
    theirs = nova.ask(
        "time_numa",
        host=[cell_for_peer(one) for one in topology.cells],
        guest=guest_topology_to_json(wanted),
        specs=LINES,
        devices=[{**GPU, "address": pool.address, "dev_type": "type-PCI", "numa_node": None} for pool in pools],
        requests=[request_for_peer(one) for one in requests],
        repeat=1,
    )
    assert theirs["fits"] == fits
    return {**found, "peer_s": round(theirs["seconds"], 5), "ratio": ratio(theirs["seconds"], own)}


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with peer() as nova:
        version = nova.ask("ask_version")
        cases = [
            case(2, 2, fits=True, nova=nova),
            case(2, 8, fits=True, nova=nova),
            case(2, 4, fits=False, nova=nova),
            case(2, 8, fits=False, nova=nova),
            case(4, 8, fits=False, nova=nova),
            case(4, 16, fits=False),  # 43,680 permutations: minutes for the peer
            case(8, 16, fits=False),  # 518,918,400
            case(8, 16, fits=True),
        ]
    worst = next(one for one in cases if (one["guest_cells"], one["host_cells"]) == (4, 16))
    report({"impossible_4_on_16_s": worst["fit_s"], "cases": cases, "peer_version": version})


if __name__ == "__main__":
    main()
