"""The front doors as one application: /compute/v2.1, /image, /identity/v3, /network, /accelerator and /jetbridge/v1."""

from __future__ import annotations

from fastapi import FastAPI

from jetbridge import __version__
from jetbridge.accelerator.service import AcceleratorService
from jetbridge.api import accelerator, compute_routes, errors, identity, image, network, openapi
from jetbridge.api.auth import AuthenticationMiddleware, Authenticator
from jetbridge.api.guards import HostGuard
from jetbridge.api.http import RequestFrame
from jetbridge.api.jetbridge import hosts, servers, status, vgpus
from jetbridge.api.services import ApiServices


def create_accelerator_door(service: AcceleratorService, authenticator: Authenticator) -> FastAPI:
    """The embedded accelerator service alone, for the process that has it; who asks tells of it."""
    app = FastAPI(title="Jetbridge", version=__version__, redirect_slashes=False, docs_url=None, redoc_url=None)
    errors.install(app)
    app.include_router(accelerator.router(service))
    app.add_middleware(AuthenticationMiddleware, authenticator=authenticator)
    app.add_middleware(HostGuard, listen="127.0.0.1")
    app.add_middleware(RequestFrame)
    return app


def create_app(services: ApiServices, authenticator: Authenticator | None = None) -> FastAPI:
    """Every router, behind the frame, the guard and authentication. ``authenticator``: by the settings when None
    (raises ``InvalidConfiguration`` then)."""
    app = FastAPI(title="Jetbridge", version=__version__, redirect_slashes=False, docs_url=None, redoc_url=None)
    app.state.services = services
    errors.install(app)
    openapi.install(app)
    if services.accelerators is not None:
        app.include_router(accelerator.router(services.accelerators))
    for door in (compute_routes, identity, image, network, status, hosts, servers, vgpus):
        app.include_router(door.router(services))
    # The last added is the outermost.
    app.add_middleware(
        AuthenticationMiddleware, authenticator=authenticator or Authenticator.from_settings(services.settings)
    )
    app.add_middleware(HostGuard, listen=services.listen)
    app.add_middleware(RequestFrame, seams=services.seams)
    return app
