"""Messages by oslo.messaging's driver for RabbitMQ: its format, its queues, its answers.

oslo.messaging's own RPC server acknowledges a message before it is handled, so that a process that dies loses what it had taken, and needs
a connection and a thread per server name (oslo.messaging, RPC Server). Here one thread and one connection receive for all names
of a process, and a message is acknowledged when its handler has ended: RabbitMQ gives what a dead process held to another one
(https://www.rabbitmq.com/docs/confirms). This uses the driver's parts under the RPC server, which are no public interface:
pyproject.toml therefore bounds its version.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
import uuid
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from oslo_config import cfg

from jetbridge.errors import InvalidConfiguration, ServiceUnavailable
from jetbridge.rpc.lines import Lines, amqp_url
from jetbridge.rpc.tls import GROUP, Tls

with warnings.catch_warnings():
    # It imports eventlet, which nothing here uses and which deplores itself on everybody's terminal.
    warnings.simplefilter("ignore")
    import oslo_messaging
    from oslo_messaging._drivers import amqp, common, impl_rabbit

logger = logging.getLogger(__name__)

EXCHANGE = "jetbridge"
SEND_SECONDS = 40.0
"""A RabbitMQ that restarts is waited for so long."""
ANSWER_SECONDS = 20.0
POLL_SECONDS = 0.1
DECLARE_SECONDS = 60.0
STOP_SECONDS = 10.0
"""A stop ends, whatever the thread that receives is caught in: RabbitMQ gives what it had to others once the process is gone."""
REMEMBERED = 10_000

_OPTIONS: Mapping[str, object] = {
    "amqp_durable_queues": True,  # messages outlive a restart of RabbitMQ, and of who they are for
    "rabbit_retry_interval": 1,
    "rabbit_retry_backoff": 1,
    "rabbit_interval_max": 5,
}


def open_transport(url: str, tls: Tls | None = None) -> tuple[Any, Lines]:
    """What receives and what sends; they connect when they are first used. Raises ``InvalidConfiguration``."""
    conf = cfg.ConfigOpts()
    conf([], project="jetbridge", default_config_files=[], default_config_dirs=[])
    conf.register_opts([*impl_rabbit.rabbit_opts, *amqp.amqp_opts], group=GROUP)
    if tls is not None:
        tls.check()
    for name, value in {**_OPTIONS, **(tls.options() if tls else {})}.items():
        conf.set_override(name, value, group=GROUP)
    try:
        parsed = oslo_messaging.TransportURL.parse(conf, url)
        if not url.startswith("rabbit://"):
            raise ValueError(f"it begins with {url.partition(':')[0]!r}")
        urls = tuple(
            amqp_url(host.hostname, host.port, host.username, host.password, parsed.virtual_host)
            for host in parsed.hosts
            if host.hostname
        )
        if not urls:
            raise ValueError("it names no host")
        return oslo_messaging.get_rpc_transport(conf, parsed), Lines(urls, EXCHANGE, tls)
    except (ValueError, TypeError, oslo_messaging.MessagingException) as error:
        raise InvalidConfiguration(
            reason=f"[DEFAULT]transport_url can't be used: {error}; write rabbit://USER:PASSWORD@HOST:5672/"
        ) from error


class Sender:
    """Sends to queues that exist."""

    def __init__(self, transport: Any, lines: Lines) -> None:
        self._driver = transport._driver
        self._lines = lines

    def cast(self, name: str, context: Mapping[str, object], message: Mapping[str, Any]) -> None:
        """Returns when RabbitMQ has it. Raises ``LookupError`` when there is no such queue, ``ConnectionError`` when RabbitMQ can't be
        reached for long."""
        self._lines.send(name, _sealed(message, context), seconds=SEND_SECONDS)

    def call(self, name: str, context: Mapping[str, object], message: Mapping[str, Any], timeout: float) -> Any:
        """The answer. Raises also ``TimeoutError``."""
        end = time.monotonic() + timeout
        answers = self._driver._get_reply_q()
        identity = uuid.uuid4().hex
        asking = {**message, "_msg_id": identity, "_reply_q": answers, "_timeout": None}
        waiter = self._driver._waiter
        waiter.listen(identity)
        try:
            self._lines.send(name, _sealed(asking, context), seconds=min(timeout, SEND_SECONDS), lives=timeout)
            return waiter.wait(identity, max(end - time.monotonic(), 0.0), None, answers)
        except oslo_messaging.MessagingTimeout as error:
            raise TimeoutError(str(error)) from error
        finally:
            waiter.unlisten(identity)


def _sealed(message: Mapping[str, Any], context: Mapping[str, object]) -> dict[str, Any]:
    """As oslo.messaging's drivers write it, with the identity that tells a message which comes twice."""
    body = dict(message)
    amqp._add_unique_id(body)
    amqp.pack_context(body, dict(context))
    sealed: dict[str, Any] = common.serialize_msg(body)
    return sealed


@dataclass
class Delivery:
    """A message on its way through this process. ``finish`` acknowledges it, ``reply`` answers it before that; without either
    RabbitMQ gives it to somebody once the connection closes."""

    context: Mapping[str, Any]
    message: Mapping[str, Any]
    queue: str
    wants_reply: bool
    reply: Callable[[Mapping[str, Any]], None]
    finish: Callable[[], None]


@dataclass
class _Held:
    """A message that is being handled: what to acknowledge. After a lost connection it arrives again, under another name."""

    raw: list[Any] = field(default_factory=list)


