"""Input as people, editors and broken tools write it: from right examples by small and by violent changes, drawn from a seed."""

from __future__ import annotations

import json
import random
import tempfile
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from jetbridge.api.extra_specs import check_extra_specs, misspelt
from jetbridge.api.microversions import MAXIMUM
from jetbridge.config.fleet import load_fleet
from jetbridge.config.overrides import apply_overrides
from jetbridge.config.settings import Settings
from jetbridge.errors import JetbridgeError
from jetbridge.numa.request import guest_topology
from jetbridge.pci.alias import parse_aliases
from jetbridge.pci.device_spec import first_match, parse_device_specs
from jetbridge.pci.flavor import requests_from_flavor
from jetbridge.pci.lint import shadowed_specs, suspicious_keys
from jetbridge.pci.request import requests_from_json, requests_to_json
from jetbridge.pci.sync import synchronise
from jetbridge.placement.groups import LARGEST_AMOUNT, flavor_groups
from jetbridge.placement.names import is_resource_class, is_trait
from jetbridge.virt.capabilities import host_resources
from jetbridge.virt.hostfacts import SysfsFacts
from jetbridge.virt.nodedev import host_report, parse_node_device
from jetbridge.virt.scan import scan
from jetbridge.virt.simulated import check_fleet_host, open_fleet_host

WORDS = (
    *(
        '"',
        "'",
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\\",
        "/",
        "*",
        "?",
        "-",
        "+",
        ".",
        "#",
        "&a ",
        "*a",
        "<",
        ">",
        "&",
        "%",
        "\n",
        "\t",
    ),
    *("\x00", "\ufeff", "é", "٣", "Ⅷ", "\ud7ff", "\u2028", "🚀", " ", ""),
    *("null", "true", "false", "NaN", "-0", "0x10de", "1e999", "99999999999999999999", "3.5", "10de", "*", "^", "!"),
    *("0000:3b:00.0", "3b:00.[0-7]", "ffff:ff:1f.7", "10000:00:00.0", "00:00.8", "(", "[0-", ".*", "\\x", "(?P<a>"),
    *("[" * 20000, "{" * 40, '{"a":' * 20000, "9" * 5000),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**70, 1.5, float("inf"), "", " ", "x", "*", "0", "-1", "10de", "type-PF", "yes"),
    *([], {}, ["10de"], {"bus": "3b"}, {"bus": 3}, [[]], "\x00", "é", "a" * 70000, "0000:3b:00.0", "1:2", {"": ""}),
)

