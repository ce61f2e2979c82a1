"""The NICs of a server on its host: their ports bound and released, and what of the host each takes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jetbridge.accelerator import ports as accelerator_ports
from jetbridge.accelerator.inventory import address_of
from jetbridge.compute.host import AgentHost, about
from jetbridge.db import interfaces, pci_devices, server_arqs
from jetbridge.errors import HypervisorError, NetworkServiceFailed, PciDeviceNotFound, PortBindingFailed
from jetbridge.model.accelerator import ServerArq
from jetbridge.model.context import RequestContext
from jetbridge.model.network import Binding, NewPort, Port
from jetbridge.model.server import NetworkRequest, Server
from jetbridge.pci.device import DeviceType, PciDevice
from jetbridge.pci.port import ACCELERATOR_VNICS, DEVICE_VNICS, VnicType, binding_profile
from jetbridge.virt.children import netdev_of, vdpa_devices
from jetbridge.virt.connection import NetworkInfo
from jetbridge.virt.guest import GuestNic
from jetbridge.virt.nodedev import parse_node_device

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Function:
    """The function that a port got, whoever gave it. ``profile`` is what the port's binding says of it; ``mac`` that of a whole card,
    which the port takes over."""

    address: str
    identity: str
    profile: Mapping[str, Any]
    managed: bool = True
    mac: str | None = None


def bind_ports(host: AgentHost, context: RequestContext, server: Server) -> tuple[GuestNic, ...]:
    """Bind the port of every NIC, making those that are to be made; answers what goes into the guest.

    Raises what ``Ports.bind`` and ``guest_nic`` raise. What was bound then is released by ``release_ports``.
    """
    with host.database.read() as conn:
        nics = interfaces.of_server(conn, server.uuid)
        devices = {device.request_id: device for device in pci_devices.of_instance(conn, server.uuid)}
        arqs = {arq.port_id: arq for arq in server_arqs.of_server(conn, server.uuid) if arq.port_id is not None}
    bound = []
    for nic in nics:
        device = devices.get(nic.request_id) if nic.request_id else None
        arq = arqs.get(nic.port_id or "")
        function = function_of(host, nic, device) if device else _accelerated(host, nic, arq) if arq else None
        bound.append(bind_port(host, context, server, nic, function))
    return tuple(bound)


def function_of(host: AgentHost, nic: NetworkRequest, device: PciDevice) -> Function:
    """The one of a device that was claimed for the NIC's port."""
    return Function(
        device.address, device.identity, binding_profile(device), device.managed, _pf_mac(host, nic, device)
    )


def _accelerated(host: AgentHost, nic: NetworkRequest, arq: ServerArq) -> Function:
    """The one that an accelerator request gave for the NIC's port. Raises ``PortBindingFailed`` for one that is wired to another network:
    an accelerator service knows nothing of ports."""
    address = address_of(arq.attach_info)
    assert address is not None
    assert arq.arq_uuid is not None
    profile = accelerator_ports.binding_profile(arq.arq_uuid, arq.attach_info)
    wired, asked = profile["physical_network"], host.ports.network(nic.network_id).physical_network
    if wired != asked:
        raise PortBindingFailed(
            port=nic.port_id,
            host=host.name,
            reason=f"accelerator request {arq.arq_uuid} gave {address} on physical network {wired}, and network {nic.network} is on"
            f" {asked or 'none'}: tell them apart by a trait in device profile {arq.profile!r}",
        )
    return Function(address, arq.identity or address, profile)


def bind_port(
    host: AgentHost, context: RequestContext | None, server: Server, nic: NetworkRequest, function: Function | None
) -> GuestNic:
    """Bind one; ``function`` None: for a port that takes none. Noted first: whoever comes after a crash knows what to release."""
    if function is None and nic.vnic_type in DEVICE_VNICS | ACCELERATOR_VNICS:
        raise PciDeviceNotFound(
            f"Server {server.uuid} has no device for port {nic.port_id} (request {nic.request_id or 'to an accelerator service'})."
        )
    host.database.write(lambda conn: interfaces.update(conn, nic.id, host=host.name, now=host.now()))
    binding = Binding(server.uuid, host.name)
    if function is not None:
        binding = replace(binding, device=function.profile, mac=function.mac)
    with host.network(context, "bind", server.uuid, port=nic.port_id or f"a new one on {nic.network}"):
        if nic.port_id:
            port = host.ports.bind(nic.port_id, binding)
        else:
            port = host.ports.make(NewPort(nic.network_id, server.project_id, nic.mac, nic.fixed_ips), binding)
    host.database.write(lambda conn: interfaces.update(conn, nic.id, port_id=port.id, mac=port.mac, now=host.now()))
    if port.vif_type in ("binding_failed", "unbound"):
        raise PortBindingFailed(port=port.id, host=host.name, reason=f"its vif_type is {port.vif_type}")
    logger.info(
        "Port %s (%s) is bound to server %s on host %s%s",
        port.id,
        port.vnic_type,
        server.uuid,
        host.name,
        f" with {function.identity}" if function else "",
        extra=about(context, server.uuid),
    )
    return guest_nic(host, server, replace(nic, mac=port.mac), port, function)


def release_ports(
    host: AgentHost, context: RequestContext | None, server_uuid: str, nics: Iterable[NetworkRequest] | None = None
) -> None:
    """The server's ports, or those of ``nics``, as far as this host has them, are nobody's afterwards; ports that were made for the server
    are gone. Again: nothing happens."""
    if nics is None:
        with host.database.read() as conn:
            nics = interfaces.of_server(conn, server_uuid)
    for nic in nics:
        if nic.host == host.name:
            _release(host, context, server_uuid, nic)


