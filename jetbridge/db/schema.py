"""All tables of all modules: whoever asks for the whole schema asks here. A module ``tables_NOUN`` that isn't named here is missed."""

from __future__ import annotations

from jetbridge.db import tables_accelerator, tables_providers, tables_vgpu
from jetbridge.db.tables import metadata

MODULES = (tables_accelerator, tables_providers, tables_vgpu)
"""Beside ``tables``: importing them puts their tables into ``metadata``."""

__all__ = ["MODULES", "metadata"]
