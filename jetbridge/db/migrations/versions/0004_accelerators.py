"""Accelerators: device profiles, accelerator requests, and what they may be given."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from jetbridge.db.types import long_text, moment, short_text

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _profiles()
    _accelerators()
    _requests()


def _times() -> list[sa.Column[object]]:
    return [sa.Column("created_at", moment(), nullable=True), sa.Column("updated_at", moment(), nullable=True)]


def _profiles() -> None:
    op.create_table(
        "device_profiles",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", short_text(36), nullable=False),
        sa.Column("name", short_text(255), nullable=False),
        sa.Column("description", long_text(), nullable=True),
        sa.Column("groups", long_text(), nullable=False),
        *_times(),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_device_profiles")),
        sa.UniqueConstraint("name", name=op.f("uq_device_profiles_name")),
        sa.UniqueConstraint("uuid", name=op.f("uq_device_profiles_uuid")),
    )


def _accelerators() -> None:
    op.create_table(
        "accelerators",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", short_text(36), nullable=False),
        sa.Column("device_uuid", short_text(36), nullable=False),
        sa.Column("compute_node_id", sa.Integer(), nullable=False),
        sa.Column("hostname", short_text(255), nullable=False),
        sa.Column("name", short_text(255), nullable=False),
        sa.Column("address", short_text(12), nullable=False),
        sa.Column("vendor_id", short_text(4), nullable=False),
        sa.Column("product_id", short_text(4), nullable=False),
        sa.Column("device_type", short_text(16), nullable=False),
        sa.Column("resource_class", short_text(255), nullable=False),
        sa.Column("traits", long_text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("rp_uuid", short_text(36), nullable=True),
        *_times(),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accelerators")),
        sa.UniqueConstraint("compute_node_id", "address", name=op.f("uq_accelerators_compute_node_id_address")),
        sa.UniqueConstraint("device_uuid", name=op.f("uq_accelerators_device_uuid")),
        sa.UniqueConstraint("uuid", name=op.f("uq_accelerators_uuid")),
    )
    op.create_index(op.f("ix_accelerators_rp_uuid"), "accelerators", ["rp_uuid"], unique=False)
    op.create_table(
        "attach_handles",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", short_text(36), nullable=False),
        sa.Column("accelerator_id", sa.Integer(), nullable=False),
        sa.Column("attach_type", short_text(16), nullable=False),
        sa.Column("address", short_text(12), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("info", long_text(), nullable=False),
        sa.Column("condition", short_text(16), nullable=False),
        sa.Column("arq_uuid", short_text(36), nullable=True),
        *_times(),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attach_handles")),
        sa.UniqueConstraint(
            "accelerator_id", "address", "position", name=op.f("uq_attach_handles_accelerator_id_address_position")
        ),
        sa.UniqueConstraint("arq_uuid", name=op.f("uq_attach_handles_arq_uuid")),
        sa.UniqueConstraint("uuid", name=op.f("uq_attach_handles_uuid")),
    )


def _requests() -> None:
    op.create_table(
        "accelerator_requests",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", short_text(36), nullable=False),
        sa.Column("state", short_text(16), nullable=False),
        sa.Column("project_id", short_text(255), nullable=False),
        sa.Column("device_profile_name", short_text(255), nullable=False),
        sa.Column("device_profile_group_id", sa.Integer(), nullable=False),
        sa.Column("profile_group", long_text(), nullable=False),
        sa.Column("hostname", short_text(255), nullable=True),
        sa.Column("device_rp_uuid", short_text(36), nullable=True),
        sa.Column("instance_uuid", short_text(36), nullable=True),
        *_times(),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accelerator_requests")),
        sa.UniqueConstraint("uuid", name=op.f("uq_accelerator_requests_uuid")),
    )
    for column in ("instance_uuid", "project_id"):
        op.create_index(op.f(f"ix_accelerator_requests_{column}"), "accelerator_requests", [column], unique=False)
    op.create_table(
        "server_arqs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", short_text(36), nullable=False),
        sa.Column("build_id", sa.Integer(), nullable=False),
        sa.Column("profile", short_text(255), nullable=False),
        sa.Column("project_id", short_text(255), nullable=False),
        sa.Column("requester_id", short_text(255), nullable=False),
        sa.Column("port_id", short_text(36), nullable=True),
        sa.Column("arq_uuid", short_text(36), nullable=True),
        sa.Column("hostname", short_text(255), nullable=True),
        sa.Column("rp_uuid", short_text(36), nullable=True),
        sa.Column("event", short_text(16), nullable=True),
        sa.Column("attach_type", short_text(16), nullable=True),
        sa.Column("attach_info", long_text(), nullable=False),
        sa.Column("handle_uuid", short_text(36), nullable=True),
        sa.Column("identity", short_text(64), nullable=True),
        *_times(),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_server_arqs")),
        sa.UniqueConstraint("arq_uuid", name=op.f("uq_server_arqs_arq_uuid")),
    )
    op.create_index(op.f("ix_server_arqs_instance_uuid"), "server_arqs", ["instance_uuid"], unique=False)
