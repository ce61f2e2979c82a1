"""A running Jetbridge for tests, driven over HTTP as its users do, and looked at in its tables and hypervisor journals."""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa
import yaml
from sqlalchemy.engine import URL

from jetbridge.config.fleet import load_fleet
from jetbridge.config.settings import Settings
from jetbridge.db.url import parse
from jetbridge.model.events import SeamEvent
from jetbridge.service.allinone import AllInOne
from jetbridge.service.statedir import make_state_dir
from jetbridge.steps.runtime import Observer, nobody
from tests.schema import migrated
from tests.servers.external_placement import chosen_placement
from tests.servers.placement import forks

DEADLINE = 60.0
T4 = {"vendor_id": "10de", "product_id": "1eb8"}
T4_ALIAS = {"name": "GPU", **T4, "device_type": "type-PCI"}


def gpu(bus: int, numa_node: int | None = None, **more: Any) -> dict[str, Any]:
    """A T4 at 0000:BUS:00.0."""
    entry: dict[str, Any] = {"address": f"0000:{bus:02x}:00.0", **T4, "driver": "vfio-pci", **more}
    return entry if numa_node is None else {**entry, "numa_node": numa_node}


VF_CARD = {
    "address": "0000:a1:00.0",
    "vendor_id": "15b3",
    "product_id": "101d",
    "driver": "mlx5_core",
    "interface": "p0",
    "pf": {"vfs": 2, "max_vfs": 8, "vf_product_id": "101e", "vf_interface": "p0v"},
}
"""A network card with two VFs."""

LEDGERS = (
    *("pci_devices", "vgpus", "vgpu_cards", "accelerators", "attach_handles", "accelerator_requests", "server_arqs"),
    *("instances", "instance_extra", "request_specs", "builds", "verdicts", "virtual_interfaces", "ports", "networks"),
    *("compute_nodes", "placement_providers", "placement_consumers", "device_cleanings", "services"),
)
"""The tables that say who has what."""

VF_SPEC = [{"vendor_id": "15b3", "product_id": "101e", "physical_network": "n1"}]
"""The device_spec that gives its VFs to ports on the physical network n1."""


