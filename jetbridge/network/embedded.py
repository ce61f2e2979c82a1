"""libvirt networks and host bridges as the networks users know: by name, with an id made from the name.

A network is its name: hosts that have a network or a bridge of the same name are taken to be on the same network.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jetbridge.db import networks as rows
from jetbridge.db.engine import Database
from jetbridge.errors import Invalid, NotFound

DEFAULT = "default"
"""The network that libvirt comes with: what ``auto`` means where there are several."""

_NAMESPACE = uuid.UUID("0e0c6a0e-6c0a-5c5d-8f3c-3b6d2f9a5d11")

Requested = Literal["auto", "none"] | Sequence[str]
"""What a caller asks for: ``auto``, ``none``, or names and ids, one per NIC."""


@dataclass(frozen=True)
class Network:
    """``kinds``: ``network`` (libvirt's) or ``bridge`` (the host's), as the hosts have it."""

    name: str
    kinds: tuple[str, ...] = ("network",)

    @property
    def id(self) -> str:
        return network_id(self.name)


def network_id(name: str) -> str:
    """The id of a network: the same everywhere, whichever hosts have it."""
    return str(uuid.uuid5(_NAMESPACE, name))


def list_networks(database: Database) -> tuple[Network, ...]:
    """The networks of all hosts, by name."""
    with database.read() as conn:
        stored = rows.listing(conn)
    kinds: dict[str, list[str]] = {}
    for row in stored:
        kinds.setdefault(row.name, []).append(row.kind)
    return tuple(Network(name, tuple(kinds[name])) for name in sorted(kinds))


def get_network(database: Database, key: str) -> Network:
    """By id or name. Raises ``NotFound``."""
    for network in list_networks(database):
        if key in (network.id, network.name):
            return network
    raise NotFound(noun="Network", key=key)


def resolve_networks(database: Database, requested: Requested) -> tuple[str, ...]:
    """The names of the networks for a server's NICs, in order. Raises ``Invalid`` for one that no host has."""
    if requested == "none":
        return ()
    known = list_networks(database)
    if requested == "auto":
        return (_auto(known),)
    assert not isinstance(requested, str)
    by_key = {network.id: network.name for network in known} | {network.name: network.name for network in known}
    for key in requested:
        if key not in by_key:
            raise Invalid(reason=f"network {key!r} could not be found: {_choices(known)}")
    return tuple(by_key[key] for key in requested)


def _auto(known: Sequence[Network]) -> str:
    names = [network.name for network in known]
    if DEFAULT in names:
        return DEFAULT
    if len(names) == 1:
        return names[0]
    raise Invalid(reason=f"networks='auto' is ambiguous without a network named {DEFAULT!r}: {_choices(known)}")


def _choices(known: Sequence[Network]) -> str:
    if not known:
        return "no host reports a network. Ask for none (--nic none), or start libvirt's: virsh net-start default"
    return f"use one of {', '.join(network.name for network in known)}, or none"


def mac_address(seed: str) -> str:
    """A MAC address under fa:16:3e, the same for the same seed (a server's id and the number of the NIC)."""
    digest = hashlib.sha256(seed.encode()).digest()
    return "fa:16:3e:" + ":".join(f"{byte:02x}" for byte in digest[:3])
