"""Networks and ports of a Neutron, through openstacksdk (https://docs.openstack.org/api-ref/network/v2/)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from keystoneauth1 import exceptions as auth_errors
from keystoneauth1 import noauth, session
from keystoneauth1.plugin import BaseAuthPlugin

from jetbridge.config.settings import Settings
from jetbridge.errors import (
    Invalid,
    NetworkServiceFailed,
    NotFound,
    NotSupported,
    PortBindingFailed,
    PortInUse,
)
from jetbridge.model.network import DEVICE_OWNER, Binding, Network, NewPort, Port
from jetbridge.pci.port import VnicType, without_binding
from jetbridge.pci.request import NumaPolicy
from jetbridge.sessions import basic_auth, keystone_password, require_options, verify

GROUP = "neutron"


class NeutronPorts:
    """``Ports`` over HTTP, as the service's own user: what the caller may see is looked at by who asks us. Raises ``InvalidConfiguration``
    naming what the options lack."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._auth = _auth(settings)
        self._guard = threading.Lock()
        self._proxy: Any = None

    @property
    def url(self) -> str:
        return self._settings.neutron_endpoint_override or f"that {self._settings.neutron_auth_url} names"

    def networks(self) -> Sequence[Network]:
        with self._asking() as neutron:
            found = [_network(each) for each in neutron.networks()]
        return sorted(found, key=lambda network: network.name)

    def network(self, key: str) -> Network:
        from openstack import exceptions

        with self._asking() as neutron:
            try:
                found = neutron.find_network(key, ignore_missing=True)
            except exceptions.DuplicateResource as error:
                raise Invalid(f"There are several networks of the name {key!r}: give the id.") from error
            if found is None:
                raise NotFound(noun="Network", key=key)
            return _network(found)

    def port(self, port_id: str) -> Port:
        with self._asking() as neutron:
            return _port(self._get(neutron, port_id))

    def ports_of(self, server_uuid: str) -> Sequence[Port]:
        with self._asking() as neutron:
            return [_port(each) for each in neutron.ports(device_id=server_uuid)]

    def vnic_types(self, host: str) -> Mapping[str, str]:
        with self._asking() as neutron:
            found = neutron.ports(**{"binding:host_id": host})
            return {each.id: each.binding_vnic_type for each in found if each.binding_vnic_type}

    def make(self, new: NewPort, binding: Binding) -> Port:
        for port in self.ports_of(binding.server_uuid):
            if (port.network_id, port.mac) == (new.network_id, new.mac):
                return port
        wanted: dict[str, Any] = {
            "network_id": new.network_id,
            "project_id": new.project_id,
            "mac_address": new.mac,
            "admin_state_up": True,
            **_held(binding),
        }
        if new.fixed_ips:
            wanted["fixed_ips"] = [{"ip_address": address} for address in new.fixed_ips]
        with self._asking(f"a new one on network {new.network_id}", binding.host) as neutron:
            return _port(neutron.create_port(**wanted))

    def bind(self, port_id: str, binding: Binding) -> Port:
        with self._asking(port_id, binding.host) as neutron:
            found = self._get(neutron, port_id)
            if found.device_id not in (None, "", binding.server_uuid):
                raise PortInUse(port=port_id, server=found.device_id)
            changes = _held(binding)
            changes["binding_profile"] = {**without_binding(found.binding_profile or {}), **binding.device}
            if binding.mac is not None:
                changes["mac_address"] = binding.mac
            # Of two servers that want the port one finds it changed.
            return _port(neutron.update_port(port_id, if_revision=found.revision_number, **changes))

    def release(self, port_id: str, server_uuid: str, *, delete: bool) -> None:
        with self._asking() as neutron:
            try:
                found = self._get(neutron, port_id)
            except NotFound:
                return
            if found.device_id != server_uuid:
                return
            if delete:
                neutron.delete_port(port_id, ignore_missing=True)
                return
            neutron.update_port(
                port_id,
                device_id="",
                device_owner="",
                binding_host_id=None,
                binding_profile=without_binding(found.binding_profile or {}),
            )

    def _get(self, neutron: Any, port_id: str) -> Any:
        from openstack import exceptions

        try:
            return neutron.get_port(port_id)
        except exceptions.NotFoundException as error:
            raise NotFound(noun="Port", key=port_id) from error

    @contextmanager
    def _asking(self, port: str | None = None, host: str | None = None) -> Iterator[Any]:
        """The service's API. With ``port`` and ``host`` a refusal (4xx) means that the port can't be bound there."""
        from openstack import exceptions

        try:
            yield self._connected()
        except exceptions.HttpException as error:
            status = error.status_code or 500
            reason = str(error.details or error.message)
            if port is not None and 400 <= status < 500 and status not in (401, 403):
                raise PortBindingFailed(port=port, host=host, reason=reason) from error
            raise NetworkServiceFailed(url=self.url, reason=f"{status}: {reason}") from error
        except (exceptions.SDKException, auth_errors.ClientException) as error:
            raise NetworkServiceFailed(url=self.url, reason=str(error)) from error

    def _connected(self) -> Any:
        """Made when it is first needed: neither openstacksdk nor the service has to be there for a start."""
        from openstack.connection import Connection

        with self._guard:
            if self._proxy is None:
                settings = self._settings
                made = session.Session(
                    auth=self._auth, verify=verify(settings, GROUP), timeout=settings.neutron_timeout
                )
                connection = Connection(
                    session=made,
                    region_name=settings.neutron_region_name,
                    network_endpoint_override=settings.neutron_endpoint_override,
                    network_interface=list(settings.neutron_valid_interfaces),
                )
                self._proxy = connection.network
            return self._proxy


