"""The end of a server on its host. Its steps may run again from the first one, so they have no undo."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from jetbridge.compute import domain, nics, tracker, vgpus
from jetbridge.compute.arqs import drop_accelerators
from jetbridge.compute.host import AgentHost, about
from jetbridge.compute.record import action_event, operation_failed
from jetbridge.db import builds
from jetbridge.errors import PlacementUnavailable
from jetbridge.model.context import RequestContext
from jetbridge.model.server import Server
from jetbridge.steps.runtime import Step, StepFailed, run_steps

logger = logging.getLogger(__name__)

EVENT = "compute_terminate_instance"


@dataclass(frozen=True)
class DeleteContext:
    host: AgentHost
    context: RequestContext
    server: Server
    compute_node_id: int
    deallocated: bool = False


def _stop(delete: DeleteContext) -> DeleteContext:
    domain.destroy_domain(delete.host, delete.context, delete.server.domain_name, delete.server.uuid)
    return delete


def _undefine(delete: DeleteContext) -> DeleteContext:
    domain.undefine_domain(delete.host, delete.context, delete.server.domain_name, delete.server.uuid)
    return delete


def _remove_files(delete: DeleteContext) -> DeleteContext:
    domain.remove_files(delete.host, delete.context, delete.server.domain_name, delete.server.uuid)
    return delete


def _release_ports(delete: DeleteContext) -> DeleteContext:
    nics.release_ports(delete.host, delete.context, delete.server.uuid)
    return delete


def _let_go_vgpus(delete: DeleteContext) -> DeleteContext:
    vgpus.let_go(delete.host, delete.context, delete.server.uuid, delete.compute_node_id)
    return delete


def _drop_accelerators(delete: DeleteContext) -> DeleteContext:
    drop_accelerators(delete.host, delete.context, delete.server.uuid)
    return delete


def _deallocate(delete: DeleteContext) -> DeleteContext:
    """A Placement that is away holds nobody up: the server stays noted, and its allocation is taken back later."""
    host, uuid = delete.host, delete.server.uuid
    if host.placement is None:
        return delete
    try:
        host.placement.by(host.source, delete.context, uuid).delete_allocations(uuid)
    except PlacementUnavailable as error:
        logger.warning(
            "The allocation of server %s is taken back later: %s", uuid, error, extra=about(delete.context, uuid)
        )
        return delete
    return replace(delete, deallocated=True)


def _leave(delete: DeleteContext) -> DeleteContext:
    tracker.leave(
        delete.host,
        delete.context,
        delete.server.uuid,
        delete.compute_node_id,
        deallocated=delete.deallocated,
    )
    return delete


DELETE_STEPS: tuple[Step[DeleteContext], ...] = (
    Step("stop", _stop),
    Step("undefine", _undefine),
    Step("files", _remove_files),
    Step("ports", _release_ports),
    Step("vgpus", _let_go_vgpus),
    Step("accelerators", _drop_accelerators),  # what can't be given back now is by reconciliation
    Step("deallocate", _deallocate),  # before the server is seen to be gone: who boots then must find room
    Step("leave", _leave),  # only now: a device whose guest may still run is nobody else's
)


def delete_server(host: AgentHost, context: RequestContext, server: Server, compute_node_id: int) -> None:
    """Leave nothing of the server on the host. A failure leaves it in ERROR, to be deleted again. The server's lock is
    held by the caller."""
    logger.info("Deleting server %s from host %s", server.uuid, host.name, extra=about(context, server.uuid))
    first = DELETE_STEPS[0].name
    build = host.database.write(
        lambda conn: builds.start(
            conn, server.uuid, host.owner, kind="delete", host=host.name, step=first, now=host.now()
        )
    )
    try:
        with action_event(host, context, server.uuid, EVENT):
            run_steps(
                DELETE_STEPS,
                DeleteContext(host, context, server, compute_node_id),
                record=lambda step: _record(host, build.id, step),
                recorded=first,
                observe=host.observe,
            )
    except StepFailed as failed:
        reason = str(failed)
        host.database.write(lambda conn: builds.fail(conn, build.id, reason, now=host.now()))
        operation_failed(host, context, server.uuid, failed.cause, to_error=True, of_delete=True)
        return
    host.database.write(lambda conn: builds.finish(conn, build.id, now=host.now()))
    logger.info("Server %s is gone from host %s", server.uuid, host.name, extra=about(context, server.uuid))


def _record(host: AgentHost, build_id: int, step: str) -> None:
    host.database.write(lambda conn: builds.set_step(conn, build_id, step, now=host.now()))
