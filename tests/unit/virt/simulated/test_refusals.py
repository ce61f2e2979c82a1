"""The simulated hypervisor refuses what the real one refuses, in its words, as the lab heard them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from jetbridge.errors import HypervisorError
from jetbridge.virt.connection import HypervisorConnection
from jetbridge.virt.nodedev import PciFunction, parse_node_device
from jetbridge.virt.simulated.rules import read_domain
from tests.refusals import CASES, Case, guest, says
from tests.unit.virt.fleets import LAB, opened

BODY = """
hardware: [lab]
numa: {cells: 2, cpus_per_cell: 1, memory_mb_per_cell: 1536, sockets: 1}
"""


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_refusal_has_the_words_of_libvirt(tmp_path: Path, case: Case) -> None:
    connection, _ = opened(tmp_path, BODY)
    kernel = tmp_path / "kernel"
    kernel.touch()
    if "held" in case:
        create(connection, guest("other", {}, *case["held"], kernel=str(kernel)))
    with pytest.raises(HypervisorError) as refused:
        create(connection, guest("refused", case, *case.get("wanted", ()), kernel=str(kernel)))
    assert says(case, refused.value.message), refused.value.message


def test_the_template_has_the_devices_of_the_lab_as_libvirt_describes_them(tmp_path: Path) -> None:
    connection, _ = opened(tmp_path, BODY)
    simulated = functions(connection.node_devices())
    real = functions([path.read_text() for path in LAB.glob("pci_*.xml")])
    both = {address for address in simulated.keys() & real.keys() if not real[address].is_bridge}
    assert len(both) == 9
    assert {address: facts(simulated[address]) for address in both} == {
        address: facts(real[address]) for address in both
    }


def create(connection: HypervisorConnection, document: str) -> None:
    connection.define_domain(document)
    connection.start_domain(read_domain(document).name)


def functions(documents: Iterable[str]) -> dict[str, PciFunction]:
    nodes = map(parse_node_device, documents)
    return {node.pci.address: node.pci for node in nodes if node.pci is not None}


def facts(function: PciFunction) -> tuple[object, ...]:
    return (
        function.vendor_id,
        function.product_id,
        function.class_code,
        function.numa_node,
        function.parent_addr,
        function.virt_functions,
        function.max_vfs,
        sorted(function.iommu_members),
    )
