"""A conductor between a scheduler and hosts whose answers are written down here."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from jetbridge.conductor.manager import ConductorManager
from jetbridge.config.settings import Settings
from jetbridge.db import actions, builds, faults, request_specs, servers
from jetbridge.db.clock import utcnow
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.errors import NoValidHost
from jetbridge.model.context import ADMIN_ID, RequestContext
from jetbridge.model.flavor import Flavor
from jetbridge.model.request_spec import RequestSpec
from jetbridge.model.server import PowerState, Server, TaskState, VmState
from jetbridge.model.verdict import Selection
from jetbridge.rpc.inprocess import InProcessBus

CONTEXT = RequestContext(ADMIN_ID, ADMIN_ID, frozenset({"admin"}), "req-1")
FLAVOR = Flavor(1, "f", "f", 1, 512, 1)


class AtOnce(Executor):
    """Runs a cast before it returns, so that a test sees its effect."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class Stage:
    """``answers``: what the scheduler says, in order (hosts, best first; none: no valid host). ``outcomes``: how a build ends on
    which host, in order of the builds; "ok" or a kind of failure."""

    def __init__(self, database: Database, answers: Sequence[Sequence[str]], outcomes: Sequence[str]) -> None:
        self.database = database
        self.answers, self.outcomes = list(answers), list(outcomes)
        self.built: list[str] = []
        self.excluded: list[list[str]] = []
        self.deleted: list[str] = []
        self.bus = InProcessBus(AtOnce())
        self.conductor = ConductorManager(database, self.bus, Settings(max_attempts=3), owner="me", now=utcnow)
        self.bus.serve("conductor", self.conductor.handlers())
        self.bus.serve("scheduler", {"select_destinations": self._select})
        for host in ("a", "b", "c", "d"):
            handlers = {"build_server": self._build(host), "delete_server": self._delete(host)}
            self.bus.serve("compute", handlers, server=host)

    def _select(self, context: RequestContext, payload: Mapping[str, Any]) -> dict[str, Any]:
        self.excluded.append(payload["exclude_hosts"])
        hosts = self.answers.pop(0)
        if not hosts:
            raise NoValidHost(reason="3 hosts considered: 3 refused by PciPassthroughFilter")
        selections = [Selection(host, 1, 7).to_message() for host in hosts]
        return {"selections": [selections for _ in payload["server_uuids"]]}

    def _build(self, host: str) -> Callable[[RequestContext, Mapping[str, Any]], None]:
        def build(context: RequestContext, payload: Mapping[str, Any]) -> None:
            self.built.append(host)
            outcome = self.outcomes.pop(0)
            if outcome != "ok":
                failure = {
                    "server_uuid": payload["server_uuid"],
                    "build_id": payload["build_id"],
                    "host": host,
                    "generation": payload["selection"]["generation"],
                    "kind": outcome,
                    "reason": f"{host} said {outcome}",
                }
                self.database.write(lambda conn: builds.give_back(conn, payload["build_id"], host))
                self.bus.cast(context, "conductor", "build_failed", failure, source="test")

        return build

    def _delete(self, host: str) -> Callable[[RequestContext, Mapping[str, Any]], None]:
        def delete(context: RequestContext, payload: Mapping[str, Any]) -> None:
            self.deleted.append(host)

        return delete

    def server(self) -> str:
        made = Server(
            id=0,
            uuid=str(uuid.uuid4()),
            display_name="s",
            project_id=ADMIN_ID,
            user_id=ADMIN_ID,
            vm_state=VmState.BUILDING,
            task_state=TaskState.SCHEDULING,
            power_state=PowerState.NOSTATE,
            flavor=FLAVOR,
            image_ref=None,
            created_at=utcnow(),
            request_id="req-1",
        )

        def write(conn: Connection) -> None:
            servers.create(conn, made)
            request_specs.create(conn, RequestSpec(made.uuid, ADMIN_ID, FLAVOR, None))
            actions.start(conn, made.uuid, "create", "req-1")

        self.database.write(write)
        return made.uuid

    def build(self, *uuids: str) -> None:
        self.bus.cast(CONTEXT, "conductor", "build_servers", {"server_uuids": list(uuids)}, source="test")

    def get(self, server: str) -> Server:
        with self.database.read() as conn:
            return servers.get(conn, server)

    def fault(self, server: str) -> faults.Fault:
        with self.database.read() as conn:
            return faults.latest(conn, [server])[server]

    def builds(self, server: str) -> list[builds.Build]:
        with self.database.read() as conn:
            return list(builds.of_server(conn, server))
