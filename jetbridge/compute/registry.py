"""All flows of a host that are made of steps. A flow that isn't here is not tried by the kill tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jetbridge.compute.build import BUILD_STEPS
from jetbridge.compute.delete import DELETE_STEPS
from jetbridge.compute.interfaces import ATTACH_STEPS, DETACH_STEPS
from jetbridge.steps.runtime import Step

FLOWS: Mapping[str, Sequence[Step[Any]]] = {
    "build": BUILD_STEPS,
    "delete": DELETE_STEPS,
    "attach": ATTACH_STEPS,
    "detach": DETACH_STEPS,
}
"""By ``builds.kind``."""
