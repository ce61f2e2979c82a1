"""The front doors of one test: real routers, guards and authentication over a database of its own."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bcrypt
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient

from jetbridge.api import errors
from jetbridge.api.auth import AuthenticationMiddleware, Authenticator
from jetbridge.api.guards import HostGuard
from jetbridge.api.http import RequestFrame
from jetbridge.api.services import ApiServices
from jetbridge.config.settings import Settings
from jetbridge.image.store import ImageDirectory
from jetbridge.placement.client import PlacementClient
from jetbridge.rpc.inprocess import InProcessBus
from tests.schema import new_database

URL = "http://127.0.0.1:8774"
MakeRouter = Callable[[ApiServices], APIRouter]


@dataclass(frozen=True)
class Door:
    client: TestClient
    services: ApiServices

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)


@contextmanager
def open_door(
    folder: Path,
    routers: Sequence[MakeRouter],
    *,
    settings: Settings | None = None,
    listen: str = "127.0.0.1",
    url: str = URL,
    placement: PlacementClient | None = None,
) -> Iterator[Door]:
    settings = settings or Settings()
    database = new_database(folder / "jetbridge.sqlite3")
    with ThreadPoolExecutor(2) as pool:
        services = ApiServices(
            database=database,
            bus=InProcessBus(pool),
            settings=settings,
            aliases={},
            images=ImageDirectory(database, folder / "images"),
            new_id=lambda: str(uuid.uuid4()),
            listen=listen,
            placement=placement,
        )
        app = FastAPI(redirect_slashes=False)
        app.state.services = services
        errors.install(app)
        for make in routers:
            app.include_router(make(services))
        app.add_middleware(AuthenticationMiddleware, authenticator=Authenticator.from_settings(settings))
        app.add_middleware(HostGuard, listen=listen)
        app.add_middleware(RequestFrame)
        with TestClient(app, base_url=url) as client:
            yield Door(client, services)
    database.close()


@dataclass
class PasswordFile:
    """Users of a test, at bcrypt's lowest cost."""

    path: Path
    lines: list[str] = field(default_factory=list)

    def add(self, user: str, password: str, project: str, roles: str) -> dict[str, str]:
        """Adds the user; answers the header by which it authenticates."""
        hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()
        self.lines.append(f"{user}:{hashed}:{project}:{roles}")
        self.path.write_text("\n".join(self.lines) + "\n")
        return basic(user, password)

    @property
    def settings(self) -> Settings:
        return Settings(auth_strategy="http_basic", http_basic_auth_user_file=self.path)


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
