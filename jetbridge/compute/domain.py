"""The guest of one server on the hypervisor: making it, and leaving nothing of it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from jetbridge.accelerator.inventory import address_of, identity_of
from jetbridge.compute.host import AgentHost, about
from jetbridge.compute.vgpus import guest_vgpus
from jetbridge.db import compute_nodes, pci_devices, request_specs, server_arqs, servers
from jetbridge.db.compute_nodes import ComputeNode
from jetbridge.errors import BuildAborted, DeviceIdentityMismatch, DomainNotFound, HypervisorError, NotFound
from jetbridge.model.accelerator import AttachType, ServerArq
from jetbridge.model.context import RequestContext
from jetbridge.model.server import Server
from jetbridge.pci.report import identity_mismatch
from jetbridge.virt.capabilities import parse_cpu_set
from jetbridge.virt.config_drive import config_drive_files
from jetbridge.virt.connection import DiskRequest
from jetbridge.virt.guest import (
    GuestAccelerator,
    GuestFiles,
    GuestNic,
    GuestOptions,
    build_domain,
    guest_spec,
    uses_nvram,
)
from jetbridge.virt.nodedev import host_report
from jetbridge.virt.vfio import blocking_members, physical_functions_with_vfs, still_held

logger = logging.getLogger(__name__)

HELD_SECONDS = 1.0
"""How long a guest that is gone may still hold the IOMMU groups of its devices: its process ends before the kernel has let go."""


def make_root_disk(host: AgentHost, context: RequestContext, server: Server) -> Path | None:
    """An overlay on the image, as large as the flavor says. Raises ``BuildAborted`` when the image has no data."""
    base, base_format = None, "raw"
    if server.image_ref:
        base = _image_file(host, server, server.image_ref)
        base_format = host.images.get(server.image_ref).disk_format or "raw"
    elif not server.flavor.root_gb:
        return None
    request = DiskRequest(server.domain_name, base, base_format, server.flavor.root_gb)
    with host.library(context, "create_root_disk", server.uuid):
        return host.connection.create_root_disk(request)


def make_config_drive(host: AgentHost, context: RequestContext, server: Server) -> Path | None:
    """A drive with the user's key and user data; None when there is nothing to tell the guest.

    There is no metadata service on the networks, so a drive is made even when nobody asked for it by name.
    """
    with host.database.read() as conn:
        key = servers.keypair(conn, server.uuid)
    if not (server.config_drive or server.user_data or key):
        return None
    files = config_drive_files(server, public_key=key["public_key"] if key else None, random_seed=host.random(512))
    with host.library(context, "create_config_drive", server.uuid):
        return host.connection.create_config_drive(server.domain_name, files)


def define_domain(
    host: AgentHost,
    context: RequestContext,
    server: Server,
    root_disk: Path | None,
    config_drive: Path | None,
    nics: Sequence[GuestNic],
) -> None:
    """Define the domain anew, by ``domain_xml``."""
    xml = domain_xml(host, context, server, root_disk, config_drive, nics)
    with host.library(context, "define_domain", server.uuid, domain=server.domain_name):
        host.connection.define_domain(xml)


def domain_xml(
    host: AgentHost,
    context: RequestContext,
    server: Server,
    root_disk: Path | None,
    config_drive: Path | None,
    nics: Sequence[GuestNic],
) -> str:
    """The domain's document, from what the tables say the server was given."""
    with host.database.read() as conn:
        spec = request_specs.get(conn, server.uuid)
        devices = pci_devices.of_instance(conn, server.uuid)
        topology = servers.numa_topology(conn, server.uuid)
        node = compute_nodes.of_host(conn, host.name)
        arqs = server_arqs.of_server(conn, server.uuid)
    properties = spec.image_properties
    translation = guest_spec(
        server,
        image_properties=properties,
        requests=spec.pci_requests,
        devices=devices,
        topology=topology,
        host=node.numa,
        nics=nics,
        files=GuestFiles(
            console_log=host.connection.console_log_path(server.domain_name),
            root_disk=root_disk,
            config_drive=config_drive,
            kernel=_boot_file(host, server, properties, "kernel_id"),
            ramdisk=_boot_file(host, server, properties, "ramdisk_id"),
        ),
        options=_options(host, node),
        vgpus=guest_vgpus(host, server.uuid),
        accelerators=[_accelerator(arq) for arq in arqs if arq.port_id is None],
    )
    for warning in translation.warnings:
        logger.warning("%s", warning, extra=about(context, server.uuid))
    return build_domain(translation.guest)


def remove_domain(host: AgentHost, context: RequestContext | None, name: str, server_uuid: str | None = None) -> None:
    """Nothing of the domain runs, is defined or lies on disk afterwards."""
    destroy_domain(host, context, name, server_uuid)
    undefine_domain(host, context, name, server_uuid)
    remove_files(host, context, name, server_uuid)


def undefine_domain(host: AgentHost, context: RequestContext | None, name: str, server_uuid: str | None = None) -> None:
    """The domain, which doesn't run, isn't defined afterwards. A domain that isn't there: nothing happens."""
    try:
        nvram = uses_nvram(host.connection.domain_xml(name))
    except DomainNotFound:
        return
    with host.library(context, "undefine_domain", server_uuid, domain=name):
        host.connection.undefine_domain(name, nvram=nvram)


