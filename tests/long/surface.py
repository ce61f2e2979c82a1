"""Requests that schemathesis makes of our OpenAPI document, right ones and wrong ones, to a running cloud: none is answered by an error inside.

What it can't know is mixed in: servers, flavors, images and hosts that exist, and versions that are served.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.schemas import APIOperation

from tests.system.cloud import Cloud, fleet, gpu, host

VERSIONS = ("compute 2.1", "compute 2.53", "compute 2.79", "compute 2.96", "compute latest")
TERM = {"pci_passthrough:alias": "GPU:1"}


@dataclass
class Surface:
    """``found``: requests that were answered by an error inside, and how; ``answers``: how often which status was given."""

    cloud: Cloud
    found: list[str] = field(default_factory=list)
    answers: Counter[int] = field(default_factory=Counter)

    def explore(self, examples: int, chance: int) -> None:
        """``examples`` right requests to each operation, and as many with a wrong body; ``chance`` is the seed."""
        schema = schemathesis.openapi.from_url(f"{self.cloud.url}/openapi.json")
        for number, operation in enumerate(_operations(schema)):
            self._explore(operation, GenerationMode.POSITIVE, examples, chance + number)
            if operation.body:  # any text is right in a path or a filter
                self._explore(operation, GenerationMode.NEGATIVE, examples, chance + number)

    def _explore(
        self, operation: APIOperation[Any, Any, Any], mode: GenerationMode, examples: int, chance: int
    ) -> None:
        known = self._known()

        @seed(chance)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
        def ask(case: Any, data: st.DataObject) -> None:
            for name in case.path_parameters or {}:
                exists = next((ids for kind, ids in known.items() if name.startswith(kind)), None)
                if exists and data.draw(st.integers(0, 3), label="one that exists"):
                    case.path_parameters[name] = data.draw(st.sampled_from(exists), label=name)
            version = data.draw(st.sampled_from((*VERSIONS, None)), label="version")
            if version is not None:
                case.headers["OpenStack-API-Version"] = version
            answer = case.call()
            self.answers[answer.status_code] += 1
            if answer.status_code >= 500 and len(self.found) < 20:
                self.found.append(f"{answer.status_code} {case.as_curl_command()}\n  {answer.text[:500]}")

        ask()

    def _known(self) -> dict[str, list[str]]:
        """What exists now, by how names of path parameters begin: requests may have deleted it."""
        ask = self.cloud.client.get
        servers = [each["id"] for each in ask("/servers?all_tenants=1").json()["servers"][:5]]
        if len(servers) < 2:
            servers.append(self.cloud.boot(self.cloud.flavor(f"f{self.answers.total()}", TERM)))
        lists = {
            "flavor": ask("/flavors").json()["flavors"],
            "service": ask("/os-services").json()["services"],
            "hypervisor": ask("/os-hypervisors").json()["hypervisors"],
            "image": ask(f"{self.cloud.url}/image/v2/images").json()["images"],
        }
        known = {name: [str(each["id"]) for each in listed[:5]] for name, listed in lists.items()}
        return {"server": servers, "key": [*TERM], "host": ["h1"], **{name: ids for name, ids in known.items() if ids}}


def _operations(schema: Any) -> Iterator[APIOperation[Any, Any, Any]]:
    for found in schema.get_all_operations():
        yield found.ok()


def hosts() -> dict[str, Any]:
    """A fleet for what is booted meanwhile."""
    return fleet(host("h1", [gpu(bus) for bus in range(1, 9)]))
