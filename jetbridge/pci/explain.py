"""Why a step of the fit left too few devices, in words: each function makes the reason of one step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from jetbridge.pci.device import DeviceType
from jetbridge.pci.eligible import (
    NOT_COMPARED,
    Candidate,
    Candidates,
    Situation,
    allowed_by,
    mismatches,
    pool_value,
    socket_nodes,
    total,
)
from jetbridge.pci.request import NumaPolicy, PciRequest, Properties
from jetbridge.reasons import Reason

_VNIC_TYPES = {
    DeviceType.PCI: "direct",
    DeviceType.VF: "direct",
    DeviceType.PF: "direct-physical",
    DeviceType.VDPA: "vdpa",
}


def label(request: PciRequest) -> str:
    """What a person calls a request: its alias, or its port's id."""
    return request.alias_name or request.requester_id or request.request_id


def bad_count(request: PciRequest) -> Reason:
    return Reason(
        rule="pci.count",
        text=f"{label(request)} asks for {request.count} devices",
        request=label(request),
        hint="ask for at least 1",
    )


def properties(situation: Situation, before: Candidates, after: Candidates) -> Reason:
    request = situation.request
    wanted = " or ".join(_described(alternative) for alternative in request.spec) or "nothing"
    if total(after) == total(before):  # this step took nothing away: there are too few whatever they are
        return _too_few(situation, before, wanted)
    if not after:
        text = f"no free device matches {label(request)} ({wanted})"
    else:
        text = f"{_devices(total(after), 'free')} {_verb(total(after), 'match')} {label(request)} ({wanted}), {request.count} wanted"
    return _reason("pci.properties", situation, before, after, text, _nearest_miss(situation, before, after))


def _too_few(situation: Situation, candidates: Candidates, wanted: str) -> Reason:
    name, count = label(situation.request), situation.request.count
    if not candidates:
        return _reason("pci.count", situation, candidates, (), "the host has no free device", None)
    found = total(candidates)
    of_class = _class_alone(situation.request)
    if of_class is not None:  # which class a device has, only Placement knows
        text = f"the host has {_devices(found, 'free')} of any resource class, {count} of {of_class} wanted for {name}"
        return _reason("pci.count", situation, candidates, (), text, None)
    text = f"{_devices(found, 'free')} {_verb(found, 'match')} {name} ({wanted}), {count} wanted"
    return _reason("pci.count", situation, candidates, (), text, None)


def pfs(situation: Situation, before: Candidates, after: Candidates) -> Reason:
    lost = total(before) - total(after)
    hint = (
        "ask for whole PFs with a port of VNIC type direct-physical"
        if situation.request.from_port
        else "set device_type to type-PF in the alias"
    )
    text = f"{_devices(lost)} {_verb(lost, 'match')} the ids but {_is(lost)} type-PF"
    return _reason("pci.device_type", situation, before, after, text, hint)


def vdpa(situation: Situation, before: Candidates, after: Candidates) -> Reason:
    lost = total(before) - total(after)
    text = f"{_devices(lost)} {_verb(lost, 'match')} the ids but {_is(lost)} vdpa"
    hint = "vDPA devices are given to ports of VNIC type vdpa only; remove the vDPA device to use the VF itself"
    return _reason("pci.device_type", situation, before, after, text, hint)


def remote_managed(situation: Situation, before: Candidates, after: Candidates) -> Reason:
    lost = total(before) - total(after)
    text = f"{_devices(lost)} {_verb(lost, 'match')} but {_is(lost)} remote-managed"
    hint = (
        "they are given to ports of VNIC type remote-managed only; or drop remote_managed from their device_spec line"
    )
    return _reason("pci.remote_managed", situation, before, after, text, hint)


def taken(situation: Situation, before: Candidates, after: Candidates) -> Reason:
    blockers = _taking(situation.blockers, before)
    takers = _taking(situation.takers, before)
    lost, count = total(before) - total(after), total(before)
    subject = f"{_devices(count, 'free')} {_verb(count, 'match')} {label(situation.request)}"
    if blockers:
        text = (
            f"{subject}, but {lost} can't be given: a PF and its VFs exclude each other, and the server's "
            f"{blockers} their {_opposite(situation, before)}"
        )
        return _reason(
            "pci.dependency", situation, before, after, text, "the server needs devices of two cards, or of one kind"
        )
    text = f"{subject}, but the server's {takers} {lost}"
    fewer = "ask for fewer" if situation.request.from_port else "ask for fewer, or widen one of the aliases"
    hint = f"all requests of a server are served from different devices: {fewer}"
    return _reason("pci.taken", situation, before, after, text, hint)


