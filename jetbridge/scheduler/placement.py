"""Recording a choice in Placement: which of a host's providers serve the server, and its allocation.

Placement is asked which providers of the chosen host could serve each distinct group, never to combine them: the number of
requests does not grow with the number of devices, and the devices are chosen here, with their NUMA nodes. Its yes is not yet ownership: the
host's claim decides (docs/models.md, PCI devices in Placement).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jetbridge.errors import PlacementConflict, PlacementRefused, PlacementUnknownName
from jetbridge.model.context import RequestContext
from jetbridge.model.host_state import HostState
from jetbridge.model.request_group import RequestGroup
from jetbridge.model.request_spec import RequestSpec
from jetbridge.model.verdict import Selection
from jetbridge.numa.fit import fit_server
from jetbridge.pci.eligible import has_properties
from jetbridge.pci.fit import Refusal
from jetbridge.pci.pool import Pool
from jetbridge.pci.request import PciRequest, ProviderChoice
from jetbridge.placement.client import PlacementClient
from jetbridge.placement.groups import groups_of, isolated, without_accelerators
from jetbridge.placement.records import Resources
from jetbridge.placement.sizes import server_resources
from jetbridge.reasons import Reason
from jetbridge.scheduler import placement_reasons as reasons
from jetbridge.scheduler.assign import assigned, packed, split
from jetbridge.scheduler.cards import MOST_ASKED_ABOUT, CardsOf, no_cards, rooms_of
from jetbridge.scheduler.filters.base import merged
from jetbridge.scheduler.filters.numa import numa_limits

logger = logging.getLogger(__name__)

HOSTS_ASKED_ONE_BY_ONE = 3
"""After so many hosts without an eligible provider all hosts are asked about at once."""

TRIES = 8
"""How often a host is asked again when others took what was chosen there."""

SOURCE = "scheduler"


class Refused(Exception):
    """The host doesn't serve the server."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.text)
        self.reason = reason


@dataclass
class Shares:
    """What is taken of which provider, and of which for each suffixed group (the unsuffixed one's name is empty)."""

    amounts: dict[str, Counter[str]] = field(default_factory=dict)
    providers: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def take(self, group: str, provider: str, resources: Resources) -> None:
        self.amounts.setdefault(provider, Counter()).update(resources)
        self.providers[group] = (*self.providers.get(group, ()), provider)


@dataclass(frozen=True)
class _Need:
    """Something that is asked for: ``roots`` are those of the hosts that have it, ``reason`` is for the others."""

    reason: Reason
    roots: frozenset[str]


