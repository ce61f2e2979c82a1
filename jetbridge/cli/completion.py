"""What the shell offers when TAB is pressed after --host or for a server. Silent when no service answers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from jetbridge.cli.failures import CliError

STATUSES = ("available", "claimed", "allocated", "unclaimable", "unavailable", "removed", "deleted")
"""Of a device, in the order of its life."""

CONDITIONS = ("cleaning", "held", "accelerator", "unknown", "lost")
"""What ``devices --status`` knows besides."""

_PATIENCE_SECONDS = 1.0


def hosts(incomplete: str) -> list[str]:
    return [name for name in _names("/jetbridge/v1/hosts", "hosts", "host") if name.startswith(incomplete)]


def servers(incomplete: str) -> list[str]:
    return [name for name in _names("/jetbridge/v1/servers", "servers", "name") if name.startswith(incomplete)]


def statuses(incomplete: str) -> list[str]:
    return [status for status in (*STATUSES, *CONDITIONS) if status.startswith(incomplete)]


def _names(path: str, collection: str, key: str) -> list[str]:
    from jetbridge.cli.client import connect

    try:
        folder = os.environ.get("JETBRIDGE_STATE_DIR")
        client = connect(
            os.environ.get("JETBRIDGE_URL"),
            Path(folder) if folder else None,
            os.environ.get("JETBRIDGE_USER"),
            os.environ.get("JETBRIDGE_PASSWORD"),
        )
        return [entry[key] for entry in replace(client, seconds=_PATIENCE_SECONDS).get(path)[collection]]
    except CliError:
        return []
