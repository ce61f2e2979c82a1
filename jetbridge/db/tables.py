"""Every table. Names and columns are those operators know from SQL snippets; see docs/reference.md, Tables.

Times are UTC without zone. Soft-deleted rows carry ``deleted = id`` (0: alive), so that unique keys hold
among the living. JSON columns hold canonical JSON text (sorted keys, no blanks).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _times() -> list[Column[object]]:
    return [Column("created_at", DateTime), Column("updated_at", DateTime)]


compute_nodes = Table(
    "compute_nodes",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", String(36), nullable=False, unique=True),
    Column("host", String(255), nullable=False),
    Column("hypervisor_hostname", String(255), nullable=False),
    Column("hypervisor_type", String(64), nullable=False),
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
    Column("numa_topology", Text),  # the hardware, without usage
    Column("cpu_info", Text),
    Column("probe_error", Text),  # why the last discovery failed: devices are unknown
    Column("host_ip", String(64)),
    Column("deleted", Integer, nullable=False, default=0),
    *_times(),
    UniqueConstraint("host", "hypervisor_hostname", "deleted"),
)

services = Table(
    "services",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", String(36), nullable=False, unique=True),
    Column("host", String(255), nullable=False),
    Column("binary", String(64), nullable=False),  # nova-compute, nova-conductor, nova-scheduler
    Column("topic", String(64), nullable=False),
    Column("disabled", Boolean, nullable=False, default=False),
    Column("disabled_reason", String(255)),
    Column("forced_down", Boolean, nullable=False, default=False),
    Column("last_seen_up", DateTime),
    Column("owner", String(255)),  # the process that serves it
    Column("deleted", Integer, nullable=False, default=0),
    *_times(),
    UniqueConstraint("host", "binary", "deleted"),
)

pci_devices = Table(
    "pci_devices",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", String(36), nullable=False),
    Column("compute_node_id", Integer, nullable=False),
    Column("address", String(12), nullable=False),
    Column("vendor_id", String(4), nullable=False),
    Column("product_id", String(4), nullable=False),
    Column("dev_type", String(8), nullable=False),
    Column("dev_id", String(255)),
    Column("label", String(255)),
    Column("status", String(36), nullable=False),
    Column("condition", String(16), nullable=False, default="ok"),
    Column("numa_node", Integer),
    Column("parent_addr", String(12)),
    Column("instance_uuid", String(36)),
    Column("request_id", String(36)),
    Column("pool_tags", Text, nullable=False, default="{}"),
    Column("resource_class", String(255)),
    Column("traits", Text),
    Column("one_time_use", Boolean, nullable=False, default=False),
    Column("managed", Boolean, nullable=False, default=True),
    Column("serial", String(255)),
    Column("parent_ifname", String(32)),
    Column("rp_uuid", String(36)),
    Column("extra_info", Text, nullable=False, default="{}"),
    Column("stale_update", Text),
    Column("deleted", Integer, nullable=False, default=0),
    Column("deleted_at", DateTime),
    *_times(),
    UniqueConstraint("compute_node_id", "address", "deleted"),
    Index("ix_pci_devices_node_status", "compute_node_id", "deleted", "status"),
    Index("ix_pci_devices_instance", "instance_uuid", "deleted"),
)

flavors = Table(
    "flavors",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("flavorid", String(255), nullable=False, unique=True),
    Column("name", String(255), nullable=False, unique=True),
    Column("vcpus", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("root_gb", Integer, nullable=False),
    Column("ephemeral_gb", Integer, nullable=False, default=0),
    Column("swap", Integer, nullable=False, default=0),
    Column("rxtx_factor", Float, nullable=False, default=1.0),
    Column("is_public", Boolean, nullable=False, default=True),
    Column("disabled", Boolean, nullable=False, default=False),
    Column("description", Text),
    *_times(),
)

flavor_extra_specs = Table(
    "flavor_extra_specs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("flavor_id", Integer, nullable=False),
    Column("key", String(255), nullable=False),
    Column("value", String(255)),
    UniqueConstraint("flavor_id", "key"),
)

flavor_projects = Table(
    "flavor_projects",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("flavor_id", Integer, nullable=False),
    Column("project_id", String(255), nullable=False),
    UniqueConstraint("flavor_id", "project_id"),
)

instances = Table(
    "instances",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", String(36), nullable=False, unique=True),
    Column("display_name", String(255), nullable=False),
    Column("display_description", String(255)),
    Column("hostname", String(255)),
    Column("project_id", String(255), nullable=False),
    Column("user_id", String(255), nullable=False),
    Column("vm_state", String(255), nullable=False),
    Column("task_state", String(255)),
    Column("power_state", Integer, nullable=False, default=0),
    Column("flavorid", String(255), nullable=False),  # for lists; the whole flavor is in instance_extra
    Column("image_ref", String(255)),
    Column("host", String(255)),
    Column("node", String(255)),
    Column("compute_node_id", Integer),  # set by the claim, cleared when it is undone: usage is summed over it
    Column("vcpus", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("root_gb", Integer, nullable=False),
    Column("ephemeral_gb", Integer, nullable=False, default=0),
    Column("swap_mb", Integer, nullable=False, default=0),
    Column("key_name", String(255)),
    Column("user_data", Text),
    Column("config_drive", Boolean, nullable=False, default=False),
    Column("availability_zone", String(255)),
    Column("reservation_id", String(255)),
    Column("launch_index", Integer, nullable=False, default=0),
    Column("locked", Boolean, nullable=False, default=False),
    Column("locked_reason", String(255)),
    Column("networks", Text, nullable=False, default="[]"),
    Column("request_id", String(64)),
    Column("launched_at", DateTime),
    Column("terminated_at", DateTime),
    Column("deleted", Integer, nullable=False, default=0),
    Column("deleted_at", DateTime),
    *_times(),
    Index("ix_instances_project", "project_id", "deleted"),
    Index("ix_instances_node", "compute_node_id", "deleted"),
)

instance_extra = Table(
    "instance_extra",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_uuid", String(36), nullable=False, unique=True),
    Column("pci_requests", Text),
    Column("numa_topology", Text),  # as fitted by the claim; the request's shape before it
    Column("flavor", Text, nullable=False),
    Column("keypair", Text),
)

instance_metadata = Table(
    "instance_metadata",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_uuid", String(36), nullable=False),
    Column("key", String(255), nullable=False),
    Column("value", String(255)),
    UniqueConstraint("instance_uuid", "key"),
)

tags = Table(
    "tags",
    metadata,
    Column("resource_id", String(36), primary_key=True),
    Column("tag", String(80), primary_key=True),
)

instance_faults = Table(
    "instance_faults",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_uuid", String(36), nullable=False, index=True),
    Column("code", Integer, nullable=False),
    Column("message", String(255)),
    Column("details", Text),
    Column("host", String(255)),
    *_times(),
)

instance_actions = Table(
    "instance_actions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_uuid", String(36), nullable=False, index=True),
    Column("action", String(255), nullable=False),
    Column("request_id", String(64), nullable=False),
    Column("user_id", String(255)),
    Column("project_id", String(255)),
    Column("start_time", DateTime, nullable=False),
    Column("finish_time", DateTime),
    Column("message", String(255)),
    *_times(),
)

instance_actions_events = Table(
    "instance_actions_events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("action_id", Integer, nullable=False, index=True),
    Column("event", String(255), nullable=False),
    Column("start_time", DateTime, nullable=False),
    Column("finish_time", DateTime),
    Column("result", String(255)),
    Column("details", Text),
    Column("host", String(255)),
)

request_specs = Table(
    "request_specs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_uuid", String(36), nullable=False, unique=True),
    Column("spec", Text, nullable=False),
    *_times(),
)

builds = Table(
    "builds",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_uuid", String(36), nullable=False, index=True),
    Column("kind", String(32), nullable=False, default="build"),  # build, delete, ...
    Column("host", String(255)),
    Column("step", String(64)),
    Column("state", String(16), nullable=False),  # running, done, failed
    Column("owner", String(255), nullable=False),
    Column("heartbeat", DateTime, nullable=False),
    Column("attempts", Integer, nullable=False, default=0),  # failures of hosts so far
    Column("tried_hosts", Text, nullable=False, default="[]"),
    Column("alternates", Text, nullable=False, default="[]"),
    Column("reason", Text),
    *_times(),
)

verdicts = Table(
    "verdicts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_uuid", String(36), nullable=False, index=True),
    Column("request_id", String(64), nullable=False),
    Column("attempt", Integer, nullable=False, default=1),
    Column("filter", String(64)),  # None: passed
    Column("rule", String(64)),
    Column("text", Text),
    Column("details", Text, nullable=False, default="{}"),
    Column("host_count", Integer, nullable=False),
    Column("hosts", Text, nullable=False),  # JSON list; long lists are cut and counted
    Column("created_at", DateTime),
)

host_networks = Table(
    "host_networks",
    metadata,
    Column("compute_node_id", Integer, primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("kind", String(16), nullable=False),  # network, bridge
)

key_pairs = Table(
    "key_pairs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(255), nullable=False),
    Column("user_id", String(255), nullable=False),
    Column("type", String(16), nullable=False, default="ssh"),
    Column("fingerprint", String(255), nullable=False),
    Column("public_key", Text, nullable=False),
    *_times(),
    UniqueConstraint("user_id", "name"),
)

images = Table(
    "images",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("name", String(255)),
    Column("owner", String(255), nullable=False),
    Column("status", String(30), nullable=False),  # queued, saving, active
    Column("visibility", String(16), nullable=False, default="shared"),
    Column("container_format", String(20)),
    Column("disk_format", String(20)),
    Column("size", BigInteger),
    Column("virtual_size", BigInteger),
    Column("checksum", String(32)),
    Column("os_hash_algo", String(64)),
    Column("os_hash_value", String(128)),
    Column("min_disk", Integer, nullable=False, default=0),
    Column("min_ram", Integer, nullable=False, default=0),
    Column("protected", Boolean, nullable=False, default=False),
    Column("properties", Text, nullable=False, default="{}"),
    Column("tags", Text, nullable=False, default="[]"),
    *_times(),
)
