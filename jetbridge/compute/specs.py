"""The device_spec lines of a host, read anew for each use: interfaces and SR-IOV capability belong to the lines."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from jetbridge.errors import JetbridgeError
from jetbridge.pci.device_spec import DeviceSpec, HostFacts, parse_device_specs

logger = logging.getLogger(__name__)


class SpecReader:
    """``lines`` are the option's values as written."""

    def __init__(self, host: str, lines: Sequence[str], facts: HostFacts, *, report_in_placement: bool = False) -> None:
        self._host = host
        self._lines = tuple(lines)
        self._facts = facts
        self._report_in_placement = report_in_placement
        self._last: tuple[DeviceSpec, ...] | None = None

    def read(self) -> tuple[DeviceSpec, ...]:
        """Raises as ``parse_device_specs`` does."""
        self._last = parse_device_specs(self._lines, self._facts, report_in_placement=self._report_in_placement)
        return self._last

    def current(self) -> tuple[DeviceSpec, ...]:
        """For operations that must not fail because a line has become unreadable (an interface that went, say): the lines as
        they were last readable."""
        try:
            return self.read()
        except JetbridgeError as error:
            if self._last is None:
                raise
            logger.warning("device_spec of host %s can't be read now, the last reading counts: %s", self._host, error)
            return self._last
