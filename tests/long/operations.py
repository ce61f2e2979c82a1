"""What people, hardware and fate do to a cloud, drawn from a seed: the same seed gives the same operations, whatever the cloud answers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jetbridge.compute.registry import FLOWS
from jetbridge.steps.runtime import Moment
from tests.system.child import SENT, Death
from tests.system.cloud import gpu, host

HOSTS = ("h1", "h2", "h3")
FLAVORS = {"one": "GPU:1", "two": "GPU:2", "vf": "VF:1", "pf": "PF:1", "mixed": "GPU:1,VF:1", "none": ""}
ALIASES = [
    {"name": "GPU", "vendor_id": "10de", "product_id": "1eb8", "device_type": "type-PCI"},
    {"name": "PF", "vendor_id": "15b3", "product_id": "1017", "device_type": "type-PF"},
    {"name": "VF", "vendor_id": "15b3", "product_id": "1018", "device_type": "type-VF"},
]
LINES = [{"vendor_id": "10de", "product_id": "1eb8"}, {"vendor_id": "15b3"}]
MESSAGES = ("build_servers", "select_destinations", "build_server", "delete_server", "define_domain", "destroy_domain")
CROWD = 12
"""About so many servers live at once; the hosts have room for most of them."""

_CARD = {
    "address": "0000:3b:00.0",
    "vendor_id": "15b3",
    "product_id": "1017",
    "driver": "mlx5_core",
    "pf": {"vfs": 2, "vf_product_id": "1018"},
}
_GPUS = [gpu(bus) for bus in (1, 2, 3)]

HARDWARE: dict[str, dict[str, Any]] = {
    "whole": {"devices": [*_GPUS, _CARD]},
    "a card less": {"devices": [*_GPUS[1:], _CARD]},
    "no network card": {"devices": _GPUS},
    "another card": {"devices": [{**_GPUS[0], "product_id": "1db6"}, *_GPUS[1:], _CARD]},
    "one more": {"devices": [*_GPUS, gpu(4), _CARD]},
    "no start": {"devices": [*_GPUS, _CARD], "simulate": {"fail": {"start_domain": {"times": 2, "error": "no luck"}}}},
    "no undefine": {
        "devices": [*_GPUS, _CARD],
        "simulate": {"fail": {"undefine_domain": {"times": 2, "error": "no luck"}}},
    },
    "slow": {"devices": [*_GPUS, _CARD], "simulate": {"delay": {"start_domain": 0.05, "create_root_disk": 0.02}}},
    "blind": {"devices": [*_GPUS, _CARD], "simulate": {"discovery": "raise"}},
    "half blind": {"devices": [*_GPUS, _CARD], "simulate": {"discovery": "half"}},
}
BLIND = ("blind", "half blind")
"""Nothing is returned while a host can't be seen."""


@dataclass(frozen=True)
class Boot:
    name: str
    flavor: str


@dataclass(frozen=True)
class Act:
    """``what``: delete, os-stop, os-start, reboot."""

    name: str
    what: str


@dataclass(frozen=True)
class Change:
    """Other hardware on a host: a key of ``HARDWARE``."""

    host: str
    hardware: str


@dataclass(frozen=True)
class Kill:
    """SIGKILL now, or, with ``death``, when it gets there."""

    death: Death | None = None


@dataclass(frozen=True)
class Restart:
    """Stopped in order and started again."""


@dataclass(frozen=True)
class Settle:
    """Every host can be seen again; wait until nothing is under way."""


Operation = Boot | Act | Change | Kill | Restart | Settle


def operations(seed: int, count: int) -> Iterator[Operation]:
    """``count`` of them, and a ``Settle`` at the end. The one in the middle is a ``Kill`` whatever the seed: a few could well be without."""
    chance = random.Random(seed)
    living: list[str] = []
    for number in range(count):
        match "kill" if number == count // 2 else _kind(chance, len(living)):
            case "boot":
                name = f"s{number:05}"
                living.append(name)
                yield Boot(name, chance.choice(sorted(FLAVORS)))
            case "delete":
                yield Act(living.pop(chance.randrange(len(living))), "delete")
            case "power":
                yield Act(chance.choice(living), chance.choice(("os-stop", "os-start", "reboot")))
            case "change":
                yield Change(chance.choice(HOSTS), chance.choice(sorted(HARDWARE)))
            case "kill":
                yield Kill()
            case "arm":
                yield Kill(_death(chance))
            case "restart":
                yield Restart()
            case "settle":
                yield Settle()
    yield Settle()


def content(hardware: dict[str, str]) -> dict[str, Any]:
    """The fleet file; ``hardware`` by host."""
    hosts: Sequence[dict[str, Any]] = [host(name, **HARDWARE[hardware[name]]) for name in HOSTS]
    return {"hosts": list(hosts), "config": {"pci": {"device_spec": LINES, "alias": ALIASES}}}


def _kind(chance: random.Random, living: int) -> str:
    weights = {"boot": 30, "change": 6, "kill": 0.7, "arm": 0.7, "restart": 0.3, "settle": 3}
    if living:
        weights |= {"delete": 30 if living > CROWD else 15, "power": 25}
    return chance.choices(list(weights), list(weights.values()))[0]


def _death(chance: random.Random) -> Death:
    spared = chance.randrange(4)
    if chance.random() < 0.3:
        return Death(chance.choice(MESSAGES), SENT, spared)
    steps = [step.name for flow in FLOWS.values() for step in flow]
    return Death(chance.choice(steps), chance.choice(list(Moment)), spared)
