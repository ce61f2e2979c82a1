"""Reports of a host, as its agent has them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from jetbridge.accelerator.device_spec import AcceleratorSpec, parse_accelerator_specs

T4 = {"vendor_id": "10de", "product_id": "1eb8"}


class NoFacts:
    """A host without network interfaces and SR-IOV."""

    def sriov_totalvfs(self, address: str) -> int | None:
        return None

    def netdev_address(self, devname: str) -> str | None:
        return None

    def pf_ids(self, address: str) -> tuple[str, str] | None:
        return None

    def vf_product_id(self, pf_address: str) -> str | None:
        return None


def specs(*lines: dict[str, Any]) -> tuple[AcceleratorSpec, ...]:
    return parse_accelerator_specs([json.dumps(line) for line in lines], NoFacts())


def report(address: str, parent: str | None = None, **ids: str) -> dict[str, Any]:
    row: dict[str, Any] = {"address": address, **T4, **ids, "dev_type": "type-VF" if parent else "type-PCI"}
    return row if parent is None else {**row, "parent_addr": parent}


def numbers() -> Callable[[], str]:
    count = itertools.count(1)
    return lambda: f"id-{next(count)}"
