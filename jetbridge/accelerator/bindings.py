"""The accelerator requests of our servers: created, bound to what was chosen, and deleted again, whoever keeps them.

Each call that changes something is written down before (``server_arqs``). What a process was about to create when it died is found among
the requests that no server has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from jetbridge.accelerator.client import AcceleratorClient, BoundArq
from jetbridge.accelerator.profile import requester_of
from jetbridge.accelerator.service import Binding
from jetbridge.db import server_arqs
from jetbridge.db.connection import Connection
from jetbridge.db.engine import Database
from jetbridge.errors import AcceleratorRequestOpFailed, JetbridgeError
from jetbridge.model.accelerator import ServerArq
from jetbridge.model.context import RequestContext

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wanted:
    """A device profile that a server asks for: its flavor's, or a port's."""

    profile: str
    port_id: str | None = None


@dataclass(frozen=True)
class ServerBindings:
    """``client`` None: there is no accelerator service that could be asked; ``why_none`` says why."""

    database: Database
    client: AcceleratorClient | None
    now: Callable[[], datetime]
    why_none: str = "no accelerator service is configured"

    def by(self, source: str, context: RequestContext | None, server: str) -> ServerBindings:
        """The same, whose requests are told as ``source``'s, for that server."""
        return self if self.client is None else replace(self, client=self.client.by(source, context, server))

    def asking(self) -> AcceleratorClient:
        """Raises ``AcceleratorRequestOpFailed``."""
        if self.client is None:
            raise AcceleratorRequestOpFailed(op="reach", reason=self.why_none)
        return self.client

    def create(self, server: str, build_id: int, project: str, wanted: Sequence[Wanted]) -> tuple[ServerArq, ...]:
        """Requests for what the server asks. Raises ``AcceleratorRequestOpFailed``."""
        client = self.asking()
        made: list[ServerArq] = []
        for each in wanted:
            intent = ServerArq(server, build_id, each.profile, project, port_id=each.port_id)
            self.database.write(lambda conn, intent=intent: server_arqs.insert(conn, [intent], now=self.now()))  # type: ignore[misc]
            arqs = client.create(each.profile)
            rows = [_row(intent, arq) for arq in arqs]
            self._replace_intent(server, intent, rows)
            if each.port_id is not None and len(rows) > 1:
                raise AcceleratorRequestOpFailed(
                    op="create",
                    reason=f"device profile {each.profile!r} of port {each.port_id} asks for {len(rows)} devices, not one",
                )
            made += rows
        return tuple(made)

    def bind(self, server: str, hostname: str, providers: Mapping[str, Sequence[str]]) -> None:
        """Bind all of the server's requests to the providers chosen for them, by requester. Raises ``AcceleratorRequestOpFailed`` when one
        has none, ``AcceleratorRequestBindingFailed``."""
        rows = self.of_server(server)
        bindings: dict[str, Binding] = {}
        for row in rows:
            assert row.arq_uuid is not None
            chosen = providers.get(row.requester_id)
            if not chosen:
                raise AcceleratorRequestOpFailed(
                    op="bind", reason=f"no provider was chosen for {row.requester_id} of device profile {row.profile!r}"
                )
            bindings[row.arq_uuid] = Binding(hostname, chosen[0], server, row.project_id)

        def note(conn: Connection) -> None:
            for uuid, binding in bindings.items():
                server_arqs.bound_to(conn, uuid, hostname, binding.device_rp_uuid, now=self.now())

        self.database.write(note)
        self.asking().bind(bindings)

    def of_server(self, server: str) -> tuple[ServerArq, ...]:
        with self.database.read() as conn:
            return server_arqs.of_server(conn, server)

    def drop(self, server: str) -> bool:
        """Delete all requests of a server; False: some are still there, or may be, and reconciliation deletes them. Nothing is
        deleted while its guest may have something of them (see ``guest_gone``). Raises nothing."""
        rows = self.of_server(server)
        if not rows:
            return True
        if any(row.attach_type is not None for row in rows):
            logger.warning(
                "Accelerator requests of server %s stay: its guest may run with what they gave",
                server,
                extra={"server": server},
            )
            return False
        try:
            gone = self._delete(server, rows)
        except JetbridgeError as error:
            logger.warning(
                "Accelerator requests of server %s are not deleted yet: %s",
                server,
                error.message,
                extra={"server": server},
            )
            return False
        self.database.write(lambda conn: server_arqs.forget(conn, [row.id for row in gone]))
        return len(gone) == len(rows)

    def guest_gone(self, server: str) -> None:
        """The server's guest isn't there any more, so that what it had can be given to others."""
        self.database.write(lambda conn: server_arqs.note_returned(conn, server, now=self.now()))

    def _delete(self, server: str, rows: Sequence[ServerArq]) -> list[ServerArq]:
        """Those of which nothing is left."""
        client = self.asking()
        if any(row.hostname is not None for row in rows):
            client.delete_of_server(server)
        left = [row for row in rows if row.arq_uuid is not None and client.get(row.arq_uuid) is not None]
        if left:
            client.delete([str(row.arq_uuid) for row in left])
            left = [row for row in left if row.arq_uuid is not None and client.get(row.arq_uuid) is not None]
        intents = [row for row in rows if row.arq_uuid is None]
        if intents and not self._delete_nameless(client, intents):
            left += intents
        return [row for row in rows if row not in left]

    def _delete_nameless(self, client: AcceleratorClient, intents: Sequence[ServerArq]) -> bool:
        """What was created and never written down. Between another process's creating and writing its requests look the same: then False,
        for later. The list is asked before the tables, so that what is in neither an intent nor a row is nobody's."""
        candidates = client.unbound()
        profiles = {intent.profile for intent in intents}
        with self.database.read() as conn:
            rows = server_arqs.everything(conn)
        mine = {intent.id for intent in intents}
        if any(row.arq_uuid is None and row.profile in profiles and row.id not in mine for row in rows):
            return False
        known = {row.arq_uuid for row in rows}
        unknown = [arq for arq in candidates if arq.profile in profiles and arq.uuid not in known]
        if not unknown:
            return True
        owner, made = _owner(client, unknown[0].profile)
        lost = [*made, *(arq.uuid for arq in unknown if owner is not None and arq.project_id == owner)]
        if lost:
            logger.warning("Deleting accelerator requests that nobody waits for any more: %s", ", ".join(lost))
            client.delete(lost)
        return True

    def _replace_intent(self, server: str, intent: ServerArq, rows: Sequence[ServerArq]) -> None:
        def write(conn: Connection) -> None:
            before = server_arqs.of_server(conn, server)
            done = [
                row.id
                for row in before
                if row.arq_uuid is None and row.profile == intent.profile and row.port_id == intent.port_id
            ]
            server_arqs.forget(conn, done)
            server_arqs.insert(conn, rows, now=self.now())

        self.database.write(write)


def _owner(client: AcceleratorClient, profile: str) -> tuple[str | None, list[str]]:
    """Whose the requests are that we make, and those that had to be made to learn it. None: the service doesn't ask who we are, so that ours
    look like anybody's."""
    owner = client.project()
    if owner is not None or client.is_anonymous:
        return owner, []
    made = client.create(profile)
    return made[0].project_id, [arq.uuid for arq in made]


def _row(intent: ServerArq, arq: BoundArq) -> ServerArq:
    return ServerArq(
        instance_uuid=intent.instance_uuid,
        build_id=intent.build_id,
        profile=intent.profile,
        project_id=intent.project_id,
        requester_id=requester_of(arq.group_id, intent.port_id),
        port_id=intent.port_id,
        arq_uuid=arq.uuid,
    )
