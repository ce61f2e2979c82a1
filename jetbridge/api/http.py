"""What every request passes through, whichever front door it knocks at.

It gets its request id, a limit for its body, a microversion where it is for the Compute API; and whatever
happens inside, the caller gets an answer in the shape of that front door.
"""

from __future__ import annotations

import logging
import re
import uuid
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jetbridge.api.errors import from_error
from jetbridge.api.faults import fault
from jetbridge.api.microversions import COMPUTE_HEADER, MINIMUM, SERVICE_HEADER, Version, negotiate
from jetbridge.errors import JetbridgeError
from jetbridge.journey.seams import CLIENT, Crossing, Seams
from jetbridge.model.events import Seam

logger = logging.getLogger(__name__)

BODY_LIMIT = 1024 * 1024
UPLOAD = re.compile(r"/image/v2/images/[^/]+/(file|stage)")
SERVER = re.compile(r"/(compute/v2\.1|jetbridge/v1)/servers/(?P<server>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})(/|$)")
COMPUTE = "/compute"


class RequestFrame:
    """ASGI middleware. Sets ``request_id`` and, under ``/compute``, ``version`` in the request's state."""

    def __init__(self, app: ASGIApp, seams: Seams = Seams()) -> None:
        self.app = app
        self.seams = seams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(self.app, scope, receive, send)
        with self.seams.crossing(
            Seam.REST, CLIENT, "api", scope["method"], request_id=exchange.request_id, server=exchange.server
        ) as exchange.crossing:
            await exchange.run()


class _Exchange:
    crossing: Crossing

    def __init__(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        self.app = app
        self.receive = receive
        self.send = send
        self.request_id = f"req-{uuid.uuid4()}"
        self.version: Version | None = None
        self.started = False
        self.received = 0
        path = scope["path"]
        if path != "/" and path.endswith("/"):
            path = path.rstrip("/") or "/"
        state = {**scope.get("state", {}), "request_id": self.request_id}
        self.scope = {**scope, "path": path, "raw_path": path.encode("utf-8", "surrogateescape"), "state": state}
        self.path: str = path
        named = SERVER.match(path)
        self.server = named["server"] if named else None
        self.compute = path == COMPUTE or path.startswith(f"{COMPUTE}/")
        self.unlimited = UPLOAD.fullmatch(path) is not None

    async def run(self) -> None:
        try:
            refusal = self._refusal()
            if refusal is not None:
                await self._answer(*refusal)
                return
            await self.app(self.scope, self._receive, self._send)
        except JetbridgeError as error:
            if self.started:
                raise
            await from_error(self.path, error)(self.scope, self.receive, self._send)
        except ClientDisconnect:
            self.crossing.what = self._what()
            self.crossing.fail("ClientDisconnect")
            logger.info("[%s] the client of %s %s went away", self.request_id, self.scope["method"], self.path)
        except Exception:
            # The one place where an error that nobody foresaw ends: the caller must get an answer.
            logger.exception("[%s] unexpected error in %s %s", self.request_id, self.scope["method"], self.path)
            if self.started:
                raise
            await self._answer(
                500, f"Unexpected API error. Please report it with the log lines of request {self.request_id}."
            )

    def _refusal(self) -> tuple[int, str] | None:
        """Sets the version; what is wrong with the request before its body is read."""
        headers = Headers(scope=self.scope)
        if self.compute:
            self.version = MINIMUM  # errors carry a version too
            self.version = negotiate(headers)
            self.scope["state"]["version"] = self.version
        if "\x00" in self.path or b"%00" in self.scope.get("query_string", b""):
            return 400, "The URL contains a NUL character (%00): leave it out."
        length = headers.get("content-length", "")
        if not self.unlimited and length.isdigit() and int(length) > BODY_LIMIT:
            return 413, self._too_large()
        return None

    def _too_large(self) -> str:
        return f"The request body is larger than {BODY_LIMIT} bytes: send less."

    async def _receive(self) -> Message:
        message = await self.receive()
        if message["type"] == "http.request" and not self.unlimited:
            self.received += len(message.get("body", b""))
            if self.received > BODY_LIMIT:
                raise HTTPException(413, self._too_large())
        return message

    async def _answer(self, status: int, message: str) -> None:
        await fault(self.path, status, message)(self.scope, self.receive, self._send)

    def _tell(self, status: int) -> None:
        """Before the caller gets the answer: whoever asks then for the way of this request finds all of it."""
        crossing = self.crossing
        crossing.essentials["status"] = str(status)
        if status >= 500:
            crossing.fail(f"HTTP {status}")
        crossing.what = self._what()
        crossing.end()

    def _what(self) -> str:
        """Method and route; paths of no route are nobody's business but the caller's."""
        return f"{self.scope['method']} {route_in(self.path, self.scope.get('route')) or '(no such path)'}"

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self._tell(message["status"])
            headers = MutableHeaders(scope=_as_scope(message))
            headers["x-openstack-request-id"] = self.request_id
            if self.compute:
                headers["x-compute-request-id"] = self.request_id
                headers[SERVICE_HEADER] = f"compute {self.version or MINIMUM}"
                headers[COMPUTE_HEADER] = str(self.version or MINIMUM)
                headers.add_vary_header(SERVICE_HEADER)
                headers.add_vary_header(COMPUTE_HEADER)
        await self.send(message)


def route_in(path: str, route: Any) -> str | None:
    """The whole template of what serves ``path``: a route knows only the part behind the prefix it was included under."""
    if route is None:
        return None
    for slash in re.finditer("/", path):
        if route.path_regex.match(path[slash.start() :]):
            return f"{path[: slash.start()]}{route.path}"
    return None


def _as_scope(message: Message) -> dict[str, Any]:
    message.setdefault("headers", [])
    return message  # type: ignore[return-value]  # MutableHeaders only reads and writes "headers"