def destroy_domain(host: AgentHost, context: RequestContext | None, name: str, server_uuid: str | None = None) -> None:
    """The domain doesn't run afterwards."""
    try:
        with host.library(context, "destroy_domain", server_uuid, domain=name):
            host.connection.destroy_domain(name)
    except DomainNotFound:
        return


def remove_files(host: AgentHost, context: RequestContext | None, name: str, server_uuid: str | None = None) -> None:
    with host.library(context, "delete_guest_files", server_uuid, domain=name):
        host.connection.delete_guest_files(name)


def verify_devices(host: AgentHost, context: RequestContext, server: Server) -> None:
    """The devices at the server's addresses are those it was given. Asked before every start: between two
    starts a card may have moved, and its address may hold another one.

    Raises ``DeviceIdentityMismatch`` naming both.
    """
    with host.database.read() as conn:
        devices = pci_devices.of_instance(conn, server.uuid)
        arqs = [arq for arq in server_arqs.of_server(conn, server.uuid) if arq.identity is not None]
    if not devices and not arqs:
        return
    reports = device_reports(host, context, server.uuid)
    for device in devices:
        report = reports.get(device.address)
        found = "nothing" if report is None else identity_mismatch(device, report)
        if found is not None:
            raise DeviceIdentityMismatch(server=server.uuid, recorded=device.identity, host=host.name, found=found)
    for arq in arqs:
        address = address_of(arq.attach_info)
        found = identity_of(reports[address]) if address is not None and address in reports else "nothing"
        if found != arq.identity:
            raise DeviceIdentityMismatch(server=server.uuid, recorded=arq.identity, host=host.name, found=found)


def device_reports(
    host: AgentHost, context: RequestContext | None, server_uuid: str | None = None
) -> Mapping[str, Mapping[str, Any]]:
    """What the host reports now, by address."""
    with host.library(context, "node_devices", server_uuid):
        documents = host.connection.node_devices()
    return {report["address"]: report for report in host_report(documents, host.files, host=host.name)}


def start_domain(host: AgentHost, context: RequestContext, server: Server, *, tries: int = 1) -> None:
    """Raises ``HypervisorError``; one about the server's devices says what stands in their way: VFs of a physical function, or other
    members of an IOMMU group with their drivers. ``tries``: how often a group that is still held is asked for; what a person has to do
    something about is not tried again."""
    for left in reversed(range(tries)):
        try:
            with host.library(context, "start_domain", server.uuid, domain=server.domain_name):
                host.connection.start_domain(server.domain_name)
        except HypervisorError as error:
            explanations = _explanations(host, context, server, error.message)
            if explanations:
                # First what a person can do something about: the message of a fault is short.
                reason = f"{'; '.join(explanations)}. {error.facts.get('reason', error.message)}"
                raise HypervisorError(operation="start_domain", host=host.name, reason=reason) from error
            if not left or not still_held(error.message):
                raise
            logger.warning(
                "Server %s could not be started on host %s, and is tried again: %s",
                server.uuid,
                host.name,
                error.message,
                extra=about(context, server.uuid),
            )
            time.sleep(HELD_SECONDS)
        else:
            return


def _explanations(host: AgentHost, context: RequestContext, server: Server, refusal: str) -> list[str]:
    with host.database.read() as conn:
        mine = {device.address for device in pci_devices.of_instance(conn, server.uuid)}
    if "/dev/vfio/" in refusal:
        return physical_functions_with_vfs(sorted(mine), host.files)
    return _group_members(host, context, server, mine) if "group" in refusal.lower() else []


def _group_members(host: AgentHost, context: RequestContext, server: Server, mine: Collection[str]) -> list[str]:
    """Who shares an IOMMU group with the server's devices and keeps it from being given: all of a group has to be on vfio-pci, or
    on no driver (https://docs.kernel.org/driver-api/vfio.html)."""
    reports = device_reports(host, context, server.uuid)
    sentences = []
    for address in sorted(reports.keys() & mine):
        guilty = [reports[other] for other in blocking_members(address, reports) if other not in mine]
        if guilty:
            members = ", ".join(
                f"{other['address']} [{other['vendor_id']}:{other['product_id']}] on driver {other['driver']}"
                for other in guilty
            )
            sentences.append(
                f"IOMMU group {reports[address]['iommu_group']} of {address} also holds {members}: bind them to vfio-pci,"
                " or give them to guests as well"
            )
    return sentences


def _accelerator(arq: ServerArq) -> GuestAccelerator:
    if arq.attach_type == AttachType.MDEV:
        return GuestAccelerator(mdev=arq.handle_uuid)
    return GuestAccelerator(address=address_of(arq.attach_info))


def _options(host: AgentHost, node: ComputeNode) -> GuestOptions:
    facts = json.loads(node.cpu_info) if node.cpu_info else {}
    return GuestOptions(
        virt_type=host.settings.virt_type,
        num_pcie_ports=host.settings.num_pcie_ports,
        arch=facts.get("arch") or "x86_64",
        shared_cpus=parse_cpu_set(host.settings.cpu_shared_set, "[compute]cpu_shared_set"),
    )


def _boot_file(host: AgentHost, server: Server, properties: Mapping[str, str], name: str) -> Path | None:
    image = properties.get(name)
    return _image_file(host, server, image) if image else None


def _image_file(host: AgentHost, server: Server, image_id: str) -> Path:
    try:
        return host.images.path(image_id)
    except NotFound as error:
        # No host has it: another one would fail as well.
        raise BuildAborted(server=server.uuid, reason=error.message) from error
