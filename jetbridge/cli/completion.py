"""What the shell offers when TAB is pressed after --host or for a server. Silent when no service answers."""

from __future__ import annotations

import os
from dataclasses import replace

from jetbridge.cli.failures import CliError

_PATIENCE_SECONDS = 1.0


def hosts(incomplete: str) -> list[str]:
    return [name for name in _names("/jetbridge/v1/hosts", "hosts", "host") if name.startswith(incomplete)]


def servers(incomplete: str) -> list[str]:
    return [name for name in _names("/jetbridge/v1/servers", "servers", "name") if name.startswith(incomplete)]


def _names(path: str, collection: str, key: str) -> list[str]:
    from jetbridge.cli.client import connect

    try:
        client = connect(os.environ.get("JETBRIDGE_URL"), None, os.environ.get("JETBRIDGE_USER"))
        return [entry[key] for entry in replace(client, seconds=_PATIENCE_SECONDS).get(path)[collection]]
    except CliError:
        return []
