"""The three ledgers of a host side by side: its rows, its hypervisor's domains, its allocations in Placement. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jetbridge.compute.allocations import judge
from jetbridge.compute.holders import holders_of
from jetbridge.compute.host import AgentHost
from jetbridge.db import builds, compute_nodes, pci_devices, providers, servers
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.db.providers import ProviderRecord
from jetbridge.errors import JetbridgeError
from jetbridge.pci.device import PciDevice, Status
from jetbridge.placement.client import PlacementClient
from jetbridge.virt.connection import DomainInfo


@dataclass(frozen=True)
class Finding:
    """``ledger``: devices, domains or allocations, the one that says something else than the others; ``subject``: the device, domain,
    server or provider it is about."""

    ledger: str
    subject: str
    text: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def audit(host: AgentHost) -> list[Finding]:
    """Raises ``HypervisorError`` and ``PlacementUnavailable`` when a ledger can't be read: then nothing can be said."""
    domains = host.connection.domains()
    held = holders_of(host, domains)
    with host.database.read() as conn:
        node = compute_nodes.of_host(conn, host.name)
        devices = pci_devices.of_host(conn, node.id)
        placed = {server.uuid: server.domain_name for server in servers.of_node(conn, node.id)}
        busy = {build.instance_uuid for build in builds.running(conn)}
        records = providers.of_node(conn, node.id)
    findings = [*_devices(devices, placed, busy, held), *_domains(placed, busy, domains)]
    if host.placement is not None:
        findings += _allocations(host, host.placement.by(host.source), node, devices, records, busy)
    return findings


def _devices(
    devices: Iterable[PciDevice], placed: Mapping[str, str], busy: set[str], held: Mapping[str, DomainInfo]
) -> list[Finding]:
    findings = []
    for device in devices:
        owner, holder = device.instance_uuid, held.get(device.address)
        if owner in busy:
            continue
        if device.owned and owner not in placed:
            findings.append(
                Finding("devices", device.address, f"is {device.status} by server {owner}, which does not live here")
            )
        elif device.status is Status.CLAIMED:
            findings.append(Finding("devices", device.address, f"is claimed by server {owner}, which nobody builds"))
        if holder is not None and holder.uuid != owner and holder.uuid not in busy:
            whose = f"server {owner}" if device.owned else "nobody"
            findings.append(
                Finding("domains", device.address, f"is owned by {whose}, and domain {holder.name} runs with it")
            )
    return findings


def _domains(placed: Mapping[str, str], busy: set[str], domains: Sequence[DomainInfo]) -> list[Finding]:
    there = {info.name for info in domains}
    return [
        Finding("domains", name, f"of server {uuid} does not exist")
        for uuid, name in placed.items()
        if name not in there and uuid not in busy
    ]


def _allocations(
    host: AgentHost,
    client: PlacementClient,
    node: ComputeNode,
    devices: Sequence[PciDevice],
    records: Sequence[ProviderRecord],
    busy: set[str],
) -> list[Finding]:
    if not node.reported:
        return [Finding("allocations", host.name, "is not reported to Placement yet")]
    live = {provider.uuid for provider in client.in_tree(node.uuid)}
    findings = [
        Finding("allocations", record.name, "is a provider of ours that Placement does not have")
        for record in records
        if record.uuid not in live
    ]
    found = judge(host, node, client.provider_allocations(node.uuid))
    findings += [
        Finding("allocations", uuid, "has an allocation of the host, where it does not live")
        for uuid in sorted(found.strays)
    ]
    findings += [
        Finding("allocations", uuid, "has an allocation of the host, and is no server of ours")
        for uuid in sorted(found.unknown)
    ]
    findings += [
        Finding("allocations", uuid, "lives on the host and has no allocation of it") for uuid in sorted(found.lacking)
    ]
    for record in records:
        if record.kind == "pci" and record.uuid in live:
            findings += _device_allocations(record, client, devices, busy)
    return findings


def _device_allocations(
    record: ProviderRecord, client: PlacementClient, devices: Sequence[PciDevice], busy: set[str]
) -> list[Finding]:
    """A device is allocated to who owns it, and to nobody else."""
    owned: dict[str, int] = {}
    for device in devices:
        if device.extra_info.get("rp_uuid") == record.uuid and device.owned:
            owned[str(device.instance_uuid)] = owned.get(str(device.instance_uuid), 0) + 1
    allocated = {
        consumer: sum(amounts.values()) for consumer, amounts in client.provider_allocations(record.uuid).items()
    }
    findings = []
    for server in sorted((owned.keys() | allocated.keys()) - busy):
        has, holds = allocated.get(server, 0), owned.get(server, 0)
        if has != holds:
            findings.append(
                Finding(
                    "allocations",
                    record.name,
                    f"server {server} owns {holds} of its devices and has {has} of it allocated",
                )
            )
    return findings


def audit_message(host: AgentHost) -> dict[str, Any]:
    """The answer to a message. A ledger that can't be read is a finding."""
    try:
        return {"findings": [finding.to_json() for finding in audit(host)]}
    except JetbridgeError as error:
        return {"findings": [Finding("unknown", host.name, f"can't be audited: {error.message}").to_json()]}
