"""Taking a host out of every table, so that nothing of it is listed, counted or offered any more."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from jetbridge.db import accelerators, builds, compute_nodes, pci_devices, servers, services, vgpu_cards, vgpus
from jetbridge.db.builds import RETURNED
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.db.connection import Connection
from jetbridge.db.services import COMPUTE
from jetbridge.db.tables import builds as _builds
from jetbridge.db.tables import instances, virtual_interfaces
from jetbridge.db.tables import pci_devices as _devices
from jetbridge.db.tables_accelerator import server_arqs
from jetbridge.db.tables_vgpu import vgpus as _vgpus
from jetbridge.errors import HostInUse, HostNotFound, NotFound
from jetbridge.pci.device import OWNED, Condition
from jetbridge.reasons import some

NAMED = 5
"""How many servers a refusal names."""

_NODE: sa.BindParameter[int] = sa.bindparam("node")
_HOST: sa.BindParameter[str] = sa.bindparam("host")
_taken = _devices.c
_IN_USE = sa.select(
    sa.or_(
        *(
            sa.exists().where(*conditions)
            for conditions in (
                (instances.c.compute_node_id == _NODE, instances.c.deleted == 0),
                (
                    _taken.compute_node_id == _NODE,
                    _taken.deleted == 0,
                    sa.or_(
                        _taken.status.in_(sorted(status.value for status in OWNED)),
                        _taken.condition == Condition.HELD.value,
                    ),
                ),
                (_builds.c.state == "running", _builds.c.host == _HOST),
                (_vgpus.c.compute_node_id == _NODE,),
                (virtual_interfaces.c.host == _HOST,),
                (server_arqs.c.hostname == sa.bindparam("hostname"),),
            )
        )
    )
)


def holds_nothing(conn: Connection, node: ComputeNode) -> bool:
    """Whether our tables know of nobody who has anything of a host, or is about to: no server, build, NIC or accelerator request, no vGPU,
    and no device that isn't free."""
    of = {"node": node.id, "host": node.host, "hostname": node.hypervisor_hostname}
    return not conn.execute(_IN_USE, of).scalar()


def forget(conn: Connection, host: str, *, now: datetime, unclaimed: str | None = None) -> None:
    """The host is gone for good: its agent's service, what it is, its devices, vGPUs and accelerators. Its providers are orphans from now
    on (``providers.orphans``). All in the caller's transaction, so that a process that dies leaves a host that is whole, or none.
    ``unclaimed``: the step in which builds have claimed nothing, where the host's agent lives: they don't count as servers on it, for it finds
    no host then, and another one builds them.
    A host that is unknown: nothing happens. Raises ``HostInUse`` while servers are on it; then nothing has changed."""
    try:
        node = compute_nodes.of_host(conn, host)
        compute_nodes.lock(conn, node.id)  # a claim that comes now finds no host, one that came before is seen below
    except HostNotFound:
        node = None
    held = {server.uuid for server in servers.of_host(conn, host)}
    if node is not None:
        held |= {server.uuid for server in servers.of_node(conn, node.id)}
    begun = [build for build in builds.running(conn, host=host) if build.step not in (None, RETURNED, unclaimed)]
    held |= set(servers.get_many(conn, [build.instance_uuid for build in begun]))
    if held:
        raise HostInUse(host=host, servers=some(held, NAMED))
    for build in begun:
        # Of servers that are deleted: the host undoes them no more, and they would keep their allocations.
        builds.fail(conn, build.id, f"host {host} was removed", now=now)
    if node is not None:
        accelerators.remove_host(conn, node.id)
        vgpus.forget_node(conn, node.id)
        vgpu_cards.replace(conn, node.id, ())
        pci_devices.forget_node(conn, node.id, now=now)
        compute_nodes.delete(conn, node.id, now=now)
    try:
        services.delete(conn, services.find(conn, host, COMPUTE).id, now=now)
    except NotFound:
        return
