"""From a flavor's extra specs and the device requests to groups of a Placement query. Pure.

The keys are those of the Compute API (Nova Administration Guide, Configure scheduling, and Placement API, granular resource requests).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jetbridge.errors import Invalid
from jetbridge.model.request_group import RequestGroup
from jetbridge.pci.request import PciRequest, ProviderChoice
from jetbridge.placement.names import is_resource_class, is_trait, resource_class_name, trait_names

GROUP_POLICY = "group_policy"
ISOLATE = "isolate"
GROUP_POLICIES = ("none", ISOLATE)

SIZES = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"})
"""What every server takes of its host's root: counted by the flavor's own fields, not by keys."""

OWNER_TRAIT = "OWNER_NOVA"
"""Says whose a provider is in a Placement that several services share (os-traits, OWNER namespace). Every provider that we write has it, and
groups of PCI devices require it."""

ACCELERATOR_TRAIT = "OWNER_CYBORG"
"""What the accelerator service's providers have instead."""

OWNERS = frozenset({OWNER_TRAIT, ACCELERATOR_TRAIT})

NO_PROVIDER = "no provider"

LARGEST_AMOUNT = 2**31 - 1
"""The largest that Placement keeps (its amounts are 32-bit integers)."""

GROUP_KINDS = ("resources", "trait", "member_of")

LONGEST_SUFFIX = 64
"""Of what Placement takes (Placement API, granular resource requests)."""

_KEY = re.compile(rf"({'|'.join(GROUP_KINDS)})([a-zA-Z0-9_-]+)?:(.*)", re.DOTALL)
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass
class _Draft:
    resources: dict[str, int] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)
    member_of: set[str] = field(default_factory=set)
    outside_of: set[str] = field(default_factory=set)
    first_key: str = ""


def flavor_groups(extra_specs: Mapping[str, str]) -> tuple[RequestGroup, ...]:
    """The groups of ``resources[SUFFIX]:CLASS``, ``trait[SUFFIX]:TRAIT`` and ``member_of[SUFFIX]:AGGREGATE`` keys, the unsuffixed one
    first, then by suffix.

    Amounts of 0 ask for nothing. An unsuffixed group may have traits and aggregates alone: they speak of the host. Raises ``Invalid`` naming the
    key, its value and what to write.
    """
    drafts: dict[str, _Draft] = {}
    for key, value in extra_specs.items():
        check_group_key(key, value)
        match = _KEY.fullmatch(key)
        if match is None:
            continue
        kind, suffix, name = match[1], match[2] or "", match[3]
        draft = drafts.setdefault(suffix, _Draft(first_key=key))
        if kind == "trait":
            (draft.required if value == "required" else draft.forbidden).add(name)
        elif kind == "member_of":
            (draft.member_of if value == "required" else draft.outside_of).add(name)
        elif int(value) > 0 and name not in SIZES:
            draft.resources[name] = int(value)
    groups = [_group(suffix, drafts[suffix]) for suffix in sorted(drafts)]
    return tuple(group for group in groups if group != RequestGroup(group.requester_id))


def is_group_key(key: str) -> bool:
    """Whether it speaks of a group, ``group_policy`` aside."""
    return _KEY.fullmatch(key) is not None


