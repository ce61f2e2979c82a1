"""The three ledgers of a host side by side: its rows, what its hypervisor has, its allocations in Placement. Changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jetbridge.compute.allocations import judge
from jetbridge.compute.holders import holders_of
from jetbridge.compute.host import AgentHost
from jetbridge.compute.vgpu_cards import look, provider_name
from jetbridge.db import builds, compute_nodes, pci_devices, providers, servers, vgpus
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.db.providers import ProviderRecord
from jetbridge.errors import JetbridgeError
from jetbridge.mdev.values import HostVgpus, State, Vgpu
from jetbridge.pci.device import Condition, PciDevice, Status
from jetbridge.placement.client import PlacementClient
from jetbridge.placement.records import Resources
from jetbridge.placement.sizes import server_resources
from jetbridge.virt.connection import DomainInfo

Owned = Mapping[str, Mapping[str, int]]
"""By provider, how many of what it stands for each server has by our tables."""

NOUNS = {"pci": "devices", providers.VGPU_CARD: "vGPUs"}
"""What providers of these kinds stand for."""


@dataclass(frozen=True)
class Finding:
    """``ledger``: devices, vgpus, domains or allocations, the one that says something else than the others; ``subject``: the device, vGPU,
    domain, server or provider it is about."""

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
        here = servers.of_node(conn, node.id)
        topologies = compute_nodes.guest_topologies_by_server(conn, [node.id]).get(node.id, {})
        busy = {build.instance_uuid for build in builds.running(conn)}
        records = providers.of_node(conn, node.id)
        slices = vgpus.of_node(conn, node.id)
    placed = {server.uuid: server.domain_name for server in here}
    sizes = {server.uuid: server_resources(server.flavor, topologies.get(server.uuid)) for server in here}
    findings = [*_devices(devices, placed, busy, held), *_domains(placed, busy, domains)]
    if slices:
        findings += _vgpus(slices, placed, busy, held, look(host))
    if host.placement is not None:
        owned = {**_owned_devices(devices), **_owned_vgpus(node, slices, records)}
        findings += _allocations(host, host.placement.by(host.source), node, records, sizes, owned, busy)
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
        # A function that became [pci]'s while a guest has it from the accelerator service is held back until then: nothing drifted.
        accelerator = device.condition is Condition.ACCELERATOR and not device.owned
        if holder is not None and holder.uuid != owner and holder.uuid not in busy and not accelerator:
            whose = f"server {owner}" if device.owned else "nobody"
            findings.append(
                Finding("domains", device.address, f"is owned by {whose}, and domain {holder.name} runs with it")
            )
    return findings


def _vgpus(
    slices: Iterable[Vgpu],
    placed: Mapping[str, str],
    busy: set[str],
    held: Mapping[str, DomainInfo],
    seen: HostVgpus,
) -> list[Finding]:
    findings = []
    for vgpu in slices:
        owner, holder = vgpu.server, held.get(vgpu.held_as)
        if owner in busy:
            continue
        if owner is not None and owner not in placed:
            findings.append(Finding("vgpus", vgpu.uuid, f"is held by server {owner}, which does not live here"))
        elif vgpu.state is State.READY and not any(one.active and vgpu.is_(one) for one in seen.instances):
            findings.append(Finding("vgpus", vgpu.uuid, f"({vgpu.type}) is not on {vgpu.parent}"))
        if holder is not None and holder.uuid != owner and holder.uuid not in busy:
            whose = "nobody's" if owner is None else f"server {owner}'s"
            findings.append(Finding("domains", vgpu.uuid, f"is {whose}, and domain {holder.name} runs with it"))
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
    records: Sequence[ProviderRecord],
    sizes: Mapping[str, Resources],
    owned: Owned,
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
    allocated = client.provider_allocations(node.uuid)
    found = judge(host, node, allocated)
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
    findings += [
        Finding(
            "allocations", uuid, f"takes {_amounts(sizes[uuid])} of the host and has {_amounts(has)} of it allocated"
        )
        for uuid, has in sorted(allocated.items())
        if uuid in sizes and uuid not in busy and not sizes[uuid].items() <= has.items()
    ]
    for record in records:
        if record.kind in NOUNS and record.uuid in live:
            findings += _provider_allocations(record, client, owned.get(record.uuid, {}), busy)
    return findings


def _amounts(resources: Resources) -> str:
    return ", ".join(f"{name}:{amount}" for name, amount in sorted(resources.items()))


def _owned_devices(devices: Iterable[PciDevice]) -> Owned:
    found: dict[str, Counter[str]] = {}
    for device in devices:
        provider = device.extra_info.get("rp_uuid")
        if provider and device.owned:
            found.setdefault(provider, Counter())[str(device.instance_uuid)] += 1
    return found


def _owned_vgpus(node: ComputeNode, slices: Iterable[Vgpu], records: Iterable[ProviderRecord]) -> Owned:
    cards = {record.name: record.uuid for record in records if record.kind == providers.VGPU_CARD}
    found: dict[str, Counter[str]] = {}
    for vgpu in slices:
        provider = cards.get(provider_name(node, vgpu.card))
        if provider and vgpu.server is not None:
            found.setdefault(provider, Counter())[vgpu.server] += 1
    return found


def _provider_allocations(
    record: ProviderRecord, client: PlacementClient, owned: Mapping[str, int], busy: set[str]
) -> list[Finding]:
    """What a provider stands for is allocated to who owns it, and to nobody else."""
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
                    f"server {server} owns {holds} of its {NOUNS[record.kind]} and has {has} of it allocated",
                )
            )
    return findings


def audit_message(host: AgentHost) -> dict[str, Any]:
    """The answer to a message. A ledger that can't be read is a finding."""
    try:
        return {"findings": [finding.to_json() for finding in audit(host)]}
    except JetbridgeError as error:
        return {"findings": [Finding("unknown", host.name, f"can't be audited: {error.message}").to_json()]}
