"""The bus between processes: RabbitMQ through oslo.messaging.

A message arrives at least once: it is acknowledged when its handler has ended, so what a dead process had taken goes to another one.
Queues are durable and named after who they are for: ``conductor``, ``scheduler``, ``compute.HOST``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from jetbridge.errors import JetbridgeError, MessageTimeout, ServiceUnavailable, UnknownDestination
from jetbridge.journey.seams import Seams
from jetbridge.model.context import RequestContext
from jetbridge.model.events import Seam
from jetbridge.rpc import wire
from jetbridge.rpc.bus import Handler, Payload
from jetbridge.rpc.messages import about, plain_message, sent, target_name
from jetbridge.rpc.rabbit import Delivery, Receiver, Sender, open_transport
from jetbridge.rpc.tls import Tls
from jetbridge.rpc.wire import Envelope

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 30.0

Served = Callable[[str, str], bool]
"""Whether somebody serves a topic for a host, as far as is known."""


def anyone(topic: str, server: str) -> bool:
    return True


class OsloBus:
    """Implements ``Bus``. ``casts`` runs the handlers of casts and belongs to the caller; calls have ``call_workers`` threads of their
    own, so that a question isn't kept waiting by builds. A handler of a call must not call a service of its own process.

    ``served`` is asked before a message goes to one host: a queue outlives its agent, and what waits there for a dead one gives nobody
    an answer. ``clock`` gives seconds since the epoch; ``drain_seconds``: how long ``stop`` waits for handlers that run.
    """

    def __init__(
        self,
        url: str,
        casts: Executor,
        seams: Seams = Seams(),
        clock: Callable[[], float] = time.time,
        *,
        tls: Tls | None = None,
        served: Served = anyone,
        call_workers: int = 8,
        drain_seconds: float = DRAIN_SECONDS,
    ) -> None:
        self._casts = casts
        self._calls = ThreadPoolExecutor(call_workers, thread_name_prefix="call")
        self._seams = seams
        self._clock = clock
        self._served = served
        self._drain_seconds = drain_seconds
        self._transport, self._lines = open_transport(url, tls)
        self._sender = Sender(self._transport, self._lines)
        self._receiver = Receiver(self._transport, self._lines, self._delivered)
        self._handlers: dict[str, tuple[str, str | None, Mapping[str, Handler]]] = {}
        self._state = threading.Condition()
        self._running = 0
        self._stopping = False
        self._stopped = False
        self._inside = threading.local()

    def start(self) -> None:
        """Connect. Raises ``ServiceUnavailable`` when RabbitMQ doesn't answer."""
        self._receiver.start()

    def serve(self, topic: str, methods: Mapping[str, Handler], *, server: str | None = None) -> None:
        name = _queue(topic, server)
        with self._state:
            known = name in self._handlers
            self._handlers[name] = (topic, server, dict(methods))
        if not known:
            self._receiver.add(name)

    def withdraw(self, topic: str, *, server: str | None = None) -> None:
        name = _queue(topic, server)
        with self._state:
            known = self._handlers.pop(name, None)
            if known is None or self._stopping:
                return
        self._receiver.remove(name)

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
        """Returns when RabbitMQ has it. Raises ``ServiceUnavailable`` when that can't be reached for long."""
        message = plain_message(payload, f"{topic}.{method}")
        with sent(self._seams, Seam.CAST, context, target_name(topic, server), method, message, source) as crossing:
            self._send(Envelope(context, method, message, trace=crossing.traceparent), topic, server)

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
        """Inside the handler of a call its deadline counts as well. Raises ``ServiceUnavailable`` when RabbitMQ can't be reached."""
        message = plain_message(payload, f"{topic}.{method}")
        target = target_name(topic, server)
        timeout = min(timeout, self._left())
        with sent(self._seams, Seam.CALL, context, target, method, message, source) as crossing:
            if timeout <= 0:
                raise MessageTimeout(topic=target, method=method, seconds="0")
            deadline = self._clock() + timeout
            envelope = Envelope(context, method, message, deadline, crossing.traceparent)
            try:
                return wire.opened(self._send(envelope, topic, server, timeout))
            except TimeoutError as error:
                raise MessageTimeout(topic=target, method=method, seconds=f"{timeout:g}") from error

    def stop(self) -> None:
        """Take no more messages, let running handlers end, return. Messages that no handler has begun go back to RabbitMQ, for another
        process or the next start of this one."""
        with self._state:
            if self._stopped:
                return
            self._stopping = self._stopped = True
        try:
            self._receiver.pause()
        except Exception as error:  # noqa: BLE001 - without RabbitMQ nothing arrives either
            logger.warning("Stopping without RabbitMQ: %s", error)
        with self._state:
            if not self._state.wait_for(lambda: self._running == 0, self._drain_seconds):
                logger.warning(
                    "Stopping with %d messages still being handled: they will be handled again", self._running
                )
        self._receiver.stop()
        self._calls.shutdown(wait=False, cancel_futures=True)
        # It waits up to 5 s for its thread to look up, and nothing depends on it.
        threading.Thread(target=self._transport.cleanup, name="cleanup", daemon=True).start()
        self._lines.close()

    # --- sending ---

    def _send(self, envelope: Envelope, topic: str, server: str | None, timeout: float | None = None) -> Any:
        what = f"{topic}.{envelope.method}"
        if self._stopping and not getattr(self._inside, "depth", 0):
            raise ServiceUnavailable(reason=f"The service is stopping: {what} was not sent")
        if server is not None and not self._served(topic, server):
            raise UnknownDestination(topic=target_name(topic, server))
        try:
            name, about_it = _queue(topic, server), envelope.context.to_message()
            if timeout is None:
                return self._sender.cast(name, about_it, envelope.to_message())
            return self._sender.call(name, about_it, envelope.to_message(), timeout)
        except LookupError as error:
            raise UnknownDestination(topic=target_name(topic, server)) from error
        except ConnectionError as error:
            raise ServiceUnavailable(reason=f"RabbitMQ can't be reached, {what} was not sent: {error}") from error

    def _left(self) -> float:
        deadline = getattr(self._inside, "deadline", None)
        return float("inf") if deadline is None else deadline - self._clock()

    # --- receiving ---

    def _delivered(self, delivery: Delivery) -> None:
        pool = self._calls if delivery.wants_reply else self._casts
        try:
            pool.submit(self._handle, delivery)
        except RuntimeError:
            logger.debug("The pool is shut down: a message goes back to RabbitMQ")

    def _handle(self, delivery: Delivery) -> None:
        with self._state:
            if self._stopping:
                return  # not acknowledged: it goes to another process
            self._running += 1
            topic, server, methods = self._handlers.get(delivery.queue, (delivery.queue, None, {}))
        try:
            try:
                envelope = Envelope.received(delivery.context, delivery.message)
            except (KeyError, TypeError, AssertionError):
                logger.exception("A message in queue %s is none of Jetbridge's: dropped", delivery.queue)
            else:
                self._answer(delivery, envelope, target_name(topic, server), methods)
            delivery.finish()
        finally:
            with self._state:
                self._running -= 1
                self._state.notify_all()

    def _answer(self, delivery: Delivery, envelope: Envelope, target: str, methods: Mapping[str, Handler]) -> None:
        extra = about(envelope.context, envelope.payload)
        if envelope.deadline is not None and self._clock() > envelope.deadline:
            late = self._clock() - envelope.deadline
            logger.warning(
                "Dropped %s to %s: it came %.1f s after its deadline", envelope.method, target, late, extra=extra
            )
            return
        answer = self._outcome(envelope, target, methods, extra)
        if not delivery.wants_reply:
            return
        try:
            delivery.reply(answer)
        except Exception:
            logger.exception("The answer of %s to %s was lost", envelope.method, target, extra=extra)

    def _outcome(
        self, envelope: Envelope, target: str, methods: Mapping[str, Handler], extra: Mapping[str, Any]
    ) -> dict[str, Any]:
        called = envelope.deadline is not None
        handler = methods.get(envelope.method)
        if handler is None:
            error: JetbridgeError = UnknownDestination(topic=f"{target} with a method {envelope.method}")
            if not called:
                logger.error("Dropped %s to %s: %s", envelope.method, target, error, extra=extra)
            return wire.answer_error(error)
        before = (getattr(self._inside, "depth", 0), getattr(self._inside, "deadline", None))
        self._inside.depth, self._inside.deadline = before[0] + 1, envelope.deadline
        try:
            with self._seams.continued(envelope.trace):
                answer = handler(envelope.context, envelope.payload)
            return wire.answer_of(plain_message(answer or {}, f"answer of {target}.{envelope.method}"))
        except JetbridgeError as error:
            if not called:
                logger.exception("%s of %s failed", envelope.method, target, extra=extra)
            return wire.answer_error(error)
        except Exception as error:
            logger.exception("%s of %s failed", envelope.method, target, extra=extra)
            return wire.answer_error(
                JetbridgeError(f"{target} failed in {envelope.method}: {type(error).__name__}: {error}")
            )
        finally:
            self._inside.depth, self._inside.deadline = before


def _queue(topic: str, server: str | None) -> str:
    return topic if server is None else f"{topic}.{server}"
