"""Everything under /compute."""

from __future__ import annotations

from fastapi import APIRouter

from jetbridge.api import (
    compute_lists,
    compute_services,
    compute_versions,
    external_events,
    flavor_extra_specs,
    flavors,
    hypervisors,
    instance_actions,
    keypairs,
    limits,
    server_actions,
    server_details,
    server_interfaces,
    servers,
)
from jetbridge.api.services import ApiServices

_NOUNS = (
    flavors,
    flavor_extra_specs,
    servers,
    server_actions,
    server_details,
    server_interfaces,
    instance_actions,
    hypervisors,
    compute_services,
    keypairs,
    limits,
    compute_lists,
    external_events,
)


def router(services: ApiServices) -> APIRouter:
    routes = APIRouter()
    routes.include_router(compute_versions.router)
    for noun in _NOUNS:
        routes.include_router(noun.router, prefix=compute_versions.VERSION_PREFIX)
    return routes
