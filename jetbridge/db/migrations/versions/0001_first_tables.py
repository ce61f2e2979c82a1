"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from jetbridge.db.types import long_text, moment, short_text

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "builds",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", short_text(36), nullable=False),
        sa.Column("kind", short_text(32), nullable=False),
        sa.Column("host", short_text(255), nullable=True),
        sa.Column("step", short_text(64), nullable=True),
        sa.Column("state", short_text(16), nullable=False),
        sa.Column("owner", short_text(255), nullable=False),
        sa.Column("heartbeat", moment(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("tried_hosts", long_text(), nullable=False),
        sa.Column("alternates", long_text(), nullable=False),
        sa.Column("reason", long_text(), nullable=True),
        sa.Column("created_at", moment(), nullable=True),
        sa.Column("updated_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_builds")),
    )
    op.create_index(op.f("ix_builds_instance_uuid"), "builds", ["instance_uuid"], unique=False)
    op.create_table(
        "compute_nodes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", short_text(36), nullable=False),
        sa.Column("host", short_text(255), nullable=False),
        sa.Column("hypervisor_hostname", short_text(255), nullable=False),
        sa.Column("hypervisor_type", short_text(64), nullable=False),
        sa.Column("hypervisor_version", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("local_gb", sa.Integer(), nullable=False),
        sa.Column("cpu_allocation_ratio", sa.Float(), nullable=False),
        sa.Column("ram_allocation_ratio", sa.Float(), nullable=False),
        sa.Column("disk_allocation_ratio", sa.Float(), nullable=False),
        sa.Column("reserved_memory_mb", sa.Integer(), nullable=False),
        sa.Column("reserved_disk_gb", sa.Integer(), nullable=False),
        sa.Column("numa_topology", long_text(), nullable=True),
        sa.Column("cpu_info", long_text(), nullable=True),
        sa.Column("probe_error", long_text(), nullable=True),
        sa.Column("host_ip", short_text(64), nullable=True),
        sa.Column("deleted", sa.Integer(), nullable=False),
        sa.Column("created_at", moment(), nullable=True),
        sa.Column("updated_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_compute_nodes")),
        sa.UniqueConstraint(
            "host", "hypervisor_hostname", "deleted", name=op.f("uq_compute_nodes_host_hypervisor_hostname_deleted")
        ),
        sa.UniqueConstraint("uuid", name=op.f("uq_compute_nodes_uuid")),
    )
    op.create_table(
        "flavor_extra_specs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("flavor_id", sa.Integer(), nullable=False),
        sa.Column("key", short_text(255), nullable=False),
        sa.Column("value", short_text(255), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_flavor_extra_specs")),
        sa.UniqueConstraint("flavor_id", "key", name=op.f("uq_flavor_extra_specs_flavor_id_key")),
    )
    op.create_table(
        "flavor_projects",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("flavor_id", sa.Integer(), nullable=False),
        sa.Column("project_id", short_text(255), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_flavor_projects")),
        sa.UniqueConstraint("flavor_id", "project_id", name=op.f("uq_flavor_projects_flavor_id_project_id")),
    )
    op.create_table(
        "flavors",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("flavorid", short_text(255), nullable=False),
        sa.Column("name", short_text(255), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("root_gb", sa.Integer(), nullable=False),
        sa.Column("ephemeral_gb", sa.Integer(), nullable=False),
        sa.Column("swap", sa.Integer(), nullable=False),
        sa.Column("rxtx_factor", sa.Float(), nullable=False),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("description", long_text(), nullable=True),
        sa.Column("created_at", moment(), nullable=True),
        sa.Column("updated_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_flavors")),
        sa.UniqueConstraint("flavorid", name=op.f("uq_flavors_flavorid")),
        sa.UniqueConstraint("name", name=op.f("uq_flavors_name")),
    )
    op.create_table(
        "host_networks",
        sa.Column("compute_node_id", sa.Integer(), nullable=False),
        sa.Column("name", short_text(255), nullable=False),
        sa.Column("kind", short_text(16), nullable=False),
        sa.PrimaryKeyConstraint("compute_node_id", "name", name=op.f("pk_host_networks")),
    )
    op.create_table(
        "images",
        sa.Column("id", short_text(36), nullable=False),
        sa.Column("name", short_text(255), nullable=True),
        sa.Column("owner", short_text(255), nullable=False),
        sa.Column("status", short_text(30), nullable=False),
        sa.Column("visibility", short_text(16), nullable=False),
        sa.Column("container_format", short_text(20), nullable=True),
        sa.Column("disk_format", short_text(20), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=True),
        sa.Column("virtual_size", sa.BigInteger(), nullable=True),
        sa.Column("checksum", short_text(32), nullable=True),
        sa.Column("os_hash_algo", short_text(64), nullable=True),
        sa.Column("os_hash_value", short_text(128), nullable=True),
        sa.Column("min_disk", sa.Integer(), nullable=False),
        sa.Column("min_ram", sa.Integer(), nullable=False),
        sa.Column("protected", sa.Boolean(), nullable=False),
        sa.Column("properties", long_text(), nullable=False),
        sa.Column("tags", long_text(), nullable=False),
        sa.Column("created_at", moment(), nullable=True),
        sa.Column("updated_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_images")),
    )
    op.create_table(
        "instance_actions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", short_text(36), nullable=False),
        sa.Column("action", short_text(255), nullable=False),
        sa.Column("request_id", short_text(64), nullable=False),
        sa.Column("user_id", short_text(255), nullable=True),
        sa.Column("project_id", short_text(255), nullable=True),
        sa.Column("start_time", moment(), nullable=False),
        sa.Column("finish_time", moment(), nullable=True),
        sa.Column("message", short_text(255), nullable=True),
        sa.Column("created_at", moment(), nullable=True),
        sa.Column("updated_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_actions")),
    )
    op.create_index(op.f("ix_instance_actions_instance_uuid"), "instance_actions", ["instance_uuid"], unique=False)
    op.create_table(
        "instance_actions_events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("action_id", sa.Integer(), nullable=False),
        sa.Column("event", short_text(255), nullable=False),
        sa.Column("start_time", moment(), nullable=False),
        sa.Column("finish_time", moment(), nullable=True),
        sa.Column("result", short_text(255), nullable=True),
        sa.Column("details", long_text(), nullable=True),
        sa.Column("host", short_text(255), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_actions_events")),
    )
    op.create_index(
        op.f("ix_instance_actions_events_action_id"), "instance_actions_events", ["action_id"], unique=False
    )
    op.create_table(
        "instance_extra",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", short_text(36), nullable=False),
        sa.Column("pci_requests", long_text(), nullable=True),
        sa.Column("numa_topology", long_text(), nullable=True),
        sa.Column("flavor", long_text(), nullable=False),
        sa.Column("keypair", long_text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_extra")),
        sa.UniqueConstraint("instance_uuid", name=op.f("uq_instance_extra_instance_uuid")),
    )
    op.create_table(
        "instance_faults",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", short_text(36), nullable=False),
        sa.Column("code", sa.Integer(), nullable=False),
        sa.Column("message", short_text(255), nullable=True),
        sa.Column("details", long_text(), nullable=True),
        sa.Column("host", short_text(255), nullable=True),
        sa.Column("created_at", moment(), nullable=True),
        sa.Column("updated_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_faults")),
    )
    op.create_index(op.f("ix_instance_faults_instance_uuid"), "instance_faults", ["instance_uuid"], unique=False)
    op.create_table(
        "instance_metadata",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", short_text(36), nullable=False),
        sa.Column("key", short_text(255), nullable=False),
        sa.Column("value", short_text(255), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_metadata")),
        sa.UniqueConstraint("instance_uuid", "key", name=op.f("uq_instance_metadata_instance_uuid_key")),
    )
    op.create_table(
        "instances",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", short_text(36), nullable=False),
        sa.Column("display_name", short_text(255), nullable=False),
        sa.Column("display_description", short_text(255), nullable=True),
        sa.Column("hostname", short_text(255), nullable=True),
        sa.Column("project_id", short_text(255), nullable=False),
        sa.Column("user_id", short_text(255), nullable=False),
        sa.Column("vm_state", short_text(255), nullable=False),
        sa.Column("task_state", short_text(255), nullable=True),
        sa.Column("power_state", sa.Integer(), nullable=False),
        sa.Column("flavorid", short_text(255), nullable=False),
        sa.Column("image_ref", short_text(255), nullable=True),
        sa.Column("host", short_text(255), nullable=True),
        sa.Column("node", short_text(255), nullable=True),
        sa.Column("compute_node_id", sa.Integer(), nullable=True),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("root_gb", sa.Integer(), nullable=False),
        sa.Column("ephemeral_gb", sa.Integer(), nullable=False),
        sa.Column("swap_mb", sa.Integer(), nullable=False),
        sa.Column("key_name", short_text(255), nullable=True),
        sa.Column("user_data", long_text(), nullable=True),
        sa.Column("config_drive", sa.Boolean(), nullable=False),
        sa.Column("availability_zone", short_text(255), nullable=True),
        sa.Column("reservation_id", short_text(255), nullable=True),
        sa.Column("launch_index", sa.Integer(), nullable=False),
        sa.Column("locked", sa.Boolean(), nullable=False),
        sa.Column("locked_reason", short_text(255), nullable=True),
        sa.Column("networks", long_text(), nullable=False),
        sa.Column("request_id", short_text(64), nullable=True),
        sa.Column("launched_at", moment(), nullable=True),
        sa.Column("terminated_at", moment(), nullable=True),
        sa.Column("deleted", sa.Integer(), nullable=False),
        sa.Column("deleted_at", moment(), nullable=True),
        sa.Column("created_at", moment(), nullable=True),
        sa.Column("updated_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instances")),
        sa.UniqueConstraint("uuid", name=op.f("uq_instances_uuid")),
    )
    op.create_index("ix_instances_node", "instances", ["compute_node_id", "deleted"], unique=False)
    op.create_index("ix_instances_project", "instances", ["project_id", "deleted"], unique=False)
    op.create_table(
        "key_pairs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", short_text(255), nullable=False),
        sa.Column("user_id", short_text(255), nullable=False),
        sa.Column("type", short_text(16), nullable=False),
        sa.Column("fingerprint", short_text(255), nullable=False),
        sa.Column("public_key", long_text(), nullable=False),
        sa.Column("created_at", moment(), nullable=True),
        sa.Column("updated_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_key_pairs")),
        sa.UniqueConstraint("user_id", "name", name=op.f("uq_key_pairs_user_id_name")),
    )
    op.create_table(
        "pci_devices",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", short_text(36), nullable=False),
        sa.Column("compute_node_id", sa.Integer(), nullable=False),
        sa.Column("address", short_text(12), nullable=False),
        sa.Column("vendor_id", short_text(4), nullable=False),
        sa.Column("product_id", short_text(4), nullable=False),
        sa.Column("dev_type", short_text(8), nullable=False),
        sa.Column("dev_id", short_text(255), nullable=True),
        sa.Column("label", short_text(255), nullable=True),
        sa.Column("status", short_text(36), nullable=False),
        sa.Column("condition", short_text(16), nullable=False),
        sa.Column("numa_node", sa.Integer(), nullable=True),
        sa.Column("parent_addr", short_text(12), nullable=True),
        sa.Column("instance_uuid", short_text(36), nullable=True),
        sa.Column("request_id", short_text(36), nullable=True),
        sa.Column("pool_tags", long_text(), nullable=False),
        sa.Column("resource_class", short_text(255), nullable=True),
        sa.Column("traits", long_text(), nullable=True),
        sa.Column("one_time_use", sa.Boolean(), nullable=False),
        sa.Column("managed", sa.Boolean(), nullable=False),
        sa.Column("serial", short_text(255), nullable=True),
        sa.Column("parent_ifname", short_text(32), nullable=True),
        sa.Column("rp_uuid", short_text(36), nullable=True),
        sa.Column("extra_info", long_text(), nullable=False),
        sa.Column("stale_update", long_text(), nullable=True),
        sa.Column("deleted", sa.Integer(), nullable=False),
        sa.Column("deleted_at", moment(), nullable=True),
        sa.Column("created_at", moment(), nullable=True),
        sa.Column("updated_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pci_devices")),
        sa.UniqueConstraint(
            "compute_node_id", "address", "deleted", name=op.f("uq_pci_devices_compute_node_id_address_deleted")
        ),
    )
    op.create_index("ix_pci_devices_instance", "pci_devices", ["instance_uuid", "deleted"], unique=False)
    op.create_index("ix_pci_devices_node_status", "pci_devices", ["compute_node_id", "deleted", "status"], unique=False)
    op.create_table(
        "request_specs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", short_text(36), nullable=False),
        sa.Column("spec", long_text(), nullable=False),
        sa.Column("created_at", moment(), nullable=True),
        sa.Column("updated_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_request_specs")),
        sa.UniqueConstraint("instance_uuid", name=op.f("uq_request_specs_instance_uuid")),
    )
    op.create_table(
        "services",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", short_text(36), nullable=False),
        sa.Column("host", short_text(255), nullable=False),
        sa.Column("binary", short_text(64), nullable=False),
        sa.Column("topic", short_text(64), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", short_text(255), nullable=True),
        sa.Column("forced_down", sa.Boolean(), nullable=False),
        sa.Column("last_seen_up", moment(), nullable=True),
        sa.Column("owner", short_text(255), nullable=True),
        sa.Column("deleted", sa.Integer(), nullable=False),
        sa.Column("created_at", moment(), nullable=True),
        sa.Column("updated_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_services")),
        sa.UniqueConstraint("host", "binary", "deleted", name=op.f("uq_services_host_binary_deleted")),
        sa.UniqueConstraint("uuid", name=op.f("uq_services_uuid")),
    )
    op.create_table(
        "tags",
        sa.Column("resource_id", short_text(36), nullable=False),
        sa.Column("tag", short_text(80), nullable=False),
        sa.PrimaryKeyConstraint("resource_id", "tag", name=op.f("pk_tags")),
    )
    op.create_table(
        "verdicts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", short_text(36), nullable=False),
        sa.Column("request_id", short_text(64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("filter", short_text(64), nullable=True),
        sa.Column("rule", short_text(64), nullable=True),
        sa.Column("text", long_text(), nullable=True),
        sa.Column("details", long_text(), nullable=False),
        sa.Column("host_count", sa.Integer(), nullable=False),
        sa.Column("hosts", long_text(), nullable=False),
        sa.Column("created_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verdicts")),
    )
    op.create_index(op.f("ix_verdicts_instance_uuid"), "verdicts", ["instance_uuid"], unique=False)
