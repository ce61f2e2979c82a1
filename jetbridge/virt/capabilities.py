"""What a host has: libvirt's capabilities document into CPUs, memory and NUMA cells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import lru_cache

from jetbridge.errors import HypervisorError, InvalidConfiguration
from jetbridge.numa.cpulist import format_cpu_list, parse_cpu_list
from jetbridge.numa.topology import HostCell, HostTopology, PagePool
from jetbridge.virt.xml import Element, child_text, parse_xml

# Hosts of one kind differ in nothing else, and a document of many CPUs takes long to read: without it they share one reading.
_UUID = re.compile(r"<uuid>[^<]*</uuid>")
_UNITS = {
    "B": 1,
    "bytes": 1,
    "KiB": 1024,
    "k": 1024,
    "MiB": 1024**2,
    "M": 1024**2,
    "GiB": 1024**3,
    "G": 1024**3,
    "TiB": 1024**4,
}


@dataclass(frozen=True)
class HostResources:
    """``vcpus`` are the host CPUs that servers may use, ``memory_mb`` is in MiB; ``topology`` None: the host has no
    NUMA cells. ``cpu_info``: ``arch``, ``model``, ``vendor``, ``topology`` (sockets, cores, threads) and ``features``."""

    vcpus: int
    memory_mb: int
    topology: HostTopology | None
    cpu_info: Mapping[str, object] = dataclass_field(default_factory=dict)


def parse_cpu_set(text: str | None, option: str) -> frozenset[int] | None:
    """``0-3,^2,8`` -> {0, 1, 3, 8}; ``^`` takes away wherever it stands. None or blank: None.

    Raises InvalidConfiguration naming ``option`` and the part that is wrong."""
    if text is None or not text.strip():
        return None
    try:
        cpus = parse_cpu_list(re.sub(r"\s", "", text))
    except ValueError as error:
        raise _bad_set(option, text, str(error)) from error
    if not cpus:
        raise _bad_set(option, text, "no CPU is left")
    return cpus


def _bad_set(option: str, text: str, reason: str) -> InvalidConfiguration:
    return InvalidConfiguration(reason=f"{option}={text}: {reason}; write a CPU list such as 0-3,^2,8")


def host_resources(capabilities_xml: str, dedicated_set: str | None, shared_set: str | None) -> HostResources:
    """Reads a capabilities document (https://libvirt.org/formatcaps.html) with ``[compute]cpu_dedicated_set`` and
    ``cpu_shared_set``.

    Without either set every CPU is both shared and pinnable; with one of them the other is empty. Cells that have
    memory but no CPUs are kept when others have CPUs; when none has, there is no topology. Raises
    InvalidConfiguration for the sets, HypervisorError for a document that can't be read.
    """
    host = _read(_UUID.sub("", capabilities_xml, count=1))
    dedicated = parse_cpu_set(dedicated_set, "[compute]cpu_dedicated_set")
    shared = parse_cpu_set(shared_set, "[compute]cpu_shared_set")
    if dedicated and shared and (both := dedicated & shared):
        raise InvalidConfiguration(
            reason=f"[compute]cpu_dedicated_set and cpu_shared_set both have CPU {min(both)}; take it out of one"
        )
    for option, chosen in (("cpu_dedicated_set", dedicated), ("cpu_shared_set", shared)):
        if chosen and (absent := chosen - host.cpus):
            raise InvalidConfiguration(
                reason=f"[compute]{option} has CPU {min(absent)}, but this host's CPUs are {format_cpu_list(host.cpus)}"
            )
    if dedicated is None and shared is None:
        dedicated = shared = host.cpus
    dedicated, shared = dedicated or frozenset(), shared or frozenset()
    cells = tuple(_usable(cell, dedicated, shared) for cell in host.cells)
    return HostResources(
        vcpus=len(dedicated | shared),
        memory_mb=sum(cell.memory_mb for cell in host.cells),
        topology=HostTopology(cells) if any(cell.cpus for cell in host.cells) else None,
        cpu_info=host.cpu_info,
    )


def _usable(cell: HostCell, dedicated: frozenset[int], shared: frozenset[int]) -> HostCell:
    return HostCell(
        id=cell.id,
        cpus=cell.cpus & shared,
        pinnable=cell.cpus & dedicated,
        memory_mb=cell.memory_mb,
        # Threads that servers may not use are no siblings to them.
        siblings=tuple(group & (dedicated | shared) for group in cell.siblings if group & (dedicated | shared)),
        socket=cell.socket,
        pages=cell.pages,
    )


@dataclass(frozen=True)
class _Host:
    cpus: frozenset[int]
    cells: tuple[HostCell, ...]
    cpu_info: Mapping[str, object]


@lru_cache(maxsize=512)
def _read(xml: str) -> _Host:
    try:
        root = parse_xml(xml)
        cells = tuple(_cell(cell) for cell in root.findall("host/topology/cells/cell"))
        topology = root.find("host/cpu/topology")
        sizes = {} if topology is None else {str(key): _number(topology, str(key)) for key in topology.keys()}  # noqa: SIM118
        cpus = frozenset().union(*(cell.cpus for cell in cells))
        if not cpus:
            count = 1
            for size in sizes.values():
                count *= size
            cpus = frozenset(range(count if sizes else 0))
        if not cpus:
            raise ValueError("it tells no CPUs")
        info: dict[str, object] = {key: child_text(root, f"host/cpu/{key}") for key in ("arch", "model", "vendor")}
        info["topology"] = sizes
        info["features"] = [feature.get("name") for feature in root.findall("host/cpu/feature")]
        return _Host(cpus, cells, info)
    except ValueError as error:
        raise HypervisorError(f"The hypervisor's capabilities document can't be used: {error}") from error


def _cell(cell: Element) -> HostCell:
    cpus: set[int] = set()
    groups: set[frozenset[int]] = set()
    sockets: set[int | None] = set()
    for cpu in cell.findall("cpus/cpu"):
        number = _number(cpu, "id")
        cpus.add(number)
        sockets.add(_number(cpu, "socket_id") if cpu.get("socket_id") else None)
        siblings = cpu.get("siblings")
        groups.add(_siblings(siblings) if siblings else frozenset({number}))
    memory = cell.find("memory")
    pages = [
        (_bytes(page.get("unit"), _number(page, "size")) // 1024, _int(page.text, "pages"))
        for page in cell.findall("pages")
    ]
    return HostCell(
        id=_number(cell, "id"),
        cpus=frozenset(cpus),
        pinnable=frozenset(cpus),
        memory_mb=0 if memory is None else _bytes(memory.get("unit"), _int(memory.text, "memory")) // 1024**2,
        siblings=tuple(sorted(groups, key=min)),
        socket=next(iter(sockets)) if len(sockets) == 1 else None,
        pages=tuple(PagePool(size, total) for size, total in sorted(pages)),
    )


def _siblings(text: str) -> frozenset[int]:
    try:
        return parse_cpu_set(text, "siblings") or frozenset()
    except InvalidConfiguration as error:
        raise ValueError(f"siblings={text!r} is no CPU list") from error


def _number(element: Element, name: str) -> int:
    return _int(element.get(name), f"{name} of <{element.tag}>")


def _int(text: str | None, what: str) -> int:
    text = (text or "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise ValueError(f"{what} is {text!r}, not a number")
    return int(text)


def _bytes(unit: str | None, value: int) -> int:
    scale = _UNITS.get(unit or "KiB")
    if scale is None:
        raise ValueError(f"the unit {unit!r} is unknown")
    return value * scale
