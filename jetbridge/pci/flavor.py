"""From a flavor's extra specs and an image's properties to device requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from jetbridge.errors import (
    ImagePCINUMAPolicyForbidden,
    InvalidPCINUMAAffinity,
    PciInvalidRequest,
    PciRequestAliasNotDefined,
)
from jetbridge.pci.request import Alias, AliasTable, NumaPolicy, PciRequest
from jetbridge.pci.words import nearest

ALIAS_KEY = "pci_passthrough:alias"
POLICY_KEY = "hw:pci_numa_affinity_policy"
IMAGE_POLICY_KEY = "hw_pci_numa_affinity_policy"

MAX_DIGITS = 6
"""Longer counts are typing errors: no host has a million devices."""


def parse_alias_term(text: str) -> tuple[tuple[str, int], ...]:
    """Names and counts of a ``pci_passthrough:alias`` value such as ``GPU:1, NIC:2``, in order; equal names aren't merged.

    Raises ``PciInvalidRequest`` naming the value, what is wrong with it and the grammar.
    """
    return tuple(_parse_piece(piece, text) for piece in text.split(","))


def flavor_policy(extra_specs: Mapping[str, str], image_properties: Mapping[str, str]) -> NumaPolicy | None:
    """The NUMA policy that flavor or image ask for; None: neither does, and the alias' own policy holds.

    Raises ``ImagePCINUMAPolicyForbidden`` when both ask and differ, ``InvalidPCINUMAAffinity`` for an unknown word.
    """
    flavor, image = extra_specs.get(POLICY_KEY), image_properties.get(IMAGE_POLICY_KEY)
    if flavor and image and flavor != image:
        raise ImagePCINUMAPolicyForbidden(flavor=flavor, image=image)
    word = flavor or image
    if not word:
        return None
    try:
        return NumaPolicy(word)
    except ValueError:
        raise InvalidPCINUMAAffinity(policy=word) from None


def requests_from_flavor(
    extra_specs: Mapping[str, str],
    image_properties: Mapping[str, str],
    aliases: AliasTable,
    new_id: Callable[[], str],
) -> tuple[PciRequest, ...]:
    """One request per alias term, in order; none when the flavor has no ``pci_passthrough:alias``.

    ``new_id`` makes the request ids: once, here, for the whole life of the server. Raises ``PciInvalidRequest``,
    ``PciRequestAliasNotDefined`` and what ``flavor_policy`` raises.
    """
    text = extra_specs.get(ALIAS_KEY)
    if text is None:
        return ()
    terms = [(_defined(name, aliases), count) for name, count in parse_alias_term(text)]
    policy = flavor_policy(extra_specs, image_properties)
    return tuple(
        PciRequest(
            request_id=new_id(),
            count=count,
            spec=alias.properties,
            alias_name=alias.name,
            numa_policy=policy or alias.numa_policy,
        )
        for alias, count in terms
    )


def _parse_piece(piece: str, value: str) -> tuple[str, int]:
    parts = piece.split(":")
    if not piece.strip():
        raise PciInvalidRequest(value=value, reason="an entry is empty")
    if len(parts) != 2:
        wrong = "has no count" if len(parts) == 1 else "has more than one colon"
        raise PciInvalidRequest(value=value, reason=f"{piece.strip()!r} {wrong}")
    name, count = parts[0].strip(), parts[1].strip()
    if not name:
        raise PciInvalidRequest(value=value, reason=f"{piece.strip()!r} has no alias name")
    if not re.fullmatch("[+-]?[0-9]+", count):
        raise PciInvalidRequest(value=value, reason=f"count {count!r} of {name} is not a whole number")
    if len(count) > MAX_DIGITS:
        raise PciInvalidRequest(value=value, reason=f"count {count} of {name} is too large")
    if int(count) < 1:
        raise PciInvalidRequest(value=value, reason=f"count {count} of {name} is not at least 1")
    return name, int(count)


def _defined(name: str, aliases: AliasTable) -> Alias:
    if name in aliases:
        return aliases[name]
    if not aliases:
        hint = "No alias is configured: add one to [pci]alias."
    elif near := nearest(name, list(aliases)):
        hint = f"Did you mean {near}?"
    else:
        hint = f"Defined in [pci]alias: {', '.join(sorted(aliases))}."
    raise PciRequestAliasNotDefined(alias=name, hint=hint)
