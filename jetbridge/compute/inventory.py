"""One inventory pass: what the host is and has, into its rows. A probe that fails changes nothing but that it failed."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from jetbridge.compute.accelerators import check_owners, follow_accelerators
from jetbridge.compute.host import AgentHost, about
from jetbridge.compute.one_time_use import returned
from jetbridge.compute.vgpu_cards import note_cards, vgpu_claims
from jetbridge.db import accelerators, compute_nodes, networks, pci_devices
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.db.connection import Connection
from jetbridge.db.networks import HostNetwork
from jetbridge.errors import HostNotFound, HypervisorError, InvalidConfiguration, JetbridgeError
from jetbridge.pci.device_spec import DeviceSpec
from jetbridge.pci.lint import shadowed_specs, suspicious_keys
from jetbridge.pci.sync import SyncResult, mark_unknown, synchronise
from jetbridge.virt.capabilities import host_resources
from jetbridge.virt.connection import HypervisorVersion
from jetbridge.virt.nodedev import host_report

logger = logging.getLogger(__name__)

LIVE_MIGRATION_LIBVIRT = 10_000_000
LIVE_MIGRATION_QEMU = 8_002_002
"""From these versions on a guest can move with a VFIO device (release notes of libvirt 10.0 and QEMU 8.2)."""

Reports = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Probe:
    """What a host says of itself. ``reports`` None: discovery failed, ``error`` says why, and its devices are unknown. ``documents``
    are what the reports were made from."""

    node: ComputeNode
    networks: tuple[HostNetwork, ...]
    reports: Reports | None
    error: str | None = None
    documents: Sequence[str] | None = None


def take_inventory(host: AgentHost, *, starting: bool = False) -> ComputeNode:
    """Bring the host's rows up to what the host says now; answers its row.

    ``starting``: the first pass of a process; device_spec mistakes are told, and warnings about devices in use repeated.
    Raises the errors of ``parse_device_specs``; a failed probe is recorded and raises nothing.
    """
    specs = host.specs.read()
    if starting:
        with suppress(HypervisorError):  # the probe tells
            check_live_migratable(specs, host.connection.version)
    probe = probe_host(host)
    if starting and probe.reports is not None:
        check_owners(host, specs, probe.reports, [vgpu_claims(host)])
        _tell_lint(host, specs, probe.reports)
    if probe.reports is None:
        logger.error(
            "Discovery on host %s failed: %s. Its devices are unknown: none is offered, none is freed, until a pass succeeds",
            host.name,
            probe.error,
            extra=about(None),
        )
    node, result = _unchanged(host, probe, specs) or host.database.write(lambda conn: _store(host, conn, probe, specs))
    follow_accelerators(host, node, specs, probe.reports, starting=starting)
    note_cards(host, node, probe.documents, starting=starting)
    for warning in result.warnings:
        if warning.new or starting:
            logger.warning("Host %s: %s", host.name, warning.text, extra=about(None, warning.server))
    if result.created or result.removed:
        logger.info(
            "Host %s: %d devices new, %d changed, %d removed",
            host.name,
            len(result.created),
            len(result.updated),
            len(result.removed),
        )
    if starting and result.skipped:
        logger.info("Host %s: devices in 32-bit PCI domains are left out: %s", host.name, ", ".join(result.skipped))
    return node


def probe_host(host: AgentHost) -> Probe:
    """Ask the hypervisor. Changes nothing."""
    try:
        node = _described(host)
        names = tuple(HostNetwork(found.name, found.kind) for found in host.connection.networks() if found.active)
    except HypervisorError as error:
        return Probe(_undescribed(host), (), None, error.message)
    try:
        documents = host.connection.node_devices()
        return Probe(node, names, host_report(documents, host.files, host=host.name), documents=documents)
    except JetbridgeError as error:
        return Probe(node, names, None, error.message)


def check_live_migratable(specs: Sequence[DeviceSpec], version: Callable[[], HypervisorVersion]) -> None:
    """Raises ``InvalidConfiguration`` when a line speaks of live migration and the hypervisor can't do it with devices, whether
    the line says yes or no. ``version`` is asked only where there is such a line."""
    spec = next((spec for spec in specs if spec.tags.get("live_migratable")), None)
    if spec is None:
        return
    has = version()
    if has.libvirt < LIVE_MIGRATION_LIBVIRT or has.hypervisor < LIVE_MIGRATION_QEMU:
        raise InvalidConfiguration(
            reason=f"device_spec line {spec.position} {spec.text} has live_migratable, which needs libvirt "
            f"{_dotted(LIVE_MIGRATION_LIBVIRT)} and QEMU {_dotted(LIVE_MIGRATION_QEMU)}; this host has libvirt "
            f"{_dotted(has.libvirt)} and QEMU {_dotted(has.hypervisor)}: take it out, or upgrade the host"
        )


def _dotted(version: int) -> str:
    return f"{version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}"


def _described(host: AgentHost) -> ComputeNode:
    settings = host.settings
    version = host.connection.version()
    resources = host_resources(host.connection.capabilities(), settings.cpu_dedicated_set, settings.cpu_shared_set)
    return replace(
        _undescribed(host),
        hypervisor_type=version.type,
        hypervisor_version=version.hypervisor,
        vcpus=resources.vcpus,
        memory_mb=resources.memory_mb,
        local_gb=host.disk_gb,
        numa=resources.topology,
        cpu_info=json.dumps(dict(resources.cpu_info), sort_keys=True),
    )


def _undescribed(host: AgentHost) -> ComputeNode:
    """A host of which nothing but its options is known: nothing fits on it."""
    settings = host.settings
    return ComputeNode(
        uuid=host.new_id(),
        host=host.name,
        hypervisor_hostname=host.name,
        hypervisor_type="unknown",
        hypervisor_version=0,
        vcpus=0,
        memory_mb=0,
        local_gb=0,
        cpu_allocation_ratio=settings.cpu_allocation_ratio,
        ram_allocation_ratio=settings.ram_allocation_ratio,
        disk_allocation_ratio=settings.disk_allocation_ratio,
        reserved_memory_mb=settings.reserved_host_memory_mb,
        reserved_disk_gb=-(-settings.reserved_host_disk_mb // 1024),
        host_ip="127.0.0.1",
    )


def _wanted(probe: Probe, stored: ComputeNode | None) -> ComputeNode:
    """The row as it should be. A host that doesn't answer keeps what was known of it."""
    if stored is None:
        return replace(probe.node, probe_error=probe.error)
    described = stored if probe.node.vcpus == 0 else probe.node
    return replace(
        described,
        uuid=stored.uuid,
        reported=stored.reported,
        id=stored.id,
        generation=stored.generation,
        created_at=stored.created_at,
        updated_at=stored.updated_at,
        probe_error=probe.error,
    )