def check_group_key(key: str, value: str) -> None:
    """One key alone; those of other kinds pass. Raises ``Invalid``."""
    if key == GROUP_POLICY and value not in GROUP_POLICIES:
        raise Invalid(f"Invalid value {value!r} for extra spec {key}: write {' or '.join(GROUP_POLICIES)}.")
    match = _KEY.fullmatch(key)
    if match is None:
        return
    kind, suffix, name = match[1], match[2] or "", match[3]
    if len(suffix) > LONGEST_SUFFIX:
        raise Invalid(
            f"Extra spec {key}: the suffix of {kind} has {len(suffix)} characters: write at most {LONGEST_SUFFIX} between {kind} and the colon."
        )
    if kind in ("trait", "member_of"):
        if kind == "trait" and not is_trait(name):
            raise Invalid(
                f"Extra spec {key}: {name!r} is no trait: use a standard one (`openstack trait list`), or CUSTOM_ followed by"
                " A to Z, 0 to 9 and underscores."
            )
        if kind == "member_of" and _UUID.fullmatch(name) is None:
            raise Invalid(
                f"Extra spec {key}: {name!r} is no aggregate: write its UUID in lower case, as `openstack resource provider aggregate list`"
                " shows it."
            )
        if value not in ("required", "forbidden"):
            raise Invalid(f"Invalid value {value!r} for extra spec {key}: write required or forbidden.")
        return
    if not is_resource_class(name):
        raise Invalid(
            f"Extra spec {key}: {name!r} is no resource class: use a standard one such as VGPU (`openstack resource class list`), or CUSTOM_"
            " followed by A to Z, 0 to 9 and underscores."
        )
    if re.fullmatch("[0-9]{1,10}", value) is None or int(value) > LARGEST_AMOUNT:
        raise Invalid(f"Invalid value {value!r} for extra spec {key}: write a whole number, such as 1.")
    if name in SIZES and suffix and int(value):
        raise Invalid(
            f"Extra spec {key}={value}: {name} is counted by the flavor's own vcpus, ram and disk, on the host itself: remove the key."
        )


def without_accelerators(group: RequestGroup) -> RequestGroup:
    """A flavor's own group, which the accelerator service's providers must not serve: what they stand for reaches a guest by that service's
    requests alone. Groups that say whose providers they mean stay as they are: those of aliases and of device profiles do."""
    if OWNERS & (group.required | group.forbidden):
        return group
    return replace(group, forbidden=group.forbidden | {ACCELERATOR_TRAIT})


def isolated(extra_specs: Mapping[str, str]) -> bool:
    """Whether no two suffixed groups may be served by one provider. Without ``group_policy`` they may."""
    return extra_specs.get(GROUP_POLICY) == ISOLATE


def pci_groups(requests: Iterable[PciRequest]) -> tuple[RequestGroup, ...]:
    """One group per device of the requests that come from aliases, in their order; ports are never in Placement.

    What Placement doesn't know (device type, NUMA policy, private keys) is left to the fit of the devices.
    """
    return tuple(
        RequestGroup(
            requester_id=f"{request.request_id}-{index}",
            resources={
                resource_class_name(
                    request.spec[0].get("resource_class"),
                    request.spec[0].get("vendor_id"),
                    request.spec[0].get("product_id"),
                ): 1
            },
            required=trait_names(request.spec[0].get("traits")) | {OWNER_TRAIT},
        )
        for request in requests
        if not request.from_port
        for index in range(request.count)
    )


def groups_of(request: PciRequest, groups: Iterable[RequestGroup]) -> tuple[RequestGroup, ...]:
    """The groups of a request's devices, in their order; none when the request isn't in Placement."""
    known = {group.requester_id: group for group in groups}
    names = (f"{request.request_id}-{index}" for index in range(request.count))
    return tuple(known[name] for name in names if name in known)


def provider_choice(
    requests: Iterable[PciRequest], groups: Sequence[RequestGroup], chosen: Mapping[str, Sequence[str]]
) -> ProviderChoice | None:
    """What a claim has to follow: the chosen providers (by requester id) per device request. None: no request is in Placement.

    A device whose group has no provider counts as bound to one that nobody has, so that the claim fails rather than takes another.
    """
    by_request = {
        request.request_id: tuple(
            provider for group in mine for provider in chosen.get(group.requester_id, (NO_PROVIDER,))
        )
        for request in requests
        if (mine := groups_of(request, groups))
    }
    return ProviderChoice(by_request) if by_request else None


def _group(suffix: str, draft: _Draft) -> RequestGroup:
    both = draft.required & draft.forbidden
    if both:
        raise Invalid(f"Extra specs trait{suffix}: {', '.join(sorted(both))} can't be required and forbidden.")
    group = RequestGroup(
        suffix,
        draft.resources,
        frozenset(draft.required),
        frozenset(draft.forbidden),
        frozenset(draft.member_of),
        frozenset(draft.outside_of),
    )
    if suffix and not draft.resources and group != RequestGroup(suffix):
        kind = draft.first_key.partition(":")[0].removesuffix(suffix)
        raise Invalid(
            f"Extra spec {draft.first_key}: there is no resources{suffix}: key that asks for something of such a provider: add one, or"
            f" write {kind}: without a suffix to speak of the host."
        )
    return group
