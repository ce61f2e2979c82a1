"""The bus of one process: messages are calls of registered handlers, casts on the worker pool, calls in the caller's thread.

A call runs where its caller waits, so it needs no free worker: however many casts fill the pool, a handler that calls
another service can't wait for itself. Casts beyond the pool's size queue up in order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

from jetbridge.errors import JetbridgeError, MessageTimeout, ServiceUnavailable, UnknownDestination
from jetbridge.journey.seams import Seams
from jetbridge.model.context import RequestContext
from jetbridge.model.events import Seam
from jetbridge.rpc.bus import Handler, Payload
from jetbridge.rpc.messages import about, plain_message, sent, target_name

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 30.0
LAST_SECONDS = 5.0
"""How long handlers that still run after that are waited for: one that waits for another service may do so for minutes."""


class InProcessBus:
    """Implements ``Bus``. ``executor`` runs the casts and belongs to the caller (it is not shut down here); ``seams`` is told
    every message. ``drain_seconds``: how long ``stop`` lets accepted messages finish before it drops those that
    still wait for a worker; ``last_seconds``: how long it waits then for handlers that run."""

    def __init__(
        self,
        executor: Executor,
        seams: Seams = Seams(),
        *,
        drain_seconds: float = DRAIN_SECONDS,
        last_seconds: float = LAST_SECONDS,
    ) -> None:
        self._executor = executor
        self._seams = seams
        self._drain_seconds = drain_seconds
        self._last_seconds = last_seconds
        self._handlers: dict[tuple[str, str | None], Mapping[str, Handler]] = {}
        self._state = threading.Condition()
        self._accepted = 0  # casts that were accepted and have not ended
        self._stopping = False
        self._dropping = False
        self._inside = threading.local()

    def serve(self, topic: str, methods: Mapping[str, Handler], *, server: str | None = None) -> None:
        with self._state:
            self._handlers[topic, server] = dict(methods)

    def withdraw(self, topic: str, *, server: str | None = None) -> None:
        with self._state:
            self._handlers.pop((topic, server), None)

    def cast(
        self,
        context: RequestContext,
        topic: str,
        method: str,
        payload: Payload,
        *,
        source: str,
        server: str | None = None,
    ) -> None:
        handler = self._handler(topic, method, server)
        message = plain_message(payload, f"{topic}.{method}")
        with self._state:
            self._refuse_when_stopping(topic, method)
            self._accepted += 1
        with sent(self._seams, Seam.CAST, context, target_name(topic, server), method, message, source) as crossing:
            try:
                self._executor.submit(
                    self._run_cast, handler, context, topic, method, message, server, crossing.traceparent
                )
            except RuntimeError as error:  # the pool was shut down before the bus
                self._ended()
                raise ServiceUnavailable(reason=f"No worker takes {topic}.{method}: {error}") from error

    def call(
        self,
        context: RequestContext,
        topic: str,
        method: str,
        payload: Payload,
        *,
        source: str,
        server: str | None = None,
        timeout: float = 60.0,
    ) -> Payload:
        """The handler can't be interrupted: ``MessageTimeout`` is raised once it has ended too late, so that a slow answer is lost here
        as it would be over a network."""
        handler = self._handler(topic, method, server)
        message = plain_message(payload, f"{topic}.{method}")
        with self._state:
            self._refuse_when_stopping(topic, method)
        target = target_name(topic, server)
        started = time.monotonic()
        try:
            with sent(self._seams, Seam.CALL, context, target, method, message, source):
                answer = self._run_inside(handler, context, message)
        except JetbridgeError:
            raise
        except Exception as error:
            logger.exception("%s of %s failed", method, target, extra=about(context, message))
            raise JetbridgeError(f"{target} failed in {method}: {type(error).__name__}: {error}") from error
        if time.monotonic() - started > timeout:
            raise MessageTimeout(topic=target, method=method, seconds=f"{timeout:g}")
        return plain_message(answer or {}, f"answer of {topic}.{method}")

    def stop(self) -> None:
        """Refuse messages from outside, let accepted ones (and what they send) end, return. What still waits for a worker after
        ``drain_seconds`` is dropped and said; handlers that run are waited for ``last_seconds`` more."""
        with self._state:
            self._stopping = True
            if self._state.wait_for(lambda: self._accepted == 0, self._drain_seconds):
                return
            self._dropping = True
            logger.warning(
                "Stopping with %d messages unfinished: those that wait for a worker are dropped", self._accepted
            )
            self._state.wait_for(lambda: self._accepted == 0, self._last_seconds)

    def _handler(self, topic: str, method: str, server: str | None) -> Handler:
        with self._state:
            methods = self._handlers.get((topic, server))
        if methods is None:
            raise UnknownDestination(topic=target_name(topic, server))
        handler = methods.get(method)
        if handler is None:
            raise UnknownDestination(topic=f"{target_name(topic, server)} with a method {method}")
        return handler

    def _refuse_when_stopping(self, topic: str, method: str) -> None:
        if self._dropping or (self._stopping and not getattr(self._inside, "depth", 0)):
            raise ServiceUnavailable(reason=f"The service is stopping: {topic}.{method} was not sent")

    def _run_cast(
        self,
        handler: Handler,
        context: RequestContext,
        topic: str,
        method: str,
        message: dict[str, Any],
        server: str | None,
        traceparent: str | None,
    ) -> None:
        try:
            if self._dropping:
                logger.warning("Dropped %s to %s", method, target_name(topic, server), extra=about(context, message))
                return
            with self._seams.continued(traceparent):
                self._run_inside(handler, context, message)
        except Exception:
            logger.exception("%s of %s failed", method, target_name(topic, server), extra=about(context, message))
        finally:
            self._ended()

    def _run_inside(self, handler: Handler, context: RequestContext, message: dict[str, Any]) -> Payload | None:
        self._inside.depth = getattr(self._inside, "depth", 0) + 1
        try:
            return handler(context, message)
        finally:
            self._inside.depth -= 1

    def _ended(self) -> None:
        with self._state:
            self._accepted -= 1
            if self._accepted == 0:
                self._state.notify_all()
