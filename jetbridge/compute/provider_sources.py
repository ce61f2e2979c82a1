"""The models whose devices a host's agent reports to Placement."""

from __future__ import annotations

from jetbridge.compute.pci_source import PciSource
from jetbridge.compute.provider_source import ProviderSource

SOURCES: tuple[ProviderSource, ...] = (PciSource(),)