class Receiver:
    """Receives for as many queues as wanted. ``deliver`` takes a message quickly: it runs in the one thread there is."""

    def __init__(
        self, transport: Any, lines: Lines, deliver: Callable[[Delivery], None], *, stop_seconds: float = STOP_SECONDS
    ) -> None:
        self._stop_seconds = stop_seconds
        self._driver = transport._driver
        self._lines = lines
        self._deliver = deliver
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._context: Any = None
        self._connection: Any = None

    def start(self) -> None:
        """Connect. Raises ``ServiceUnavailable`` when RabbitMQ doesn't answer or refuses."""
        # The driver's connections are tried for ever: this one tells a wrong address.
        try:
            self._lines.check()
        except Exception as error:
            raise ServiceUnavailable(
                reason=f"RabbitMQ does not answer: {str(error) or type(error).__name__}. Is [DEFAULT]transport_url right, and does it run?"
            ) from error
        self._context = self._driver._get_connection(common.PURPOSE_LISTEN)  # it closes the connection when it goes
        self._connection = self._context.connection
        self._thread = threading.Thread(target=self._run, name="messages", daemon=True)
        self._thread.start()

    def add(self, name: str) -> None:
        """Receive from queue ``name``, which is made when there is none; returns once messages to it are kept."""

        def declare() -> None:
            self._connection.declare_topic_consumer(EXCHANGE, name, self._arrived(name))

        self._ordered(declare)

    def remove(self, name: str) -> None:
        """Receive from it no more. The queue goes too, unless somebody else receives from it or messages wait in it."""

        def cancel() -> None:
            self._cancel(name)
            channel = self._connection.connection.channel()  # an error closes its channel, which must not be ours
            with contextlib.suppress(Exception):
                channel.queue_delete(queue=name, if_unused=True, if_empty=True)
            with contextlib.suppress(Exception):
                channel.close()

        self._ordered(cancel)

    def pause(self) -> None:
        """Take no more messages; those that are handled can still be finished."""
        if self._thread is None:  # it never connected: nobody would do what is ordered
            return

        def cancel_all() -> None:
            for consumer in list(self._connection._consumers):
                self._cancel(consumer.queue_name)

        self._ordered(cancel_all, self._stop_seconds)

    def stop(self) -> None:
        """Everything that was finished is acknowledged; what wasn't goes back."""
        if self._thread is None:
            return
        self._ending.set()
        self._thread.join(self._stop_seconds)
        if self._thread.is_alive():
            logger.warning("The thread that receives messages does not end: left behind, with what it had taken")
            return
        with contextlib.suppress(Exception):
            self._context.close()

    # --- in the one thread ---

    def _run(self) -> None:
        while not self._ending.is_set():
            self._obey()
            try:
                self._connection.consume(timeout=POLL_SECONDS)
            except common.Timeout:
                continue
            except Exception:
                logger.exception("Receiving messages failed; it goes on")
                self._ending.wait(1.0)
        self._obey()

    def _obey(self) -> None:
        while True:
            try:
                order = self._orders.get_nowait()
            except queue.Empty:
                return
            order()

    def _ordered(self, order: Callable[[], None], seconds: float = DECLARE_SECONDS) -> None:
        """Have the thread of the connection do it: connections aren't for several threads."""
        done: Future[None] = Future()

        def obey() -> None:
            try:
                order()
            except Exception as error:  # noqa: BLE001 - raised where it was ordered
                done.set_exception(error)
            else:
                done.set_result(None)

        self._orders.put(obey)
        try:
            done.result(seconds)
        except TimeoutError as error:
            raise ServiceUnavailable(reason=f"RabbitMQ did not answer within {seconds:g} s") from error

    def _cancel(self, name: str) -> None:
        connection = self._connection
        for consumer, tag in list(connection._consumers.items()):
            if consumer.queue_name == name:
                with contextlib.suppress(Exception):  # a lost connection has cancelled it
                    consumer.cancel(tag)
                del connection._consumers[consumer]
                # Of one that never began: the driver would look for its consumer for ever.
                connection._new_tags.discard(tag)
                connection._active_tags.pop(name, None)

    def _arrived(self, name: str) -> Callable[[Any], None]:
        def arrived(raw: Any) -> None:
            context = amqp.unpack_context(raw)
            identity = str(raw.pop(amqp.UNIQUE_ID, None) or uuid.uuid4())
            with self._guard:
                if identity in self._finished:
                    _acknowledge(raw)  # the first acknowledgement was lost with its connection
                    return
                if identity in self._held:
                    self._held[identity].raw.append(raw)
                    return
                self._held[identity] = _Held([raw])
            self._deliver(
                Delivery(
                    context=context.to_dict(),
                    message=raw,
                    queue=name,
                    wants_reply=context.msg_id is not None,
                    reply=lambda answer: self._reply(context.reply_q, context.msg_id, answer),
                    finish=lambda: self._finish(identity),
                )
            )

        return arrived

    def _reply(self, name: str, asked: str, answer: Mapping[str, Any]) -> None:
        body = {"result": dict(answer), "failure": None, "ending": True, "_msg_id": asked}
        self._lines.answer(name, _sealed(body, {}), seconds=ANSWER_SECONDS)

    def _finish(self, identity: str) -> None:
        with self._guard:
            held = self._held.pop(identity, _Held())
            self._finished[identity] = None
            while len(self._finished) > REMEMBERED:
                self._finished.popitem(last=False)
        for raw in held.raw:
            self._orders.put(lambda raw=raw: _acknowledge(raw))  # type: ignore[misc]


def _acknowledge(raw: Any) -> None:
    try:
        raw.acknowledge()
    except Exception as error:  # noqa: BLE001 - a connection lost meanwhile: the message comes again and is known
        logger.debug("A message could not be acknowledged: %s", error)
