"""The NICs of a server on its host: their ports bound and released, and what of the host each takes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from jetbridge.compute.host import AgentHost, about
from jetbridge.db import interfaces, pci_devices
from jetbridge.errors import HypervisorError, PciDeviceNotFound, PortBindingFailed
from jetbridge.model.context import RequestContext
from jetbridge.model.network import Binding, NewPort, Port
from jetbridge.model.server import NetworkRequest, Server
from jetbridge.pci.device import DeviceType, PciDevice
from jetbridge.pci.port import DEVICE_VNICS, VnicType, binding_profile
from jetbridge.virt.children import netdev_of, vdpa_devices
from jetbridge.virt.connection import NetworkInfo
from jetbridge.virt.guest import GuestNic
from jetbridge.virt.nodedev import parse_node_device

logger = logging.getLogger(__name__)


def bind_ports(host: AgentHost, context: RequestContext, server: Server) -> tuple[GuestNic, ...]:
    """Bind the port of every NIC, making those that are to be made; answers what goes into the guest.

    Raises what ``Ports.bind`` and ``guest_nic`` raise. What was bound then is released by ``release_ports``.
    """
    with host.database.read() as conn:
        nics = interfaces.of_server(conn, server.uuid)
        devices = {device.request_id: device for device in pci_devices.of_instance(conn, server.uuid)}
    return tuple(bind_port(host, context, server, nic, devices) for nic in nics)


def bind_port(
    host: AgentHost,
    context: RequestContext | None,
    server: Server,
    nic: NetworkRequest,
    devices: Mapping[str | None, PciDevice],
) -> GuestNic:
    """Bind one. ``devices`` are the server's by request id. Noted first: whoever comes after a crash knows what to release."""
    device = devices.get(nic.request_id) if nic.request_id else None
    if device is None and nic.vnic_type in DEVICE_VNICS:
        raise PciDeviceNotFound(
            f"No device of server {server.uuid} has the request {nic.request_id} of port {nic.port_id}."
        )
    host.database.write(lambda conn: interfaces.update(conn, nic.id, host=host.name, now=host.now()))
    binding = Binding(server.uuid, host.name, binding_profile(device) if device else {}, _pf_mac(host, nic, device))
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
        f" with {device.identity}" if device else "",
        extra=about(context, server.uuid),
    )
    return guest_nic(host, server, replace(nic, mac=port.mac), port, device)


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


def guest_nic(host: AgentHost, server: Server, nic: NetworkRequest, port: Port, device: PciDevice | None) -> GuestNic:
    """What of the host a bound port takes. Raises ``HypervisorError`` where the host doesn't have it."""
    vlan = str(port.vif_details.get("vlan") or "")
    made = GuestNic(nic.mac, nic.vnic_type, device, vlan=int(vlan) if vlan.isdecimal() else None)
    match nic.vnic_type:
        case VnicType.NORMAL if port.vif_type == "ovs":
            bridge = NetworkInfo(str(port.vif_details.get("bridge_name") or "br-int"), "bridge")
            return replace(made, network=bridge, ovs_port=port.id)
        case VnicType.NORMAL if port.vif_details.get("bridge_name"):
            return replace(made, network=NetworkInfo(str(port.vif_details["bridge_name"]), "bridge"))
        case VnicType.NORMAL:
            return replace(made, network=_network(host, server, nic))
        case VnicType.MACVTAP:
            assert device is not None
            return replace(made, path=_interface(host, nic, device))
        case VnicType.VDPA:
            assert device is not None
            return replace(made, path=_vdpa(host, nic, device))
        case VnicType.VIRTIO_FORWARDER:
            socket = port.vif_details.get("vhostuser_socket")
            if not socket:
                raise PortBindingFailed(port=port.id, host=host.name, reason="its vif_details name no vhostuser_socket")
            return replace(made, path=str(socket))
        case _:
            return made


def _pf_mac(host: AgentHost, nic: NetworkRequest, device: PciDevice | None) -> str | None:
    """A whole card's own address, which can't be set: the port takes it over."""
    if device is None or device.dev_type is not DeviceType.PF:
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


def _interface(host: AgentHost, nic: NetworkRequest, device: PciDevice) -> str:
    name = netdev_of(host.files, device.address)[0]
    if name is None:
        raise HypervisorError(
            operation=f"connecting port {nic.port_id}",
            host=host.name,
            reason=f"VF {device.address} has no network interface for macvtap: bind it to its network driver",
        )
    return name


def _vdpa(host: AgentHost, nic: NetworkRequest, device: PciDevice) -> str:
    documents = [parse_node_device(document) for document in host.connection.node_devices()]
    path = vdpa_devices(documents, host.files).get(device.address)
    if not path:
        raise HypervisorError(
            operation=f"connecting port {nic.port_id}",
            host=host.name,
            reason=f"{device.address} has no vDPA character device: load vhost_vdpa, and bind its vDPA device to that",
        )
    return path
