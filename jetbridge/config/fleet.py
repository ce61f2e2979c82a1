"""The fleet file: hosts to simulate, read into frozen values. Every mistake is an ``InvalidFleet`` that names its place."""

from __future__ import annotations

import hashlib
import importlib.resources
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from jetbridge.config.fleet_fields import Section, read_yaml
from jetbridge.errors import InvalidFleet
from jetbridge.model.fleet import (
    DISCOVERY_MODES,
    HYPERVISOR_CALLS,
    FailSpec,
    FleetDevice,
    FleetHost,
    MdevTypeSpec,
    NumaSpec,
    PfSpec,
    SimulateSpec,
    VgpuTypeSpec,
    vf_address,
)

__all__ = [
    "FailSpec",
    "Fleet",
    "FleetDevice",
    "FleetHost",
    "MdevTypeSpec",
    "NumaSpec",
    "PfSpec",
    "SimulateSpec",
    "Template",
    "VgpuTypeSpec",
    "load_fleet",
    "templates",
]

MAX_HOSTS = 100_000
DEFAULT_VCPUS = 64
DEFAULT_MEMORY_MB = 262_144
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
_RANGE = re.compile(r"\[([^\[\]]*)\]")

Options = Mapping[str, Mapping[str, Any]]
"""Group, option, value: text, None, or lists and mappings of these."""


@dataclass(frozen=True)
class Fleet:
    path: Path
    hosts: tuple[FleetHost, ...]
    config: Options = field(default_factory=dict)


@dataclass(frozen=True)
class Template:
    """Named hardware. ``numa`` is that of a whole machine; None: only cards."""

    name: str
    description: str
    devices: tuple[FleetDevice, ...]
    numa: NumaSpec | None = None


@cache
def templates() -> Mapping[str, Template]:
    """The hardware templates shipped with Jetbridge, by name."""
    folder = importlib.resources.files("jetbridge") / "config" / "templates"
    found = {}
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".yaml"):
            section = Section(entry.name, "", read_yaml(entry.name, entry.read_text()))
            name = entry.name.removesuffix(".yaml")
            description = section.required("description", section.text("description"), "text")
            numa = _numa(section.section("numa")) if section.has("numa") else None
            section.raw("numa")
            found[name] = Template(name, description, _devices(section), numa)
            section.done()
    return found