class Placing:
    """One server's way into Placement: asked host by host, the best first, until one takes it. ``write`` False: nothing is recorded
    (a dry run). ``cards`` are what refusals name."""

    def __init__(
        self,
        client: PlacementClient,
        context: RequestContext,
        spec: RequestSpec,
        packing: bool,
        *,
        write: bool = True,
        cards: CardsOf = no_cards,
    ) -> None:
        self._client = client.by(SOURCE, context, spec.instance_uuid)
        self._context = context
        self._spec = spec
        self._packing = packing
        self._write = write
        self._cards = cards
        self._apart = isolated(spec.flavor.extra_specs)
        self._devices = {request.request_id: groups_of(request, spec.groups) for request in spec.pci_requests}
        of_devices = {group.requester_id for mine in self._devices.values() for group in mine}
        self._suffixed = [without_accelerators(group) for group in spec.groups if group.suffixed]
        self._others = [group for group in self._suffixed if group.requester_id not in of_devices]
        self._loose = next((group for group in spec.groups if not group.suffixed), None)
        self._sizes = RequestGroup("", server_resources(spec.flavor, spec.numa_topology))
        self._refused = 0
        self._needs: tuple[_Need, ...] = ()  # known once all hosts were asked about
        self._aggregates: dict[str, frozenset[str]] = {}  # of hosts

    def place(self, state: HostState) -> Selection | Reason:
        """The host with its providers, recorded; or why not. Raises ``PlacementUnavailable``."""
        for need in self._needs:
            if state.uuid not in need.roots:
                return need.reason
        try:
            return self._placed(state)
        except Refused as refused:
            self._refused += 1
            if self._refused == HOSTS_ASKED_ONE_BY_ONE:
                self._needs = self._needs_of_all_hosts()
            return refused.reason

    def _placed(self, state: HostState) -> Selection:
        free: dict[str, int] = {}
        for attempt in range(1, TRIES + 1):
            shares = self._shares(state, free)
            try:
                self._record(shares)
            except PlacementConflict as conflict:
                logger.info(
                    "[%s] [instance: %s] Host %s: %s",
                    self._context.request_id,
                    self._spec.instance_uuid,
                    state.host,
                    conflict,
                )
                # The host itself is full, or too many others want the same.
                if not self._spec.groups or state.uuid in conflict.message or attempt == TRIES:
                    cards = {card.provider: card.name for card in self._cards(state)}
                    raise Refused(reasons.no_room(conflict, cards)) from conflict
                of_devices = self._free(provider for provider in shares.amounts if provider != state.uuid)
                free.update({provider: min(classes.values(), default=0) for provider, classes in of_devices.items()})
            else:
                return Selection(state.host, state.compute_node_id, state.generation, shares.providers)
        raise AssertionError("the last attempt returns or raises")

    def _record(self, shares: Shares) -> None:
        if self._write:
            self._client.replace_allocations(
                self._spec.instance_uuid,
                {provider: dict(amounts) for provider, amounts in shares.amounts.items()},
                self._spec.project_id,
                self._context.user,
            )

    def _shares(self, state: HostState, free: Mapping[str, int]) -> Shares:
        """``free``: what was found to be free of some providers, where Placement has less than our tables."""
        shares = Shares()
        shares.amounts[state.uuid] = Counter(self._sizes.resources)
        eligible = self._eligible(state)
        self._share_devices(state, eligible, free, shares)
        self._share_others(state, eligible, shares)
        if self._loose is not None:
            self._share_loose(self._loose, state, shares)
        return shares

    # --- who could serve ---

    def _eligible(self, state: HostState) -> dict[str, tuple[str, ...]]:
        """By requester id of suffixed groups, the providers of the host that could serve it now: one request per distinct group."""
        found: dict[Hashable, tuple[str, ...]] = {}
        for group in self._suffixed:
            if _kind(group) not in found:
                found[_kind(group)] = self._ask(self._below(group, state.uuid), state)
        return {group.requester_id: found[_kind(group)] for group in self._suffixed}

    def _below(self, group: RequestGroup, root: str) -> RequestGroup:
        """Without the aggregates that the host is in: with it all its providers are, as allocation candidates have it too."""
        if not group.member_of and not group.outside_of:
            return group
        if root not in self._aggregates:
            self._aggregates[root] = self._client.aggregates(root)
        unwanted = group.outside_of & self._aggregates[root]
        if unwanted:
            raise Refused(
                reasons.of_host(f"the host is in aggregate {', '.join(sorted(unwanted))}, which the flavor forbids")
            )
        return replace(group, member_of=group.member_of - self._aggregates[root])

    def _ask(self, group: RequestGroup, state: HostState) -> tuple[str, ...]:
        found = self._found(group, state.uuid)
        if not found:
            raise self._none_free(group, state)
        return found

    def _none_free(self, group: RequestGroup, state: HostState) -> Refused:
        rooms = rooms_of(self._client, self._cards(state), [group])
        request = self._request_of(group)
        reserved = 0 if request is None else self._reserved(request, group, state)
        return Refused(reasons.none_free(group, rooms, request.alias_name if request else None, reserved))

    def _request_of(self, group: RequestGroup) -> PciRequest | None:
        """Whose devices the group, or one like it, stands for."""
        return next(
            (
                request
                for request in self._spec.pci_requests
                if any(each.requester_id == group.requester_id for each in self._devices[request.request_id])
            ),
            None,
        )

    def _reserved(self, request: PciRequest, group: RequestGroup, state: HostState) -> int:
        """Devices that our tables have free, of the first few providers that could serve the group were they not reserved."""
        pools = [pool for pool in state.pools or () if pool.rp_uuid and has_properties(pool, request)]
        count = 0
        for provider in list(dict.fromkeys(str(pool.rp_uuid) for pool in pools))[:MOST_ASKED_ABOUT]:
            try:
                _, inventories = self._client.inventories(provider)
            except PlacementRefused:
                continue  # gone meanwhile
            count += sum(inventories[name]["reserved"] for name in group.resources if name in inventories)
        return count

    def _found(self, group: RequestGroup, root: str) -> tuple[str, ...]:
        try:
            return self._client.eligible(group, root)
        except PlacementUnknownName as error:
            raise Refused(reasons.unknown(error)) from error

    def _needs_of_all_hosts(self) -> tuple[_Need, ...]:
        """For each kind of group, and for the host's own sizes, which hosts have it: one request each, about all hosts at once."""
        wanted = [self._sizes, *self._suffixed]
        if self._loose is not None:
            wanted += [
                replace(without_accelerators(self._loose), resources={name: 1}, required=frozenset())
                for name in self._loose.resources
            ]
        # A host in the aggregates, or a provider of it: which one is asked host by host.
        wanted = [replace(group, member_of=frozenset(), outside_of=frozenset()) for group in wanted]
        needs = []
        for group in {_kind(group): group for group in wanted}.values():
            try:
                found = self._client.eligible_providers(group, None)
            except PlacementUnknownName as error:
                needs.append(_Need(reasons.unknown(error), frozenset()))
            else:
                request = self._request_of(group)
                reason = reasons.none_free(group, alias=request.alias_name if request else None)
                needs.append(_Need(reason, frozenset(provider.root_uuid for provider in found)))
        return tuple(needs)

    def _free(self, providers: Iterable[str]) -> dict[str, dict[str, int]]:
        """How much each provider has free, by class."""
        found = {}
        for provider in providers:
            _, inventories = self._client.inventories(provider)
            used = self._client.usages(provider)
            found[provider] = {
                name: max(0, int((entry["total"] - entry["reserved"]) * entry["allocation_ratio"]) - used.get(name, 0))
                for name, entry in inventories.items()
            }
        return found

    def _left(self, providers: Iterable[str], shares: Shares) -> dict[str, dict[str, int]]:
        """The same once ``shares`` are taken."""
        return {
            provider: {name: amount - shares.amounts.get(provider, Counter())[name] for name, amount in classes.items()}
            for provider, classes in self._free(providers).items()
        }

    # --- who serves ---

    def _share_devices(
        self, state: HostState, eligible: Mapping[str, Sequence[str]], free: Mapping[str, int], shares: Shares
    ) -> None:
        """Devices of the pools that eligible providers stand for, near enough to the guest's cells, all requests jointly."""
        bound = {request_id: groups for request_id, groups in self._devices.items() if groups}
        if not bound:
            return
        allowed = {request_id: frozenset(eligible[groups[0].requester_id]) for request_id, groups in bound.items()}
        answer = fit_server(
            state.numa,
            self._spec.numa_topology,
            _capped(state.pools or (), free),
            self._spec.pci_requests,
            ProviderChoice(allowed=allowed, apart=self._apart),
            numa_limits(state),
            self._packing,
        )
        if isinstance(answer, Refusal):
            raise Refused(merged(answer.reasons))
        for request_id, groups in bound.items():
            providers = [str(take.pool.rp_uuid) for take in answer.choice.takes[request_id] for _ in range(take.count)]
            for group, provider in zip(groups, providers, strict=True):
                shares.take(group.requester_id, provider, group.resources)

    def _share_others(self, state: HostState, eligible: Mapping[str, Sequence[str]], shares: Shares) -> None:
        """Groups that no device of ours decides: each of a provider of its own as far as there are enough, else several of one."""
        if not self._others:
            return
        taken = {provider for providers in shares.providers.values() for provider in providers}
        choices = [eligible[group.requester_id] for group in self._others]
        places = {provider: 1 for choice in choices for provider in choice if provider not in taken}
        found = assigned(choices, places)
        if found is None and not self._apart:
            free = self._left(dict.fromkeys(provider for choice in choices for provider in choice), shares)
            found = packed([group.resources for group in self._others], choices, free)
        if found is None:
            rooms = rooms_of(self._client, self._cards(state), self._others)
            raise Refused(reasons.too_few(self._others, len(places), rooms, apart=self._apart))
        for group, provider in zip(self._others, found, strict=True):
            shares.take(group.requester_id, provider, group.resources)

    def _share_loose(self, group: RequestGroup, state: HostState, shares: Shares) -> None:
        """The unsuffixed group: each class of one provider of the tree, or of several. Its traits are the host's or those of the
        providers that serve it."""
        outside = sorted(self._below(group, state.uuid).member_of)
        if outside:
            raise Refused(reasons.of_host(f"the host is not in aggregate {', '.join(outside)}"))
        group = replace(group, member_of=frozenset())
        if group.required or group.forbidden:
            _, traits = self._client.traits(state.uuid)
            unwanted = sorted(group.forbidden & traits)
            missing = group.required - traits
            if unwanted or (missing and not group.resources):
                text = f"the host has the trait {', '.join(unwanted)}, which the flavor forbids"
                if not unwanted:
                    text = f"the host lacks the trait {', '.join(sorted(missing))}"
                raise Refused(Reason("placement.traits", text, hint="openstack resource provider trait list HOST"))
            group = replace(group, required=missing)
        group = without_accelerators(group)
        for name, amount in sorted(group.resources.items()):
            for provider, part in self._split(group, name, amount, state, shares).items():
                shares.take(group.requester_id, provider, {name: part})

    def _split(self, group: RequestGroup, name: str, amount: int, state: HostState, shares: Shares) -> dict[str, int]:
        wanted = replace(group, resources={name: amount})
        whole = self._found(wanted, state.uuid)
        untouched = next((provider for provider in whole if name not in shares.amounts.get(provider, ())), None)
        if untouched is not None:
            return {untouched: amount}
        left = self._left(self._ask(replace(group, resources={name: 1}), state), shares)
        parts = split(amount, {provider: classes.get(name, 0) for provider, classes in left.items()})
        if parts is None:
            raise self._none_free(wanted, state)
        return parts


def _kind(group: RequestGroup) -> Hashable:
    """What groups have in common that the same providers could serve."""
    return frozenset(group.resources.items()), group.required, group.forbidden, group.member_of, group.outside_of


def _capped(pools: Sequence[Pool], free: Mapping[str, int]) -> list[Pool]:
    capped = [
        replace(pool, count=min(pool.count, free[pool.rp_uuid])) if pool.rp_uuid and pool.rp_uuid in free else pool
        for pool in pools
    ]
    return [pool for pool in capped if pool.count > 0]