def _synchronised(
    host: AgentHost, conn: Connection, node: ComputeNode, probe: Probe, specs: Sequence[DeviceSpec]
) -> SyncResult:
    existing = pci_devices.of_host(conn, node.id)
    if probe.reports is None:
        return SyncResult(updated=mark_unknown(existing))
    result = synchronise(existing, probe.reports, specs, node.id, host.new_id)
    gone = pci_devices.last_gone(conn, node.id, [device.address for device in result.created])
    cleaner = host.settings.pci_cleaner is not None
    created = tuple(
        returned(each, gone[each.address], cleaner=cleaner) if each.address in gone else each for each in result.created
    )
    return replace(result, created=created)


def _unchanged(host: AgentHost, probe: Probe, specs: Sequence[DeviceSpec]) -> tuple[ComputeNode, SyncResult] | None:
    """The stored row when a pass would change nothing, and what there is to warn about: a generation that moves for nothing
    makes every scheduler look again. None: there is something to store."""
    with host.database.read() as conn:
        try:
            stored = compute_nodes.of_host(conn, host.name)
        except HostNotFound:
            return None
        if _wanted(probe, stored) != stored:
            return None
        result = _synchronised(host, conn, stored, probe, specs)
        if result.changed:
            return None
        if probe.reports is not None and set(networks.of_node(conn, stored.id)) != set(probe.networks):
            return None
        return stored, result


def _store(
    host: AgentHost, conn: Connection, probe: Probe, specs: Sequence[DeviceSpec]
) -> tuple[ComputeNode, SyncResult]:
    try:
        stored: ComputeNode | None = compute_nodes.of_host(conn, host.name)
    except HostNotFound:
        stored = None
    wanted = _wanted(probe, stored)
    if stored is not None:
        compute_nodes.lock(conn, stored.id)
    node = compute_nodes.upsert(conn, wanted, now=host.now())
    if probe.networks or probe.reports is not None:
        networks.replace(conn, node.id, probe.networks)
    result = _synchronised(host, conn, node, probe, specs)
    pci_devices.save(conn, result.changed, now=host.now())
    accelerators.mark_relatives(conn, node.id)
    return node, result


def _tell_lint(host: AgentHost, specs: Sequence[DeviceSpec], reports: Reports) -> None:
    for shadow in shadowed_specs(specs, reports):
        logger.warning("[pci]device_spec of host %s: %s", host.name, shadow.text)
    for key in suspicious_keys(specs):
        logger.warning("[pci]device_spec of host %s: %s", host.name, key.text)
