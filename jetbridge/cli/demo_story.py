"""What the demo does: one device's way from a line in a flavor into a guest and back, over HTTP against a real service."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jetbridge.cli.client import Client
from jetbridge.cli.failures import CliError
from jetbridge.journey.seams import CLIENT
from jetbridge.model.events import Seam, SeamEvent
from jetbridge.pci.device import DeviceType
from jetbridge.pci.fit import Choice, fit
from jetbridge.pci.pool import Pool
from jetbridge.pci.request import Alias, AliasTable, PciRequest
from jetbridge.pci.words import lenient_bool

COMPUTE = "/compute/v2.1"
OURS = "/jetbridge/v1"
_PAUSE_SECONDS = 0.02
READY_SECONDS = 30.0
BUILD_SECONDS = 90.0


@dataclass
class Story:
    """What happened, for ``--json`` and for the last lines. Filled in as it happens."""

    hosts: tuple[str, ...] = ()
    alias: Alias | None = None
    flavor: Mapping[str, Any] = field(default_factory=dict)
    server: str = ""
    host: str = ""
    device: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    hostdev: str = ""
    free_before: int = 0
    free_during: int = 0
    free_after: int = 0
    build_seconds: float = 0.0
    vgpu: Mapping[str, Any] = field(default_factory=dict)
    events: list[SeamEvent] = field(default_factory=list)
    placement: Mapping[str, Any] | None = None  # what model 2 made of it; None: it wasn't shown

    def to_json(self) -> dict[str, Any]:
        assert self.alias is not None
        return {
            "hosts": list(self.hosts),
            "alias": {
                "name": self.alias.name,
                "numa_policy": self.alias.numa_policy.value,
                "properties": [dict(properties) for properties in self.alias.properties],
            },
            "flavor": dict(self.flavor),
            "server": self.server,
            "request": {"request_id": self.device["request_id"], "alias_name": self.alias.name, "count": 1},
            "host": self.host,
            "device": dict(self.device),
            "domain": self.domain,
            "hostdev": self.hostdev,
            "free": {"before": self.free_before, "during": self.free_during, "after": self.free_after},
            "build_seconds": round(self.build_seconds, 3),
            "vgpu": dict(self.vgpu),
            "placement": self.placement,
            "events": [event_json(event) for event in self.events],
        }


def event_json(event: SeamEvent) -> dict[str, Any]:
    return {
        "seam": event.seam.value,
        "from": event.source,
        "to": event.target,
        "what": event.what,
        "request_id": event.request_id,
        "server": event.server,
        "at": event.at,
        "seconds": event.seconds,
        "essentials": dict(event.essentials),
    }


# --- choosing a device ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """An alias that some host can serve now."""

    alias: Alias
    host: str


def pools_by_host(client: Client) -> dict[str, list[Pool]]:
    found: dict[str, list[Pool]] = {}
    for view in client.get(f"{OURS}/pools")["pools"]:
        pool = Pool(
            vendor_id=view["vendor_id"],
            product_id=view["product_id"],
            numa_node=view["numa_node"],
            dev_type=DeviceType(view["dev_type"]),
            address=view["address"],
            count=view["count"],
            tags=view["tags"],
            parent_ifname=view["parent_ifname"],
        )
        found.setdefault(view["host"], []).append(pool)
    return found


def find_target(aliases: AliasTable, pools: Mapping[str, Sequence[Pool]]) -> Target | None:
    """The first alias, in the order configured, that a host has a free device for."""
    for alias in aliases.values():
        request = PciRequest("demo", 1, alias.properties, alias.name, numa_policy=alias.numa_policy)
        for host, host_pools in pools.items():
            if isinstance(fit(host_pools, [request]), Choice):
                return Target(alias, host)
    return None


def has_alias(pool: Pool) -> bool:
    """Whether an alias can ask for the pool's devices: vDPA devices and remote-managed ones are given to network ports only."""
    return pool.dev_type is not DeviceType.VDPA and not lenient_bool(pool.tags.get("remote_managed"))


def alias_of_pool(pool: Pool) -> dict[str, str]:
    """An alias line that matches exactly the kind of device in the pool."""
    return {
        "name": "DEMO",
        "vendor_id": pool.vendor_id,
        "product_id": pool.product_id,
        "device_type": pool.dev_type.value,
    }


# --- the journey ----------------------------------------------------------------------------------


