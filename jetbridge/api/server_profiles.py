"""What the device profiles of a server's flavor and of its ports ask of Placement, as they are when the server is created."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from jetbridge.accelerator import ports
from jetbridge.accelerator.profile import PROFILE, request_groups
from jetbridge.accelerator.session import NEEDS_ENDPOINT
from jetbridge.api.call import Call
from jetbridge.errors import DeviceProfileError
from jetbridge.model.accelerator import DeviceProfile
from jetbridge.model.flavor import Flavor
from jetbridge.model.network import Port
from jetbridge.model.request_group import RequestGroup
from jetbridge.network.nics import Chosen
from jetbridge.pci.port import ACCELERATOR_VNICS

logger = logging.getLogger(__name__)


def profile_groups(call: Call, flavor: Flavor) -> tuple[RequestGroup, ...]:
    """Of the flavor's profile. Raises ``DeviceProfileError``."""
    name = flavor.extra_specs.get(PROFILE)
    return () if name is None else _told(call, name, request_groups(_profile(call, name).groups))


def port_groups(call: Call, nics: Sequence[Chosen]) -> tuple[RequestGroup, ...]:
    """Of those ports that take their device from a profile, whose requesters name the port. Raises ``DeviceProfileError`` for a port
    without one, or whose profile asks for several devices."""
    groups: list[RequestGroup] = []
    for port in _accelerated(nics):
        profile = _profile(call, port.device_profile) if port.device_profile else None
        groups += _told(call, port.device_profile or "", ports.port_groups(profile, port.id))
    return tuple(groups)


def port_profiles(nics: Sequence[Chosen]) -> Mapping[str, str]:
    """The profiles of those ports, by port id."""
    return {port.id: port.device_profile for port in _accelerated(nics) if port.device_profile}


def _accelerated(nics: Sequence[Chosen]) -> list[Port]:
    return [nic.port for nic in nics if nic.port is not None and nic.vnic_type in ACCELERATOR_VNICS]


def _profile(call: Call, name: str) -> DeviceProfile:
    client = call.services.accelerator_client
    if client is None:
        raise DeviceProfileError(name=name, reason=NEEDS_ENDPOINT)
    return client.by("api", call.context).profile(name)


def _told(call: Call, name: str, found: tuple[tuple[RequestGroup, ...], tuple[str, ...]]) -> tuple[RequestGroup, ...]:
    groups, warnings = found
    for warning in warnings:
        logger.warning("[%s] Device profile %s: %s", call.context.request_id, name, warning)
    return groups
