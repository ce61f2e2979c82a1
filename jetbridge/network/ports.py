"""Where networks and ports are: in our own tables, or in a Neutron. Nobody above asks which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from jetbridge.errors import NotFound
from jetbridge.model.context import RequestContext
from jetbridge.model.network import Binding, Network, NewPort, Port


class Ports(Protocol):
    """All methods raise ``NetworkServiceFailed`` where the service doesn't answer. Who may see what is for the caller: see
    ``seen_network`` and ``seen_port``."""

    def networks(self) -> Sequence[Network]:
        """All of them, by name."""
        ...

    def network(self, key: str) -> Network:
        """By id or name. Raises ``NotFound``."""
        ...

    def port(self, port_id: str) -> Port:
        """Raises ``NotFound``, and ``NotSupported`` for a VNIC type that no host of ours can serve."""
        ...

    def ports_of(self, server_uuid: str) -> Sequence[Port]:
        """Those that are bound to a server."""
        ...

    def vnic_types(self, host: str) -> Mapping[str, str]:
        """Of the ports that a host has bound, by id, in the service's own words: ones that no host of ours can serve too."""
        ...

    def make(self, new: NewPort, binding: Binding) -> Port:
        """A bound port for a server that asked for a network; again for the same server and MAC: the one there is. Raises
        ``PortBindingFailed``."""
        ...

    def bind(self, port_id: str, binding: Binding) -> Port:
        """Give the port to a server on a host; again: the same. Raises ``PortInUse`` where another server has it,
        ``NotFound``, ``PortBindingFailed``."""
        ...

    def release(self, port_id: str, server_uuid: str, *, delete: bool) -> None:
        """The server has the port no more: what the binding wrote goes, with ``delete`` the port itself. A port that is gone, or
        another server's by now: nothing happens."""
        ...


def may_see(context: RequestContext, network: Network) -> bool:
    return context.is_admin or network.shared or network.project_id == context.project


def seen_networks(ports: Ports, context: RequestContext) -> Sequence[Network]:
    return [network for network in ports.networks() if may_see(context, network)]


def seen_network(ports: Ports, context: RequestContext, key: str) -> Network:
    """Raises ``NotFound``, also for a network that the caller may not see."""
    network = ports.network(key)
    if not may_see(context, network):
        raise NotFound(noun="Network", key=key)
    return network


def seen_port(ports: Ports, context: RequestContext, port_id: str) -> Port:
    """Raises ``NotFound``, also for another project's."""
    port = ports.port(port_id)
    if not context.is_admin and port.project_id != context.project:
        raise NotFound(noun="Port", key=port_id)
    return port