def _release(host: AgentHost, context: RequestContext | None, server_uuid: str, nic: NetworkRequest) -> None:
    with host.network(context, "release", server_uuid, port=nic.port_id or nic.mac):
        port_id = nic.port_id or _unnoted(host, server_uuid, nic)
        if port_id is not None:
            host.ports.release(port_id, server_uuid, delete=nic.made)
    changes: interfaces.Changes = {"host": None}
    if nic.made:
        changes["port_id"] = None
    host.database.write(lambda conn: interfaces.update(conn, nic.id, now=host.now(), **changes))
    if port_id is not None:
        logger.info(
            "Port %s is released by server %s on host %s",
            port_id,
            server_uuid,
            host.name,
            extra=about(context, server_uuid),
        )


def _unnoted(host: AgentHost, server_uuid: str, nic: NetworkRequest) -> str | None:
    """A port that was made for a NIC by a process that died before it wrote down which."""
    for port in host.ports.ports_of(server_uuid):
        if (port.network_id, port.mac) == (nic.network_id, nic.mac):
            return port.id
    return None


def tell_changed_ports(host: AgentHost) -> None:
    """Log which ports are of another VNIC type by now than when their servers got them. Those servers run on with what they have: an agent
    that refused to start would let the owner of one port stop a whole host."""
    with host.database.read() as conn:
        bound = interfaces.of_host(conn, host.name)
    if not bound:
        return
    try:
        now = host.ports.vnic_types(host.name)
    except NetworkServiceFailed as error:
        logger.warning("Whether ports of host %s have changed can't be seen: %s", host.name, error)
        return
    for server_uuid, nics in bound.items():
        for nic in nics:
            found = now.get(nic.port_id or "", nic.vnic_type)
            if found != nic.vnic_type:
                logger.warning(
                    "Port %s of server %s on host %s was of VNIC type %s when the server got it, and is %s now: the server keeps what"
                    " it has. Set the port back, or take it out of the server",
                    nic.port_id,
                    server_uuid,
                    host.name,
                    nic.vnic_type,
                    found,
                    extra=about(None, server_uuid),
                )


def guest_nic(host: AgentHost, server: Server, nic: NetworkRequest, port: Port, function: Function | None) -> GuestNic:
    """What of the host a bound port takes. Raises ``HypervisorError`` where the host doesn't have it."""
    vlan = str(port.vif_details.get("vlan") or "")
    made = GuestNic(nic.mac, nic.vnic_type, vlan=int(vlan) if vlan.isdecimal() else None)
    if function is not None:
        made = replace(made, address=function.address, managed=function.managed)
    match nic.vnic_type:
        case VnicType.NORMAL if port.vif_type == "ovs":
            bridge = NetworkInfo(str(port.vif_details.get("bridge_name") or "br-int"), "bridge")
            return replace(made, network=bridge, ovs_port=port.id)
        case VnicType.NORMAL if port.vif_details.get("bridge_name"):
            return replace(made, network=NetworkInfo(str(port.vif_details["bridge_name"]), "bridge"))
        case VnicType.NORMAL:
            return replace(made, network=_network(host, server, nic))
        case VnicType.MACVTAP:
            assert function is not None
            return replace(made, path=_interface(host, nic, function.address))
        case VnicType.VDPA:
            assert function is not None
            return replace(made, path=_vdpa(host, nic, function.address))
        case VnicType.VIRTIO_FORWARDER:
            socket = port.vif_details.get("vhostuser_socket")
            if not socket:
                raise PortBindingFailed(port=port.id, host=host.name, reason="its vif_details name no vhostuser_socket")
            return replace(made, path=str(socket))
        case _:
            return made


def _pf_mac(host: AgentHost, nic: NetworkRequest, device: PciDevice) -> str | None:
    """A whole card's own address, which can't be set: the port takes it over."""
    if device.dev_type is not DeviceType.PF:
        return None
    mac = netdev_of(host.files, device.address)[1]
    if mac is None:
        logger.error(
            "The MAC address of PF %s of host %s can't be read: port %s keeps %s",
            device.address,
            host.name,
            nic.port_id,
            nic.mac,
        )
    return mac


def _network(host: AgentHost, server: Server, nic: NetworkRequest) -> NetworkInfo:
    known = {network.name: network for network in host.connection.networks()}
    if nic.network not in known:
        raise HypervisorError(
            operation=f"connecting server {server.uuid} to network {nic.network!r}",
            host=host.name,
            reason=f"the host has only {', '.join(sorted(known)) or 'no networks'}",
        )
    return known[nic.network]


def _interface(host: AgentHost, nic: NetworkRequest, address: str) -> str:
    name = netdev_of(host.files, address)[0]
    if name is None:
        raise HypervisorError(
            operation=f"connecting port {nic.port_id}",
            host=host.name,
            reason=f"VF {address} has no network interface for macvtap: bind it to its network driver",
        )
    return name


def _vdpa(host: AgentHost, nic: NetworkRequest, address: str) -> str:
    documents = [parse_node_device(document) for document in host.connection.node_devices()]
    path = vdpa_devices(documents, host.files).get(address)
    if not path:
        raise HypervisorError(
            operation=f"connecting port {nic.port_id}",
            host=host.name,
            reason=f"{address} has no vDPA character device: load vhost_vdpa, and bind its vDPA device to that",
        )
    return path
