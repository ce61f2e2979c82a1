"""The clouds of the system tests."""

from __future__ import annotations

from tests.system.conftest import database, deployment, launch

__all__ = ["database", "deployment", "launch"]
