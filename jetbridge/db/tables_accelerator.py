"""Tables of accelerators: those of the embedded service, and what we know of our servers' requests wherever they are kept."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Integer, Table, UniqueConstraint

from jetbridge.db.tables import metadata
from jetbridge.db.types import long_text, moment, short_text


def _times() -> list[Column[object]]:
    return [Column("created_at", moment()), Column("updated_at", moment())]


device_profiles = Table(
    "device_profiles",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", short_text(36), nullable=False, unique=True),
    Column("name", short_text(255), nullable=False, unique=True),
    Column("description", long_text()),
    Column("groups", long_text(), nullable=False),
    *_times(),
)

accelerators = Table(
    "accelerators",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", short_text(36), nullable=False, unique=True),
    Column("device_uuid", short_text(36), nullable=False, unique=True),
    Column("compute_node_id", Integer, nullable=False),
    Column("hostname", short_text(255), nullable=False),
    Column("name", short_text(255), nullable=False),
    Column("address", short_text(12), nullable=False),
    Column("vendor_id", short_text(4), nullable=False),
    Column("product_id", short_text(4), nullable=False),
    Column("device_type", short_text(16), nullable=False),
    Column("resource_class", short_text(255), nullable=False),
    Column("traits", long_text(), nullable=False, default="[]"),
    Column("enabled", Boolean, nullable=False, default=True),
    Column("rp_uuid", short_text(36), index=True),
    *_times(),
    UniqueConstraint("compute_node_id", "address"),
)

attach_handles = Table(
    "attach_handles",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", short_text(36), nullable=False, unique=True),
    Column("accelerator_id", Integer, nullable=False),
    Column("attach_type", short_text(16), nullable=False),  # PCI, MDEV
    Column("address", short_text(12), nullable=False),
    Column("position", Integer, nullable=False, default=0),
    Column("info", long_text(), nullable=False),
    Column("condition", short_text(16), nullable=False, default="ok"),
    Column("arq_uuid", short_text(36), unique=True),  # at most one request has it, and it has at most one
    *_times(),
    UniqueConstraint("accelerator_id", "address", "position"),
)

accelerator_requests = Table(
    "accelerator_requests",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", short_text(36), nullable=False, unique=True),
    Column("state", short_text(16), nullable=False),
    Column("project_id", short_text(255), nullable=False, index=True),
    Column("device_profile_name", short_text(255), nullable=False),
    Column("device_profile_group_id", Integer, nullable=False),
    Column("profile_group", long_text(), nullable=False),  # as it was when the request was made
    Column("hostname", short_text(255)),
    Column("device_rp_uuid", short_text(36)),
    Column("instance_uuid", short_text(36), index=True),
    *_times(),
)

server_arqs = Table(
    "server_arqs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_uuid", short_text(36), nullable=False, index=True),
    Column("build_id", Integer, nullable=False),
    Column("profile", short_text(255), nullable=False),
    Column("project_id", short_text(255), nullable=False),
    Column("requester_id", short_text(255), nullable=False, default=""),
    Column("port_id", short_text(36)),
    Column("arq_uuid", short_text(36), unique=True),  # None: about to be created
    Column("hostname", short_text(255)),
    Column("rp_uuid", short_text(36)),
    Column("event", short_text(16)),
    Column("attach_type", short_text(16)),
    Column("attach_info", long_text(), nullable=False, default="{}"),
    Column("handle_uuid", short_text(36)),
    Column("identity", short_text(64)),
    *_times(),
)
