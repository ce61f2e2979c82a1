"""Connections to RabbitMQ that messages are sent on.

A connection that failed is closed and never used again: after a restart of RabbitMQ those that oslo.messaging keeps for sending may try for ever on what
is gone. A message that may or may not have arrived is sent again; whoever gets it twice knows it by its identity.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlsplit

import kombu
from kombu.exceptions import KombuError

from jetbridge.rpc.tls import Tls

CONNECT_SECONDS = 5.0
CONFIRM_SECONDS = 20.0
PAUSE_SECONDS = 0.3


class _Returned(Exception):
    """RabbitMQ had no queue for a message."""


class _Line:
    def __init__(self, url: str, tls: Tls | None) -> None:
        self.connection = kombu.Connection(
            url,
            ssl=False if tls is None else tls.of_connection(urlsplit(url).hostname or ""),
            connect_timeout=CONNECT_SECONDS,
            heartbeat=0,
            transport_options={
                "confirm_publish": True,
                "max_retries": 1,
                "client_properties": {"connection_name": "jetbridge sends"},
            },
        )
        self.connection.connect()
        self.channel = self.connection.channel()
        self.producer = kombu.Producer(self.channel, on_return=_returned)
        self._declared: set[str] = set()

    def publish(self, exchange: kombu.Exchange | None, name: str, body: Mapping[str, Any], lives: float | None) -> None:
        if exchange is not None and exchange.name not in self._declared:
            exchange(self.channel).declare()
            self._declared.add(exchange.name)
        self.producer.publish(
            dict(body),
            exchange=exchange or "",
            routing_key=name,
            mandatory=True,
            expiration=lives,
            timeout=CONFIRM_SECONDS,
        )

    def close(self) -> None:
        with suppress(Exception):
            self.connection.release()


def _returned(*what: object) -> None:
    raise _Returned


class Lines:
    """``urls`` of one RabbitMQ, or of the nodes of a cluster: the next is tried when one fails."""

    def __init__(self, urls: tuple[str, ...], exchange: str, tls: Tls | None = None) -> None:
        self._urls = urls
        self._tls = tls
        self._exchange = kombu.Exchange(exchange, type="topic", durable=True)
        self._idle: queue.LifoQueue[_Line] = queue.LifoQueue()
        self._failures = 0

    def check(self) -> None:
        """Connect to any of them. Raises what the last one said."""
        for number, url in enumerate(self._urls, 1):
            try:
                self._idle.put(_Line(url, self._tls))
                return
            except (*_failures(url), KombuError, OSError):
                if number == len(self._urls):
                    raise

    def send(self, name: str, body: Mapping[str, Any], *, seconds: float, lives: float | None = None) -> None:
        """Returns when RabbitMQ has the message for queue ``name``, trying for ``seconds``; it drops it after ``lives`` seconds. Raises
        ``LookupError`` when there is no such queue, ``ConnectionError``."""
        self._persistently(self._exchange, name, body, seconds, lives)

    def answer(self, name: str, body: Mapping[str, Any], *, seconds: float) -> None:
        """As ``send``, to the queue that a caller made for its answers; that may be missing for a moment after a restart of RabbitMQ."""
        end = time.monotonic() + seconds
        while True:
            try:
                return self._persistently(None, name, body, max(end - time.monotonic(), 0.0), None)
            except LookupError:
                if time.monotonic() > end:
                    raise
                time.sleep(PAUSE_SECONDS)

    def close(self) -> None:
        while True:
            try:
                self._idle.get_nowait().close()
            except queue.Empty:
                return

    def _persistently(
        self, exchange: kombu.Exchange | None, name: str, body: Mapping[str, Any], seconds: float, lives: float | None
    ) -> None:
        end = time.monotonic() + seconds
        while True:
            url = self._urls[self._failures % len(self._urls)]
            try:
                return self._once(url, exchange, name, body, lives)
            except _Returned:
                raise LookupError(name) from None
            except (*_failures(url), KombuError, OSError) as error:
                self._failures += 1
                if time.monotonic() > end:
                    raise ConnectionError(str(error) or type(error).__name__) from error
            time.sleep(PAUSE_SECONDS)

    def _once(
        self, url: str, exchange: kombu.Exchange | None, name: str, body: Mapping[str, Any], lives: float | None
    ) -> None:
        try:
            line = self._idle.get_nowait()
        except queue.Empty:
            line = _Line(url, self._tls)
        try:
            line.publish(exchange, name, body, lives)
        except BaseException:
            line.close()
            raise
        self._idle.put(line)


def _failures(url: str) -> tuple[type[Exception], ...]:
    connection = kombu.Connection(url)
    return (*connection.connection_errors, *connection.channel_errors)


def amqp_url(host: str, port: int | None, user: str | None, password: str | None, virtual_host: str | None) -> str:
    name = f"[{host}]" if ":" in host else host
    who = f"{quote(user or 'guest', safe='')}:{quote(password or 'guest', safe='')}"
    return f"amqp://{who}@{name}:{port or 5672}/{quote(virtual_host or '', safe='')}"
