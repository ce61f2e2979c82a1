"""Every option there is, with the help that explains it.

Names, types and defaults are those of nova.conf where it has the option; ``[jetbridge]`` and ``[api]`` hold our own. Defaults
stand in ``Settings`` alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache

from oslo_config import cfg, types

from jetbridge.config import (
    accelerator_options,
    cleaning_options,
    neutron_options,
    placement_options,
    rabbit_options,
)
from jetbridge.config.setting import CpuSet, Setting


def _old(name: str, group: str) -> cfg.DeprecatedOpt:
    return cfg.DeprecatedOpt(name, group=group)


def _whole(least: int, most: int | None = None) -> str:
    return f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"


TRUTH = "true or false"


def _pci() -> list[Setting]:
    return [
        Setting(
            "pci",
            "pci_device_spec",
            cfg.MultiStrOpt(
                "device_spec",
                deprecated_opts=[_old("passthrough_whitelist", "pci"), _old("pci_passthrough_whitelist", "DEFAULT")],
                help="Which functions of this host may be given to guests: a JSON object, or a list of them. May be repeated; the first "
                'that matches a function counts. Example: {"vendor_id": "10de", "product_id": "1eb8"}. `jetbridge scan` prints '
                "the line for each function of a machine.",
            ),
            'a JSON object such as {"vendor_id": "10de", "product_id": "1eb8"}',
        ),
        Setting(
            "pci",
            "pci_alias",
            cfg.MultiStrOpt(
                "alias",
                deprecated_opts=[_old("pci_alias", "DEFAULT")],
                help="A name for a kind of device, which flavors ask for with pci_passthrough:alias=NAME:COUNT. A JSON object; may be "
                'repeated, and objects of one name are alternatives. Example: {"name": "GPU", "vendor_id": "10de", "product_id": '
                '"1eb8", "device_type": "type-PCI", "numa_policy": "preferred"}. The API and every compute host need the same.',
            ),
            'a JSON object such as {"name": "GPU", "vendor_id": "10de", "product_id": "1eb8"}',
        ),
        Setting(
            "pci",
            "pci_report_in_placement",
            cfg.BoolOpt(
                "report_in_placement",
                help="Show the devices of this host in Placement, one provider per device or physical function. Can't be switched off "
                "again on a host.",
            ),
            TRUTH,
        ),
    ]


def _vgpu() -> list[Setting]:
    return [
        Setting(
            "devices",
            "enabled_mdev_types",
            cfg.ListOpt(
                "enabled_mdev_types",
                deprecated_opts=[_old("enabled_vgpu_types", "devices")],
                help="The vGPU types that this host offers, such as nvidia-558; `jetbridge vgpu types` shows what its cards have. Which card carries "
                "which type is said in sections named after them, [mdev_nvidia-558]. Without any: no vGPUs.",
            ),
            "names of types separated by commas, such as nvidia-558",
        ),
    ]


def _scheduling() -> list[Setting]:
    return [
        Setting(
            "filter_scheduler",
            "enabled_filters",
            cfg.ListOpt(
                "enabled_filters",
                help="What a host has to pass, in this order. Without PciPassthroughFilter and NUMATopologyFilter devices are not looked at "
                "before the claim on the host, so that wrong hosts are tried.",
            ),
            "names separated by commas, such as ComputeFilter,PciPassthroughFilter,NUMATopologyFilter",
        ),
        Setting(
            "filter_scheduler",
            "pci_in_placement",
            cfg.BoolOpt(
                "pci_in_placement",
                help="Schedule devices by their providers in Placement. Switch on [pci]report_in_placement on every host before.",
            ),
            TRUTH,
        ),
        Setting(
            "filter_scheduler",
            "pci_weight_multiplier",
            cfg.FloatOpt(
                "pci_weight_multiplier",
                min=0.0,
                help="How much it counts that a server uses up hosts with few free devices of the kind it asks for, and that servers "
                "without devices keep off hosts that have some. 0: not at all.",
            ),
            "a number of at least 0",
        ),
        Setting(
            "filter_scheduler",
            "host_subset_size",
            cfg.IntOpt(
                "host_subset_size",
                min=1,
                help="The host is chosen at random among the best so many: above 1, schedulers that decide at once collide less often.",
            ),
            _whole(1),
        ),
        Setting(
            "filter_scheduler",
            "shuffle_best_same_weighed_hosts",
            cfg.BoolOpt(
                "shuffle_best_same_weighed_hosts",
                help="Choose at random among hosts of the same best weight, instead of always the first.",
            ),
            TRUTH,
        ),
        Setting(
            "scheduler",
            "max_attempts",
            cfg.IntOpt(
                "max_attempts",
                min=1,
                help="On how many hosts a build may fail before the server goes to ERROR. A claim lost to a faster request does not count.",
            ),
            _whole(1),
        ),
    ]


def _compute() -> list[Setting]:
    ratio = "a number above 0, such as 1.5"
    return [
        Setting(
            "compute",
            "packing_host_numa_cells_allocation_strategy",
            cfg.BoolOpt(
                "packing_host_numa_cells_allocation_strategy",
                help="Fill the most used NUMA cells of a host first, instead of spreading guests over the cells.",
            ),
            TRUTH,
        ),
        Setting(
            "compute",
            "cpu_dedicated_set",
            cfg.Opt(
                "cpu_dedicated_set", type=CpuSet(), help="Host CPUs for guests with pinned CPUs, for example 4-15,^8."
            ),
            "a CPU list such as 4-15,^8",
        ),
        Setting(
            "compute",
            "cpu_shared_set",
            cfg.Opt(
                "cpu_shared_set",
                type=CpuSet(),
                help="Host CPUs for guests whose CPUs float, and for emulator threads, for example 0-3.",
            ),
            "a CPU list such as 0-3",
        ),
        Setting(
            "DEFAULT",
            "cpu_allocation_ratio",
            cfg.FloatOpt("cpu_allocation_ratio", min=0.01, help="How many virtual CPUs are given out per host CPU."),
            ratio,
        ),
        Setting(
            "DEFAULT",
            "ram_allocation_ratio",
            cfg.FloatOpt("ram_allocation_ratio", min=0.01, help="How much memory is given out per memory of the host."),
            ratio,
        ),
        Setting(
            "DEFAULT",
            "disk_allocation_ratio",
            cfg.FloatOpt("disk_allocation_ratio", min=0.01, help="How much disk is given out per disk of the host."),
            ratio,
        ),
        Setting(
            "DEFAULT",
            "reserved_host_memory_mb",
            cfg.IntOpt("reserved_host_memory_mb", min=0, help="Memory that is kept for the host itself, in MiB."),
            _whole(0),
        ),
        Setting(
            "DEFAULT",
            "reserved_host_disk_mb",
            cfg.IntOpt("reserved_host_disk_mb", min=0, help="Disk that is kept for the host itself, in MiB."),
            _whole(0),
        ),
        Setting(
            "DEFAULT",
            "update_resources_interval",
            cfg.IntOpt(
                "update_resources_interval",
                min=1,
                help="Seconds between two looks at a host's hardware and at what should be given back.",
            ),
            _whole(1),
        ),
        Setting(
            "DEFAULT",
            "host",
            cfg.StrOpt("host", help="This machine's name as a compute host. Without it: what the system calls itself."),
            "a host name",
        ),
        Setting(
            "libvirt",
            "connection_uri",
            cfg.StrOpt("connection_uri", help="Where libvirt answers, for example qemu:///system."),
            "a libvirt URI such as qemu:///system",
        ),
        Setting(
            "libvirt",
            "virt_type",
            cfg.StrOpt(
                "virt_type",
                choices=["kvm", "qemu"],
                help="kvm, or qemu for machines without hardware virtualization (slow). Devices can be given to guests with both.",
            ),
            "kvm or qemu",
        ),
        Setting(
            "libvirt",
            "num_pcie_ports",
            cfg.IntOpt(
                "num_pcie_ports",
                min=0,
                max=28,
                help="PCIe root ports of each guest, for devices added later. 0: as many as libvirt makes by itself.",
            ),
            _whole(0, 28),
        ),
    ]


def _services() -> list[Setting]:
    return [
        Setting(
            "DEFAULT",
            "service_down_time",
            cfg.IntOpt("service_down_time", min=1, help="Seconds of silence after which a service counts as down."),
            _whole(1),
        ),
        Setting(
            "DEFAULT",
            "report_interval",
            cfg.IntOpt("report_interval", min=1, help="Seconds between two heartbeats of a service."),
            _whole(1),
        ),
        Setting(
            "DEFAULT",
            "transport_url",
            cfg.StrOpt(
                "transport_url",
                secret=True,
                help="RabbitMQ, for services as processes of their own: rabbit://user:password@host:5672/. `jetbridge up` needs none: it "
                "is one process. Only read from a file named jetbridge*.conf.",
            ),
            "a URL such as rabbit://user:password@host:5672/",
        ),
        Setting("DEFAULT", "debug", cfg.BoolOpt("debug", help="Write debug lines to the log."), TRUTH),
        Setting(
            "api",
            "auth_strategy",
            cfg.StrOpt(
                "auth_strategy",
                choices=["none", "http_basic"],
                help="none: whoever reaches the port is the administrator (refused on other than loopback addresses). http_basic: name and "
                "password from [api]http_basic_auth_user_file.",
            ),
            "none or http_basic",
        ),
        Setting(
            "api",
            "http_basic_auth_user_file",
            cfg.Opt(
                "http_basic_auth_user_file",
                type=types.String(),
                help="File with a line user:BCRYPT-HASH:project:role,role for each user.",
            ),
            "the path of a file",
        ),
        Setting(
            "jetbridge",
            "image_dir",
            cfg.StrOpt(
                "image_dir",
                help="Folder of the images' data. Without it: `images` in the state folder. With services on several machines: a folder that "
                "the API and all compute hosts share.",
            ),
            "the path of a folder",
        ),
        Setting(
            "jetbridge",
            "keep_days",
            cfg.IntOpt(
                "keep_days",
                min=1,
                help="For how many days it is kept why each host was chosen or refused, and which way each request took.",
            ),
            _whole(1),
        ),
        Setting(
            "jetbridge",
            "workers",
            cfg.IntOpt("workers", min=2, max=1024, help="Threads that do the work of all services of a process."),
            _whole(2, 1024),
        ),
        Setting(
            "jetbridge",
            "otlp_endpoint",
            cfg.StrOpt(
                "otlp_endpoint",
                help="URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://collector:4318. The spans of all requests go "
                "there too. Without it they are in the database only.",
            ),
            "the URL of a collector, such as http://collector:4318",
        ),
    ]


def _database() -> list[Setting]:
    return [
        Setting(
            "database",
            "database_connection",
            cfg.StrOpt(
                "connection",
                secret=True,
                help="URL of the database: postgresql://user:password@host/database, mariadb://user:password@host/database or "
                "sqlite:////path/to/file. Without it: an SQLite file in the state folder. Only read from a file named jetbridge*.conf.",
            ),
            "a URL such as postgresql://user:password@host/database",
        ),
    ]


SETTINGS: tuple[Setting, ...] = (
    *_pci(),
    *cleaning_options.SETTINGS,
    *_scheduling(),
    *_compute(),
    *_vgpu(),
    *_services(),
    *rabbit_options.SETTINGS,
    *_database(),
    *accelerator_options.SETTINGS,
    *placement_options.SETTINGS,
    *neutron_options.SETTINGS,
)

SECTIONS_WITHOUT_OPTIONS_YET: tuple[str, ...] = ()
"""Sections for parts that this version doesn't have: read, and what they say has no effect."""

