"""Cards that change hands while guests have them. Apart from test_accelerators.py, whose cloud lives as long as its tests: of separate
services only one cloud can be on a RabbitMQ.
"""

from __future__ import annotations

from tests.system.cloud import fleet, gpu, host
from tests.system.conftest import Launch
from tests.system.test_accelerators import Accelerators, accelerated


def test_a_function_that_comes_to_pci_while_a_guest_has_it_is_held_back_and_no_drift(launch: Launch) -> None:
    cloud = launch(fleet(accelerated("h1", gpu(1))))
    accelerators = Accelerators(cloud)
    accelerators.prepare()
    server = accelerators.boot("one")
    cloud.wait(server, "ACTIVE")
    cloud.reload(fleet(host("h1", [gpu(1)])))
    assert cloud.sql("SELECT status, condition FROM pci_devices WHERE deleted = 0") == [("available", "accelerator")]
    audit = cloud.client.get(f"{cloud.url}/jetbridge/v1/audit", params={"host": "h1"}).json()
    assert audit["findings"] == []
    cloud.delete(server)
    cloud.wait_gone(server)
    cloud.update_resources("h1")
    assert cloud.sql("SELECT status, condition FROM pci_devices WHERE deleted = 0") == [("available", "ok")]
