"""Where devices lie: the fabric and the PCIe switch, by which those of one server are kept together."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from jetbridge.db.types import short_text

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pci_devices", sa.Column("fabric", short_text(255), nullable=True))
    op.add_column("pci_devices", sa.Column("switch", short_text(12), nullable=True))
