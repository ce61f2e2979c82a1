"""What was done to devices between two servers, and how it went."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from jetbridge.db.tables_providers import device_cleanings

_t = device_cleanings.c

_LAST = sa.select(device_cleanings).where(
    _t.id.in_(
        sa.select(sa.func.max(_t.id))
        .where(_t.compute_node_id.in_(sa.bindparam("nodes", expanding=True)))
        .group_by(_t.compute_node_id, _t.address)
    )
)

RUNNING, DONE, FAILED, CUT = "running", "done", "failed", "cut"
"""``cut``: its process ended before it did."""


@dataclass(frozen=True)
class Cleaning:
    """``owner``: the process that runs ``command``; None: a person said that the device is clean. ``output`` holds the last lines of
    what the command wrote, ``reason`` why it failed."""

    compute_node_id: int
    address: str
    state: str
    started_at: datetime
    id: int = 0
    instance_uuid: str | None = None
    owner: str | None = None
    command: str | None = None
    exit_code: int | None = None
    seconds: float | None = None
    output: str | None = None
    reason: str | None = None
    finished_at: datetime | None = None


def start(conn: Connection, cleaning: Cleaning) -> int:
    """Answers its id."""
    values = {name: value for name, value in vars(cleaning).items() if name != "id"}
    key = conn.execute(device_cleanings.insert().values(**values)).inserted_primary_key
    assert key is not None
    return int(key[0])


def finish(
    conn: Connection,
    cleaning_id: int,
    *,
    exit_code: int | None,
    seconds: float | None,
    output: str | None,
    reason: str | None,
    now: datetime,
) -> bool:
    """``reason`` None: it succeeded. False: it was ended by somebody else."""
    ended = conn.execute(
        device_cleanings.update()
        .where(_t.id == cleaning_id, _t.state == RUNNING)
        .values(
            state=DONE if reason is None else FAILED,
            exit_code=exit_code,
            seconds=seconds,
            output=output,
            reason=reason,
            finished_at=now,
        )
    )
    return ended.rowcount == 1


def cut(conn: Connection, cleaning_id: int, *, now: datetime) -> bool:
    """Its process is gone. False: it had ended."""
    ended = conn.execute(
        device_cleanings.update().where(_t.id == cleaning_id, _t.state == RUNNING).values(state=CUT, finished_at=now)
    )
    return ended.rowcount == 1


def last_of_host(conn: Connection, compute_node_id: int) -> dict[str, Cleaning]:
    """The last cleaning of each device, by address."""
    return {address: each for (_, address), each in _last(conn, [compute_node_id]).items()}


def last(conn: Connection, compute_node_ids: Collection[int]) -> dict[tuple[int, str], Cleaning]:
    """The last cleaning of each device of these hosts, by host and address."""
    return _last(conn, compute_node_ids)


def purge(conn: Connection, before: datetime) -> int:
    """Forget what succeeded before then. What failed stays until the device is cleaned again."""
    gone = conn.execute(device_cleanings.delete().where(_t.finished_at < before, _t.state != FAILED))
    return gone.rowcount


def _last(conn: Connection, compute_node_ids: Collection[int]) -> dict[tuple[int, str], Cleaning]:
    if not compute_node_ids:
        return {}
    rows = conn.execute(_LAST, {"nodes": list(compute_node_ids)})
    return {(row.compute_node_id, row.address): _cleaning(row) for row in rows}


def _cleaning(row: Row[Any]) -> Cleaning:
    return Cleaning(**dict(row._mapping))
