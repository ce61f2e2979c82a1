"""A Jetbridge in a process of its own: it can be killed at any time, and kills itself where a test says.

Children are forked from a process that has imported everything: a start takes a fraction of what a new interpreter needs.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx

from jetbridge.config.fleet import load_fleet
from jetbridge.config.settings import Settings
from jetbridge.errors import JetbridgeError
from jetbridge.model.context import ADMIN_ID, RequestContext
from jetbridge.service.allinone import AllInOne
from jetbridge.steps.runtime import Moment, Observer, nobody
from tests.servers.placement import Fork, forks
from tests.system import points
from tests.system.cloud import DEADLINE, Cloud

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.system.child"])


SENT = "sent"

SECONDS_OF_DYING = 10.0
"""How long a process that answers no more is given to be dead."""


@dataclass(frozen=True)
class Death:
    """The process kills itself when step ``step`` is at ``moment``, after that has happened ``spared`` times. ``moment`` SENT: when message
    ``step`` has been sent, or a call been answered; one of ``points.MOMENTS``: of ``points.Point``."""

    step: str
    moment: Moment | str
    spared: int = 0


class MortalCloud(Cloud):
    """The all-in-one in a child; the state folder survives it."""

    process: Any = None
    _pipe: Connection

    def start(self, observe: Observer = nobody, death: Death | None = None) -> None:
        assert observe is nobody, "nobody can look into another process: give a Death"
        self._pipe, theirs = _FORKS.Pipe()
        arguments = (theirs, self.settings, str(self.fleet_file), str(self.state), death, forks())
        self.process = _FORKS.Process(target=_serve, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.url = self._answer()
        self.client = httpx.Client(
            base_url=f"{self.url}/compute/v2.1", headers={"OpenStack-API-Version": "compute 2.96"}, timeout=DEADLINE
        )

    def arm(self, death: Death) -> None:
        """It will kill itself from now on."""
        self._ask(death)

    def update_resources(self, host_name: str) -> None:
        self._ask(host_name)

    def kill(self) -> None:
        """At once, without a word."""
        self.process.kill()
        self.await_death()

    def await_death(self) -> None:
        self.process.join(DEADLINE)
        assert self.process.exitcode == -signal.SIGKILL, f"it lives, or ended by itself: {self.process.exitcode}"
        self._gone()

    def only_server(self) -> str:
        """The id of the one server there ever was, though nobody was told it."""
        [(server_id,)] = self.sql("SELECT uuid FROM instances")
        return str(server_id)

    def stop(self) -> None:
        """In order. One that met its ``Death`` meanwhile is left to ``await_death``: what is raised doesn't say why it ended."""
        if self.process is None:
            return
        try:
            self._ask(None)
            self.process.join(DEADLINE)
            assert self.process.exitcode == 0, f"ended with {self.process.exitcode}:\n{self.log()[-3000:]}"
        except BaseException:
            self.process.join(SECONDS_OF_DYING)
            if self.process.exitcode != -signal.SIGKILL:
                self.process.kill()
                self._gone()
            raise
        self._gone()

    def _gone(self) -> None:
        self.client.close()
        self._pipe.close()
        self.process = None

    def _ask(self, command: object) -> None:
        self._pipe.send(command)
        self._answer()

    def _answer(self) -> str:
        assert self._pipe.poll(DEADLINE), f"the child doesn't answer:\n{self.log()[-3000:]}"
        answer: str | Exception = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextmanager
def dying(cloud: MortalCloud, death: Death) -> Iterator[None]:
    """The cloud runs and kills itself, perhaps before it has answered; the block ends when it has."""
    cloud.start(death=death)
    try:
        with suppress(httpx.TransportError):
            yield
        cloud.await_death()
    finally:
        if cloud.process is not None:
            cloud.kill()


def _serve(pipe: Connection, settings: Settings, fleet: str, state: str, death: Death | None, spawn: Fork) -> None:
    deaths = [] if death is None else [death]
    seen: dict[tuple[str, str], int] = {}

    def observe(step: str, moment: str) -> None:
        seen[step, moment] = seen.get((step, moment), 0) + 1
        for each in deaths:
            if (each.step, each.moment) == (step, moment) and seen[step, moment] > each.spared:
                os.kill(os.getpid(), signal.SIGKILL)

    if death is not None and death.moment in points.MOMENTS:
        points.watch(observe)
    try:
        service = AllInOne(
            settings,
            load_fleet(Path(fleet)),
            Path(state),
            port=0,
            spawn=spawn,
            observe=observe,
            events=lambda event: observe(event.what, SENT),
        )
        pipe.send(service.start())
    except JetbridgeError as error:
        pipe.send(AssertionError(f"the child didn't start: {error}"))
        return
    while True:
        try:
            command = pipe.recv()
        except EOFError:  # the test is gone
            os.kill(os.getpid(), signal.SIGKILL)
        match command:
            case Death():
                seen.clear()
                deaths[:] = [command]
                pipe.send("armed")
            case str():
                context = RequestContext(ADMIN_ID, ADMIN_ID, frozenset({"admin"}), "req-test")
                service.bus.call(context, "compute", "update_resources", {}, source="test", server=command)
                pipe.send("done")
            case None:
                service.stop()
                pipe.send("stopped")
                return
