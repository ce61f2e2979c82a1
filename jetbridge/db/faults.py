"""Why servers are in ERROR, for their owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from jetbridge.db import servers
from jetbridge.db.batches import batches
from jetbridge.db.clock import utcnow
from jetbridge.db.tables import instance_faults
from jetbridge.model.server import TaskState, VmState

_t = instance_faults.c
LONGEST_MESSAGE = 255

SERVER_ERROR = 500
"""The code of a fault that is not the owner's doing, as clients of the Compute API expect it."""


@dataclass(frozen=True)
class Fault:
    """``code`` as HTTP; ``details`` are for administrators."""

    instance_uuid: str
    code: int
    message: str
    details: str | None
    host: str | None
    created_at: datetime


def add(
    conn: Connection,
    instance_uuid: str,
    code: int,
    message: str,
    *,
    details: str | None = None,
    host: str | None = None,
    now: datetime | None = None,
) -> None:
    """A message longer than the column is cut, and stands whole in the details."""
    cut = message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 3] + "..."
    whole = message if cut != message and details is None else details
    conn.execute(
        instance_faults.insert().values(
            instance_uuid=instance_uuid,
            code=code,
            message=cut,
            details=whole,
            host=host,
            created_at=now or utcnow(),
        )
    )


def end_building(conn: Connection, instance_uuid: str, message: str, *, host: str | None, now: datetime) -> bool:
    """A server that is being built is in ERROR and says why; False: it isn't any more, or somebody deletes it."""
    ended = servers.update(
        conn,
        instance_uuid,
        expected_vm_states=(VmState.BUILDING,),
        expected_task_states=(TaskState.SCHEDULING, TaskState.SPAWNING, None),
        vm_state=VmState.ERROR,
        task_state=None,
        now=now,
    )
    if ended:
        add(conn, instance_uuid, SERVER_ERROR, message, host=host, now=now)
    return ended


def latest(conn: Connection, instance_uuids: Sequence[str]) -> dict[str, Fault]:
    """The newest fault of each server; servers without one are left out."""
    found: dict[str, Fault] = {}
    for batch in batches(instance_uuids):
        newest = sa.select(sa.func.max(_t.id)).where(_t.instance_uuid.in_(batch)).group_by(_t.instance_uuid)
        for row in conn.execute(sa.select(instance_faults).where(_t.id.in_(newest))):
            found[row.instance_uuid] = Fault(
                row.instance_uuid, row.code, row.message, row.details, row.host, row.created_at
            )
    return found
