"""The models whose devices a host's agent reports to Placement."""

from __future__ import annotations

from jetbridge.compute.accelerator_source import AcceleratorSource
from jetbridge.compute.pci_source import PciSource
from jetbridge.compute.provider_source import ProviderSource
from jetbridge.compute.vgpu_cards import VgpuProviders

SOURCES: tuple[ProviderSource, ...] = (PciSource(), VgpuProviders(), AcceleratorSource())
