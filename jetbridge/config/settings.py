"""The options as one frozen value. Rooms take a ``Settings`` (or a single value), never a config object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jetbridge.mdev.config import TypeOptions


@dataclass(frozen=True)
class Settings:
    """Field names are GROUP_OPTION without the group for [DEFAULT]; ``config.overrides.apply_overrides`` takes (group, option) names as
    operators write them. Lists of JSON options stay text exactly as written (device_spec, alias): their
    parsers in ``pci/`` report errors with that text.
    """

    # [pci]
    pci_device_spec: tuple[str, ...] = ()
    pci_alias: tuple[str, ...] = ()
    pci_report_in_placement: bool = False
    pci_cleaner: str | None = None  # a command; None: devices are given again as they were given back
    pci_cleaner_timeout: int = 300
    # [filter_scheduler]
    enabled_filters: tuple[str, ...] = ("ComputeFilter", "PciPassthroughFilter", "NUMATopologyFilter")
    pci_in_placement: bool = False
    pci_weight_multiplier: float = 1.0
    host_subset_size: int = 1
    shuffle_best_same_weighed_hosts: bool = False
    # [scheduler]
    max_attempts: int = 3
    # [compute]
    packing_host_numa_cells_allocation_strategy: bool = False
    cpu_dedicated_set: str | None = None
    cpu_shared_set: str | None = None
    # [DEFAULT]
    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    reserved_host_memory_mb: int = 512
    reserved_host_disk_mb: int = 0
    update_resources_interval: int = 60
    service_down_time: int = 60
    report_interval: int = 10
    host: str | None = None  # this machine's name as a compute host; None: what the system calls it
    debug: bool = False
    transport_url: str | None = field(default=None, repr=False)  # holds a password; None: everything in one process
    # [oslo_messaging_rabbit]
    oslo_messaging_rabbit_ssl: bool = False
    oslo_messaging_rabbit_ssl_ca_file: str | None = None
    oslo_messaging_rabbit_ssl_cert_file: str | None = None
    oslo_messaging_rabbit_ssl_key_file: str | None = None
    oslo_messaging_rabbit_ssl_version: str | None = None
    # [libvirt]
    connection_uri: str = "qemu:///system"
    virt_type: str = "kvm"
    num_pcie_ports: int = 0
    # [devices] and the [mdev_TYPE] sections, by type
    enabled_mdev_types: tuple[str, ...] = ()
    mdev_types: Mapping[str, TypeOptions] = field(default_factory=dict)
    # [api]
    auth_strategy: str = "none"  # none, http_basic
    http_basic_auth_user_file: Path | None = None
    # [jetbridge]
    image_dir: Path | None = None
    keep_days: int = 14
    workers: int = 16
    otlp_endpoint: str | None = None  # None: spans stay in the database
    # [neutron]; without endpoint_override and auth_url networks and ports are our own
    neutron_endpoint_override: str | None = None
    neutron_auth_type: str = "none"  # none, http_basic, password
    neutron_auth_url: str | None = None
    neutron_username: str | None = None
    neutron_password: str | None = field(default=None, repr=False)
    neutron_project_name: str | None = None
    neutron_user_domain_name: str = "Default"
    neutron_project_domain_name: str = "Default"
    neutron_region_name: str | None = None
    neutron_valid_interfaces: tuple[str, ...] = ("internal", "public")
    neutron_cafile: str | None = None
    neutron_insecure: bool = False
    neutron_timeout: int = 30
    # [database]
    database_connection: str | None = field(
        default=None, repr=False
    )  # holds a password; None: SQLite in the state folder
    # [accelerator], [cyborg] and what belongs to them; without endpoint_override and auth_url the embedded service
    accelerator_device_spec: tuple[str, ...] = ()
    arq_binding_timeout: int = 300
    cyborg_endpoint_override: str | None = None
    cyborg_auth_type: str = "none"  # none, http_basic, password
    cyborg_auth_url: str | None = None
    cyborg_username: str | None = None
    cyborg_password: str | None = field(default=None, repr=False)
    cyborg_project_name: str | None = None
    cyborg_user_domain_name: str = "Default"
    cyborg_project_domain_name: str = "Default"
    cyborg_region_name: str | None = None
    cyborg_valid_interfaces: tuple[str, ...] = ("internal", "public")
    cyborg_cafile: str | None = None
    cyborg_insecure: bool = False
    # [placement]: another's Placement; without endpoint_override and auth_url the embedded one
    placement_endpoint_override: str | None = None
    placement_auth_type: str = "none"  # none, http_basic, password
    placement_auth_url: str | None = None
    placement_username: str | None = None
    placement_password: str | None = field(default=None, repr=False)
    placement_project_name: str | None = None
    placement_user_domain_name: str = "Default"
    placement_project_domain_name: str = "Default"
    placement_region_name: str | None = None
    placement_valid_interfaces: tuple[str, ...] = ("internal", "public")
    placement_cafile: str | None = None
    placement_insecure: bool = False
    # the file each option came from, for messages: (group, option) -> path
    origins: Mapping[tuple[str, str], str] = field(default_factory=dict)