LINES = (
    {"vendor_id": "10de", "product_id": "1eb8"},
    {"address": "0000:3b:00.*", "physical_network": "physnet0", "trusted": "true"},
    {"address": {"domain": ".*", "bus": "3[a-f]", "slot": "00", "function": "[0-7]"}},
    {"devname": "eth0", "managed": "no", "live_migratable": "yes"},
    {"product_id": "0x1018", "remote_managed": "false", "resource_class": "GPU", "traits": "CUSTOM_A,CUSTOM_B"},
    {"address": "0000:3b:00.0", "one_time_use": "true"},
)
ALIASES = (
    {"name": "GPU", "vendor_id": "10de", "product_id": "1eb8", "device_type": "type-PCI", "numa_policy": "required"},
    {"name": "VF", "capability_type": "pci", "vendor_id": "15b3", "product_id": "1018", "device_type": "type-VF"},
    {"name": "RC", "resource_class": "CUSTOM_GPU", "traits": "CUSTOM_A", "live_migratable": "no"},
)
FLAVORS: tuple[Mapping[str, str], ...] = (
    {"pci_passthrough:alias": "GPU:1"},
    {"pci_passthrough:alias": "GPU:2, VF:1", "hw:pci_numa_affinity_policy": "preferred"},
    {"pci_passthrough:alias": "VF:4", "hw:numa_nodes": "2", "hw:mem_page_size": "2MB"},
    {
        "hw:numa_nodes": "2",
        "hw:numa_cpus.0": "0-1,^1",
        "hw:numa_cpus.1": "1,2-3",
        "hw:numa_mem.0": "512",
        "hw:numa_mem.1": "512",
    },
    {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0-1", "hw:cpu_thread_policy": "isolate"},
    {"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "share", "quota:cpu_shares": "1024"},
)
AGGREGATE = "11111111-2222-3333-4444-555555555555"
GROUPS: tuple[Mapping[str, str], ...] = (
    {"resources:VGPU": "1", "trait:CUSTOM_RACK_7": "forbidden", f"member_of:{AGGREGATE}": "required"},
    {"resources_a:CUSTOM_GPU": "2", "trait_a:HW_GPU_API_VULKAN": "required", "group_policy": "isolate"},
    {"resources1:VGPU": "1", f"member_of1:{AGGREGATE}": "forbidden", "accel:device_profile": "infer"},
)
PROPERTIES: tuple[Mapping[str, str], ...] = (
    {},
    {"hw_numa_nodes": "2"},
    {"hw_cpu_policy": "shared", "hw_mem_page_size": "any"},
)
FLEET = """\
config:
  pci:
    device_spec: [{vendor_id: "10de"}]
    alias: [{name: GPU, vendor_id: "10de", product_id: "1eb8"}]
hosts:
  - name: gpu[01-03]
    vcpus: 8
    memory_mb: 8192
    devices:
      - {address: "0000:3b:00.0", vendor_id: "10de", product_id: "1eb8", numa_node: 0, iommu_group: 5, driver: vfio-pci}
      - {address: "0000:5e:00.0", vendor_id: "15b3", product_id: "1017", pf: {vfs: 2, vf_product_id: "1018"}}
  - name: big
    numa: {cells: 2, cpus_per_cell: 4, memory_mb_per_cell: 4096, sockets: 2}
    config: {pci: {device_spec: [{address: "*:3b:00.*"}]}}
    simulate: {discovery: half, delay: {start_domain: 0.1}, fail: {define_domain: {times: 1, error: "no"}}}
    devices: [{address: "0000:01:00.0", vendor_id: "10de", product_id: "20b0", vpd: {card_serial_number: "1"}}]
"""


@dataclass(frozen=True)
class Finding:
    """An input that ended in another exception than a clear error, or in a wrong result."""

    target: str
    given: object
    error: Exception


class Fuzzer:
    """One after the other of ``TARGETS``, ``count`` inputs in all. ``accepted`` says how many ended in a result."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.accepted: dict[str, int] = dict.fromkeys(TARGETS, 0)
        self.findings: list[Finding] = []

    def run(self, inputs: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for number in range(inputs):
                name = list(TARGETS)[number % len(TARGETS)]
                make, use = TARGETS[name]
                given = make(self.chance)
                try:
                    use(given, Path(folder))
                    self.accepted[name] += 1
                except JetbridgeError as error:
                    if not error.message.strip():
                        self.findings.append(Finding(name, given, error))
                except Exception as error:  # noqa: BLE001 - this is what is looked for
                    self.findings.append(Finding(name, given, error))


# --- changes ---


def mangled(chance: random.Random, text: str) -> str:
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        at = chance.randrange(len(text) + 1)
        end = min(len(text), at + chance.choice((0, 1, 1, 2, 5, 20)))
        match chance.randrange(5):
            case 0:
                text = text[:at] + text[end:]
            case 1:
                text = text[:at] + text[at:end] * 2 + text[end:]
            case 2:
                text = text[:at]
            case _:
                text = text[:at] + chance.choice(WORDS) + text[end:]
    return text


def changed(chance: random.Random, value: Any) -> Any:
    """The value with one thing in it changed, deep or not."""
    if isinstance(value, Mapping) and value and chance.random() < 0.85:
        fields = dict(value)
        key = chance.choice(sorted(fields, key=str))
        match chance.randrange(6):
            case 0:
                del fields[key]
            case 1:
                fields[mangled(chance, str(key))] = fields.pop(key)
            case _:
                fields[key] = changed(chance, fields[key])
        return fields
    if isinstance(value, list) and value and chance.random() < 0.85:
        items = list(value)
        at = chance.randrange(len(items))
        items[at] = changed(chance, items[at])
        return items if chance.random() < 0.8 else items * 2
    if isinstance(value, str) and chance.random() < 0.6:
        return mangled(chance, value)
    return chance.choice(VALUES)


def _json(chance: random.Random, examples: Iterable[Any]) -> str:
    value = chance.choice(list(examples))
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        value = changed(chance, value)
    text = json.dumps(value, ensure_ascii=chance.random() < 0.5)
    return mangled(chance, text) if chance.random() < 0.4 else text


# --- what is tried ---


def _device_spec(chance: random.Random) -> list[str]:
    return [_json(chance, LINES) for _ in range(chance.choice((1, 1, 2, 3)))]


def _use_device_spec(values: list[str], folder: Path) -> None:
    documents, files = machine()
    specs = parse_device_specs(values, SysfsFacts(files), report_in_placement=len(values) == 2)
    reports = host_report(documents, files)
    suspicious_keys(specs)
    shadowed_specs(specs, reports)
    shadowed_specs(specs)
    result = synchronise([], reports, specs, 1, str)
    matched = {report["address"] for report in reports if first_match(specs, report) is not None}
    assert {device.address for device in result.created} == matched - set(result.skipped)


def _alias(chance: random.Random) -> tuple[list[str], bool]:
    return [_json(chance, ALIASES) for _ in range(chance.choice((1, 1, 2)))], chance.random() < 0.5


def _use_alias(given: tuple[list[str], bool], folder: Path) -> None:
    values, in_placement = given
    for name, alias in parse_aliases(values, pci_in_placement=in_placement).items():
        assert name == name.strip()  # a blank one is "": it is taken, and no flavor can ask for it
        assert alias.name == name
        assert alias.properties


def _flavor(chance: random.Random) -> tuple[dict[str, str], dict[str, str]]:
    specs: dict[str, str] = {}
    for _ in range(chance.choice((1, 1, 2))):
        specs |= chance.choice(FLAVORS)
    properties = dict(chance.choice(PROPERTIES))
    for fields in (specs, properties):
        for key in sorted(fields):
            if chance.random() < 0.4:
                fields[key] = mangled(chance, fields[key])
            if chance.random() < 0.05:
                fields[mangled(chance, key)] = fields.pop(key)
    return specs, properties


def _use_flavor(given: tuple[dict[str, str], dict[str, str]], folder: Path) -> None:
    specs, properties = given
    check_extra_specs(specs, MAXIMUM)
    ids = count()
    requests = requests_from_flavor(specs, properties, aliases(), lambda: str(next(ids)))
    assert requests_from_json(json.loads(json.dumps(requests_to_json(requests)))) == requests
    assert all(request.count >= 1 for request in requests)
    guest = guest_topology(4, 1024, specs, properties)
    if guest is not None:
        cpus = [cpu for cell in guest.cells for cpu in cell.cpus | cell.pinned_cpus]
        assert sorted(cpus) == list(range(4)), "each CPU is in one cell"
        assert sum(cell.memory_mb for cell in guest.cells) == 1024


def _groups(chance: random.Random) -> dict[str, str]:
    specs: dict[str, str] = {}
    for _ in range(chance.choice((1, 1, 2))):
        specs |= chance.choice(GROUPS)
    for key in sorted(specs):
        if chance.random() < 0.3:
            specs[key] = mangled(chance, specs[key])
        if chance.random() < 0.3:
            specs[mangled(chance, key)] = specs.pop(key)
    return specs


def _use_groups(specs: dict[str, str], folder: Path) -> None:
    """As a boot does: older microversions let any key and value into a flavor."""
    for group in flavor_groups(specs):
        assert group.resources or not group.suffixed
        for name, amount in group.resources.items():
            assert is_resource_class(name)
            assert 1 <= amount <= LARGEST_AMOUNT, "Placement keeps it"
        assert all(is_trait(name) for name in group.required | group.forbidden)
        assert len(group.requester_id) <= 64
    misspelt(specs)
    check_extra_specs(specs, MAXIMUM)


def _node_devices(chance: random.Random) -> list[str]:
    documents, _ = machine()
    found = list(documents)
    for _ in range(chance.choice((1, 1, 2))):
        at = chance.randrange(len(found))
        found[at] = _other_xml(chance, found[at])
    if chance.random() < 0.1:
        found.append(chance.choice(found))
    return found


def _other_xml(chance: random.Random, text: str) -> str:
    if chance.random() < 0.5:
        return mangled(chance, text)
    lines = text.splitlines() or [""]
    at = chance.randrange(len(lines))
    match chance.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, chance.choice(lines))
        case 2:
            lines[at] = mangled(chance, lines[at])
        case _:  # another number
            lines[at] = lines[at].replace("0", chance.choice(("", "-1", "0x", "ffffffff", "9" * 30, "٣")))
    return "\n".join(lines)


def _use_node_devices(documents: list[str], folder: Path) -> None:
    _, files = machine()
    reports = host_report(documents, files)
    for text in documents:
        parse_node_device(text)
    specs = parse_device_specs(['{"vendor_id": "*"}'], SysfsFacts(files))
    result = synchronise([], reports, specs, 1, str)
    addresses = [device.address for device in result.created]
    assert len(addresses) == len(set(addresses))
    scan(documents, files)


def _fleet(chance: random.Random) -> str:
    if chance.random() < 0.5:
        return mangled(chance, FLEET)
    value = yaml.safe_load(FLEET)
    for _ in range(chance.choice((1, 1, 2, 3))):
        value = changed(chance, value)
    return yaml.safe_dump(value, allow_unicode=True)


def _use_fleet(text: str, folder: Path) -> None:
    path = folder / "fleet.yaml"
    path.write_bytes(text.encode(errors="surrogatepass"))
    fleet = load_fleet(path)
    settings = apply_overrides(Settings(), fleet.config, "fleet")
    parse_aliases(settings.pci_alias)
    for host in fleet.hosts[:2]:
        own = apply_overrides(settings, host.config, "fleet")
        check_fleet_host(host)
        connection, files = open_fleet_host(host, folder / "sim")
        host_resources(connection.capabilities(), own.cpu_dedicated_set, own.cpu_shared_set)
        specs = parse_device_specs(own.pci_device_spec, SysfsFacts(files))
        reports = host_report(connection.node_devices(), files)
        synchronise([], reports, specs, 1, str)


@cache
def machine() -> tuple[tuple[str, ...], Any]:
    """The node devices and files of a host that has a bit of everything."""
    folder = Path(tempfile.mkdtemp(prefix="jetbridge-fuzz-"))
    path = folder / "fleet.yaml"
    path.write_text(FLEET)
    connection, files = open_fleet_host(load_fleet(path).hosts[0], folder / "sim")
    return tuple(connection.node_devices()), files


@cache
def aliases() -> Any:
    return parse_aliases([json.dumps(alias) for alias in ALIASES[:2]])


TARGETS: dict[str, tuple[Callable[[random.Random], Any], Callable[[Any, Path], None]]] = {
    "device_spec": (_device_spec, _use_device_spec),
    "alias": (_alias, _use_alias),
    "flavor": (_flavor, _use_flavor),
    "groups": (_groups, _use_groups),
    "node devices": (_node_devices, _use_node_devices),
    "fleet": (_fleet, _use_fleet),
}


def told(fuzzer: Fuzzer, seed: int) -> str:
    """The findings, the shortest input of each kind."""
    kinds: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in fuzzer.findings:
        places = traceback.extract_tb(finding.error.__traceback__)
        ours = [f"{place.filename}:{place.lineno}" for place in places if "jetbridge" in place.filename]
        kinds.setdefault((finding.target, type(finding.error).__name__, ours[-1] if ours else ""), []).append(finding)
    lines = [f"{len(fuzzer.findings)} findings, --seed {seed}"]
    for (target, error, place), found in kinds.items():
        shortest = min((repr(finding.given) for finding in found), key=len)
        lines.append(f"{len(found)} x {target}: {error} at {place}: {str(found[0].error)[:300]}\n  {shortest[:2000]}")
    return "\n".join(lines)
