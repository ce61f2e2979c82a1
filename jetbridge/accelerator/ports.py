"""Network ports with an accelerator (VNIC types accelerator-direct and accelerator-direct-physical): what they ask, and what their binding
says. Pure.

Source: Networking API, binding:profile, and Nova Administration Guide, Using ports with Cyborg managed accelerators.
"""

from __future__ import annotations

from collections.abc import Mapping

from jetbridge.accelerator.profile import request_groups
from jetbridge.errors import AcceleratorRequestOpFailed, DeviceProfileError
from jetbridge.model.accelerator import DeviceProfile
from jetbridge.model.request_group import RequestGroup


def port_groups(profile: DeviceProfile | None, port_id: str) -> tuple[tuple[RequestGroup, ...], tuple[str, ...]]:
    """As ``request_groups``, for a port's profile. Raises ``DeviceProfileError`` when it has none, or one of
    several devices or of none: a port is one."""
    if profile is None:
        raise DeviceProfileError(name=None, reason=f"port {port_id} has none: set device_profile when it is created")
    groups, warnings = request_groups(profile.groups, port_id)
    asked = sum(amount for group in groups for amount in group.resources.values())
    if asked != 1:
        raise DeviceProfileError(
            name=profile.name,
            reason=f"it asks for {asked} devices, and port {port_id} is one: use a profile of one device",
        )
    return groups, warnings


def binding_profile(arq_uuid: str, info: Mapping[str, str]) -> dict[str, str]:
    """What a port's binding says of the function that its request was given. Its place is written as the service writes it, without
    padding. Raises ``AcceleratorRequestOpFailed`` when the attach handle lacks something."""
    try:
        slot = f"{info['domain']}:{info['bus']}:{info['device']}.{info['function']}"
        return {"physical_network": info["physical_network"], "pci_slot": slot, "arq_uuid": arq_uuid}
    except KeyError as error:
        raise AcceleratorRequestOpFailed(
            op="use", reason=f"the attach handle of {arq_uuid} has no {error.args[0]}, which a port needs"
        ) from None
