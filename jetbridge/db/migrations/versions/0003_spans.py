"""The spans of each request: which services it crossed, and how long that took."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from jetbridge.db.types import long_text, moment, short_text

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "spans",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("trace_id", short_text(32), nullable=False),
        sa.Column("span_id", short_text(16), nullable=False),
        sa.Column("parent_id", short_text(16), nullable=True),
        sa.Column("request_id", short_text(64), nullable=True),
        sa.Column("server", short_text(36), nullable=True),
        sa.Column("seam", short_text(16), nullable=False),
        sa.Column("source", short_text(255), nullable=False),
        sa.Column("target", short_text(255), nullable=False),
        sa.Column("what", short_text(255), nullable=False),
        sa.Column("started_at", moment(), nullable=False),
        sa.Column("duration", sa.Double(), nullable=False),
        sa.Column("essentials", long_text(), nullable=False),
        sa.Column("error", long_text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spans")),
    )
    op.create_index(op.f("ix_spans_request_id"), "spans", ["request_id"], unique=False)
    op.create_index(op.f("ix_spans_server"), "spans", ["server"], unique=False)
    op.create_index(op.f("ix_spans_started_at"), "spans", ["started_at"], unique=False)
