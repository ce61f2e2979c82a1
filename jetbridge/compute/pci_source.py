"""The PCI devices of a host, as its providers' children (placement/pci_tree)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from jetbridge.compute.host import AgentHost
from jetbridge.compute.one_time_use import after_report
from jetbridge.compute.provider_source import Contribution
from jetbridge.db import compute_nodes, pci_devices, providers
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.db.connection import Connection
from jetbridge.db.providers import ProviderRecord
from jetbridge.errors import PlacementPciException
from jetbridge.model.provider import Seen
from jetbridge.pci.device import PciDevice
from jetbridge.placement.pci_tree import ONE_TIME_USE, PciTree, pci_tree

logger = logging.getLogger(__name__)

KIND = "pci"


class PciSource:
    """``ProviderSource`` of model 2 (``[pci]report_in_placement``)."""

    kind = KIND

    def contribute(self, host: AgentHost, node: ComputeNode, seen: Mapping[str, Seen] | None) -> Contribution:
        """Raises ``PlacementPciException`` or one of its kinds."""
        with host.database.read() as conn:
            devices = pci_devices.of_host(conn, node.id)
            records = [record for record in providers.of_node(conn, node.id) if record.kind == KIND]
        if not host.settings.pci_report_in_placement:
            if records:
                raise PlacementPciException(
                    error=f"[pci]report_in_placement is off, but host {host.name} has reported {len(records)} providers"
                    f" ({records[0].name}, ...): it can't be switched off again, set it to true"
                )
            return Contribution()
        tree = _tree(host, node, devices, _as_recorded(records, devices) if seen is None else seen)
        return Contribution(tree.providers, tree.heal, warnings=tree.warnings)

    def reported(self, host: AgentHost, node: ComputeNode, uuids: Mapping[str, str], seen: Mapping[str, Seen]) -> None:
        """Writes on the rows of devices which provider stands for them, and what became of one-time-use devices."""
        if not host.settings.pci_report_in_placement:
            with host.database.read() as conn:
                count = len(pci_devices.of_host(conn, node.id))
            logger.info(
                "update_provider_tree: [pci]report_in_placement is off on host %s: its %d devices are not reported",
                host.name,
                count,
            )
            return

        def write(conn: Connection) -> list[PciDevice]:
            compute_nodes.lock(conn, node.id)
            devices = pci_devices.of_host(conn, node.id)
            linked = _linked(host, node, devices, uuids, seen)
            pci_devices.save(conn, linked, now=host.now())
            return devices

        with host.database.read() as conn:
            devices = pci_devices.of_host(conn, node.id)
        if _linked(host, node, devices, uuids, seen):
            devices = host.database.write(write)
        _tell(host, _tree(host, node, devices, seen), devices, uuids)


def _tree(host: AgentHost, node: ComputeNode, devices: Iterable[PciDevice], seen: Mapping[str, Seen]) -> PciTree:
    return pci_tree(node.hypervisor_hostname, devices, host.specs.current(), seen)


def _as_recorded(records: Iterable[ProviderRecord], devices: Iterable[PciDevice]) -> dict[str, Seen]:
    """The providers as our own tables have them: enough to see, before Placement is asked, that a change of device_spec takes away
    what a server uses."""
    owned = [device for device in devices if device.owned and device.instance_uuid is not None]
    seen = {}
    for record in records:
        allocations: dict[str, dict[str, int]] = {}
        for device in owned:
            if device.extra_info.get("rp_uuid") == record.uuid:
                for name in record.inventories:
                    held = allocations.setdefault(str(device.instance_uuid), {})
                    held[name] = held.get(name, 0) + 1
        seen[record.name] = Seen(record.traits, allocations)
    return seen


def _linked(
    host: AgentHost, node: ComputeNode, devices: Iterable[PciDevice], uuids: Mapping[str, str], seen: Mapping[str, Seen]
) -> list[PciDevice]:
    """The devices whose rows change."""
    devices = list(devices)
    tree = _tree(host, node, devices, seen)
    once = {provider.name for provider in tree.providers if ONE_TIME_USE in provider.traits}
    changed = []
    for device in devices:
        name = tree.devices.get(device.address, "")
        extra = {key: value for key, value in device.extra_info.items() if key != "rp_uuid"}
        if name in uuids:
            extra["rp_uuid"] = uuids[name]
        linked = replace(device, extra_info=extra)
        if name in seen:
            linked = after_report(
                linked,
                max(seen[name].reserved.values(), default=0),
                one_time_use=name in once,
                cleaner=host.settings.pci_cleaner is not None,
                in_placement=host.settings.pci_in_placement,
            )
        if linked != device:
            changed.append(linked)
    return changed


def _tell(host: AgentHost, tree: PciTree, devices: Iterable[PciDevice], uuids: Mapping[str, str]) -> None:
    classes = {provider.name: provider for provider in tree.providers}
    for device in devices:
        name = tree.devices.get(device.address)
        if name is None or name not in uuids:
            logger.info(
                "update_provider_tree: host %s: device %s is not reported: its [pci]device_spec line has a physical_network, or none"
                " matches it",
                host.name,
                device.identity,
            )
            continue
        ((resource_class, inventory),) = classes[name].inventories.items()
        logger.info(
            "update_provider_tree: host %s: device %s is inventory of provider %s (%s), %s total %d",
            host.name,
            device.identity,
            name,
            uuids[name],
            resource_class,
            inventory.total,
        )