def allowed(situation: Situation, before: Candidates, after: Candidates) -> Reason:
    count = total(before)
    of_class = _class_alone(situation.request)
    if of_class is None:
        text = f"{_devices(count)} {_verb(count, 'match')} {label(situation.request)}, {total(after)} of them {_is(total(after))} free in Placement"
    else:
        text = f"{_devices(total(after))} of {of_class} {_is(total(after))} free in Placement, {situation.request.count} wanted for {label(situation.request)}"
    if situation.apart:
        text += ", each of another provider as group_policy isolate asks"
    hint = (
        "`jetbridge devices` names those that were used and wait to be cleaned, "
        "`openstack resource provider show --allocations PROVIDER` who has the others"
    )
    return _reason("placement.eligible", situation, before, after, text, hint)


def providers(situation: Situation, before: Candidates, after: Candidates) -> Reason:
    listed = Counter(situation.providers)
    pools = Counter(candidate.pool.rp_uuid for candidate in before if candidate.pool.rp_uuid in listed)
    doubled = sorted(provider for provider, count in pools.items() if provider and count > 1)
    unserved = sorted(set(listed) - {candidate.pool.rp_uuid for candidate in after})
    if listed.total() != situation.request.count:
        text = f"Placement's choice names {_devices(listed.total())}, {situation.request.count} wanted"
    elif doubled:
        text = f"provider {', '.join(doubled)} stands for devices of different kinds"
    else:
        text = f"the devices of provider {', '.join(unserved)}, which Placement chose, are not free or don't match"
    hint = "the host's devices and Placement disagree: they are reported again at the host's next periodic pass"
    return _reason("pci.providers", situation, before, after, text, hint)


def dependency(situation: Situation, before: Candidates, after: Candidates) -> Reason:
    text = (
        f"{_devices(total(before))} match {label(situation.request)}, but only {total(after)} of them together: "
        "a PF and its VFs exclude each other"
    )
    return _reason("pci.dependency", situation, before, after, text, "ask for PFs or for VFs, not for either")


def numa(situation: Situation, before: Candidates, after: Candidates) -> Reason:
    request, cells = situation.request, situation.cells
    assert cells is not None  # without cells this step takes nothing away
    guest = _nodes(cells.chosen)
    if request.policy is NumaPolicy.SOCKET and None in cells.sockets.values():
        rule = f"policy socket needs every host node's socket, and the host doesn't tell it (guest on {guest})"
    elif request.policy is NumaPolicy.SOCKET:
        rule = f"policy socket allows only {_nodes(socket_nodes(cells))}, the sockets of the guest"
    elif request.policy is NumaPolicy.REQUIRED:
        rule = f"policy required allows only the guest's {guest}"
    else:
        rule = f"policy {request.policy} allows only the guest's {guest} and devices of unknown node"
    where = _nodes({candidate.pool.numa_node for candidate in before})
    text = f"{_devices(total(before))} {_verb(total(before), 'match')}, on {where}, but {rule}: {total(after)} left"
    return _reason("pci.numa", situation, before, after, text, _looser_policy(situation, before))


def _looser_policy(situation: Situation, before: Candidates) -> str:
    request, cells = situation.request, situation.cells
    assert cells is not None
    enough = next(
        policy
        for policy in (NumaPolicy.LEGACY, NumaPolicy.SOCKET, NumaPolicy.PREFERRED)  # preferred takes them all
        if total(allowed_by(policy, before, cells, request.count)) >= request.count
    )
    if request.from_port:
        return f"numa_affinity_policy {enough} on the port would accept them"
    return (
        f"numa_policy {enough} in the alias, or hw:pci_numa_affinity_policy={enough} in the flavor, would accept them"
    )


