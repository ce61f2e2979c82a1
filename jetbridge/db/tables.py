"""Every table. Names and columns are those operators know from SQL snippets; see docs/reference.md, Tables.

Times are UTC without zone. Soft-deleted rows carry ``deleted = id`` (0: alive), so that unique keys hold
among the living. JSON columns hold canonical JSON text (sorted keys, no blanks).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Float,
    Index,
    Integer,
    MetaData,
    Table,
    UniqueConstraint,
)

from jetbridge.db.types import long_text, moment, short_text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _times() -> list[Column[object]]:
    return [Column("created_at", moment()), Column("updated_at", moment())]


compute_nodes = Table(
    "compute_nodes",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", short_text(36), nullable=False, unique=True),
    Column("host", short_text(255), nullable=False),
    Column("hypervisor_hostname", short_text(255), nullable=False),
    Column("hypervisor_type", short_text(64), nullable=False),
    Column("hypervisor_version", Integer, nullable=False),
    Column("generation", Integer, nullable=False, default=0),
    Column("vcpus", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("local_gb", Integer, nullable=False),
    Column("cpu_allocation_ratio", Float, nullable=False),
    Column("ram_allocation_ratio", Float, nullable=False),
    Column("disk_allocation_ratio", Float, nullable=False),
    Column("reserved_memory_mb", Integer, nullable=False, default=0),
    Column("reserved_disk_gb", Integer, nullable=False, default=0),
    Column("numa_topology", long_text()),  # the hardware, without usage
    Column("cpu_info", long_text()),
    Column("probe_error", long_text()),  # why the last discovery failed: devices are unknown
    Column("host_ip", short_text(64)),
    Column("reported", Boolean, nullable=False, default=False),  # its resource providers are in Placement
    Column("deleted", Integer, nullable=False, default=0),
    *_times(),
    UniqueConstraint("host", "hypervisor_hostname", "deleted"),
    Index("ix_compute_nodes_generation", "generation", "deleted", "id"),  # schedulers read it before each decision
)

services = Table(
    "services",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", short_text(36), nullable=False, unique=True),
    Column("host", short_text(255), nullable=False),
    Column("binary", short_text(64), nullable=False),  # nova-compute, nova-conductor, nova-scheduler
    Column("topic", short_text(64), nullable=False),
    Column("disabled", Boolean, nullable=False, default=False),
    Column("disabled_reason", short_text(255)),
    Column("forced_down", Boolean, nullable=False, default=False),
    Column("last_seen_up", moment()),
    Column("owner", short_text(255)),  # the process that serves it
    Column("deleted", Integer, nullable=False, default=0),
    *_times(),
    UniqueConstraint("host", "binary", "deleted"),
)

pci_devices = Table(
    "pci_devices",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", short_text(36), nullable=False),
    Column("compute_node_id", Integer, nullable=False),
    Column("address", short_text(12), nullable=False),
    Column("vendor_id", short_text(4), nullable=False),
    Column("product_id", short_text(4), nullable=False),
    Column("dev_type", short_text(8), nullable=False),
    Column("dev_id", short_text(255)),
    Column("label", short_text(255)),
    Column("status", short_text(36), nullable=False),
    Column("condition", short_text(16), nullable=False, default="ok"),
    Column("numa_node", Integer),
    Column("parent_addr", short_text(12)),
    Column("instance_uuid", short_text(36)),
    Column("request_id", short_text(36)),
    Column("pool_tags", long_text(), nullable=False, default="{}"),
    Column("resource_class", short_text(255)),
    Column("traits", long_text()),
    Column("one_time_use", Boolean, nullable=False, default=False),
    Column("managed", Boolean, nullable=False, default=True),
    Column("serial", short_text(255)),
    Column("parent_ifname", short_text(32)),
    Column("rp_uuid", short_text(36)),
    Column("fabric", short_text(255)),
    Column("switch", short_text(12)),  # PCIe, by address
    Column("extra_info", long_text(), nullable=False, default="{}"),
    Column("stale_update", long_text()),
    Column("deleted", Integer, nullable=False, default=0),
    Column("deleted_at", moment()),
    *_times(),
    UniqueConstraint("compute_node_id", "address", "deleted"),
    Index("ix_pci_devices_node_status", "compute_node_id", "deleted", "status"),
    Index("ix_pci_devices_instance", "instance_uuid", "deleted"),
)

flavors = Table(
    "flavors",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("flavorid", short_text(255), nullable=False, unique=True),
    Column("name", short_text(255), nullable=False, unique=True),
    Column("vcpus", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("root_gb", Integer, nullable=False),
    Column("ephemeral_gb", Integer, nullable=False, default=0),
    Column("swap", Integer, nullable=False, default=0),
    Column("rxtx_factor", Float, nullable=False, default=1.0),
    Column("is_public", Boolean, nullable=False, default=True),
    Column("disabled", Boolean, nullable=False, default=False),
    Column("description", long_text()),
    *_times(),
)

flavor_extra_specs = Table(
    "flavor_extra_specs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("flavor_id", Integer, nullable=False),
    Column("key", short_text(255), nullable=False),
    Column("value", short_text(255)),
    UniqueConstraint("flavor_id", "key"),
)

flavor_projects = Table(
    "flavor_projects",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("flavor_id", Integer, nullable=False),
    Column("project_id", short_text(255), nullable=False),
    UniqueConstraint("flavor_id", "project_id"),
)

instances = Table(
    "instances",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", short_text(36), nullable=False, unique=True),
    Column("display_name", short_text(255), nullable=False),
    Column("display_description", short_text(255)),
    Column("hostname", short_text(255)),
    Column("project_id", short_text(255), nullable=False),
    Column("user_id", short_text(255), nullable=False),
    Column("vm_state", short_text(255), nullable=False),
    Column("task_state", short_text(255)),
    Column("power_state", Integer, nullable=False, default=0),
    Column("flavorid", short_text(255), nullable=False),  # for lists; the whole flavor is in instance_extra
    Column("image_ref", short_text(255)),
    Column("host", short_text(255)),
    Column("node", short_text(255)),
    Column("compute_node_id", Integer),  # set by the claim, cleared when it is undone: usage is summed over it
    Column("vcpus", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("root_gb", Integer, nullable=False),
    Column("ephemeral_gb", Integer, nullable=False, default=0),
    Column("swap_mb", Integer, nullable=False, default=0),
    Column("key_name", short_text(255)),
    Column("user_data", long_text()),
    Column("config_drive", Boolean, nullable=False, default=False),
    Column("availability_zone", short_text(255)),
    Column("reservation_id", short_text(255)),
    Column("launch_index", Integer, nullable=False, default=0),
    Column("locked", Boolean, nullable=False, default=False),
    Column("locked_reason", short_text(255)),
    Column("request_id", short_text(64)),
    Column("launched_at", moment()),
    Column("terminated_at", moment()),
    Column("deleted", Integer, nullable=False, default=0),
    Column("deleted_at", moment()),
    *_times(),
    Index("ix_instances_project", "project_id", "deleted"),
    Index("ix_instances_node", "compute_node_id", "deleted"),
)

instance_extra = Table(
    "instance_extra",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_uuid", short_text(36), nullable=False, unique=True),
    Column("pci_requests", long_text()),
    Column("numa_topology", long_text()),  # as fitted by the claim; the request's shape before it
    Column("flavor", long_text(), nullable=False),
    Column("keypair", long_text()),
)

instance_metadata = Table(
    "instance_metadata",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_uuid", short_text(36), nullable=False),
    Column("key", short_text(255), nullable=False),
    Column("value", short_text(255)),
    UniqueConstraint("instance_uuid", "key"),
)

tags = Table(
    "tags",
    metadata,
    Column("resource_id", short_text(36), primary_key=True),
    Column("tag", short_text(80), primary_key=True),
)

instance_faults = Table(
    "instance_faults",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_uuid", short_text(36), nullable=False, index=True),
    Column("code", Integer, nullable=False),
    Column("message", short_text(255)),
    Column("details", long_text()),
    Column("host", short_text(255)),
    *_times(),
)

instance_actions = Table(
    "instance_actions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_uuid", short_text(36), nullable=False, index=True),
    Column("action", short_text(255), nullable=False),
    Column("request_id", short_text(64), nullable=False),
    Column("user_id", short_text(255)),
    Column("project_id", short_text(255)),
    Column("start_time", moment(), nullable=False),
    Column("finish_time", moment()),
    Column("message", short_text(255)),
    *_times(),
)

instance_actions_events = Table(
    "instance_actions_events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("action_id", Integer, nullable=False, index=True),
    Column("event", short_text(255), nullable=False),
    Column("start_time", moment(), nullable=False),
    Column("finish_time", moment()),
    Column("result", short_text(255)),
    Column("details", long_text()),
    Column("host", short_text(255)),
)

request_specs = Table(
    "request_specs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_uuid", short_text(36), nullable=False, unique=True),
    Column("spec", long_text(), nullable=False),
    *_times(),
)

builds = Table(
    "builds",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_uuid", short_text(36), nullable=False, index=True),
    Column("kind", short_text(32), nullable=False, default="build"),  # build, delete, ...
    Column("host", short_text(255)),
    Column("step", short_text(64)),
    Column("state", short_text(16), nullable=False),  # running, done, failed
    Column("owner", short_text(255), nullable=False),
    Column("heartbeat", moment(), nullable=False),
    Column("attempts", Integer, nullable=False, default=0),  # failures of hosts so far
    Column("tried_hosts", long_text(), nullable=False, default="[]"),
    Column("alternates", long_text(), nullable=False, default="[]"),
    Column("reason", long_text()),
    *_times(),
)

verdicts = Table(
    "verdicts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_uuid", short_text(36), nullable=False, index=True),
    Column("request_id", short_text(64), nullable=False),
    Column("attempt", Integer, nullable=False, default=1),
    Column("filter", short_text(64)),  # None: passed
    Column("rule", short_text(64)),
    Column("text", long_text()),
    Column("details", long_text(), nullable=False, default="{}"),
    Column("host_count", Integer, nullable=False),
    Column("hosts", long_text(), nullable=False),  # JSON list; long lists are cut and counted
    Column("created_at", moment()),
)

host_networks = Table(
    "host_networks",
    metadata,
    Column("compute_node_id", Integer, primary_key=True),
    Column("name", short_text(255), primary_key=True),
    Column("kind", short_text(16), nullable=False),  # network, bridge
)

networks = Table(
    "networks",
    metadata,
    Column("id", short_text(36), primary_key=True),
    Column("name", short_text(255), nullable=False, unique=True),
    Column("project_id", short_text(255), nullable=False),
    Column("shared", Boolean, nullable=False, default=False),
    Column("network_type", short_text(32)),
    Column("physical_network", short_text(64)),
    Column("segmentation_id", Integer),
    Column("description", short_text(255), nullable=False, default=""),
    *_times(),
)

ports = Table(
    "ports",
    metadata,
    Column("id", short_text(36), primary_key=True),
    Column("name", short_text(255), nullable=False, default=""),
    Column("network_id", short_text(36), nullable=False),
    Column("project_id", short_text(255), nullable=False),
    Column("mac_address", short_text(32), nullable=False),
    Column("description", short_text(255), nullable=False, default=""),
    Column("admin_state_up", Boolean, nullable=False, default=True),
    Column("device_id", short_text(255), nullable=False, default="", index=True),
    Column("device_owner", short_text(255), nullable=False, default=""),
    Column("fixed_ips", long_text(), nullable=False, default="[]"),
    Column("vnic_type", short_text(64), nullable=False, default="normal"),
    Column("profile", long_text(), nullable=False, default="{}"),
    Column("host", short_text(255)),
    Column("vif_type", short_text(64), nullable=False, default="unbound"),
    Column("vif_details", long_text(), nullable=False, default="{}"),
    Column("numa_affinity_policy", short_text(64)),
    Column("device_profile", short_text(255)),
    *_times(),
    UniqueConstraint("network_id", "mac_address"),
)

virtual_interfaces = Table(
    "virtual_interfaces",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_uuid", short_text(36), nullable=False, index=True),
    Column("address", short_text(255), nullable=False),  # MAC
    Column("network", short_text(255), nullable=False),  # its name
    Column("network_id", short_text(36), nullable=False),
    Column("uuid", short_text(36), index=True),  # the port's; None: to be made
    Column("tag", short_text(255)),
    Column("vnic_type", short_text(64), nullable=False),
    Column("request_id", short_text(36)),  # of its device request
    Column("made", Boolean, nullable=False),  # the port was made for the server, and goes with it
    Column("fixed_ips", long_text(), nullable=False, default="[]"),
    Column("host", short_text(255), index=True),  # who has bound the port, or is about to
    Column("task", short_text(16)),  # attach, detach
    *_times(),
)

key_pairs = Table(
    "key_pairs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", short_text(255), nullable=False),
    Column("user_id", short_text(255), nullable=False),
    Column("type", short_text(16), nullable=False, default="ssh"),
    Column("fingerprint", short_text(255), nullable=False),
    Column("public_key", long_text(), nullable=False),
    *_times(),
    UniqueConstraint("user_id", "name"),
)

images = Table(
    "images",
    metadata,
    Column("id", short_text(36), primary_key=True),
    Column("name", short_text(255)),
    Column("owner", short_text(255), nullable=False),
    Column("status", short_text(30), nullable=False),  # queued, saving, active
    Column("visibility", short_text(16), nullable=False, default="shared"),
    Column("container_format", short_text(20)),
    Column("disk_format", short_text(20)),
    Column("size", BigInteger),
    Column("virtual_size", BigInteger),
    Column("checksum", short_text(32)),
    Column("os_hash_algo", short_text(64)),
    Column("os_hash_value", short_text(128)),
    Column("min_disk", Integer, nullable=False, default=0),
    Column("min_ram", Integer, nullable=False, default=0),
    Column("protected", Boolean, nullable=False, default=False),
    Column("properties", long_text(), nullable=False, default="{}"),
    Column("tags", long_text(), nullable=False, default="[]"),
    *_times(),
)

spans = Table(
    "spans",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("trace_id", short_text(32), nullable=False),
    Column("span_id", short_text(16), nullable=False),
    Column("parent_id", short_text(16)),  # None: the first of its trace
    Column("request_id", short_text(64), index=True),
    Column("server", short_text(36), index=True),
    Column("seam", short_text(16), nullable=False),  # REST, CAST, CALL, LIBRARY
    Column("source", short_text(255), nullable=False),
    Column("target", short_text(255), nullable=False),
    Column("what", short_text(255), nullable=False),
    Column("started_at", moment(), nullable=False, index=True),
    Column("duration", Double, nullable=False),  # seconds
    Column("essentials", long_text(), nullable=False, default="{}"),
    Column("error", long_text()),
)

commits = Table(
    "commits",
    metadata,
    Column("token", short_text(32), primary_key=True),
    Column("created_at", moment(), nullable=False, index=True),
)
