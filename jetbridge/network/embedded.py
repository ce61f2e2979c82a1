"""Networks and ports in our own tables: what is needed of a Network service where there is none.

A network is its name. Hosts that have a libvirt network or a bridge of that name are on it, and normal ports are plugged there.
Whoever makes a network says what it is on the wire, for the ports that take VFs.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jetbridge.db import interfaces, networks, provider_networks
from jetbridge.db import ports as rows
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.errors import Conflict, Forbidden, NotFound, PortInUse
from jetbridge.model.network import DEVICE_OWNER, Binding, Network, NewPort, Port
from jetbridge.pci.port import VnicType, without_binding

_NAMESPACE = uuid.UUID("0e0c6a0e-6c0a-5c5d-8f3c-3b6d2f9a5d11")

FORWARDER_SOCKETS = "/run/virtio-forwarder"
"""Folder of the sockets that a virtio forwarder serves on a host, one per VF, named by its address."""


def network_id(name: str) -> str:
    """The id of a network: the same everywhere, whichever hosts have it."""
    return str(uuid.uuid5(_NAMESPACE, name))


def mac_address(seed: str) -> str:
    """A MAC address under fa:16:3e, the same for the same seed (a server's id and the number of the NIC)."""
    digest = hashlib.sha256(seed.encode()).digest()
    return "fa:16:3e:" + ":".join(f"{byte:02x}" for byte in digest[:3])


class EmbeddedPorts:
    """``Ports`` over the database, and the changes that the Network API makes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # --- networks ---

    def networks(self) -> tuple[Network, ...]:
        with self._database.read() as conn:
            return _networks(conn)

    def network(self, key: str) -> Network:
        for network in self.networks():
            if key in (network.id, network.name):
                return network
        raise NotFound(noun="Network", key=key)

    def create_network(self, network: Network) -> Network:
        """Its id is that of its name. Raises ``Conflict`` for a name that somebody made already."""
        made = replace(network, id=network_id(network.name))
        self._database.write(lambda conn: provider_networks.create(conn, made))
        return self.network(made.id)

    def update_network(self, key: str, changes: provider_networks.Changes) -> Network:
        """Raises ``NotFound``, ``Forbidden`` for a network that only hosts have."""
        network = self._made(key)
        self._database.write(lambda conn: provider_networks.update(conn, network.id, **changes))
        return self.network(network.id)

    def delete_network(self, key: str) -> None:
        """Raises ``NotFound``, ``Conflict`` while it has ports, ``Forbidden`` for a network that only hosts have."""
        network = self._made(key)

        def write(conn: Connection) -> None:
            if count := rows.of_network(conn, network.id):
                raise Conflict(f"Network {network.name} has {count} ports: delete them first.")
            provider_networks.delete(conn, network.id)

        self._database.write(write)

    def _made(self, key: str) -> Network:
        network = self.network(key)
        with self._database.read() as conn:
            if all(made.id != network.id for made in provider_networks.listing(conn)):
                raise Forbidden(
                    f"Network {network.name} is that of hosts: it goes with `virsh net-undefine`, or with the bridge."
                )
        return network

    # --- ports ---

    def port(self, port_id: str) -> Port:
        with self._database.read() as conn:
            return rows.get(conn, port_id)

    def ports(self, *, project_id: str | None = None) -> tuple[Port, ...]:
        """Of one project, or of all."""
        with self._database.read() as conn:
            return rows.listing(conn, project_id=project_id)

    def ports_of(self, server_uuid: str) -> tuple[Port, ...]:
        with self._database.read() as conn:
            return rows.listing(conn, device_id=server_uuid)

    def vnic_types(self, host: str) -> Mapping[str, str]:
        with self._database.read() as conn:
            return {port.id: port.vnic_type.value for port in rows.listing(conn, host=host)}

    def create_port(self, port: Port) -> Port:
        """Its MAC address is made up where it has none. Raises ``Conflict`` for one that the network has already."""
        made = replace(port, mac=port.mac or mac_address(port.id))
        self._database.write(lambda conn: rows.create(conn, made))
        return made

    def update_port(self, port_id: str, **changes: Any) -> Port:
        """``changes``: fields of ``Port``. Raises ``NotFound``; ``Conflict`` for what must not change while a server has the
        port: it was decided by when the server was scheduled."""

        def write(conn: Connection) -> Port:
            port = rows.get(conn, port_id)
            changed = replace(port, **changes)
            holder = interfaces.holder(conn, port_id)
            for name in ("vnic_type", "mac", "profile", "numa_policy", "device_profile"):
                if holder is not None and getattr(changed, name) != getattr(port, name):
                    raise Conflict(
                        f"Port {port_id} is in use by server {holder}: its {name} can't be changed meanwhile."
                    )
            rows.save(conn, changed)
            return changed

        return self._database.write(write)

    def delete_port(self, port_id: str) -> None:
        """Raises ``NotFound``, ``PortInUse``."""

        def write(conn: Connection) -> None:
            port = rows.get(conn, port_id)
            holder = interfaces.holder(conn, port_id) or port.device_id
            if holder:
                raise PortInUse(port=port_id, server=holder)
            rows.delete(conn, port_id)

        self._database.write(write)

    # --- what hosts do ---

    def make(self, new: NewPort, binding: Binding) -> Port:
        def write(conn: Connection) -> Port:
            for port in rows.listing(conn, device_id=binding.server_uuid):
                if (port.network_id, port.mac) == (new.network_id, new.mac):
                    return port
            made = _bound(
                Port(
                    id=str(uuid.uuid4()),
                    network_id=new.network_id,
                    project_id=new.project_id,
                    mac=new.mac,
                    fixed_ips=new.fixed_ips,
                ),
                _network(conn, new.network_id),
                binding,
            )
            rows.create(conn, made)
            return made

        return self._database.write(write)

    def bind(self, port_id: str, binding: Binding) -> Port:
        def write(conn: Connection) -> Port:
            port = rows.get(conn, port_id)
            if port.device_id not in ("", binding.server_uuid):
                raise PortInUse(port=port_id, server=port.device_id)
            bound = _bound(port, _network(conn, port.network_id), binding)
            rows.save(conn, bound)
            return bound

        return self._database.write(write)

    def release(self, port_id: str, server_uuid: str, *, delete: bool) -> None:
        def write(conn: Connection) -> None:
            try:
                port = rows.get(conn, port_id)
            except NotFound:
                return
            if port.device_id != server_uuid:
                return
            if delete:
                rows.delete(conn, port_id)
                return
            # A physical function's own address must not stay: the next port that gets the function would collide with it.
            taken_over = "device_mac_address" in port.profile and port.vnic_type is VnicType.DIRECT_PHYSICAL
            rows.save(
                conn,
                replace(
                    port,
                    mac=mac_address(port.id) if taken_over else port.mac,
                    profile=without_binding(port.profile),
                    host=None,
                    device_id="",
                    device_owner="",
                    vif_type="unbound",
                    vif_details={},
                ),
            )

        self._database.write(write)


def _networks(conn: Connection) -> tuple[Network, ...]:
    kinds: dict[str, list[str]] = {}
    for row in networks.listing(conn):
        kinds.setdefault(row.name, []).append(row.kind)
    found = {name: Network(network_id(name), name) for name in kinds}
    found |= {network.name: network for network in provider_networks.listing(conn)}
    return tuple(replace(found[name], kinds=tuple(kinds.get(name, ()))) for name in sorted(found))


def _network(conn: Connection, network_id: str) -> Network:
    for network in _networks(conn):
        if network.id == network_id:
            return network
    raise NotFound(noun="Network", key=network_id)


def _bound(port: Port, network: Network, binding: Binding) -> Port:
    vif_type, details = _vif(port.vnic_type, network, binding)
    return replace(
        port,
        mac=binding.mac or port.mac,
        profile={**without_binding(port.profile), **binding.device},
        host=binding.host,
        device_id=binding.server_uuid,
        device_owner=DEVICE_OWNER,
        vif_type=vif_type,
        vif_details=details,
    )


def _vif(vnic_type: VnicType, network: Network, binding: Binding) -> tuple[str, dict[str, Any]]:
    """As a Network service with its SR-IOV mechanism would answer."""
    details: dict[str, Any] = {"port_filter": False, "connectivity": "l2"}
    if network.vlan is not None:
        details["vlan"] = str(network.vlan)
    match vnic_type:
        case VnicType.NORMAL:
            return "bridge", {"port_filter": False, "connectivity": "l2"}
        case VnicType.DIRECT_PHYSICAL | VnicType.ACCELERATOR_DIRECT_PHYSICAL:
            return "hostdev_physical", details
        case VnicType.REMOTE_MANAGED:
            return "ovs", {"port_filter": False, "connectivity": "l2"}
        case VnicType.VIRTIO_FORWARDER:
            socket = f"{FORWARDER_SOCKETS}/{binding.device.get('pci_slot')}.sock"
            return "vhostuser", {**details, "vhostuser_socket": socket, "vhostuser_mode": "client"}
        case _:
            return "hw_veb", details
