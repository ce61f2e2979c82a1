"""From what a caller asks for to the NICs of a server: which network or port each has, and which device it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from jetbridge.errors import Invalid, NotSupported, PortInUse
from jetbridge.model.context import RequestContext
from jetbridge.model.network import Network, Port
from jetbridge.model.server import NetworkRequest
from jetbridge.network.ports import Ports, seen_network, seen_networks, seen_port
from jetbridge.pci.port import VnicType, request_of_port
from jetbridge.pci.request import NumaPolicy, PciRequest

DEFAULT = "default"
"""The network that libvirt comes with: what ``auto`` means where there are several."""


@dataclass(frozen=True)
class Wish:
    """One NIC asked for: a network by id or name, or a port by id."""

    network: str | None = None
    port: str | None = None
    tag: str | None = None
    fixed_ips: tuple[str, ...] = ()


Requested = Literal["auto", "none"] | Sequence[Wish]


@dataclass(frozen=True)
class Chosen:
    """A NIC that can be had. ``port`` None: one is to be made."""

    network: Network
    port: Port | None = None
    tag: str | None = None
    fixed_ips: tuple[str, ...] = ()

    @property
    def vnic_type(self) -> VnicType:
        return self.port.vnic_type if self.port else VnicType.NORMAL


def choose(ports: Ports, context: RequestContext, requested: Requested) -> tuple[Chosen, ...]:
    """What each NIC is on, in order. Raises ``NotFound`` for a network or port that the caller can't see, ``PortInUse``, ``Invalid``
    where it isn't clear what is meant, and ``NotSupported`` for a port that can't be served."""
    if requested == "none":
        return ()
    if requested == "auto":
        return (Chosen(_auto(seen_networks(ports, context))),)
    assert not isinstance(requested, str)
    named = [wish.port for wish in requested if wish.port]
    for port_id in named:
        if named.count(port_id) > 1:
            raise Invalid(f"Port {port_id} is asked for more than once: a port is one NIC.")
    chosen = tuple(_choose(ports, context, wish) for wish in requested)
    for number, one in enumerate(chosen):
        if one.port is not None:
            check_mac(one.port, {each.port.mac: each.port.id for each in chosen[:number] if each.port})
    return chosen


def check_mac(port: Port, others: Mapping[str, str | None]) -> None:
    """Networks may each have a port of one MAC address. A hypervisor knows a guest's NICs by it: taking one out took the other.
    ``others``: ports of the server by MAC address. Raises ``Invalid``."""
    if port.mac in others:
        raise Invalid(
            f"Port {port.id} has the MAC address {port.mac}, as port {others[port.mac]} of the same server has: give one of them"
            " another (openstack port set --mac-address)."
        )


def nic_of(chosen: Chosen, mac: str, request: PciRequest | None) -> NetworkRequest:
    """``mac`` counts where the port is still to be made."""
    port = chosen.port
    return NetworkRequest(
        network=chosen.network.name,
        network_id=chosen.network.id,
        mac=port.mac if port else mac,
        tag=chosen.tag,
        port_id=port.id if port else None,
        vnic_type=chosen.vnic_type,
        request_id=request.request_id if request else None,
        made=port is None,
        fixed_ips=port.fixed_ips if port else chosen.fixed_ips,
    )


def request_of(chosen: Chosen, policy: NumaPolicy | None, new_id: Callable[[], str]) -> PciRequest | None:
    """The device that the NIC's port needs; ``policy`` is that of flavor or image."""
    return None if chosen.port is None else request_of_port(chosen.port.wish(chosen.network), policy, new_id)


def _choose(ports: Ports, context: RequestContext, wish: Wish) -> Chosen:
    if wish.port is None:
        assert wish.network is not None
        return Chosen(seen_network(ports, context, wish.network), None, wish.tag, wish.fixed_ips)
    port = seen_port(ports, context, wish.port)
    if port.device_id:
        raise PortInUse(port=port.id, server=port.device_id)
    if port.qos:
        raise NotSupported(reason=f"port {port.id} asks for bandwidth by a QoS policy: take the policy off the port")
    return Chosen(ports.network(port.network_id), port, wish.tag)


def _auto(known: Sequence[Network]) -> Network:
    by_name = {network.name: network for network in known}
    if DEFAULT in by_name:
        return by_name[DEFAULT]
    if len(known) == 1:
        return known[0]
    raise Invalid(reason=f"networks='auto' is ambiguous without a network named {DEFAULT!r}: {choices(known)}")


def choices(known: Sequence[Network]) -> str:
    """What to do instead, for a message."""
    if not known:
        return "no host reports a network. Ask for none (--nic none), or start libvirt's: virsh net-start default"
    return f"use one of {', '.join(network.name for network in known)}, or none"
