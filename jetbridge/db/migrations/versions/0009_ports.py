"""Networks and ports, and the NICs of servers as rows of their own."""

from __future__ import annotations

import json
import uuid

import sqlalchemy as sa
from alembic import op

from jetbridge.db.types import long_text, moment, short_text

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_NETWORKS = uuid.UUID("0e0c6a0e-6c0a-5c5d-8f3c-3b6d2f9a5d11")


def upgrade() -> None:
    op.create_table(
        "networks",
        sa.Column("id", short_text(36), nullable=False),
        sa.Column("name", short_text(255), nullable=False),
        sa.Column("project_id", short_text(255), nullable=False),
        sa.Column("shared", sa.Boolean(), nullable=False),
        sa.Column("network_type", short_text(32), nullable=True),
        sa.Column("physical_network", short_text(64), nullable=True),
        sa.Column("segmentation_id", sa.Integer(), nullable=True),
        sa.Column("description", short_text(255), nullable=False),
        sa.Column("created_at", moment(), nullable=True),
        sa.Column("updated_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_networks")),
        sa.UniqueConstraint("name", name=op.f("uq_networks_name")),
    )
    op.create_table(
        "ports",
        sa.Column("id", short_text(36), nullable=False),
        sa.Column("name", short_text(255), nullable=False),
        sa.Column("network_id", short_text(36), nullable=False),
        sa.Column("project_id", short_text(255), nullable=False),
        sa.Column("mac_address", short_text(32), nullable=False),
        sa.Column("description", short_text(255), nullable=False),
        sa.Column("admin_state_up", sa.Boolean(), nullable=False),
        sa.Column("device_id", short_text(255), nullable=False),
        sa.Column("device_owner", short_text(255), nullable=False),
        sa.Column("fixed_ips", long_text(), nullable=False),
        sa.Column("vnic_type", short_text(64), nullable=False),
        sa.Column("profile", long_text(), nullable=False),
        sa.Column("host", short_text(255), nullable=True),
        sa.Column("vif_type", short_text(64), nullable=False),
        sa.Column("vif_details", long_text(), nullable=False),
        sa.Column("numa_affinity_policy", short_text(64), nullable=True),
        sa.Column("device_profile", short_text(255), nullable=True),
        sa.Column("created_at", moment(), nullable=True),
        sa.Column("updated_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ports")),
        sa.UniqueConstraint("network_id", "mac_address", name=op.f("uq_ports_network_id_mac_address")),
    )
    op.create_index(op.f("ix_ports_device_id"), "ports", ["device_id"], unique=False)
    op.create_table(
        "virtual_interfaces",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", short_text(36), nullable=False),
        sa.Column("address", short_text(255), nullable=False),
        sa.Column("network", short_text(255), nullable=False),
        sa.Column("network_id", short_text(36), nullable=False),
        sa.Column("uuid", short_text(36), nullable=True),
        sa.Column("tag", short_text(255), nullable=True),
        sa.Column("vnic_type", short_text(64), nullable=False),
        sa.Column("request_id", short_text(36), nullable=True),
        sa.Column("made", sa.Boolean(), nullable=False),
        sa.Column("fixed_ips", long_text(), nullable=False),
        sa.Column("host", short_text(255), nullable=True),
        sa.Column("task", short_text(16), nullable=True),
        sa.Column("created_at", moment(), nullable=True),
        sa.Column("updated_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_virtual_interfaces")),
    )
    for column in ("host", "instance_uuid", "uuid"):
        op.create_index(op.f(f"ix_virtual_interfaces_{column}"), "virtual_interfaces", [column], unique=False)
    _move_nics()
    with op.batch_alter_table("instances") as instances:
        instances.drop_column("networks")


def _move_nics() -> None:
    """NICs were JSON on their server, and their ports were made up when somebody looked."""
    instances = sa.table(
        "instances",
        *(sa.column(name) for name in ("uuid", "project_id", "host", "networks", "deleted", "created_at")),
    )
    conn = op.get_bind()
    nics, made = [], []
    for row in conn.execute(sa.select(instances).where(instances.c.deleted == 0, instances.c.networks != "[]")).all():
        for nic in json.loads(row.networks):
            port_id = str(uuid.uuid5(uuid.UUID(row.uuid), nic["mac"]))
            network_id = str(uuid.uuid5(_NETWORKS, nic["network"]))
            nics.append(
                {
                    "instance_uuid": row.uuid,
                    "address": nic["mac"],
                    "network": nic["network"],
                    "network_id": network_id,
                    "uuid": port_id if row.host else None,
                    "tag": nic.get("tag"),
                    "vnic_type": "normal",
                    "made": True,
                    "fixed_ips": "[]",
                    "host": row.host,
                    "created_at": row.created_at,
                }
            )
            if row.host:
                made.append(
                    {
                        "id": port_id,
                        "name": "",
                        "network_id": network_id,
                        "project_id": row.project_id,
                        "mac_address": nic["mac"],
                        "description": "",
                        "admin_state_up": True,
                        "device_id": row.uuid,
                        "device_owner": "compute:nova",
                        "fixed_ips": "[]",
                        "vnic_type": "normal",
                        "profile": "{}",
                        "host": row.host,
                        "vif_type": "bridge",
                        "vif_details": "{}",
                        "created_at": row.created_at,
                    }
                )
    for table, rows in (("virtual_interfaces", nics), ("ports", made)):
        if rows:
            conn.execute(sa.table(table, *(sa.column(name) for name in rows[0])).insert(), rows)
