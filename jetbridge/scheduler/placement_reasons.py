"""Why a host can't serve a server in Placement, in sentences. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from jetbridge.errors import PlacementConflict, PlacementUnknownName
from jetbridge.model.request_group import RequestGroup
from jetbridge.placement.groups import OWNERS
from jetbridge.reasons import Reason, counted

_CLASS = re.compile(r"for '?([A-Z0-9_]+)'? on")


@dataclass(frozen=True)
class CardRoom:
    """A vGPU card of the host that is refused, by its node device's name, so that hosts of the same reason are told together. ``room``: by
    class how many are free, of how many; empty: nobody asked. ``lacks`` and ``has`` are traits that it should have and shouldn't."""

    name: str
    room: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    lacks: Collection[str] = ()
    has: Collection[str] = ()


def described(group: RequestGroup) -> str:
    """``2 VGPU with trait CUSTOM_FAST``. Whose provider is meant goes without saying."""
    wanted = " and ".join(
        name if amount == 1 else f"{amount} {name}" for name, amount in sorted(group.resources.items())
    )
    required, forbidden = sorted(group.required - OWNERS), sorted(group.forbidden - OWNERS)
    text = f"{wanted} with trait {', '.join(required)}" if required else wanted
    if forbidden:
        text += f" without trait {', '.join(forbidden)}"
    if group.member_of:
        text += f" in aggregate {', '.join(sorted(group.member_of))}"
    return f"{text} outside of aggregate {', '.join(sorted(group.outside_of))}" if group.outside_of else text


def none_free(
    group: RequestGroup, cards: Sequence[CardRoom] = (), alias: str | None = None, reserved: int = 0
) -> Reason:
    """``cards``: those of the host that the group is about. ``alias``: whose devices the group stands for. ``reserved``: how many devices of
    the host are free by our tables, and kept back in Placement."""
    text = f"Placement has no free {described(group)}{_told(cards)}"
    if reserved:
        text += f": {reserved} {'is' if reserved == 1 else 'are'} reserved there"
    return Reason("placement.eligible", text, request=alias, before=0, after=0, hint=hint(group))


def too_few(groups: Sequence[RequestGroup], providers: int, cards: Sequence[CardRoom], *, apart: bool) -> Reason:
    """Each group could be served, by one of so many providers, and all of them together can't."""
    policy = ", each of another provider as group_policy isolate asks" if apart else ""
    wanted = "; ".join(described(group) for group in groups)
    text = f"Placement has too few providers for all of {wanted}{policy}{_told(cards)}"
    return Reason("placement.eligible", text, before=providers, after=0, hint=hint(groups[0]))


def _told(cards: Sequence[CardRoom]) -> str:
    """``: card pci_0000_3b_00_0 has 0 of 16 VGPU free``; nothing where there is no card."""
    known = [_of_card(card) for card in cards if card.room]
    others = len(cards) - len(known)
    parts = [*known, *([f"and {counted(others, 'other card')}"] if others and known else [])]
    return f": {', '.join(parts)}" if parts else ""


def _of_card(card: CardRoom) -> str:
    room = " and ".join(f"{free} of {total} {name}" for name, (free, total) in sorted(card.room.items()))
    text = f"card {card.name} has {room} free"
    if card.lacks:
        text += f" and lacks trait {', '.join(sorted(card.lacks))}"
    return f"{text} and has trait {', '.join(sorted(card.has))}" if card.has else text


def hint(group: RequestGroup) -> str:
    words = [f"--resource {name}={amount}" for name, amount in sorted(group.resources.items())]
    words += [f"--required {name}" for name in sorted(group.required)]
    words += [f"--forbidden {name}" for name in sorted(group.forbidden)]
    words += [f"--member-of {uuid}" for uuid in sorted(group.member_of)]
    return (
        f"openstack allocation candidate list {' '.join(words)} lists who could serve it now, openstack resource provider show --allocations"
        " PROVIDER who holds what of a provider"
    )


def unknown(error: PlacementUnknownName) -> Reason:
    return Reason(
        "placement.unknown",
        f"{error.message}: no host has ever reported it",
        hint="compare the name with the resource_class and traits of [pci]device_spec",
    )


def no_room(conflict: PlacementConflict, cards: Mapping[str, str]) -> Reason:
    """Without the provider's id, so that hosts of the same reason are told together; of ``cards``, which are known by it, with the name."""
    names = sorted(set(_CLASS.findall(conflict.message)))
    text = f"Placement has not enough {' and '.join(names)} free" if names else conflict.message
    full = [name for provider, name in cards.items() if provider in conflict.message]
    if names and full:
        text += f" on card {' and '.join(full)}"
    hint = "openstack resource provider usage show HOST shows what is used, ... inventory list HOST what there is"
    return Reason("placement.room", text, hint=hint)


def of_host(text: str) -> Reason:
    """An aggregate that the host is in, or is not."""
    return Reason("placement.aggregates", text, hint="openstack resource provider aggregate list HOST")
