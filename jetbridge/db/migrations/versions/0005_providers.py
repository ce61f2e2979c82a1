"""Resource providers that we have in Placement, whether a host is reported there, and the cleaning of devices."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from jetbridge.db.types import long_text, moment, short_text

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compute_nodes", sa.Column("reported", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "placement_providers",
        sa.Column("uuid", short_text(36), nullable=False),
        sa.Column("compute_node_id", sa.Integer(), nullable=False),
        sa.Column("kind", short_text(32), nullable=False),
        sa.Column("name", short_text(200), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=True),
        sa.Column("inventories", long_text(), nullable=False),
        sa.Column("traits", long_text(), nullable=False),
        sa.Column("created_at", moment(), nullable=True),
        sa.Column("updated_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("uuid", name=op.f("pk_placement_providers")),
    )
    op.create_index(op.f("ix_placement_providers_compute_node_id"), "placement_providers", ["compute_node_id"])
    op.create_table(
        "provider_reports",
        sa.Column("compute_node_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("digest", short_text(64), nullable=True),
        sa.Column("waiting", sa.Boolean(), nullable=False),
        sa.Column("error", long_text(), nullable=True),
        sa.Column("updated_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("compute_node_id", name=op.f("pk_provider_reports")),
    )
    op.create_table(
        "device_cleanings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("compute_node_id", sa.Integer(), nullable=False),
        sa.Column("address", short_text(12), nullable=False),
        sa.Column("instance_uuid", short_text(36), nullable=True),
        sa.Column("state", short_text(16), nullable=False),
        sa.Column("owner", short_text(255), nullable=True),
        sa.Column("command", long_text(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("output", long_text(), nullable=True),
        sa.Column("reason", long_text(), nullable=True),
        sa.Column("started_at", moment(), nullable=False),
        sa.Column("finished_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_device_cleanings")),
    )
    op.create_index("ix_device_cleanings_device", "device_cleanings", ["compute_node_id", "address"])