def host(name: str, devices: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    return {"name": name, "vcpus": 64, "memory_mb": 262144, "devices": list(devices), **more}


def fleet(*hosts: Mapping[str, Any], **config: Any) -> dict[str, Any]:
    """A fleet whose hosts give all their T4s away under the alias GPU. ``config``: sections over that."""
    pci = {"device_spec": [T4], "alias": [T4_ALIAS], **config.pop("pci", {})}
    return {"hosts": list(hosts), "config": {"pci": pci, **config}}


class Cloud:
    """``start`` and ``stop`` as often as wanted: the state folder stays. A new one has our tables already, copied from a file: a
    folder that a test made itself gets them by the migrations, as a person's does."""

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        self.folder = folder
        self.fleet_file = folder / "fleet.yaml"
        self.state = folder / "state"
        self.settings = settings or Settings()
        if self.settings.placement_endpoint_override is None:
            external = chosen_placement(folder / "external-placement.log")
            if external is not None:
                weakref.finalize(self, external.stop)
                self.settings = replace(self.settings, placement_endpoint_override=external.url)
        self.events: list[SeamEvent] = []
        self.service: AllInOne | None = None
        self.url = ""
        self.deadline = DEADLINE
        self.client = httpx.Client()

    @property
    def placement_url(self) -> str:
        """Where clients find it, once the service has started."""
        if self.settings.placement_endpoint_override is not None:
            return self.settings.placement_endpoint_override
        known = yaml.safe_load((self.state / "clouds.yaml").read_text())
        return str(known["clouds"]["jetbridge"]["auth"]["endpoint"])

    @property
    def database_url(self) -> URL:
        return parse(self.settings.database_connection or f"sqlite:///{self.state / 'jetbridge.sqlite3'}")

    def write_fleet(self, content: Mapping[str, Any]) -> None:
        self.fleet_file.write_text(yaml.safe_dump(dict(content), sort_keys=False))

    def start(self, observe: Observer = nobody) -> None:
        if not self.state.exists() and self.settings.database_connection is None:
            make_state_dir(self.state)
            (self.state / "jetbridge.sqlite3").write_bytes(migrated())
        service = AllInOne(
            self.settings,
            load_fleet(self.fleet_file),
            self.state,
            port=0,
            spawn=forks(),
            events=self.events.append,
            observe=observe,
        )
        self.url = service.start()
        self.service = service
        self.client = httpx.Client(
            base_url=f"{self.url}/compute/v2.1", headers={"OpenStack-API-Version": "compute 2.96"}, timeout=DEADLINE
        )

    def stop(self) -> None:
        if self.service is not None:
            self.client.close()
            self.service.stop()
            self.service = None

    # --- what users do ---

    def flavor(self, name: str, extra_specs: Mapping[str, str], **size: int) -> str:
        body = {"name": name, "ram": 512, "vcpus": 1, "disk": 1, **size}
        flavor_id: str = self._ok(self.client.post("/flavors", json={"flavor": body}))["flavor"]["id"]
        if extra_specs:
            path = f"/flavors/{flavor_id}/os-extra_specs"
            self._ok(self.client.post(path, json={"extra_specs": dict(extra_specs)}))
        return flavor_id

    def boot(self, flavor_id: str, name: str = "s", **more: Any) -> str:
        """The new server's id; how it ends is for ``wait``."""
        body = {"name": name, "flavorRef": flavor_id, "imageRef": self.image(), "networks": "none", **more}
        server_id: str = self._ok(self.client.post("/servers", json={"server": body}))["server"]["id"]
        return server_id

    def image(self) -> str:
        answer = self._ok(self.client.get(f"{self.url}/image/v2/images"))
        image_id: str = answer["images"][0]["id"]
        return image_id

    def show(self, server_id: str) -> dict[str, Any]:
        server: dict[str, Any] = self._ok(self.client.get(f"/servers/{server_id}"))["server"]
        return server

    def wait(self, server_id: str, *statuses: str) -> dict[str, Any]:
        """The server once its status is one of ``statuses`` and nothing is under way."""

        def settled() -> dict[str, Any] | None:
            server = self.show(server_id)
            idle = server["OS-EXT-STS:task_state"] is None
            return server if server["status"] in statuses and idle else None

        return self.until(settled, f"server {server_id} is {' or '.join(statuses)}", lambda: self.show(server_id))

    def act(self, server_id: str, action: str, argument: Any = None) -> None:
        answer = self.client.post(f"/servers/{server_id}/action", json={action: argument})
        assert answer.status_code < 300, answer.text

    def delete(self, server_id: str) -> None:
        answer = self.client.delete(f"/servers/{server_id}")
        assert answer.status_code == 204, answer.text

    def wait_gone(self, server_id: str) -> None:
        self.until(lambda: self.client.get(f"/servers/{server_id}").status_code == 404, f"server {server_id} is gone")

    def reload(self, content: Mapping[str, Any]) -> dict[str, Any]:
        self.write_fleet(content)
        return self._ok(self.client.post(f"{self.url}/jetbridge/v1/fleet/reload"))

    def update_resources(self, host_name: str) -> None:
        """One pass of inventory and reconciliation, now."""
        from jetbridge.model.context import ADMIN_ID, RequestContext

        assert self.service is not None
        context = RequestContext(ADMIN_ID, ADMIN_ID, frozenset({"admin"}), "req-test")
        self.service.bus.call(context, "compute", "update_resources", {}, source="test", server=host_name)

    # --- what there is ---

    def sql(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        engine = sa.create_engine(self.database_url)
        try:
            with engine.connect() as conn:
                return [tuple(row) for row in conn.execute(sa.text(query), values)]
        finally:
            engine.dispose()

    def change(self, statement: str, **values: Any) -> None:
        """Damage the tables, as a crash or a person might."""
        engine = sa.create_engine(self.database_url)
        try:
            with engine.begin() as conn:
                conn.execute(sa.text(statement), values)
        finally:
            engine.dispose()

    def devices(self, host_name: str | None = None) -> dict[tuple[str, str], tuple[str, str | None]]:
        """(host, address) to (status, owner)."""
        rows = self.sql(
            "SELECT n.host, d.address, d.status, d.instance_uuid FROM pci_devices d"
            " JOIN compute_nodes n ON n.id = d.compute_node_id WHERE d.deleted = 0 AND n.deleted = 0"
        )
        return {(row[0], row[1]): (row[2], row[3]) for row in rows if host_name in (None, row[0])}

    def statuses(self, host_name: str | None = None) -> list[str]:
        return sorted(status for status, _ in self.devices(host_name).values())

    def owned(self, server_id: str) -> list[str]:
        return sorted(address for (_, address), (_, owner) in self.devices().items() if owner == server_id)

    def reported(self) -> None:
        """Hosts are told to Placement in the background, which marks their rows; before it they get no servers."""
        self.until(
            lambda: not self.sql("SELECT id FROM compute_nodes WHERE deleted = 0 AND NOT reported"),
            "hosts are reported",
        )

    def domains(self, host_name: str) -> dict[str, dict[str, Any]]:
        """What the simulated hypervisor holds, by domain name."""
        path = self.state / "sim" / host_name / "state.json"
        held: dict[str, dict[str, Any]] = json.loads(path.read_text())["domains"] if path.exists() else {}
        return held

    def ledgers(self) -> dict[str, Any]:
        """Everything that must be as it was after something that has no effect."""
        self.reported()
        rows: dict[str, Any] = {name: sorted(map(repr, self.sql(f"SELECT * FROM {name}"))) for name in LEDGERS}
        rows["services"] = self.sql("SELECT host, disabled, forced_down FROM services ORDER BY id")
        for path in sorted((self.state / "sim").glob("*/state.json")):
            rows[str(path)] = path.read_text()
        return rows

    def log(self) -> str:
        return (self.state / "jetbridge.log").read_text()

    def until(self, check: Callable[[], Any], what: str, show: Callable[[], Any] | None = None) -> Any:
        """The first true answer of ``check``. The outside has no event to wait for: this is how clients wait as well."""
        end = time.monotonic() + self.deadline
        while True:
            answer = check()
            if answer:
                return answer
            if time.monotonic() > end:
                raise AssertionError(
                    f"Not so after {self.deadline:g} s: {what}; {show() if show else ''}\n{self.log()[-4000:]}"
                )
            time.sleep(0.02)

    def _ok(self, answer: httpx.Response) -> dict[str, Any]:
        assert answer.status_code < 300, f"{answer.request.method} {answer.request.url}: {answer.text}"
        content: dict[str, Any] = answer.json()
        return content


@contextmanager
def running(folder: Path, content: Mapping[str, Any], settings: Settings | None = None) -> Iterator[Cloud]:
    cloud = Cloud(folder, settings)
    cloud.write_fleet(content)
    cloud.start()
    try:
        yield cloud
    finally:
        cloud.stop()
