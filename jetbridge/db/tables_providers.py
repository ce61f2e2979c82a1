"""What we have in Placement, and what was done to devices between two servers."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, Table

from jetbridge.db.tables import metadata
from jetbridge.db.types import long_text, moment, short_text

placement_providers = Table(
    "placement_providers",
    metadata,
    Column("uuid", short_text(36), primary_key=True),
    Column("compute_node_id", Integer, nullable=False, index=True),
    Column("kind", short_text(32), nullable=False),  # root, or the model that contributes it: pci, mdev, ...
    Column("name", short_text(200), nullable=False),
    Column("generation", BigInteger),  # None: may not exist in Placement yet
    Column("inventories", long_text(), nullable=False, default="{}"),
    Column("traits", long_text(), nullable=False, default="[]"),  # those that we wrote
    Column("created_at", moment()),
    Column("updated_at", moment()),
)

provider_reports = Table(
    "provider_reports",
    metadata,
    Column("compute_node_id", Integer, primary_key=True, autoincrement=False),
    Column("digest", short_text(64)),  # of what was to be reported when all of it last was
    Column("waiting", Boolean, nullable=False, default=False),  # something is left to do, although nothing changed
    Column("error", long_text()),  # why the last pass failed
    Column("updated_at", moment()),
)

device_cleanings = Table(
    "device_cleanings",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("compute_node_id", Integer, nullable=False),
    Column("address", short_text(12), nullable=False),
    Column("instance_uuid", short_text(36)),  # who had the device before
    Column("state", short_text(16), nullable=False),  # running, done, failed, cut
    Column("owner", short_text(255)),  # the process that does it; None: a person says that it is done
    Column("command", long_text()),
    Column("exit_code", Integer),
    Column("seconds", Double),
    Column("output", long_text()),  # the last lines
    Column("reason", long_text()),  # why it failed
    Column("started_at", moment(), nullable=False),
    Column("finished_at", moment()),
    Index("ix_device_cleanings_device", "compute_node_id", "address"),
)

placement_consumers = Table(
    "placement_consumers",
    metadata,
    Column("instance_uuid", short_text(36), primary_key=True),  # a server that may have an allocation
    Column("created_at", moment()),
)
