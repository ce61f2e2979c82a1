"""Everything under /compute."""

from __future__ import annotations

from fastapi import FastAPI

from jetbridge.api import (
    compute_lists,
    compute_services,
    compute_versions,
    flavor_extra_specs,
    flavors,
    hypervisors,
    instance_actions,
    keypairs,
    limits,
    server_actions,
    server_details,
    servers,
)

_NOUNS = (
    flavors,
    flavor_extra_specs,
    servers,
    server_actions,
    server_details,
    instance_actions,
    hypervisors,
    compute_services,
    keypairs,
    limits,
    compute_lists,
)


def include(app: FastAPI) -> None:
    app.include_router(compute_versions.router, prefix="/compute")
    for noun in _NOUNS:
        app.include_router(noun.router, prefix="/compute/v2.1")
