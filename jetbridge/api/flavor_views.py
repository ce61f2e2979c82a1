"""Flavors as the Compute API shows them."""

from __future__ import annotations

from typing import Any

from jetbridge.api.call import Call
from jetbridge.model.flavor import Flavor


def links(call: Call, path: str) -> list[dict[str, str]]:
    """``path`` below the front door, for example /flavors/1."""
    return [
        {"rel": "self", "href": f"{call.url}{path}"},
        {"rel": "bookmark", "href": f"{call.url.removesuffix('/v2.1')}{path}"},
    ]


def brief(call: Call, flavor: Flavor) -> dict[str, Any]:
    return call.shape(
        "flavor-brief",
        {
            "id": flavor.flavorid,
            "name": flavor.name,
            "description": flavor.description,
            "links": links(call, f"/flavors/{flavor.flavorid}"),
        },
    )


def detailed(call: Call, flavor: Flavor) -> dict[str, Any]:
    return call.shape(
        "flavor",
        {
            "id": flavor.flavorid,
            "name": flavor.name,
            "ram": flavor.memory_mb,
            "disk": flavor.root_gb,
            "vcpus": flavor.vcpus,
            "swap@text": flavor.swap_mb or "",
            "swap@number": flavor.swap_mb,
            "OS-FLV-EXT-DATA:ephemeral": flavor.ephemeral_gb,
            "OS-FLV-DISABLED:disabled": flavor.disabled,
            "os-flavor-access:is_public": flavor.is_public,
            "rxtx_factor": flavor.rxtx_factor,
            "description": flavor.description,
            "extra_specs": dict(flavor.extra_specs),
            "links": links(call, f"/flavors/{flavor.flavorid}"),
        },
    )


def embedded(flavor: Flavor) -> dict[str, Any]:
    """The flavor as it was when the server was made: what a server shows of it from 2.47 on."""
    return {
        "vcpus": flavor.vcpus,
        "ram": flavor.memory_mb,
        "disk": flavor.root_gb,
        "ephemeral": flavor.ephemeral_gb,
        "swap": flavor.swap_mb,
        "original_name": flavor.name,
        "extra_specs": dict(flavor.extra_specs),
    }


def reference(call: Call, flavor: Flavor) -> dict[str, Any]:
    return {
        "id": flavor.flavorid,
        "links": [link for link in links(call, f"/flavors/{flavor.flavorid}") if link["rel"] == "bookmark"],
    }
