"""Accelerators, profiles and requests as the Accelerator API shows them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from jetbridge.model.accelerator import Accelerator, Arq, DeviceProfile


def profile_view(profile: DeviceProfile, url: str) -> dict[str, Any]:
    return {
        "uuid": profile.uuid,
        "name": profile.name,
        "groups": [dict(group) for group in profile.groups],
        "description": profile.description,
        **_times(profile.created_at, profile.updated_at),
        **_link(f"{url}/device_profiles/{profile.uuid}"),
    }


def arq_view(arq: Arq, url: str) -> dict[str, Any]:
    handle = arq.handle
    return {
        "uuid": arq.uuid,
        "state": arq.state.value,
        "device_profile_name": arq.device_profile_name,
        "device_profile_group_id": arq.device_profile_group_id,
        "hostname": arq.hostname,
        "device_rp_uuid": arq.device_rp_uuid,
        "instance_uuid": arq.instance_uuid,
        "project_id": arq.project_id,
        "attach_handle_type": handle.attach_type.value if handle else "",
        "attach_handle_uuid": handle.uuid if handle else None,
        "attach_handle_info": dict(handle.info) if handle else {},
        **_times(arq.created_at, arq.updated_at),
        **_link(f"{url}/accelerator_requests/{arq.uuid}"),
    }


def device_view(device: Accelerator, url: str) -> dict[str, Any]:
    board = {
        "class": device.resource_class,
        "address": device.address,
        "device_id": device.product_id,
        "traits": sorted(device.traits),
    }
    in_use = sum(1 for handle in device.handles if handle.arq_uuid is not None)
    return {
        "uuid": device.device_uuid,
        "type": device.device_type,
        "vendor": device.vendor_id,
        "model": device.product_id,
        "hostname": device.hostname,
        "std_board_info": json.dumps(board, sort_keys=True),
        "vendor_board_info": f"{in_use} of {len(device.handles)} in use",
        "status": "enabled" if device.enabled else "maintaining",
        **_times(device.created_at, device.updated_at),
        **_link(f"{url}/devices/{device.device_uuid}"),
    }


def deployable_view(device: Accelerator, url: str) -> dict[str, Any]:
    attributes = [
        {"rc": device.resource_class},
        *({f"trait{n}": trait} for n, trait in enumerate(sorted(device.traits))),
    ]
    return {
        "id": device.uuid,  # what openstacksdk and python-cyborgclient show as uuid
        "uuid": device.uuid,
        "parent_id": None,
        "root_id": device.id,
        "name": device.name,
        "num_accelerators": len(device.handles),
        "device_id": device.id,
        "attributes_list": json.dumps(attributes),
        "rp_uuid": device.rp_uuid,
        "driver_name": None,
        "bitstream_id": None,
        **_times(device.created_at, device.updated_at),
        **_link(f"{url}/deployables/{device.uuid}"),
    }


def _times(created: datetime | None, updated: datetime | None) -> dict[str, Any]:
    return {"created_at": _time(created), "updated_at": _time(updated)}


def _time(at: datetime | None) -> str | None:
    return None if at is None else f"{at.replace(microsecond=0).isoformat()}+00:00"


def _link(href: str) -> dict[str, Any]:
    return {"links": [{"rel": "self", "href": href}]}
