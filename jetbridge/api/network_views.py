"""Networks and ports as the Network API shows them, and what is given for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Request

from jetbridge.model.context import RequestContext
from jetbridge.model.network import Network, Port
from jetbridge.pci.port import VnicType

_PAGING = frozenset({"limit", "marker", "page_reverse", "sort_key", "sort_dir", "fields"})
_OF_HOSTS = {"network": "libvirt network", "bridge": "host bridge"}


def network_view(network: Network, context: RequestContext) -> dict[str, Any]:
    """What a network is on the wire is for administrators, as in every Network service."""
    described = network.description or " and ".join(_OF_HOSTS.get(kind, kind) for kind in network.kinds)
    provider = {
        "provider:network_type": network.network_type or "local",
        "provider:physical_network": network.physical_network,
        "provider:segmentation_id": network.segmentation_id,
    }
    return {
        "id": network.id,
        "name": network.name,
        "description": described,
        "status": "ACTIVE",
        "admin_state_up": True,
        "shared": network.shared,
        "router:external": False,
        "mtu": 1500,
        "subnets": [],
        "tags": [],
        "availability_zones": ["nova"],
        "availability_zone_hints": [],
        "port_security_enabled": False,
        "project_id": network.project_id,
        "tenant_id": network.project_id,
        "revision_number": 1,
        **(provider if context.is_admin else {}),
    }


def port_view(port: Port, context: RequestContext) -> dict[str, Any]:
    binding = {
        "binding:host_id": port.host or "",
        "binding:profile": dict(port.profile),
        "binding:vif_type": port.vif_type,
        "binding:vif_details": dict(port.vif_details),
    }
    return {
        "id": port.id,
        "name": port.name,
        "description": port.description,
        "network_id": port.network_id,
        "mac_address": port.mac,
        "fixed_ips": [{"ip_address": address} for address in port.fixed_ips],
        "device_id": port.device_id,
        "device_owner": port.device_owner,
        "status": port.status,
        "admin_state_up": port.admin_state_up,
        "security_groups": [],
        "port_security_enabled": False,
        "allowed_address_pairs": [],
        "extra_dhcp_opts": [],
        "binding:vnic_type": port.vnic_type.value,
        "numa_affinity_policy": port.numa_policy.value if port.numa_policy else None,
        "device_profile": port.device_profile,
        "project_id": port.project_id,
        "tenant_id": port.project_id,
        "tags": [],
        "revision_number": 1,
        **(binding if context.is_admin else {}),
    }


def filtered(views: Sequence[dict[str, Any]], request: Request) -> list[dict[str, Any]]:
    """Those that have, for each filter given, one of its values; only the fields asked for."""
    wanted: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        wanted.setdefault(name, []).append(value)
    fields = wanted.get("fields")
    found = [
        view
        for view in views
        if all(
            name in _PAGING or name not in view or _text(view[name]) in {_text(value) for value in values}
            for name, values in wanted.items()
        )
    ]
    return [{key: view[key] for key in view if key in fields} for view in found] if fields else found


def _text(value: Any) -> str:
    text = str(value)
    return text.lower() if text.lower() in ("true", "false") else text


VNIC_WORDS = ", ".join(kind.value for kind in VnicType)
