"""Which transactions were committed, so that one whose answer was lost is not run twice."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from jetbridge.db.types import moment, short_text

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "commits",
        sa.Column("token", short_text(32), nullable=False),
        sa.Column("created_at", moment(), nullable=False),
        sa.PrimaryKeyConstraint("token", name=op.f("pk_commits")),
    )
    op.create_index(op.f("ix_commits_created_at"), "commits", ["created_at"], unique=False)