def _nearest_miss(situation: Situation, before: Candidates, after: Candidates) -> str | None:
    """The one property by which most of the refused devices differ."""
    kept = {candidate.index for candidate in after}
    misses: Counter[tuple[str, str | None, str | None]] = Counter()
    for candidate in before:
        if candidate.index not in kept:
            for miss in _single_misses(situation.request, candidate):
                misses[miss] += candidate.count
    if not misses:
        return None
    (name, wanted, have), count = min(misses.items(), key=lambda item: (-item[1], str(item[0])))
    return f"{_devices(count, 'free')} {_verb(count, 'differ')} only in {_difference(name, wanted, have, situation.request)}"


def _single_misses(request: PciRequest, candidate: Candidate) -> set[tuple[str, str | None, str | None]]:
    misses = set()
    for alternative in request.spec:
        if alternative.get("resource_class"):
            continue  # a pool doesn't tell its class: the device may be of another
        wrong = mismatches(candidate.pool, alternative, from_port=request.from_port)
        untyped = request.from_port and "dev_type" not in alternative
        if untyped and candidate.pool.dev_type in (DeviceType.PF, DeviceType.VDPA):
            continue  # a later step would refuse it for its type
        if len(wrong) == 1:
            misses.add((wrong[0], alternative[wrong[0]], pool_value(candidate.pool, wrong[0])))
    return misses


def _difference(name: str, wanted: str | None, have: str | None, request: PciRequest) -> str:
    difference = f"{name}: {have or 'not set'} instead of {wanted or 'none'}"
    if name in ("vendor_id", "product_id"):
        return f"{difference}; compare it with the alias"
    if name != "dev_type":
        # A device's class is not among what is known of it: a GPU lacks a physical network too.
        condition = "if they are NICs, " if name == "physical_network" and have is None else ""
        return f"{difference}; {condition}set it in their device_spec line"
    if request.from_port:
        return f"{difference}; ports of VNIC type {_VNIC_TYPES[DeviceType(have)]} get them" if have else difference
    if have == DeviceType.VDPA:
        return difference
    return f"{difference}; set device_type to {have} in the alias"


def _described(alternative: Properties) -> str:
    ids = f"{alternative.get('vendor_id') or '*'}:{alternative.get('product_id') or '*'}"
    words = [] if ids == "*:*" else [ids]
    if alternative.get("dev_type"):
        words.append(str(alternative["dev_type"]))
    hidden = NOT_COMPARED | {"vendor_id", "product_id", "dev_type"}
    words += [f"{name}={value or 'none'}" for name, value in sorted(alternative.items()) if name not in hidden]
    return " ".join(words) or "any device"


def _class_alone(request: PciRequest) -> str | None:
    """The resource class of an alias that has nothing else to know its devices by."""
    for alternative in request.spec:
        if alternative.get("resource_class") and not alternative.keys() - NOT_COMPARED:
            return alternative["resource_class"]
    return None


def _reason(
    rule: str, situation: Situation, before: Candidates, after: Candidates, text: str, hint: str | None
) -> Reason:
    return Reason(
        rule=rule,
        text=text,
        request=label(situation.request),
        before=total(before),
        after=total(after),
        hint=hint,
    )


def _taking(by_index: Mapping[int, Collection[str]], candidates: Candidates) -> str:
    """``request GPU takes``; empty when nobody does."""
    names = sorted({name for candidate in candidates for name in by_index.get(candidate.index, ())})
    if len(names) < 2:
        return "".join(f"request {name} takes" for name in names)
    return f"requests {', '.join(names[:-1])} and {names[-1]} take"


def _opposite(situation: Situation, candidates: Candidates) -> str:
    blocked = [candidate for candidate in candidates if candidate.index in situation.blockers]
    return "VFs" if blocked[0].pool.dev_type is DeviceType.PF else "PF"


def _nodes(nodes: Iterable[int | None]) -> str:
    known = sorted(node for node in nodes if node is not None)
    words = [str(node) for node in known] + (["unknown"] if None in set(nodes) else [])
    return f"NUMA node {', '.join(words)}" if words else "no NUMA node"


def _devices(count: int, kind: str = "") -> str:
    noun = "device" if count == 1 else "devices"
    return f"{count} {kind} {noun}" if kind else f"{count} {noun}"


def _verb(count: int, verb: str) -> str:
    return (verb + ("es" if verb.endswith("ch") else "s")) if count == 1 else verb


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
