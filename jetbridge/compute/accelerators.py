"""What of a host belongs to the embedded accelerator service: read from its lines and its report, kept in its tables."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from jetbridge.accelerator.device_spec import AcceleratorSpec, first_match, parse_accelerator_specs
from jetbridge.accelerator.inventory import Changes, changes, declared
from jetbridge.accelerator.ownership import Claims, check_one_owner
from jetbridge.compute.host import AgentHost, about
from jetbridge.db import accelerators, compute_nodes
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.db.connection import Connection
from jetbridge.errors import InvalidConfiguration
from jetbridge.pci.device_spec import DeviceSpec
from jetbridge.virt.hostfacts import SysfsFacts

logger = logging.getLogger(__name__)

Reports = Sequence[Mapping[str, Any]]


def read_lines(host: AgentHost) -> tuple[AcceleratorSpec, ...]:
    """Raises ``InvalidConfiguration``."""
    return parse_accelerator_specs(host.settings.accelerator_device_spec, SysfsFacts(host.files))


def check_owners(
    host: AgentHost, pci_specs: Sequence[DeviceSpec], reports: Reports, others: Sequence[Claims] = ()
) -> None:
    """Raises ``InvalidConfiguration`` naming a function that the options would give to guests in two ways, and both lines."""
    lines = read_lines(host)
    check_one_owner(host.name, [_pci_claims(pci_specs, reports), _accelerator_claims(lines, reports), *others])


def take_accelerators(host: AgentHost, node: ComputeNode, reports: Reports | None) -> None:
    """Bring the host's accelerators up to what it says now. ``reports`` None: discovery failed, so that none is given away until one
    succeeds, and none is freed. Raises ``InvalidConfiguration`` when the lines contradict the hardware: nothing is changed then."""
    lines = read_lines(host)

    def wanted(conn: Connection) -> Changes:
        known = accelerators.of_host(conn, node.id)
        if reports is None:
            return Changes()
        return changes(known, declared(lines, reports, node.id, node.hypervisor_hostname, host.new_id))

    def write(conn: Connection) -> Changes:
        compute_nodes.lock(conn, node.id)
        if reports is None:
            accelerators.mark_unknown(conn, node.id)
        change = wanted(conn)
        accelerators.remove_handles(conn, change.handles_removed)
        for gone in change.removed:
            accelerators.remove(conn, gone)
        accelerators.save(conn, change.saved, now=host.now())
        return change

    with host.database.read() as conn:
        nothing = not wanted(conn).any and (reports is not None or not accelerators.any_known(conn, node.id))
    if nothing:
        return
    change = host.database.write(write)
    if change.any:
        logger.info(
            "Host %s: accelerators: %d new or changed, %d removed", host.name, len(change.saved), len(change.removed)
        )
    for handle in change.lost:
        logger.warning(
            "Host %s: %s (%s) is gone from the host or from [accelerator]device_spec while accelerator request %s has it: it is kept"
            " until that is deleted",
            host.name,
            handle.address,
            handle.attach_type,
            handle.arq_uuid,
            extra=about(None),
        )


def follow_accelerators(
    host: AgentHost, node: ComputeNode, pci_specs: Sequence[DeviceSpec], reports: Reports | None, *, starting: bool
) -> None:
    """As ``take_accelerators``; on a host that runs already, lines that the hardware contradicts by now are told, and its accelerators
    stay as they are."""
    try:
        if reports is not None and not starting:  # a start has looked, at the vGPUs' lines too
            check_owners(host, pci_specs, reports)
        take_accelerators(host, node, reports)
    except InvalidConfiguration as error:
        if starting:
            raise
        logger.error("Accelerators of host %s stay as they are: %s", host.name, error.message)


def _pci_claims(specs: Sequence[DeviceSpec], reports: Reports) -> Claims:
    return {
        str(report["address"]): f"[pci]device_spec line {spec.position} {spec.text}"
        for report in reports
        if (spec := next((each for each in specs if each.gives(report)), None)) is not None
    }


def _accelerator_claims(specs: Sequence[AcceleratorSpec], reports: Reports) -> Claims:
    return {str(report["address"]): spec.text for report in reports if (spec := first_match(specs, report)) is not None}
