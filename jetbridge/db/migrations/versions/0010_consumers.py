"""Servers that may have an allocation in Placement."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from jetbridge.db.types import moment, short_text

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "placement_consumers",
        sa.Column("instance_uuid", short_text(36), nullable=False),
        sa.Column("created_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("instance_uuid", name=op.f("pk_placement_consumers")),
    )
