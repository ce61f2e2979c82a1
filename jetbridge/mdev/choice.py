"""Which vGPUs a server gets of a card: free ones of ours first, else new ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jetbridge.errors import ComputeResourcesUnavailable
from jetbridge.mdev.capacity import Share, idle_of
from jetbridge.mdev.values import State, Vgpu


@dataclass(frozen=True)
class Wanted:
    """So many of a resource class, of one card (its node device's name)."""

    card: str
    resource_class: str
    amount: int


def choose(
    wanted: Wanted, found: Sequence[Share], ours: Sequence[Vgpu], server: str, new_uuid: Callable[[], str]
) -> tuple[Vgpu, ...]:
    """The vGPUs that ``server`` gets, as they are to be written down. ``found`` and ``ours`` are of the host as it is now.

    Raises ``ComputeResourcesUnavailable`` saying what the card has: somebody else was faster, or what Placement was told of
    the card is not true any more.
    """
    share = next(
        (share for share in found if (share.card, share.type.resource_class) == (wanted.card, wanted.resource_class)),
        None,
    )
    if share is None:
        raise ComputeResourcesUnavailable(reason=_no_share(wanted, found))
    idle = sorted(idle_of(share, ours), key=lambda vgpu: (vgpu.state is not State.READY, vgpu.parent, vgpu.uuid))
    reused = [replace(vgpu, server=server, resource_class=wanted.resource_class) for vgpu in idle[: wanted.amount]]
    places = [parent for parent, count in share.room.items() for _ in range(count)]
    new = places[: min(wanted.amount - len(reused), share.creatable)]
    if len(reused) + len(new) < wanted.amount:
        foreign = f", {share.foreign} made by others" if share.foreign else ""
        raise ComputeResourcesUnavailable(
            reason=f"card {share.card} has {share.free} of {share.total} vGPUs of type {share.type.id} ({wanted.resource_class}) left,"
            f" {wanted.amount} wanted{foreign}"
        )
    return (*reused, *(_new(share, parent, wanted.resource_class, server, new_uuid()) for parent in new))


def _new(share: Share, parent: str, resource_class: str, server: str, uuid: str) -> Vgpu:
    return Vgpu(uuid, share.kind, share.card, parent, share.type.id, resource_class, server, State.RESERVED)


def _no_share(wanted: Wanted, found: Sequence[Share]) -> str:
    classes = sorted({share.type.resource_class for share in found if share.card == wanted.card})
    offered = f"it offers {', '.join(classes)}" if classes else "it offers no vGPUs now"
    return (
        f"card {wanted.card} offers no {wanted.resource_class}: {offered}; see that [devices]enabled_mdev_types and the [mdev_*]"
        " sections fit what the host has (`jetbridge vgpu types`)"
    )
