"""Which pools a server's requests could use at all: what the weigher counts and the NUMA fit orders host cells by."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from jetbridge.pci.fit import Choice, fit
from jetbridge.pci.pool import Pool
from jetbridge.pci.request import PciRequest


class Wanted:
    """Answers for one set of requests. Each kind of pool is judged once, with the fit itself, and remembered."""

    def __init__(self, requests: Sequence[PciRequest]) -> None:
        self._singles = tuple(replace(request, count=1) for request in requests)
        self._known: dict[Hashable, frozenset[int]] = {}

    def users(self, pool: Pool) -> frozenset[int]:
        """Positions of the requests that a device of ``pool`` could serve, NUMA policies aside."""
        kind = (
            pool.vendor_id,
            pool.product_id,
            pool.dev_type,
            frozenset(pool.tags.items()),
            pool.parent_ifname,
            pool.rp_uuid,
        )
        if kind not in self._known:
            answers = [fit((pool,), (request,)) for request in self._singles]
            self._known[kind] = frozenset(at for at, answer in enumerate(answers) if isinstance(answer, Choice))
        return self._known[kind]

    def of(self, pools: Iterable[Pool]) -> tuple[Pool, ...]:
        """Those of ``pools`` that any request could use, in their order."""
        return tuple(pool for pool in pools if self.users(pool))
