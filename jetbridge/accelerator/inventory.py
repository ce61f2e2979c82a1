"""From a host's report and its lines to the accelerators it has, and what that changes of those known. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jetbridge.accelerator.device_spec import AcceleratorSpec, first_match
from jetbridge.errors import InvalidConfiguration
from jetbridge.model.accelerator import Accelerator, AcceleratorCondition, AttachHandle, AttachType
from jetbridge.pci.address import PciAddress
from jetbridge.pci.device_spec import Report


@dataclass(frozen=True)
class Changes:
    """``saved`` are new or changed; ``removed`` and ``handles_removed`` nobody owns; ``lost`` are handles that are gone from the host or
    from its configuration while a guest has them."""

    saved: tuple[Accelerator, ...] = ()
    removed: tuple[Accelerator, ...] = ()
    handles_removed: tuple[AttachHandle, ...] = ()
    lost: tuple[AttachHandle, ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.saved or self.removed or self.handles_removed)


def declared(
    specs: Sequence[AcceleratorSpec],
    reports: Sequence[Report],
    compute_node_id: int,
    hostname: str,
    new_id: Callable[[], str],
) -> tuple[Accelerator, ...]:
    """What the lines make of the host's functions: one accelerator per card, by address; virtual functions are handles of theirs.

    Raises ``InvalidConfiguration`` when the functions of one card are of different kinds: a provider has one class and one set of traits.
    """
    found: dict[str, tuple[Accelerator, AcceleratorSpec]] = {}
    by_address = {str(report["address"]): report for report in reports}
    for address, report in sorted(by_address.items()):
        spec = first_match(specs, report)
        if spec is None:
            continue
        card = str(report.get("parent_addr") or address)
        handles = _handles(spec, address, new_id)
        if card in found:
            known, of_line = found[card]
            if _kind(spec) != _kind(of_line):
                raise InvalidConfiguration(
                    f"{spec.text} matches {address}, and {of_line.text} another function of the same card {card}: the functions of one"
                    " card have to be of the same type, class and traits, for they share a resource provider. Let one line match"
                    " all of them, or fewer"
                )
            found[card] = (replace(known, handles=(*known.handles, *handles)), of_line)
            continue
        accelerator = Accelerator(
            uuid=new_id(),
            device_uuid=new_id(),
            compute_node_id=compute_node_id,
            hostname=hostname,
            name=f"{hostname}_accelerator_{card}",
            address=card,
            vendor_id=str(report["vendor_id"]),
            product_id=str(report["product_id"]),
            device_type=spec.device_type,
            resource_class=spec.resource_class,
            traits=spec.traits_of(str(report["product_id"])),
            handles=handles,
        )
        found[card] = (accelerator, spec)
    return tuple(_without_card(accelerator) for accelerator, _ in found.values())


def changes(known: Iterable[Accelerator], wanted: Iterable[Accelerator]) -> Changes:
    """What has to be written so that the known become the wanted. What a guest has stays, marked lost, until it is given back."""
    before = {accelerator.address: accelerator for accelerator in known}
    saved, removed, handles_removed, lost = [], [], [], []
    for accelerator in wanted:
        old = before.pop(accelerator.address, None)
        if old is None:
            saved.append(accelerator)
            continue
        handles, gone = _merged(old.handles, accelerator.handles)
        handles_removed += [handle for handle in gone if handle.arq_uuid is None]
        still = [_lose(handle) for handle in gone if handle.arq_uuid is not None]
        lost += [handle for handle in still if handle not in old.handles]
        new = replace(
            accelerator,
            uuid=old.uuid,
            device_uuid=old.device_uuid,
            enabled=old.enabled,
            rp_uuid=old.rp_uuid,
            id=old.id,
            created_at=old.created_at,
            updated_at=old.updated_at,
            handles=tuple(sorted((*handles, *still), key=_place)),
        )
        remaining = tuple(handle for handle in old.handles if handle not in handles_removed)
        if new != replace(old, handles=tuple(sorted(remaining, key=_place))):
            saved.append(new)
    for old in before.values():
        if all(handle.arq_uuid is None for handle in old.handles):
            removed.append(old)
            continue
        handles_removed += [handle for handle in old.handles if handle.arq_uuid is None]
        still = [_lose(handle) for handle in old.handles if handle.arq_uuid is not None]
        news = [handle for handle in still if handle not in old.handles]
        lost += news
        if news:
            saved.append(replace(old, handles=tuple(still)))
    return Changes(tuple(saved), tuple(removed), tuple(handles_removed), tuple(lost))


def handle_info(address: str) -> Mapping[str, str]:
    """A function's place as attach handles carry it: hexadecimal text without prefix."""
    parsed = PciAddress.parse(address)
    domain, bus, slot_function = str(parsed).split(":")
    device, function = slot_function.split(".")
    return {"domain": domain, "bus": bus, "device": device, "function": function}


def address_of(info: Mapping[str, str]) -> str | None:
    """A function's address from an attach handle; None: it names none."""
    try:
        return f"{int(info['domain'], 16):04x}:{int(info['bus'], 16):02x}:{int(info['device'], 16):02x}.{int(info['function'], 16):x}"
    except (KeyError, ValueError):
        return None


def identity_of(report: Report) -> str:
    """What function a guest was given, so that another one at its place is noticed."""
    serial = f" serial {report['serial']}" if report.get("serial") else ""
    return f"{report['address']} [{report['vendor_id']}:{report['product_id']}]{serial}"[:64]


def _handles(spec: AcceleratorSpec, address: str, new_id: Callable[[], str]) -> tuple[AttachHandle, ...]:
    info = handle_info(address)
    if spec.mdev_type is None:
        wired = {"physical_network": spec.physical_network} if spec.physical_network else {}
        return (AttachHandle(new_id(), AttachType.PCI, address, {**info, **wired}),)
    asked = {**info, "asked_type": spec.mdev_type}
    return tuple(
        AttachHandle(new_id(), AttachType.MDEV, address, asked, position) for position in range(spec.mdev_count)
    )


def _without_card(accelerator: Accelerator) -> Accelerator:
    """A card whose virtual functions are offered isn't offered whole beside them."""
    functions = tuple(handle for handle in accelerator.handles if handle.address != accelerator.address)
    return replace(accelerator, handles=functions) if functions else accelerator


def _kind(spec: AcceleratorSpec) -> tuple[object, ...]:
    return (spec.device_type, spec.resource_class, spec.traits)


def _merged(
    old: Sequence[AttachHandle], wanted: Sequence[AttachHandle]
) -> tuple[list[AttachHandle], list[AttachHandle]]:
    """The wanted handles, each with what the table knows of it, and those that aren't wanted any more."""
    known = {_place(handle): handle for handle in old}
    merged = []
    for handle in wanted:
        before = known.get(_place(handle))
        same = before is not None and (before.attach_type, before.info) == (handle.attach_type, handle.info)
        if before is None or (not same and before.arq_uuid is None):
            if before is not None:
                handle = replace(handle, id=before.id, uuid=before.uuid, accelerator_id=before.accelerator_id)
                known.pop(_place(handle))
            merged.append(handle)
        elif same:
            known.pop(_place(handle))
            merged.append(replace(before, condition=AcceleratorCondition.OK))
    return merged, list(known.values())


def _lose(handle: AttachHandle) -> AttachHandle:
    return replace(handle, condition=AcceleratorCondition.LOST)


def _place(handle: AttachHandle) -> tuple[str, int]:
    return handle.address, handle.position