def _auth(settings: Settings) -> BaseAuthPlugin:
    if settings.neutron_auth_type == "password":
        return keystone_password(settings, GROUP)
    require_options(settings, GROUP, "endpoint_override")
    if settings.neutron_auth_type == "http_basic":
        return basic_auth(settings, GROUP)
    return noauth.NoAuth(endpoint=settings.neutron_endpoint_override)


def _held(binding: Binding) -> dict[str, Any]:
    return {"device_id": binding.server_uuid, "device_owner": DEVICE_OWNER, "binding_host_id": binding.host}


def _network(found: Any) -> Network:
    """Of a network with several segments the first that has a physical network counts."""
    kind, physical, number = (
        found.provider_network_type,
        found.provider_physical_network,
        found.provider_segmentation_id,
    )
    segments: Sequence[Mapping[str, Any]] = found.segments or ()
    if segments:
        chosen = next((each for each in segments if each.get("provider:physical_network")), None)
        if chosen is None:
            raise Invalid(
                f"None of the {len(segments)} segments of network {found.id} has a physical network: give it one."
            )
        kind, physical = chosen.get("provider:network_type"), chosen.get("provider:physical_network")
        number = chosen.get("provider:segmentation_id")
    return Network(
        id=found.id,
        name=found.name or found.id,
        project_id=found.project_id or "",
        shared=bool(found.is_shared),
        network_type=kind,
        physical_network=physical or None,
        segmentation_id=number,
        description=found.description or "",
    )


def _port(found: Any) -> Port:
    kind = found.binding_vnic_type or VnicType.NORMAL.value
    if kind not in {each.value for each in VnicType}:
        raise NotSupported(reason=f"port {found.id} has the VNIC type {kind}, which no host here serves")
    return Port(
        id=found.id,
        network_id=found.network_id,
        project_id=found.project_id or "",
        mac=found.mac_address,
        name=found.name or "",
        vnic_type=VnicType(kind),
        profile=found.binding_profile or {},
        host=found.binding_host_id or None,
        device_id=found.device_id or "",
        device_owner=found.device_owner or "",
        vif_type=found.binding_vif_type or "unbound",
        vif_details=found.binding_vif_details or {},
        fixed_ips=tuple(each["ip_address"] for each in found.fixed_ips or () if each.get("ip_address")),
        numa_policy=NumaPolicy(found.numa_affinity_policy) if found.numa_affinity_policy else None,
        device_profile=found.device_profile,
        qos=bool(found.resource_request),
    )