@dataclass
class Journey:
    """Drives the service; ``events`` is what its seams say, ``tell`` is called with each as it comes."""

    client: Client
    events: queue.SimpleQueue[SeamEvent]
    tell: Callable[[SeamEvent], None]
    story: Story = field(default_factory=Story)

    def wait_for_hosts(self, aliases: AliasTable) -> Mapping[str, Sequence[Pool]]:
        """Until every host has reported and, where aliases are configured, one can be served (or all have had time)."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            hosts = self.client.get(f"{OURS}/hosts")["hosts"]
            if (
                hosts and all(host["state"] == "up" and host["reported"] for host in hosts)
            ) or time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_SECONDS)
        if not hosts:
            raise CliError("no host of the fleet has reported: the log in the state folder tells why")
        self.story.hosts = tuple(sorted(host["host"] for host in hosts))
        return pools_by_host(self.client)

    def make_flavor(self, alias: Alias) -> None:
        self.make_flavor_of({"pci_passthrough:alias": f"{alias.name}:1"})
        self.story.alias = alias

    def make_flavor_of(self, extra: Mapping[str, str]) -> None:
        body = {"name": "demo", "ram": 256, "vcpus": 1, "disk": 0, "id": "demo"}
        self.client.post(f"{COMPUTE}/flavors", {"flavor": body})
        self.client.post(f"{COMPUTE}/flavors/demo/os-extra_specs", {"extra_specs": extra})
        self.story.flavor = {**body, "extra_specs": extra}

    def boot(self, host: str | None = None) -> None:
        """Until the server is ACTIVE, on ``host`` if one is named. Raises ``CliError`` with its fault."""
        images = self.client.get("/image/v2/images", name="tiny")["images"]
        if not images:
            raise CliError("the built-in image tiny is missing")
        self._forget_events()
        body = {
            "name": "demo",
            "imageRef": images[0]["id"],
            "flavorRef": "demo",
            "networks": "none",
            "min_count": 1,
            "max_count": 1,
            **({} if host is None else {"availability_zone": f"nova:{host}"}),
        }
        began = time.monotonic()
        # 2.37 is the version from which networks may be "none".
        self.story.server = self.client.post(f"{COMPUTE}/servers", {"server": body}, version="2.37")["server"]["id"]
        for server in self._watch():
            if server is None:
                raise CliError("the server vanished while it was built")
            if server["status"] == "ERROR":
                self._listen()
                fault = server.get("fault", {}).get("message", "no reason was given")
                raise CliError(f"the server went to ERROR: {fault}")
            if server["status"] == "ACTIVE":
                self.story.build_seconds = time.monotonic() - began
                self._listen()
                return

    def look(self) -> None:
        """What came of the line: request, host, device, XML as the hypervisor holds it."""
        story = self.story
        devices = self.client.get(f"{OURS}/devices", server=story.server)["devices"]
        if not devices:
            raise CliError(f"server {story.server} is ACTIVE but owns no device")
        story.device = devices[0]
        story.host = devices[0]["host"]
        document = self.client.get(f"{OURS}/servers/{story.server}/xml")
        story.domain = document["domain"]
        story.hostdev = hostdev_of(document["xml"], story.device["address"])
        self._listen()

    def pools(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self.client.get(f"{OURS}/pools")["pools"]
        return found

    def free_in(self, pools: Sequence[Mapping[str, Any]]) -> int:
        """How many devices of the given kind the pools of its host hold."""
        wanted = (self.story.host, *(self.story.device[key] for key in ("vendor_id", "product_id", "dev_type")))
        return sum(
            pool["count"]
            for pool in pools
            if (pool["host"], pool["vendor_id"], pool["product_id"], pool["dev_type"]) == wanted
        )

    def delete(self) -> None:
        """Until the server is gone."""
        self.client.send("DELETE", f"{COMPUTE}/servers/{self.story.server}", {})
        for server in self._watch():
            if server is None:
                self._listen()
                return
            if server["status"] == "ERROR":
                raise CliError(f"the delete failed: {server.get('fault', {}).get('message', 'no reason was given')}")

    def _watch(self) -> Iterator[Mapping[str, Any] | None]:
        """The server, again and again; None when it is gone. Raises ``CliError`` after a while."""
        deadline = time.monotonic() + BUILD_SECONDS
        while time.monotonic() < deadline:
            self._listen()
            yield self.client.get_or_none(f"{COMPUTE}/servers/{self.story.server}", "server")
            time.sleep(_PAUSE_SECONDS)
        raise CliError(f"nothing has become of server {self.story.server} for {BUILD_SECONDS:.0f} s")

    def _listen(self) -> None:
        heard = []
        while not self.events.empty():
            event = self.events.get()
            if not (
                event.seam is Seam.REST and event.source == CLIENT and event.what.startswith("GET ")
            ):  # our own looking
                heard.append(event)
        # A call is told when it is over, and what it caused before that.
        for event in sorted(heard, key=lambda event: event.at):
            self.story.events.append(event)
            self.tell(event)

    def _forget_events(self) -> None:
        while not self.events.empty():
            self.events.get()


def hostdev_of(xml: str, address: str) -> str:
    """The ``<hostdev>`` element whose source is the device at ``address``. Raises ``CliError`` when there is none."""
    from lxml import etree

    domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    wanted = [int(part, 16) for part in (domain, bus, slot, function)]
    root = etree.fromstring(xml.encode())
    for hostdev in root.iterfind(".//devices/hostdev"):
        source = hostdev.find("source/address")
        if source is None or source.get("bus") is None:
            continue
        found = [int(source.get(key, "0"), 16) for key in ("domain", "bus", "slot", "function")]
        if found == wanted:
            hostdev.tail = None
            etree.indent(hostdev)
            return etree.tostring(hostdev, encoding="unicode")
    raise CliError(f"the hypervisor's XML has no <hostdev> for {address}")
