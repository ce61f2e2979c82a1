"""Why a host can't serve a server in Placement, in sentences. Pure."""

from __future__ import annotations

import re

from jetbridge.errors import PlacementConflict, PlacementUnknownName
from jetbridge.model.request_group import RequestGroup
from jetbridge.placement.groups import OWNER_TRAIT
from jetbridge.reasons import Reason

_CLASS = re.compile(r"for '?([A-Z0-9_]+)'? on")


def described(group: RequestGroup) -> str:
    """``2 VGPU with trait CUSTOM_FAST``. That the provider is ours goes without saying."""
    wanted = " and ".join(
        name if amount == 1 else f"{amount} {name}" for name, amount in sorted(group.resources.items())
    )
    required = sorted(group.required - {OWNER_TRAIT})
    text = f"{wanted} with trait {', '.join(required)}" if required else wanted
    if group.forbidden:
        text += f" without trait {', '.join(sorted(group.forbidden))}"
    if group.member_of:
        text += f" in aggregate {', '.join(sorted(group.member_of))}"
    return f"{text} outside of aggregate {', '.join(sorted(group.outside_of))}" if group.outside_of else text


def none_free(group: RequestGroup) -> Reason:
    return Reason(
        "placement.eligible", f"Placement has no free {described(group)}", before=0, after=0, hint=hint(group)
    )


def hint(group: RequestGroup) -> str:
    words = [f"--resource {name}={amount}" for name, amount in sorted(group.resources.items())]
    words += [f"--required {name}" for name in sorted(group.required)]
    words += [f"--forbidden {name}" for name in sorted(group.forbidden)]
    words += [f"--member-of {uuid}" for uuid in sorted(group.member_of)]
    return f"openstack allocation candidate list {' '.join(words)} shows who has it"


def unknown(error: PlacementUnknownName) -> Reason:
    return Reason(
        "placement.unknown",
        f"{error.message}: no host has ever reported it",
        hint="compare the name with the resource_class and traits of [pci]device_spec",
    )


def no_room(conflict: PlacementConflict) -> Reason:
    """Without the provider's id, so that hosts of the same reason are told together."""
    names = sorted(set(_CLASS.findall(conflict.message)))
    text = f"Placement has not enough {' and '.join(names)} free" if names else conflict.message
    hint = "openstack resource provider usage show HOST shows what is used, ... inventory list HOST what there is"
    return Reason("placement.room", text, hint=hint)


def of_host(text: str) -> Reason:
    """An aggregate that the host is in, or is not."""
    return Reason("placement.aggregates", text, hint="openstack resource provider aggregate list HOST")
