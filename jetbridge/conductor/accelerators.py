"""A build's accelerator requests, between the choice of its host and the message to it: created, then bound there."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from jetbridge.accelerator.bindings import ServerBindings, Wanted
from jetbridge.accelerator.profile import PROFILE
from jetbridge.db import builds, compute_nodes, server_arqs, servers
from jetbridge.db.builds import Build
from jetbridge.db.engine import Database
from jetbridge.errors import BuildAborted
from jetbridge.model.request_spec import RequestSpec
from jetbridge.model.verdict import Selection
from jetbridge.steps.runtime import Observer, Step, run_steps

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Accelerating:
    """What the steps of one build know."""

    bindings: ServerBindings
    server: str
    build_id: int
    project: str
    wanted: tuple[Wanted, ...]
    node: str
    selection: Selection


def _create(build: Accelerating) -> Accelerating:
    build.bindings.create(build.server, build.build_id, build.project, build.wanted)
    return build


def _bind(build: Accelerating) -> Accelerating:
    build.bindings.bind(build.server, build.node, build.selection.providers)
    return build


def _drop(build: Accelerating) -> None:
    build.bindings.drop(build.server)


ACCELERATOR_STEPS: tuple[Step[Accelerating], ...] = (
    Step("create-arqs", _create, _drop),
    Step("bind-arqs", _bind, _drop),
)
"""The steps of a build that the conductor does; the others are its host's."""

STEP_NAMES = tuple(step.name for step in ACCELERATOR_STEPS)


def wanted_of(spec: RequestSpec) -> tuple[Wanted, ...]:
    """The device profiles that a server asks for: its flavor's, and those of its ports."""
    profile = spec.flavor.extra_specs.get(PROFILE)
    of_ports = tuple(Wanted(name, port_id) for port_id, name in spec.port_profiles.items())
    return (*((Wanted(profile),) if profile else ()), *of_ports)


def accelerate(
    database: Database,
    bindings: ServerBindings,
    build: Build,
    spec: RequestSpec,
    selection: Selection,
    observe: Observer,
) -> None:
    """Bind what the server asks for to the providers chosen. Raises ``StepFailed`` after everything is undone."""
    wanted = wanted_of(spec)
    if not wanted:
        return
    with database.read() as conn:
        node = compute_nodes.get(conn, selection.compute_node_id).hypervisor_hostname

    def record(step: str) -> None:
        if not database.write(lambda conn: builds.set_step(conn, build.id, step, now=bindings.now())):
            raise BuildAborted(server=build.instance_uuid, reason="its build was declared dead")

    start = Accelerating(bindings, build.instance_uuid, build.id, spec.project_id, wanted, node, selection)
    run_steps(ACCELERATOR_STEPS, start, record=record, observe=observe)


def drop_strays(database: Database, bindings: ServerBindings) -> int:
    """Delete requests of servers that nobody builds and that are on no host; what a host may have begun with is the host's to give
    back, as long as there is one. Of how many servers."""
    with database.read() as conn:
        rows = server_arqs.everything(conn)
        if not rows:
            return 0
        busy = {build.instance_uuid for build in builds.running(conn)}
        placed = servers.get_many(conn, {row.instance_uuid for row in rows})
        hosts = {node.hypervisor_hostname for node in compute_nodes.listing(conn)}
    strays = {row.instance_uuid for row in rows} - busy
    for row in rows:
        server = placed.get(row.instance_uuid)
        on_a_host = server is not None and server.compute_node_id is not None
        if on_a_host or (row.hostname is not None and row.hostname in hosts):
            strays.discard(row.instance_uuid)
    for server_uuid in sorted(strays):
        logger.warning("Server %s has no build, and accelerator requests: deleting them", server_uuid)
        bindings.guest_gone(server_uuid)
        bindings.drop(server_uuid)
    return len(strays)
