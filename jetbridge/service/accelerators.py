"""The accelerator service of a process: the embedded one with a door for the process itself, or the one that ``[cyborg]`` names.

The services of a process ask the embedded one over HTTP, as they would another. It has a server of its own on the loopback for them: a
request that waits for an answer must not take the thread that would give it, and the door is there before the first agent starts and until
the last build has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from jetbridge.accelerator import events
from jetbridge.accelerator.client import AcceleratorClient
from jetbridge.accelerator.service import SERVICE_ROLE, AcceleratorService, BoundEvent
from jetbridge.accelerator.session import GROUP, embedded_adapter, external_adapter
from jetbridge.api.app import create_accelerator_door
from jetbridge.api.auth import Authenticator, PasswordEntry, Principal, stable_id
from jetbridge.config.settings import Settings
from jetbridge.db.engine import Database
from jetbridge.journey.seams import Seams
from jetbridge.model.context import RequestContext
from jetbridge.rpc.bus import Bus
from jetbridge.service.http import HttpServer
from jetbridge.sessions import is_configured

OURSELVES = Principal(
    user_id=stable_id("user", "jetbridge"),
    user_name="jetbridge",
    project_id=stable_id("project", "jetbridge-services"),
    project_name="jetbridge-services",
    roles=frozenset({SERVICE_ROLE}),
)
"""As whom the services of this process ask the embedded service."""


def embedded_service(database: Database, bus: Callable[[], Bus], new_id: Callable[[], str]) -> AcceleratorService:
    """What it tells goes straight to who waits for it."""

    def notify(context: RequestContext, ended: Sequence[BoundEvent]) -> None:
        events.deliver(database, bus(), context, ended)

    return AcceleratorService(database, notify, new_id)


class OwnDoor:
    """The embedded service on the loopback, for this process alone."""

    def __init__(self, service: AcceleratorService) -> None:
        # Nobody knows a password, and tokens end with the process.
        users = {OURSELVES.user_name: PasswordEntry(OURSELVES, b"")}
        self._authenticator = Authenticator(users, _decoy=b"")
        self._server = HttpServer("127.0.0.1", 0)
        self._service = service

    def start(self) -> AcceleratorClient:
        self._server.start(create_accelerator_door(self._service, self._authenticator))
        issue = partial(_token, self._authenticator)
        url = f"{self._server.base_url}/accelerator/v2"
        return AcceleratorClient(embedded_adapter(url, issue, OURSELVES.project_id))

    def stop(self) -> None:
        self._server.stop()


def external_client(settings: Settings, seams: Seams) -> AcceleratorClient | None:
    """None: the options name no service."""
    return AcceleratorClient(external_adapter(settings), seams) if is_configured(settings, GROUP) else None


def _token(authenticator: Authenticator) -> str:
    return authenticator.issue_token(OURSELVES)[0]
