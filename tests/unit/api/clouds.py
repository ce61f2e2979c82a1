"""A Compute API to ask: the real routers over a database, a conductor and one agent that only write down what they get."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from httpx import Response

from jetbridge.api.app import create_app
from jetbridge.api.services import ApiServices
from jetbridge.config.settings import Settings
from jetbridge.db import compute_nodes, images, networks, servers
from jetbridge.db import services as service_rows
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.db.engine import Database
from jetbridge.db.networks import HostNetwork
from jetbridge.db.servers import Changes
from jetbridge.image.store import ImageDirectory
from jetbridge.model.context import ADMIN_ID, RequestContext
from jetbridge.model.image import Image, ImageStatus, Visibility
from jetbridge.model.server import PowerState, VmState
from jetbridge.pci.alias import parse_aliases
from jetbridge.rpc.bus import Bus
from jetbridge.rpc.inprocess import InProcessBus
from tests.schema import empty, new_database

URL = "http://127.0.0.1:8774"
ALIASES = ('{"name": "GPU", "vendor_id": "10de", "product_id": "1eb8", "device_type": "type-PCI"}',)
WORKERS = 2
IMAGE = "11111111-2222-4333-8444-555555555555"


Message = tuple[str, str, Mapping[str, Any], RequestContext]


@dataclass
class Inbox:
    """Messages in the order in which they came."""

    messages: list[Message] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def handler(self, topic: str, method: str) -> Callable[[RequestContext, Mapping[str, Any]], dict[str, Any]]:
        def handle(context: RequestContext, payload: Mapping[str, Any]) -> dict[str, Any]:
            with self.arrived:
                self.messages.append((topic, method, payload, context))
                self.arrived.notify_all()
            return {"output": "booted\n"} if method == "console_output" else {}

        return handle

    def wait(self, method: str, count: int = 1) -> list[Mapping[str, Any]]:
        """Payloads of ``method``, once there are ``count``."""

        def found() -> list[Mapping[str, Any]]:
            return [payload for _, name, payload, _ in self.messages if name == method]

        with self.arrived:
            assert self.arrived.wait_for(lambda: len(found()) >= count, timeout=10), self.messages
            return found()


@dataclass(frozen=True)
class Cloud:
    client: TestClient
    services: ApiServices
    inbox: Inbox
    workers: ThreadPoolExecutor
    hosts: Sequence[str]

    def arrived(self) -> list[Message]:
        """The messages, once all that were sent are there."""
        all_workers = threading.Barrier(WORKERS + 1)
        for _ in range(WORKERS):
            self.workers.submit(all_workers.wait, 30)
        all_workers.wait(30)
        return self.inbox.messages

    def as_new(self) -> None:
        """As ``open_cloud`` left it: making the routes takes longer than most tests."""
        self.arrived().clear()
        self.client.cookies.clear()
        for path in self.services.images.folder.iterdir():
            path.unlink()
        _serve(self.services.bus, self.inbox, self.hosts)
        self.database.write(empty)
        _fill(self.services, self.hosts)

    @property
    def database(self) -> Database:
        return self.services.database

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        version: str | None = None,
        headers: Mapping[str, str] | None = None,
        params: Any = None,
    ) -> Response:
        """``path`` below /compute/v2.1."""
        sent = dict(headers or {})
        if version is not None:
            sent["OpenStack-API-Version"] = f"compute {version}"
        return self.client.request(
            method,
            f"/compute/v2.1{path}",
            **({} if body is None else {"json": body}),
            headers=sent,
            params=params,
        )

    def get(self, path: str, **more: Any) -> Response:
        return self.ask("GET", path, **more)

    def flavor(self, name: str = "small", specs: Mapping[str, str] | None = None, **more: Any) -> str:
        body = {"name": name, "ram": 512, "vcpus": 1, "disk": 1, "id": name, **more}
        answer = self.ask("POST", "/flavors", {"flavor": body})
        assert answer.status_code == 200, answer.text
        if specs:
            answer = self.ask("POST", f"/flavors/{name}/os-extra_specs", {"extra_specs": dict(specs)})
            assert answer.status_code == 200, answer.text
        return name

    def boot(self, flavor: str = "small", *, version: str = "2.96", **more: Any) -> Response:
        server = {"name": "web", "imageRef": IMAGE, "flavorRef": flavor, "networks": "none", **more}
        return self.ask("POST", "/servers", {"server": server}, version=version)

    def booted(self, flavor: str = "small", **more: Any) -> str:
        answer = self.boot(flavor, **more)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["server"]["id"])

    def become(self, server_id: str, **changes: Any) -> None:
        """As the agent would write it."""
        typed: Changes = {**changes}  # type: ignore[typeddict-item]
        assert self.database.write(lambda conn: servers.update(conn, server_id, **typed))

    def active(self, server_id: str, host: str = "gpu001") -> None:
        with self.database.read() as conn:
            node = compute_nodes.of_host(conn, host)
        self.become(
            server_id,
            vm_state=VmState.ACTIVE,
            task_state=None,
            power_state=PowerState.RUNNING,
            host=host,
            node=host,
            compute_node_id=node.id,
        )


def message(answer: Response) -> str:
    """The message of a Compute API error, after its shape has been looked at."""
    body = answer.json()
    assert len(body) == 1, body
    (fault,) = body.values()
    assert fault["code"] == answer.status_code
    return str(fault["message"])


@contextmanager
def open_cloud(
    folder: Path,
    *,
    settings: Settings | None = None,
    aliases: Sequence[str] = ALIASES,
    hosts: Sequence[str] = ("gpu001", "gpu002"),
) -> Iterator[Cloud]:
    settings = settings or Settings()
    database = new_database(folder / "jetbridge.sqlite3")
    inbox = Inbox()
    with ThreadPoolExecutor(WORKERS) as pool:
        bus = InProcessBus(pool)
        _serve(bus, inbox, hosts)
        services = ApiServices(
            database=database,
            bus=bus,
            settings=settings,
            aliases=parse_aliases(aliases),
            images=ImageDirectory(database, folder / "images"),
            new_id=lambda: str(uuid.uuid4()),
        )
        _fill(services, hosts)
        with TestClient(create_app(services), base_url=URL) as client:
            yield Cloud(client, services, inbox, pool, hosts)
    database.close()


def _serve(bus: Bus, inbox: Inbox, hosts: Sequence[str]) -> None:
    methods = ("build_servers", "delete_server", "retire_hosts")
    bus.serve("conductor", {name: inbox.handler("conductor", name) for name in methods})
    agent = ("external_event", "start_server", "stop_server", "reboot_server", "console_output")
    for host in hosts:
        bus.serve("compute", {name: inbox.handler(host, name) for name in agent}, server=host)


def _fill(services: ApiServices, hosts: Sequence[str]) -> None:
    def write(conn: Any) -> None:
        service_rows.register(conn, list(hosts), "nova-compute", "compute", "test", services.new_id)
        service_rows.register(conn, ["controller"], "nova-conductor", "conductor", "test", services.new_id)
        for host in hosts:
            node = ComputeNode(
                uuid=services.new_id(),
                host=host,
                hypervisor_hostname=host,
                hypervisor_type="QEMU",
                hypervisor_version=8000000,
                vcpus=32,
                memory_mb=65536,
                local_gb=1000,
                cpu_allocation_ratio=4.0,
                ram_allocation_ratio=1.0,
                disk_allocation_ratio=1.0,
                reserved_memory_mb=512,
                cpu_info='{"arch": "x86_64", "model": "Cascadelake"}',
                host_ip="192.0.2.1",
            )
            stored = compute_nodes.upsert(conn, node)
            networks.replace(conn, stored.id, [HostNetwork("default", "network")])

    services.database.write(write)
    put_image(services)


def put_image(services: ApiServices, image_id: str = IMAGE, **more: Any) -> None:
    """An image as if its data had been uploaded."""
    image = Image(
        id=image_id,
        owner=ADMIN_ID,
        status=ImageStatus.ACTIVE,
        created_at=services.images.clock(),
        name="cirros",
        visibility=Visibility.PUBLIC,
        disk_format="qcow2",
        container_format="bare",
        size=1024,
    )
    services.database.write(lambda conn: images.insert(conn, replace(image, **more)))
