"""The demo's second way into a guest: a slice of a GPU."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from jetbridge.cli.demo_story import BUILD_SECONDS, COMPUTE, OURS, READY_SECONDS, Journey
from jetbridge.cli.failures import CliError

_PAUSE_SECONDS = 0.05


def offered(journey: Journey) -> Mapping[str, Any] | None:
    """A type that some card of the fleet has left; None: there is none."""
    types = journey.client.get(f"{OURS}/vgpus/types")["types"]
    return next((each for each in types if each["total"] and each["used"] < each["total"]), None)


def boot_and_delete(journey: Journey, kind: Mapping[str, Any]) -> dict[str, Any]:
    """What became of a server with one vGPU of this type: the row of its vGPU and the XML in its guest. Raises ``CliError``."""
    flavor = {"name": "demo-vgpu", "ram": 256, "vcpus": 1, "disk": 0, "id": "demo-vgpu"}
    journey.client.post(f"{COMPUTE}/flavors", {"flavor": flavor})
    wish = {f"resources:{kind['resource_class']}": "1"}
    journey.client.post(f"{COMPUTE}/flavors/demo-vgpu/os-extra_specs", {"extra_specs": wish})
    server = _boot(journey, kind["host"])
    rows = [row for row in journey.client.get(f"{OURS}/vgpus")["vgpus"] if row["instance_uuid"] == server]
    if not rows:
        raise CliError(f"server {server} is ACTIVE but has no vGPU")
    xml = journey.client.get(f"{OURS}/servers/{server}/xml")["xml"]
    found = {"wish": wish, "vgpu": rows[0], "hostdev": _hostdev(xml, rows[0])}
    journey.client.send("DELETE", f"{COMPUTE}/servers/{server}", {})
    _until(journey, server, None)
    left = [row for row in journey.client.get(f"{OURS}/vgpus")["vgpus"] if row["instance_uuid"] == server]
    if left:
        raise CliError(f"the vGPU {left[0]['uuid']} was not given back")
    return found


def _boot(journey: Journey, host: str) -> str:
    """Its card may not be in Placement yet: a host is reported after it is seen."""
    images = journey.client.get("/image/v2/images", name="tiny")["images"]
    body = {
        "name": "demo-vgpu",
        "imageRef": images[0]["id"],
        "flavorRef": "demo-vgpu",
        "networks": "none",
        "availability_zone": f"nova:{host}",
    }
    deadline = time.monotonic() + READY_SECONDS
    while True:
        made: str = journey.client.post(f"{COMPUTE}/servers", {"server": body}, version="2.37")["server"]["id"]
        server = _until(journey, made, "ACTIVE")
        if server is not None and server["status"] == "ACTIVE":
            return made
        if time.monotonic() > deadline:
            fault = (server or {}).get("fault", {}).get("message", "no reason was given")
            raise CliError(f"the server with a vGPU went to ERROR: {fault}")
        journey.client.send("DELETE", f"{COMPUTE}/servers/{made}", {})
        _until(journey, made, None)


def _until(journey: Journey, server: str, wanted: str | None) -> Mapping[str, Any] | None:
    """The server once it has the status, or ERROR; None: it is gone."""
    deadline = time.monotonic() + BUILD_SECONDS
    while time.monotonic() < deadline:
        found: Mapping[str, Any] | None = journey.client.get_or_none(f"{COMPUTE}/servers/{server}", "server")
        if found is None or (wanted is not None and found["status"] in (wanted, "ERROR")):
            return found
        time.sleep(_PAUSE_SECONDS)
    raise CliError(f"nothing has become of server {server} for {BUILD_SECONDS:.0f} s")


def _hostdev(xml: str, vgpu: Mapping[str, Any]) -> str:
    """The element that gives it to the guest: by UUID, or the VF of that address."""
    from lxml import etree

    root = etree.fromstring(xml.encode())
    for hostdev in root.iterfind(".//devices/hostdev"):
        source = hostdev.find("source/address")
        if source is not None and (vgpu["uuid"] is None or source.get("uuid") == vgpu["uuid"]):
            hostdev.tail = None
            etree.indent(hostdev)
            return etree.tostring(hostdev, encoding="unicode")
    raise CliError(f"the hypervisor's XML has no <hostdev> for vGPU {vgpu['uuid']}")
