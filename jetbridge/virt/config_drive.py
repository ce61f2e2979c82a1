"""What stands on a guest's config drive, in the layout that cloud-init and cirros read.

https://docs.openstack.org/nova/latest/user/metadata.html describes the format.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from jetbridge.errors import Invalid
from jetbridge.model.server import Server

_FOLDER = "openstack/latest"


def config_drive_files(
    server: Server, *, public_key: str | None = None, random_seed: bytes | None = None
) -> Mapping[str, bytes]:
    """Path on the drive to content. ``public_key`` is the text of the server's key pair (``server.key_name``); ``random_seed``
    feeds the guest's entropy pool at its first boot. Raises ``Invalid`` for user data that is not base64."""
    files = {
        f"{_FOLDER}/meta_data.json": _json(_meta_data(server, public_key, random_seed)),
        f"{_FOLDER}/network_data.json": _json(_network_data(server)),
        f"{_FOLDER}/vendor_data.json": _json({}),
    }
    if server.user_data:
        files[f"{_FOLDER}/user_data"] = _decoded(server.user_data)
    return files


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _decoded(user_data: str) -> bytes:
    try:
        return base64.b64decode(user_data, validate=True)
    except binascii.Error as error:
        raise Invalid(reason=f"user_data is not base64 text: {error}") from None


def _meta_data(server: Server, public_key: str | None, random_seed: bytes | None) -> dict[str, Any]:
    content: dict[str, Any] = {
        "uuid": server.uuid,
        "name": server.display_name,
        "hostname": server.hostname or server.display_name,
        "launch_index": server.launch_index,
        "availability_zone": server.availability_zone or "nova",
        "project_id": server.project_id,
        "meta": dict(server.metadata),
        "devices": [
            {"type": "nic", "bus": "none", "address": "none", "mac": nic.mac, "tags": [nic.tag]}
            for nic in server.networks
            if nic.tag
        ],
    }
    if server.key_name and public_key:
        content["public_keys"] = {server.key_name: public_key}
        content["keys"] = [{"name": server.key_name, "type": "ssh", "data": public_key}]
    if random_seed is not None:
        content["random_seed"] = base64.b64encode(random_seed).decode()
    return content


def _network_data(server: Server) -> dict[str, Any]:
    """Every NIC asks DHCP: libvirt's networks and the bridges' own networks answer, Jetbridge gives no addresses."""
    links, networks = [], []
    for number, nic in enumerate(server.networks):
        links.append({"id": f"nic{number}", "type": "phy", "ethernet_mac_address": nic.mac, "vif_id": nic.network})
        networks.append(
            {"id": f"network{number}", "type": "ipv4_dhcp", "link": f"nic{number}", "network_id": nic.network}
        )
    return {"links": links, "networks": networks, "services": []}
