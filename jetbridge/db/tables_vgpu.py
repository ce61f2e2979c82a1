"""Our vGPUs, and the cards of hosts that carry some."""

from __future__ import annotations

from sqlalchemy import Column, Integer, Table, UniqueConstraint

from jetbridge.db.tables import metadata
from jetbridge.db.types import long_text, moment, short_text

vgpus = Table(
    "vgpus",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", short_text(36), nullable=False, unique=True),
    Column("compute_node_id", Integer, nullable=False, index=True),
    Column("kind", short_text(8), nullable=False),  # mdev, vfio
    Column("card", short_text(255), nullable=False),  # node devices' names
    Column("parent", short_text(255), nullable=False),
    Column("type", short_text(255), nullable=False),
    Column("resource_class", short_text(255), nullable=False),
    Column("instance_uuid", short_text(36), index=True),  # None: free to be used again
    Column("state", short_text(16), nullable=False),
    Column("created_at", moment()),
    Column("updated_at", moment()),
)

vgpu_cards = Table(
    "vgpu_cards",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("compute_node_id", Integer, nullable=False),
    Column("name", short_text(255), nullable=False),
    Column("address", short_text(255)),
    Column("kind", short_text(8), nullable=False),
    Column("functions", Integer, nullable=False),
    Column("types", long_text(), nullable=False, default="[]"),
    Column("totals", long_text(), nullable=False, default="{}"),  # by resource class
    Column("foreign_vgpus", long_text(), nullable=False, default="[]"),
    UniqueConstraint("compute_node_id", "name"),
)
