"""Device profiles: what may stand in one, and the request groups it becomes. Pure.

Source of the rules: Accelerator API v2, device profiles, and nova.accelerator (Nova Administration Guide, Using Cyborg).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jetbridge.errors import Invalid
from jetbridge.model.request_group import RequestGroup
from jetbridge.placement.groups import OWNER_TRAIT
from jetbridge.placement.names import is_resource_class, is_trait

PROFILE = "accel:device_profile"
"""The extra spec of a flavor that names its device profile."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,255}")
_AMOUNT = re.compile(r"[0-9]{1,9}")
_KIND = re.compile(r"(resources|trait)[^:]*:(.*)", re.DOTALL)
_MOST_DEVICES = 64
"""Of one profile: more than a guest can have."""


def requester_of(group_id: int, port_id: str | None = None) -> str:
    """Who asks in Placement: the group of a profile, followed by the port it is for."""
    return f"device_profile_{group_id}{port_id or ''}"


def request_groups(
    groups: Sequence[Mapping[str, str]], port_id: str | None = None
) -> tuple[tuple[RequestGroup, ...], tuple[str, ...]]:
    """The request groups of a profile, and what there is to warn about: entries that make no sense are left out.

    The suffix after ``resources`` or ``trait`` says nothing here; keys of other kinds (``accel:...``) are for the service that binds.
    Providers of ours are never meant: the accelerator service owns its own.
    """
    found, warnings = [], []
    for index, group in enumerate(groups):
        resources: dict[str, int] = {}
        traits: dict[str, set[str]] = {"required": set(), "forbidden": {OWNER_TRAIT}}
        for key, value in group.items():
            match = _KIND.fullmatch(key)
            if match is None:
                continue
            kind, name = match.groups()
            if kind == "trait" and value in traits and is_trait(name):
                traits[value].add(name)
            elif kind == "resources" and is_resource_class(name) and _AMOUNT.fullmatch(str(value)):
                resources[name] = resources.get(name, 0) + int(value)
            else:
                warnings.append(
                    f"group {index}: {key}={value} is left out: it names no class, trait or amount there is"
                )
        found.append(
            RequestGroup(
                requester_of(index, port_id), resources, frozenset(traits["required"]), frozenset(traits["forbidden"])
            )
        )
    return tuple(found), tuple(warnings)


def devices_of(group: Mapping[str, str]) -> int:
    """How many devices a group asks for, of whatever classes."""
    return sum(
        int(value) for key, value in group.items() if (match := _KIND.fullmatch(key)) and match[1] == "resources"
    )


def check_profile(name: str, groups: Sequence[Mapping[str, str]]) -> tuple[Mapping[str, str], ...]:
    """The groups as they are kept: names trimmed, values as text. Raises ``Invalid`` naming the key, its value and what to write."""
    if not _NAME.fullmatch(name):
        raise Invalid(f"Device profile name {name!r}: use letters, digits, - and _, at most 255.")
    if not groups:
        raise Invalid(f"Device profile {name}: groups is empty: write at least one, such as {{'resources:PGPU': '1'}}.")
    checked = tuple(_checked(name, index, group) for index, group in enumerate(groups))
    if sum(devices_of(group) for group in checked) > _MOST_DEVICES:
        raise Invalid(f"Device profile {name} asks for more than {_MOST_DEVICES} devices: no guest can have so many.")
    return checked


def _checked(profile: str, index: int, group: Mapping[str, str]) -> Mapping[str, str]:
    where = f"Device profile {profile}, group {index}:"
    kept: dict[str, str] = {}
    for key, value in group.items():
        kind, _, name = key.partition(":")
        name, text = name.strip(), str(value).strip()
        if kind not in ("resources", "trait", "accel") or not name:
            raise Invalid(f"{where} key {key!r}: write resources:CLASS, trait:TRAIT or accel:NAME.")
        if kind == "resources":
            if not is_resource_class(name):
                raise Invalid(
                    f"{where} {name!r} in {key!r} is no resource class: use a standard one such as PGPU or FPGA, or CUSTOM_ followed by"
                    " A to Z, 0 to 9 and underscores."
                )
            if isinstance(value, bool) or not _AMOUNT.fullmatch(text) or int(text) == 0:
                raise Invalid(f"{where} value {value!r} of {key}: write a whole number from 1 on.")
        elif kind == "trait":
            if not is_trait(name):
                raise Invalid(
                    f"{where} {name!r} in {key!r} is no trait: use a standard one, or one that begins with CUSTOM_."
                )
            if text not in ("required", "forbidden"):
                raise Invalid(f"{where} value {value!r} of {key}: write required or forbidden.")
        if f"{kind}:{name}" in kept:
            raise Invalid(f"{where} key {kind}:{name} is there twice: write it once.")
        kept[f"{kind}:{name}"] = text
    if not any(key.startswith("resources:") for key in kept):
        raise Invalid(f"{where} asks for no device: add a key such as 'resources:PGPU': '1'.")
    return kept
