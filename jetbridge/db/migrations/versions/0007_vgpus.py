"""Our vGPUs, and the cards of hosts that carry some."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from jetbridge.db.types import long_text, moment, short_text

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "vgpus",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", short_text(36), nullable=False),
        sa.Column("compute_node_id", sa.Integer(), nullable=False),
        sa.Column("kind", short_text(8), nullable=False),
        sa.Column("card", short_text(255), nullable=False),
        sa.Column("parent", short_text(255), nullable=False),
        sa.Column("type", short_text(255), nullable=False),
        sa.Column("resource_class", short_text(255), nullable=False),
        sa.Column("instance_uuid", short_text(36), nullable=True),
        sa.Column("state", short_text(16), nullable=False),
        sa.Column("created_at", moment(), nullable=True),
        sa.Column("updated_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vgpus")),
        sa.UniqueConstraint("uuid", name=op.f("uq_vgpus_uuid")),
    )
    op.create_index(op.f("ix_vgpus_compute_node_id"), "vgpus", ["compute_node_id"])
    op.create_index(op.f("ix_vgpus_instance_uuid"), "vgpus", ["instance_uuid"])
    op.create_table(
        "vgpu_cards",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("compute_node_id", sa.Integer(), nullable=False),
        sa.Column("name", short_text(255), nullable=False),
        sa.Column("address", short_text(255), nullable=True),
        sa.Column("kind", short_text(8), nullable=False),
        sa.Column("functions", sa.Integer(), nullable=False),
        sa.Column("types", long_text(), nullable=False),
        sa.Column("totals", long_text(), nullable=False),
        sa.Column("foreign_vgpus", long_text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vgpu_cards")),
        sa.UniqueConstraint("compute_node_id", "name", name=op.f("uq_vgpu_cards_compute_node_id_name")),
    )
