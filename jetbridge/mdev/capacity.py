"""How many vGPUs a host can carry, counted at the card: an SR-IOV card has one number for all its VFs.

A card's VFs each say that one more can be made, until the card is full and all of them say none; so the number of VFs that offer
a type is no capacity. It is the least of what the VFs have room for, what the type's description allows on a card, and what
``max_instances`` allows on the host; and never less than what exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jetbridge.mdev.config import VgpuConfig, VgpuType
from jetbridge.mdev.values import HostVgpus, Instance, Kind, Parent, State, Vgpu


@dataclass(frozen=True)
class Share:
    """What a card carries of one type. ``used``: held by servers; ``idle``: ours and free; ``foreign``: made by somebody else;
    ``creatable``: how many more we may make, and ``room`` how many of them on which parent."""

    card: str
    card_address: str
    kind: Kind
    type: VgpuType
    used: int
    idle: int
    foreign: int
    creatable: int
    room: Mapping[str, int]

    @property
    def free(self) -> int:
        return self.idle + self.creatable

    @property
    def total(self) -> int:
        return self.used + self.free


def shares(
    config: VgpuConfig, host: HostVgpus, ours: Sequence[Vgpu], given_elsewhere: Collection[str] = ()
) -> tuple[Share, ...]:
    """In the order of the cards. ``given_elsewhere`` are addresses of functions that are given to guests whole, by device_spec:
    such a function carries no vGPU, nor do the VFs of such a card."""
    groups: dict[tuple[str, str], list[Parent]] = {}
    for parent in host.parents:
        kind = config.type_of(parent)
        shared_out = parent.address in given_elsewhere or parent.card_address in given_elsewhere
        if kind is not None and not shared_out and parent.offer(kind.id) is not None:
            groups.setdefault((parent.card, kind.id), []).append(parent)
    found = [_share(config.types[type_id], parents, host.instances, ours) for (_, type_id), parents in groups.items()]
    return _capped(found, host, ours)


def idle_of(share: Share, ours: Iterable[Vgpu]) -> tuple[Vgpu, ...]:
    """The vGPUs of ours on a card that the next server may have."""
    return tuple(
        vgpu
        for vgpu in ours
        if (vgpu.card, vgpu.type, vgpu.kind) == (share.card, share.type.id, share.kind)
        and vgpu.server is None
        and vgpu.parent in share.room
        and vgpu.state in (State.RESERVED, State.READY)
    )


def inventories(found: Iterable[Share], ours: Iterable[Vgpu]) -> dict[str, dict[str, int]]:
    """Totals by card and resource class, without cards that have none. A server's vGPU counts where and as what it was given, also
    when its card or type is not offered any more: it is held until it is freed, and then it is gone."""
    totals: dict[str, Counter[str]] = {}
    for share in found:
        totals.setdefault(share.card, Counter())[share.type.resource_class] += share.free
    for vgpu in ours:
        if vgpu.server is not None:
            totals.setdefault(vgpu.card, Counter())[vgpu.resource_class] += 1
    return {
        card: kept
        for card, classes in totals.items()
        if (kept := {name: total for name, total in classes.items() if total > 0})
    }


def _share(kind: VgpuType, parents: Sequence[Parent], instances: Sequence[Instance], ours: Sequence[Vgpu]) -> Share:
    first = parents[0]
    names = {parent.name for parent in parents}
    here = [instance for instance in instances if instance.parent in names and instance.type == kind.id]
    mine = [vgpu for vgpu in ours if (vgpu.card, vgpu.type) == (first.card, kind.id)]
    foreign = [instance for instance in here if instance.active and not any(vgpu.is_(instance) for vgpu in ours)]
    missing = Counter(
        vgpu.parent for vgpu in mine if not any(instance.active and vgpu.is_(instance) for instance in here)
    )
    room: dict[str, int] = {}
    limit = None
    for parent in parents:
        offer = parent.offer(kind.id)
        assert offer is not None
        # What is written down and not there yet will need its place.
        room[parent.name] = max(0, offer.available - missing[parent.name])
        limit = offer.limit  # the card's, so that all its functions say the same
    creatable = sum(room.values())
    if limit is not None:
        creatable = min(creatable, max(0, limit - len(foreign) - len(mine)))
    share = Share(
        card=first.card,
        card_address=first.card_address,
        kind=first.kind,
        type=kind,
        used=sum(1 for vgpu in mine if vgpu.server is not None),
        idle=0,
        foreign=len(foreign),
        creatable=creatable,
        room=room,
    )
    return replace(share, idle=len(idle_of(share, mine)))


def _capped(found: Sequence[Share], host: HostVgpus, ours: Sequence[Vgpu]) -> tuple[Share, ...]:
    """``max_instances`` counts what exists on the whole host, whoever made it, and fills the cards in their order."""
    left: dict[str, int] = {}
    capped = []
    for share in found:
        limit = share.type.max_instances
        if limit is None:
            capped.append(share)
            continue
        if share.type.id not in left:
            left[share.type.id] = max(0, limit - _existing(share.type.id, host.instances, ours))
        creatable = min(share.creatable, left[share.type.id])
        left[share.type.id] -= creatable
        capped.append(replace(share, creatable=creatable))
    return tuple(capped)


def _existing(type_id: str, instances: Iterable[Instance], ours: Sequence[Vgpu]) -> int:
    mine = [vgpu for vgpu in ours if vgpu.type == type_id]
    others = [i for i in instances if i.type == type_id and i.active and not any(vgpu.is_(i) for vgpu in mine)]
    return len(mine) + len(others)
