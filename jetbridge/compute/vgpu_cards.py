"""What a host's cards carry of vGPUs: looked at, kept in tables, and told to Placement."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from jetbridge.accelerator.ownership import Claims
from jetbridge.compute.host import AgentHost, about
from jetbridge.compute.provider_source import Contribution
from jetbridge.db import accelerators, compute_nodes, pci_devices, vgpu_cards, vgpus
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.db.connection import Connection
from jetbridge.db.providers import VGPU_CARD
from jetbridge.errors import InvalidLibvirtMdevConfig
from jetbridge.mdev.capacity import Share, shares
from jetbridge.mdev.cards import Card, cards_of
from jetbridge.mdev.config import VgpuConfig, read_config
from jetbridge.mdev.values import HostVgpus, Vgpu
from jetbridge.model.context import RequestContext
from jetbridge.model.provider import Inventory, Provider, Seen
from jetbridge.placement.groups import OWNER_TRAIT
from jetbridge.virt.nodedev import check_complete
from jetbridge.virt.vgpus import VgpuFacts, host_vgpus

logger = logging.getLogger(__name__)


def read_vgpu_config(host: AgentHost) -> VgpuConfig:
    """Raises ``InvalidLibvirtMdevConfig``."""
    return read_config(host.settings.enabled_mdev_types, host.settings.mdev_types, VgpuFacts(host.files))


def vgpu_claims(host: AgentHost) -> Claims:
    """The functions that the options give to vGPUs by their address."""
    return {address: f"[mdev_{kind}]device_addresses" for address, kind in read_vgpu_config(host).by_address.items()}


def look(host: AgentHost, context: RequestContext | None = None, server: str | None = None) -> HostVgpus:
    """What there is now. Raises ``ProbeFailed`` when the host doesn't say, or says only half."""
    with host.library(context, "node_devices", server):
        documents = host.connection.node_devices()
    check_complete(documents, host.files, host=host.name)
    return host_vgpus(documents, host.files)


def current_shares(host: AgentHost, conn: Connection, node_id: int, seen: HostVgpus) -> tuple[Share, ...]:
    """What the cards carry, by what was seen and by what the tables say now."""
    given = {device.address for device in pci_devices.of_host(conn, node_id)}
    given |= {accelerator.address for accelerator in accelerators.of_host(conn, node_id)}
    return shares(read_vgpu_config(host), seen, vgpus.of_node(conn, node_id), given)


def note_cards(host: AgentHost, node: ComputeNode, documents: Sequence[str] | None, *, starting: bool = False) -> None:
    """Bring the rows of the host's cards up to what it says now. ``documents`` None: discovery failed, and nothing changes.

    On a host that runs already, options that the hardware contradicts by now are told, and the rows stay; at the start they raise
    ``InvalidLibvirtMdevConfig``.
    """
    try:
        config = read_vgpu_config(host)
    except InvalidLibvirtMdevConfig as error:
        if starting:
            raise
        logger.error("The vGPUs of host %s stay as they are: %s", host.name, error.message)
        return
    if starting:
        for warning in config.warnings:
            logger.warning("Host %s: %s", host.name, warning)
    if documents is None:
        return
    seen = host_vgpus(documents, host.files)
    with host.database.read() as conn:
        stored = vgpu_cards.of_node(conn, node.id)
        wanted = _cards(host, conn, node.id, seen)
    if starting:
        _tell(host, config, wanted, seen)
    if stored == wanted:
        return

    def write(conn: Connection) -> None:
        compute_nodes.lock(conn, node.id)
        vgpu_cards.replace(conn, node.id, _cards(host, conn, node.id, seen))

    host.database.write(write)
    for card in wanted:
        if card not in stored:
            totals = ", ".join(f"{total} {name}" for name, total in card.totals.items()) or "none"
            logger.info("Card %s of host %s carries vGPUs: %s", card.name, host.name, totals)


def _cards(host: AgentHost, conn: Connection, node_id: int, seen: HostVgpus) -> tuple[Card, ...]:
    ours: Sequence[Vgpu] = vgpus.of_node(conn, node_id)
    if not seen.parents and not ours:
        return ()
    return cards_of(seen, current_shares(host, conn, node_id, seen), ours)


def _tell(host: AgentHost, config: VgpuConfig, cards: Sequence[Card], seen: HostVgpus) -> None:
    there = {address for parent in seen.parents for address in (parent.address, parent.card_address)}
    for address, name in config.by_address.items():
        if address not in there:
            logger.warning(
                "Host %s: [mdev_%s]device_addresses lists %s, where it has nothing that carries vGPUs: correct the address, or take it"
                " out. See `jetbridge vgpu types`",
                host.name,
                name,
                address,
                extra=about(None),
            )
    offered = {kind.type for card in cards for kind in card.types if kind.resource_class is not None}
    known = sorted({kind.type for card in cards for kind in card.types})
    for name in config.types.keys() - offered:
        if name in known:
            why = "the cards that have it are listed in no device_addresses of it, or given to guests as they are"
        else:
            why = f"its cards have {', '.join(known)}" if known else "it has no card that carries vGPUs"
        logger.warning(
            "Host %s: no card that may carry type %s of [devices]enabled_mdev_types has it: %s. A card that [pci]device_spec or"
            " [accelerator]device_spec gives to guests carries no vGPUs. See `jetbridge vgpu types`",
            host.name,
            name,
            why,
            extra=about(None),
        )


class VgpuProviders:
    """The cards of a host as providers: one for each card, whatever number of VFs it has."""

    kind = VGPU_CARD

    def contribute(self, host: AgentHost, node: ComputeNode, seen: Mapping[str, Seen] | None) -> Contribution:
        with host.database.read() as conn:
            cards = vgpu_cards.of_node(conn, node.id)
            held = [vgpu for vgpu in vgpus.of_node(conn, node.id) if vgpu.server is not None]
        children = tuple(
            Provider(
                provider_name(node, card.name),
                {name: _inventory(total) for name, total in card.totals.items()},
                frozenset({OWNER_TRAIT}),
            )
            for card in cards
            if card.totals
        )
        amounts: dict[tuple[str, str, str], int] = {}
        for vgpu in held:
            key = (str(vgpu.server), provider_name(node, vgpu.card), vgpu.resource_class)
            amounts[key] = amounts.get(key, 0) + 1
        return Contribution(children, tuple((*key, amount) for key, amount in amounts.items()))

    def reported(self, host: AgentHost, node: ComputeNode, uuids: Mapping[str, str], seen: Mapping[str, Seen]) -> None:
        """The report keeps the UUIDs; by them the card of an allocation is found."""


def provider_name(node: ComputeNode, card: str) -> str:
    return f"{node.hypervisor_hostname}_{card}"


def _inventory(total: int) -> Inventory:
    return Inventory(total=total, max_unit=total, reserved=0, allocation_ratio=1.0)