SECTIONS_OF_FILES_ALONE = ("database", "cyborg", "placement", "neutron", rabbit_options.SECTION)
"""Not for fleet files, and never suggested to be taken over from another system's file."""

NO_EFFECT_YET = (
    frozenset({("scheduler", "max_placement_results"), ("DEFAULT", "migrate_max_retries")}) | neutron_options.NO_EFFECT
)


@cache
def _by_name() -> Mapping[tuple[str, str], Setting]:
    return {(setting.group, setting.name): setting for setting in SETTINGS}


@cache
def _by_old_name() -> Mapping[tuple[str, str], Setting]:
    return {(str(old.group), str(old.name)): setting for setting in SETTINGS for old in setting.option.deprecated_opts}


def groups() -> tuple[str, ...]:
    """Sections that have options."""
    return tuple(dict.fromkeys(setting.group for setting in SETTINGS))


def lookup(group: str, name: str) -> Setting | None:
    return _by_name().get((group, name))


def lookup_old(group: str, name: str) -> Setting | None:
    """By a name of former releases."""
    return _by_old_name().get((group, name))


def nearest(word: str, known: Iterable[str], likeness: float = 0.65) -> str | None:
    """The known word that was probably meant; ``likeness`` 1: only the word itself."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=likeness)
    return found[0] if found else None


def nearest_option(group: str, name: str, likeness: float = 0.65) -> str | None:
    """The option that was probably meant, as ``[section]name``: of the same section by a similar name, or of another by the same name."""
    here = nearest(name, (setting.name for setting in SETTINGS if setting.group == group), likeness)
    if here is not None:
        return f"[{group}]{here}"
    elsewhere = [setting.label for setting in SETTINGS if setting.name == name]
    return elsewhere[0] if elsewhere else None