def load_fleet(path: Path) -> Fleet:
    """Reads and checks a fleet file. Raises InvalidFleet naming the file, the place in it, the value and the fix."""
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise InvalidFleet(path=path, reason=f"can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidFleet(path=path, reason=f"is not UTF-8 text: {error.reason} at byte {error.start}") from error
    top = Section(str(path), "", read_yaml(str(path), text))
    config = _options(top.section("config"))
    hosts: dict[str, FleetHost] = {}
    for section in top.sections("hosts"):
        for host in _hosts(section, config, path):
            if host.name in hosts:
                raise InvalidFleet(path=path, reason=f"{section.where}: host {host.name} is defined twice; rename one")
            hosts[host.name] = host
        if len(hosts) > MAX_HOSTS:
            raise InvalidFleet(path=path, reason=f"{section.where}: more than {MAX_HOSTS} hosts")
    top.done()
    if not hosts:
        raise InvalidFleet(path=path, reason="hosts is empty; give at least one, for example hosts: [{name: gpu1}]")
    return Fleet(path=path, hosts=tuple(hosts.values()), config=config)


def expand_names(pattern: str) -> list[str]:
    """``gpu[001-003]`` -> gpu001, gpu002, gpu003; several ranges multiply, commas list. Raises ValueError."""
    parts: list[Sequence[str]] = []
    end = 0
    count = 1
    for match in _RANGE.finditer(pattern):
        values: list[str] = []
        for item in match[1].split(","):
            first, dash, last = item.partition("-")
            last = last if dash else first
            if not (first.isascii() and first.isdecimal() and last.isascii() and last.isdecimal()):
                raise ValueError(f"[{match[1]}] is not a range of numbers such as [001-004]")
            if len(first) > 9 or len(last) > 9 or int(last) - int(first) >= MAX_HOSTS:
                raise ValueError(f"[{match[1]}] makes more than {MAX_HOSTS} hosts")
            if int(last) < int(first):
                raise ValueError(f"[{match[1]}] ends before it begins; write [{last}-{first}]")
            values += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
        count *= len(values)
        if count > MAX_HOSTS:
            raise ValueError(f"makes more than {MAX_HOSTS} hosts")
        parts += [[pattern[end : match.start()]], values]
        end = match.end()
    parts.append([pattern[end:]])
    return ["".join(choice) for choice in itertools.product(*parts)]


def _hosts(section: Section, config: Options, path: Path) -> list[FleetHost]:
    pattern = section.required("name", section.text("name"), "gpu1")
    try:
        names = expand_names(pattern)
    except ValueError as error:
        section.refuse("name", str(error))
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            section.refuse("name", "may hold letters, digits, dots, dashes, underscores, and ranges such as [001-004]")
    section.where = f"host {pattern}"
    host = _host(section, config, path)
    section.done()
    return [replace(host, name=name) for name in names]


def _host(section: Section, config: Options, path: Path) -> FleetHost:
    hardware = section.words("hardware")
    machines = [_template(section, name) for name in hardware]
    own_numa = section.section("numa")
    vcpus = section.integer("vcpus", low=1, high=8192)
    memory_mb = section.integer("memory_mb", low=64)
    numa = _numa(own_numa) if section.has("numa") else None
    if numa is not None and (vcpus is not None or memory_mb is not None):
        section.refuse("vcpus" if vcpus is not None else "memory_mb", "is for hosts without numa; take it out, or numa")
    if numa is None and vcpus is None and memory_mb is None:
        numa = next((machine.numa for machine in machines if machine.numa), None)
    devices = tuple(_placed(device, numa) for machine in machines for device in machine.devices) + _devices(section)
    _check_devices(section, devices, numa)
    nodedevs, digest = _nodedevs(section, path)
    networks = section.words("networks") if section.has("networks") else ("default",)
    section.raw("networks")
    return FleetHost(
        name="",
        numa=numa,
        vcpus=numa.cells * numa.cpus_per_cell if numa else vcpus or DEFAULT_VCPUS,
        memory_mb=numa.cells * numa.memory_mb_per_cell if numa else memory_mb or DEFAULT_MEMORY_MB,
        disk_gb=_or(section.integer("disk_gb"), 1000),
        networks=networks,
        hardware=hardware,
        devices=devices,
        nodedevs=nodedevs,
        nodedevs_digest=digest,
        config=_merged(config, _options(section.section("config"))),
        simulate=_simulate(section.section("simulate")),
    )


def _placed(device: FleetDevice, numa: NumaSpec | None) -> FleetDevice:
    """A template's device in this host: templates are written for two nodes, a host may have fewer, or none."""
    if device.numa_node is None or (numa is not None and device.numa_node < numa.cells):
        return device
    return replace(device, numa_node=None if numa is None else device.numa_node % numa.cells)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _template(section: Section, name: str) -> Template:
    known = templates()
    if name not in known:
        section.refuse("hardware", f"no template is named {name}; known are {', '.join(known)}")
    return known[name]


def _numa(section: Section) -> NumaSpec:
    cells = _or(section.integer("cells", low=1, high=256), 1)
    cpus = section.integer("cpus_per_cell", low=1, high=4096)
    memory = section.integer("memory_mb_per_cell", low=64)
    threads = _or(section.integer("threads_per_core", low=1, high=8), 1)
    sockets = _or(section.integer("sockets", low=1, high=256), cells)
    pages = section.section("hugepages")
    hugepages = tuple((int(key), _or(pages.integer(key), 0)) for key in pages.keys() if _is_page_size(key))  # noqa: SIM118
    if len(hugepages) != len(list(pages.keys())):
        section.refuse("hugepages", "its keys are page sizes in KiB (2048 or 1048576), its values pages per cell")
    if cpus is None or memory is None:
        section.required(
            "cpus_per_cell" if cpus is None else "memory_mb_per_cell", None, "16" if cpus is None else "65536"
        )
    assert cpus is not None
    assert memory is not None
    if cpus % threads:
        section.refuse(
            "cpus_per_cell", f"counts CPUs (threads), so it must be a multiple of threads_per_core={threads}"
        )
    if cells % sockets and sockets % cells:
        section.refuse("sockets", f"must divide cells={cells}, or be a multiple of it")
    if sockets > cells and (cpus // threads) % (sockets // cells):
        section.refuse(
            "sockets", f"the {cpus // threads} cores of a cell can't be spread over {sockets // cells} sockets evenly"
        )
    if sum(size * count for size, count in hugepages) > memory * 1024:
        section.refuse("hugepages", f"need more than memory_mb_per_cell={memory}")
    section.done()
    return NumaSpec(cells, cpus, memory, threads, sockets, tuple(sorted(hugepages)))


def _is_page_size(key: str) -> bool:
    return key in {"2048", "1048576"}


def _devices(section: Section) -> tuple[FleetDevice, ...]:
    return tuple(_device(entry) for entry in section.sections("devices"))


def _device(section: Section) -> FleetDevice:
    product = section.required("product_id", section.hex_id("product_id"), '"1eb8"')
    has_pf = "pf" in section.keys() and section.raw("pf") is not None  # noqa: SIM118
    pf_section, vpd = section.section("pf"), section.section("vpd")
    serial = vpd.text("card_serial_number")
    vpd.done()
    device = FleetDevice(
        address=section.required("address", section.address("address"), '"0000:3b:00.0"'),
        vendor_id=section.required("vendor_id", section.hex_id("vendor_id"), '"10de"'),
        product_id=product,
        numa_node=section.integer("numa_node", high=255),
        iommu_group=section.integer("iommu_group", high=1_000_000),
        driver=section.word("driver"),
        interface=section.word("interface"),
        mac=section.mac("mac"),
        switch=section.address("switch"),
        fabric=section.word("fabric"),
        bar_mb=section.integer("bar_mb", low=1, high=1_048_576),
        class_code=section.class_code("class"),
        card_serial_number=serial,
        mdev_types=_mdev_types(section.section("mdev_types")),
        vgpu_types=_vgpu_types(section.section("vgpu_types")),
        pf=_pf(pf_section, product) if has_pf else None,
        vdpa=section.boolean("vdpa"),
    )
    section.done()
    return device


def _pf(section: Section, product: str) -> PfSpec:
    vfs = _or(section.integer("vfs", high=256), 0)
    max_vfs = _or(section.integer("max_vfs", low=1, high=256), vfs or 16)
    if vfs > max_vfs:
        section.refuse("vfs", f"is more than max_vfs={max_vfs}")
    vf_product = section.hex_id("vf_product_id") or product
    offset = section.integer("vf_offset", low=1, high=65535) or 1
    spec = PfSpec(vfs, max_vfs, vf_product, section.word("vf_interface"), section.boolean("vdpa"), offset)
    section.done()
    return spec


def _mdev_types(section: Section) -> tuple[MdevTypeSpec, ...]:
    found = []
    for name in section.keys():  # noqa: SIM118
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
            section.refuse(name, "a type's name may hold letters, digits, dots, dashes and underscores")
        entry = section.section(name)
        available = _or(entry.integer("available"), 1)
        api, limit = entry.word("device_api") or "vfio-pci", entry.integer("max_instance", low=1)
        found.append(MdevTypeSpec(name, available, entry.text("name") or name, api, limit))
        entry.done()
    return tuple(found)


def _vgpu_types(section: Section) -> tuple[VgpuTypeSpec, ...]:
    found = []
    for key in section.keys():  # noqa: SIM118
        if not (key.isascii() and key.isdecimal()):
            section.refuse(key, "vgpu_types maps the type's number to its name, for example 558: NVIDIA L40S-4Q")
        if isinstance(section.raw(key), str):
            found.append(VgpuTypeSpec(key, section.required(key, section.text(key), "NVIDIA L40S-4Q")))
            continue
        entry = section.section(key)
        name = entry.required("name", entry.text("name"), "NVIDIA L40S-4Q")
        found.append(VgpuTypeSpec(key, name, entry.integer("max_instance", low=1)))
        entry.done()
    return tuple(found)


def _check_devices(section: Section, devices: Sequence[FleetDevice], numa: NumaSpec | None) -> None:
    """Addresses, interfaces and nodes have to make one possible machine."""
    taken: dict[str, str] = {}
    interfaces: dict[str, str] = {}
    for device in devices:
        _take(section, taken, device.address, f"a device {device.vendor_id}:{device.product_id}", "address")
        if device.interface:
            _take(section, interfaces, device.interface, f"the interface of {device.address}", "interface")
        if device.mac and not device.interface:
            _refuse(section, device, "mac", device.mac, "is an interface's; give the interface too")
        if numa is not None and device.numa_node is not None and device.numa_node >= numa.cells:
            _refuse(section, device, "numa_node", device.numa_node, f"numa has only cells 0 to {numa.cells - 1}")
        if device.pf is None:
            continue
        for number in range(device.pf.vfs):
            address = vf_address(device.address, number, device.pf.vf_offset)
            if address is None:
                _refuse(
                    section, device, "pf.vfs", number + 1, f"VF {number} would lie behind the last bus; give fewer VFs"
                )
            _take(section, taken, address, f"VF {number} of {device.address}", "address")
            if device.pf.vf_interface:
                name = f"{device.pf.vf_interface}{number}"
                _take(section, interfaces, name, f"the interface of VF {number} of {device.address}", "interface")
    for device in devices:
        if device.switch and device.switch in taken:
            _refuse(
                section,
                device,
                "switch",
                device.switch,
                f"is the address of {taken[device.switch]}; a switch has its own",
            )


def _take(section: Section, taken: dict[str, str], name: str, what: str, kind: str) -> None:
    if name in taken:
        reason = f"{section.where}: {kind} {name} is taken twice, by {taken[name]} and by {what}; change one"
        raise InvalidFleet(path=section.path, reason=reason)
    taken[name] = what


def _refuse(section: Section, device: FleetDevice, key: str, value: object, reason: str) -> NoReturn:
    raise InvalidFleet(path=section.path, reason=f"{section.where}: device {device.address}: {key}={value}: {reason}")


def _nodedevs(section: Section, path: Path) -> tuple[str | None, str]:
    """The folder, and a digest of the documents in it."""
    given = section.text("nodedevs")
    if given is None:
        return None, ""
    folder = Path(path.absolute().parent, given)
    digest = hashlib.sha256()
    try:
        documents = sorted(entry for entry in folder.iterdir() if entry.suffix == ".xml")
        for document in documents:
            digest.update(f"{document.name}\0{document.stat().st_size}\0".encode(errors="surrogateescape"))
            digest.update(document.read_bytes())
    except OSError as error:
        section.refuse(
            "nodedevs", f"{folder} can't be read: {error.strerror or error}; it is relative to the fleet file"
        )
    if not documents:
        section.refuse("nodedevs", f"no node-device documents (*.xml) are in {folder}")
    return str(folder), digest.hexdigest()


def _simulate(section: Section) -> SimulateSpec:
    delay_section, fail_section = section.section("delay"), section.section("fail")
    delay = tuple((call, delay_section.seconds(call)) for call in HYPERVISOR_CALLS if delay_section.has(call))
    fail = []
    for call in HYPERVISOR_CALLS:
        entry = fail_section.section(call)
        if fail_section.has(call):
            error = entry.text("error") or f"internal error: simulated failure of {call}"
            fail.append(FailSpec(call, error, entry.integer("times", low=1)))
            entry.done()
        delay_section.raw(call)
    delay_section.done()
    fail_section.done()
    discovery = section.choice("discovery", DISCOVERY_MODES, "ok")
    spec = SimulateSpec(delay, tuple(fail), discovery, section.boolean("deaf"))
    section.done()
    return spec


def _options(section: Section) -> Options:
    return {
        group: {option: section.section(group).raw(option) for option in section.section(group).keys()}  # noqa: SIM118
        for group in section.keys()  # noqa: SIM118
    }


def _merged(base: Options, over: Options) -> Options:
    if not over:
        return base
    return {**base, **{group: {**base.get(group, {}), **options} for group, options in over.items()}}
