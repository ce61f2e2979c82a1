"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "builds",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=True),
        sa.Column("step", sa.String(length=64), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("heartbeat", sa.DateTime(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("tried_hosts", sa.Text(), nullable=False),
        sa.Column("alternates", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_builds")),
    )
    op.create_index(op.f("ix_builds_instance_uuid"), "builds", ["instance_uuid"], unique=False)
    op.create_table(
        "compute_nodes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("hypervisor_hostname", sa.String(length=255), nullable=False),
        sa.Column("hypervisor_type", sa.String(length=64), nullable=False),
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
        sa.Column("numa_topology", sa.Text(), nullable=True),
        sa.Column("cpu_info", sa.Text(), nullable=True),
        sa.Column("probe_error", sa.Text(), nullable=True),
        sa.Column("host_ip", sa.String(length=64), nullable=True),
        sa.Column("deleted", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
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
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("value", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_flavor_extra_specs")),
        sa.UniqueConstraint("flavor_id", "key", name=op.f("uq_flavor_extra_specs_flavor_id_key")),
    )
    op.create_table(
        "flavor_projects",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("flavor_id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_flavor_projects")),
        sa.UniqueConstraint("flavor_id", "project_id", name=op.f("uq_flavor_projects_flavor_id_project_id")),
    )
    op.create_table(
        "flavors",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("flavorid", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("root_gb", sa.Integer(), nullable=False),
        sa.Column("ephemeral_gb", sa.Integer(), nullable=False),
        sa.Column("swap", sa.Integer(), nullable=False),
        sa.Column("rxtx_factor", sa.Float(), nullable=False),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_flavors")),
        sa.UniqueConstraint("flavorid", name=op.f("uq_flavors_flavorid")),
        sa.UniqueConstraint("name", name=op.f("uq_flavors_name")),
    )
    op.create_table(
        "host_networks",
        sa.Column("compute_node_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.PrimaryKeyConstraint("compute_node_id", "name", name=op.f("pk_host_networks")),
    )
    op.create_table(
        "images",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=True),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=30), nullable=False),
        sa.Column("visibility", sa.String(length=16), nullable=False),
        sa.Column("container_format", sa.String(length=20), nullable=True),
        sa.Column("disk_format", sa.String(length=20), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=True),
        sa.Column("virtual_size", sa.BigInteger(), nullable=True),
        sa.Column("checksum", sa.String(length=32), nullable=True),
        sa.Column("os_hash_algo", sa.String(length=64), nullable=True),
        sa.Column("os_hash_value", sa.String(length=128), nullable=True),
        sa.Column("min_disk", sa.Integer(), nullable=False),
        sa.Column("min_ram", sa.Integer(), nullable=False),
        sa.Column("protected", sa.Boolean(), nullable=False),
        sa.Column("properties", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_images")),
    )
    op.create_table(
        "instance_actions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("action", sa.String(length=255), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=True),
        sa.Column("project_id", sa.String(length=255), nullable=True),
        sa.Column("start_time", sa.DateTime(), nullable=False),
        sa.Column("finish_time", sa.DateTime(), nullable=True),
        sa.Column("message", sa.String(length=255), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_actions")),
    )
    op.create_index(op.f("ix_instance_actions_instance_uuid"), "instance_actions", ["instance_uuid"], unique=False)
    op.create_table(
        "instance_actions_events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("action_id", sa.Integer(), nullable=False),
        sa.Column("event", sa.String(length=255), nullable=False),
        sa.Column("start_time", sa.DateTime(), nullable=False),
        sa.Column("finish_time", sa.DateTime(), nullable=True),
        sa.Column("result", sa.String(length=255), nullable=True),
        sa.Column("details", sa.Text(), nullable=True),
        sa.Column("host", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_actions_events")),
    )
    op.create_index(
        op.f("ix_instance_actions_events_action_id"), "instance_actions_events", ["action_id"], unique=False
    )
    op.create_table(
        "instance_extra",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("pci_requests", sa.Text(), nullable=True),
        sa.Column("numa_topology", sa.Text(), nullable=True),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("keypair", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_extra")),
        sa.UniqueConstraint("instance_uuid", name=op.f("uq_instance_extra_instance_uuid")),
    )
    op.create_table(
        "instance_faults",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("code", sa.Integer(), nullable=False),
        sa.Column("message", sa.String(length=255), nullable=True),
        sa.Column("details", sa.Text(), nullable=True),
        sa.Column("host", sa.String(length=255), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_faults")),
    )
    op.create_index(op.f("ix_instance_faults_instance_uuid"), "instance_faults", ["instance_uuid"], unique=False)
    op.create_table(
        "instance_metadata",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("value", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_metadata")),
        sa.UniqueConstraint("instance_uuid", "key", name=op.f("uq_instance_metadata_instance_uuid_key")),
    )
    op.create_table(
        "instances",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("display_name", sa.String(length=255), nullable=False),
        sa.Column("display_description", sa.String(length=255), nullable=True),
        sa.Column("hostname", sa.String(length=255), nullable=True),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("vm_state", sa.String(length=255), nullable=False),
        sa.Column("task_state", sa.String(length=255), nullable=True),
        sa.Column("power_state", sa.Integer(), nullable=False),
        sa.Column("flavorid", sa.String(length=255), nullable=False),
        sa.Column("image_ref", sa.String(length=255), nullable=True),
        sa.Column("host", sa.String(length=255), nullable=True),
        sa.Column("node", sa.String(length=255), nullable=True),
        sa.Column("compute_node_id", sa.Integer(), nullable=True),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("root_gb", sa.Integer(), nullable=False),
        sa.Column("ephemeral_gb", sa.Integer(), nullable=False),
        sa.Column("swap_mb", sa.Integer(), nullable=False),
        sa.Column("key_name", sa.String(length=255), nullable=True),
        sa.Column("user_data", sa.Text(), nullable=True),
        sa.Column("config_drive", sa.Boolean(), nullable=False),
        sa.Column("availability_zone", sa.String(length=255), nullable=True),
        sa.Column("reservation_id", sa.String(length=255), nullable=True),
        sa.Column("launch_index", sa.Integer(), nullable=False),
        sa.Column("locked", sa.Boolean(), nullable=False),
        sa.Column("locked_reason", sa.String(length=255), nullable=True),
        sa.Column("networks", sa.Text(), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=True),
        sa.Column("launched_at", sa.DateTime(), nullable=True),
        sa.Column("terminated_at", sa.DateTime(), nullable=True),
        sa.Column("deleted", sa.Integer(), nullable=False),
        sa.Column("deleted_at", sa.DateTime(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instances")),
        sa.UniqueConstraint("uuid", name=op.f("uq_instances_uuid")),
    )
    op.create_index("ix_instances_node", "instances", ["compute_node_id", "deleted"], unique=False)
    op.create_index("ix_instances_project", "instances", ["project_id", "deleted"], unique=False)
    op.create_table(
        "key_pairs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("type", sa.String(length=16), nullable=False),
        sa.Column("fingerprint", sa.String(length=255), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_key_pairs")),
        sa.UniqueConstraint("user_id", "name", name=op.f("uq_key_pairs_user_id_name")),
    )
    op.create_table(
        "pci_devices",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("compute_node_id", sa.Integer(), nullable=False),
        sa.Column("address", sa.String(length=12), nullable=False),
        sa.Column("vendor_id", sa.String(length=4), nullable=False),
        sa.Column("product_id", sa.String(length=4), nullable=False),
        sa.Column("dev_type", sa.String(length=8), nullable=False),
        sa.Column("dev_id", sa.String(length=255), nullable=True),
        sa.Column("label", sa.String(length=255), nullable=True),
        sa.Column("status", sa.String(length=36), nullable=False),
        sa.Column("condition", sa.String(length=16), nullable=False),
        sa.Column("numa_node", sa.Integer(), nullable=True),
        sa.Column("parent_addr", sa.String(length=12), nullable=True),
        sa.Column("instance_uuid", sa.String(length=36), nullable=True),
        sa.Column("request_id", sa.String(length=36), nullable=True),
        sa.Column("pool_tags", sa.Text(), nullable=False),
        sa.Column("resource_class", sa.String(length=255), nullable=True),
        sa.Column("traits", sa.Text(), nullable=True),
        sa.Column("one_time_use", sa.Boolean(), nullable=False),
        sa.Column("managed", sa.Boolean(), nullable=False),
        sa.Column("serial", sa.String(length=255), nullable=True),
        sa.Column("parent_ifname", sa.String(length=32), nullable=True),
        sa.Column("rp_uuid", sa.String(length=36), nullable=True),
        sa.Column("extra_info", sa.Text(), nullable=False),
        sa.Column("stale_update", sa.Text(), nullable=True),
        sa.Column("deleted", sa.Integer(), nullable=False),
        sa.Column("deleted_at", sa.DateTime(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
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
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_request_specs")),
        sa.UniqueConstraint("instance_uuid", name=op.f("uq_request_specs_instance_uuid")),
    )
    op.create_table(
        "services",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("binary", sa.String(length=64), nullable=False),
        sa.Column("topic", sa.String(length=64), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", sa.String(length=255), nullable=True),
        sa.Column("forced_down", sa.Boolean(), nullable=False),
        sa.Column("last_seen_up", sa.DateTime(), nullable=True),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.Column("deleted", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.Column("updated_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_services")),
        sa.UniqueConstraint("host", "binary", "deleted", name=op.f("uq_services_host_binary_deleted")),
        sa.UniqueConstraint("uuid", name=op.f("uq_services_uuid")),
    )
    op.create_table(
        "tags",
        sa.Column("resource_id", sa.String(length=36), nullable=False),
        sa.Column("tag", sa.String(length=80), nullable=False),
        sa.PrimaryKeyConstraint("resource_id", "tag", name=op.f("pk_tags")),
    )
    op.create_table(
        "verdicts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("filter", sa.String(length=64), nullable=True),
        sa.Column("rule", sa.String(length=64), nullable=True),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("host_count", sa.Integer(), nullable=False),
        sa.Column("hosts", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verdicts")),
    )
    op.create_index(op.f("ix_verdicts_instance_uuid"), "verdicts", ["instance_uuid"], unique=False)
