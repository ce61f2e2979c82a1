"""A Network service as small as can be, that answers as Neutron does (https://docs.openstack.org/api-ref/network/v2/): for the client's tests."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse

from jetbridge.service.http import HttpServer

OVS = {"bridge_name": "br-int", "connectivity": "l2"}


class Neutron:
    """``networks`` and ``ports`` are its database. Binding fails on hosts in ``dead``. ``taken_after_a_look``: ports that a server takes
    as soon as somebody has looked at them. ``refusing``: the status of all answers."""

    def __init__(self) -> None:
        self.networks: dict[str, dict[str, Any]] = {}
        self.ports: dict[str, dict[str, Any]] = {}
        self.dead: set[str] = set()
        self.asked: list[str] = []
        self.taken_after_a_look: dict[str, str] = {}
        self.refusing: int | None = None

    def network(self, name: str, **more: Any) -> str:
        made = {"id": str(uuid.uuid4()), "name": name, "project_id": "p1", "shared": True, **more}
        self.networks[made["id"]] = made
        return str(made["id"])

    def port(self, network_id: str, **more: Any) -> dict[str, Any]:
        made = {
            "id": str(uuid.uuid4()),
            "network_id": network_id,
            "project_id": "p1",
            "mac_address": f"fa:16:3e:00:00:{len(self.ports):02x}",
            "device_id": "",
            "device_owner": "",
            "fixed_ips": [],
            "binding:vnic_type": "normal",
            "binding:profile": {},
            "binding:host_id": "",
            "revision_number": 1,
            **more,
        }
        self.ports[made["id"]] = made
        self._wire(made)
        return made

    def _wire(self, port: dict[str, Any]) -> None:
        host, network = port["binding:host_id"], self.networks[port["network_id"]]
        if not host:
            port["binding:vif_type"], port["binding:vif_details"] = "unbound", {}
        elif host in self.dead:
            port["binding:vif_type"], port["binding:vif_details"] = "binding_failed", {}
        elif port["binding:vnic_type"] == "normal":
            port["binding:vif_type"], port["binding:vif_details"] = "ovs", OVS
        else:
            port["binding:vif_type"] = "hw_veb"
            port["binding:vif_details"] = {"vlan": str(network.get("provider:segmentation_id") or 0)}

    def app(self) -> FastAPI:
        app = FastAPI()

        def of(table: dict[str, dict[str, Any]], key: str) -> dict[str, Any]:
            if key not in table:
                raise HTTPException(404, f"{key} could not be found")
            return table[key]

        def listed(table: dict[str, dict[str, Any]], request: Request) -> list[dict[str, Any]]:
            wanted = dict(request.query_params)
            return [row for row in table.values() if all(str(row.get(name)) == value for name, value in wanted.items())]

        @app.middleware("http")
        async def note(request: Request, go_on: Any) -> Any:
            self.asked.append(f"{request.method} {request.url.path}")
            if self.refusing is not None:
                return refusal(self.refusing, "so not")
            return await go_on(request)

        @app.get("/")
        def versions(request: Request) -> Any:
            links = [{"rel": "self", "href": f"{str(request.base_url).rstrip('/')}/v2.0/"}]
            return {"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]}

        @app.get("/v2.0/networks")
        def networks(request: Request) -> Any:
            return {"networks": listed(self.networks, request)}

        @app.get("/v2.0/networks/{key}")
        def network(key: str) -> Any:
            return {"network": of(self.networks, key)}

        @app.get("/v2.0/ports")
        def ports(request: Request) -> Any:
            return {"ports": listed(self.ports, request)}

        @app.get("/v2.0/ports/{key}")
        def port(key: str) -> Any:
            found = of(self.ports, key)
            seen = dict(found)
            if key in self.taken_after_a_look:
                found["device_id"] = self.taken_after_a_look.pop(key)
                found["revision_number"] += 1
            return {"port": seen}

        @app.post("/v2.0/ports", status_code=201)
        async def create(request: Request) -> Any:
            body = (await request.json())["port"]
            of(self.networks, body["network_id"])
            return {"port": self.port(**{"network_id": body.pop("network_id"), **body})}

        @app.put("/v2.0/ports/{key}")
        async def update(key: str, request: Request) -> Any:
            found = of(self.ports, key)
            wanted = request.headers.get("If-Match")
            if wanted is not None and wanted != f"revision_number={found['revision_number']}":
                return refusal(412, f"Port {key} has another revision")
            found.update((await request.json())["port"])
            found["revision_number"] += 1
            self._wire(found)
            return {"port": found}

        @app.delete("/v2.0/ports/{key}", status_code=204)
        def delete(key: str) -> Response:
            of(self.ports, key)
            del self.ports[key]
            return Response(status_code=204)

        return app


def refusal(status: int, message: str) -> Response:
    """As Neutron words one."""
    return JSONResponse({"NeutronError": {"type": "Refused", "message": message, "detail": ""}}, status)


@contextmanager
def neutron() -> Iterator[tuple[Neutron, str]]:
    """One that runs, and its URL."""
    service, server = Neutron(), HttpServer("127.0.0.1", 0)
    server.start(service.app())
    try:
        yield service, server.base_url
    finally:
        server.stop()
