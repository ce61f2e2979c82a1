"""An index that holds all that schedulers look at before each decision: rows of hosts are long, and ten thousand take longer to read. ``deleted`` comes
later, or else SQLite would take this index for a host by name, and walk through all hosts."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_compute_nodes_generation", "compute_nodes", ["generation", "deleted", "id"], unique=False)
