"""Requests to Placement: sent again while nothing is lost by it, told to the journey, and their errors turned into ours."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from keystoneauth1 import exceptions
from keystoneauth1.adapter import Adapter
from requests import Response

from jetbridge.db.url import without_password
from jetbridge.errors import PlacementUnavailable
from jetbridge.journey.seams import Seams
from jetbridge.model.context import RequestContext
from jetbridge.model.events import Seam

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 10.0
"""How long a Placement that doesn't take connections is tried again: longer than a restart of the embedded one takes."""
PAUSE_SECONDS = 0.2
TARGET = "placement"
_PASSWORD = re.compile(r"(://[^:@/\s]*:)[^@/\s]*@")

Taken = TypeVar("Taken")


@dataclass(frozen=True)
class Caller:
    """Who asks, for the journey and for Placement's log: a service, and the request and server that it does it for."""

    source: str = "jetbridge"
    request_id: str | None = None
    server: str | None = None

    @classmethod
    def of(cls, source: str, context: RequestContext | None, server: str | None = None) -> Caller:
        return cls(source, context.request_id if context else None, server)


@dataclass(frozen=True)
class Answer:
    """``url``: who answered; ``request``: what, as method and path; ``body``: its JSON (None: it has none)."""

    url: str
    request: str
    status_code: int
    body: Any
    response: Response = field(repr=False)

    @classmethod
    def of(cls, response: Response, url: str) -> Answer:
        path = str(response.request.path_url).partition("?")[0]
        try:
            body = response.json()
        except (ValueError, RecursionError):
            body = None
        return cls(url, f"{response.request.method} {path}", response.status_code, body, response)

    def read(self, take: Callable[[Any], Taken]) -> Taken:
        """What ``take`` takes of the body. Raises ``PlacementUnavailable`` when it isn't there, or is of another form."""
        try:
            return take(self.body)
        except KeyError as error:
            raise self.not_understood(f"its answer to {self.request} has no {error}") from error
        except (TypeError, AttributeError) as error:
            raise self.not_understood(f"its answer to {self.request} has another form: {self._start}") from error

    def require_object(self) -> None:
        """Raises ``PlacementUnavailable``."""
        if not isinstance(self.body, dict):
            raise self.not_understood(self._start)

    def not_understood(self, reason: str) -> PlacementUnavailable:
        return PlacementUnavailable(url=self.url, reason=f"what answers there is no Placement: {reason}")

    @property
    def text(self) -> str:
        """For a refusal alone: where no encoding is named, all of it is read to guess one."""
        return self.response.text

    @property
    def _start(self) -> str:
        return " ".join(self.text.split())[:100]


@dataclass(frozen=True)
class Transport:
    """Safe to use from many threads. ``monotonic`` gives seconds, ``pause`` waits for some. ``patience``: how many one
    who takes no connections is tried again; ``timeout``: how many an answer may take, None: as long as the adapter's session lets it. Once ``stopping`` is set
    nobody is tried again."""

    adapter: Adapter
    seams: Seams = field(default_factory=Seams)
    monotonic: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    patience: float = PATIENCE_SECONDS
    timeout: float | None = None
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """For people: without password."""
        return without_password(self.adapter.endpoint_override or "[placement]auth_url's catalog")

    def request(
        self,
        caller: Caller,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | Sequence[str]] | None = None,
        body: object = None,
    ) -> Answer:
        """The answer, whatever its status below 500; with 200 it is a JSON object. ``path`` is quoted already. Raises ``PlacementUnavailable``.

        A request whose connection broke is sent again: whoever changes something has to cope with having done so before.
        """
        target = f"{path}?{urlencode(query, doseq=True, safe=':,!')}" if query else path
        with self.seams.crossing(
            Seam.REST, caller.source, TARGET, f"{method} {path}", request_id=caller.request_id, server=caller.server
        ) as crossing:
            if query:
                crossing.essentials.update(
                    {name: value if isinstance(value, str) else " ".join(value) for name, value in query.items()}
                )
            answer = self._persistently(caller, method, target, body)
            crossing.essentials["status"] = str(answer.status_code)
            return answer

    def _persistently(self, caller: Caller, method: str, target: str, body: object) -> Answer:
        limit = self.monotonic() + self.patience
        while True:
            try:
                response: Response = self.adapter.request(
                    target,
                    method,
                    data=None if body is None else json.dumps(body),
                    headers={"Content-Type": "application/json", "Accept": "application/json"},
                    global_request_id=caller.request_id,
                    log=False,
                    **({} if self.timeout is None else {"timeout": self.timeout}),
                )
            except (exceptions.ConnectFailure, exceptions.UnknownConnectionError) as error:
                if self.monotonic() >= limit or not self.patience or self.stopping.is_set():
                    raise PlacementUnavailable(url=self.url, reason=_reason(error)) from error
                logger.debug("Placement at %s: %s; asked again", self.url, _reason(error))
                self.pause(PAUSE_SECONDS)
                continue
            except (exceptions.ClientException, OSError, ValueError) as error:
                # Of wrong options the library below lets some errors through: a cafile that isn't there, a name that can't be a host's.
                raise PlacementUnavailable(url=self.url, reason=_reason(error)) from error
            answer = Answer.of(response, self.url)
            if answer.status_code >= 500 or answer.status_code in (401, 403):
                hint = "; its user needs the roles admin and service" if answer.status_code == 403 else ""
                raise PlacementUnavailable(url=self.url, reason=f"{answer.status_code} {detail_of(answer)}{hint}")
            if answer.status_code == 200:
                answer.require_object()
            return answer


def error_of(answer: Answer) -> tuple[str, str]:
    """The code of an error and its sentence, of an answer in Placement's form or in none."""
    try:
        error: Mapping[str, Any] = answer.body["errors"][0]
        return str(error.get("code", "")), " ".join(str(error.get("detail", "")).split())
    except (LookupError, TypeError, AttributeError):
        return "", answer.text.strip()[:300]


def detail_of(answer: Answer) -> str:
    return error_of(answer)[1]


def quoted(text: str) -> str:
    """As one part of a path."""
    return quote(text, safe="")


def _reason(error: Exception) -> str:
    """What the system said, of the causes the deepest: the libraries between wrap it in their own words, with the URL and its password."""
    cause: BaseException | None = error
    said = None
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None and cause.strerror:
            said = cause.strerror
        elif isinstance(cause, TimeoutError):
            said = "timed out"
        cause = cause.__cause__ or cause.__context__
    if said is not None:
        return said[:1].lower() + said[1:] if said[1:2].islower() else said
    return _PASSWORD.sub(r"\1***@", (str(error).splitlines() or [type(error).__name__])[0])
