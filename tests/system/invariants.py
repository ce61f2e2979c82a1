"""What holds at every moment of a cloud's life, and what holds besides when nothing is under way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.system.cloud import Cloud
from tests.system.ledger import disagreements

Row = Mapping[str, Any]

LIVING = ("available", "claimed", "allocated", "unclaimable", "unavailable")
OWNED = ("claimed", "allocated")
BLOCKED = ("unclaimable", "unavailable")
HOLDING = ("running", "paused")
IN_USE = "in use by driver QEMU"

_QUERIES = {
    "devices": "SELECT d.*, n.host AS node_host FROM pci_devices d JOIN compute_nodes n ON n.id = d.compute_node_id"
    " WHERE d.deleted = 0 AND n.deleted = 0",
    "servers": "SELECT * FROM instances WHERE deleted = 0",
    "builds": "SELECT * FROM builds WHERE state = 'running'",
    "extra": "SELECT instance_uuid, pci_requests FROM instance_extra",
    "actions": "SELECT * FROM instance_actions WHERE finish_time IS NULL",
    "handles": "SELECT h.address, r.instance_uuid FROM attach_handles h JOIN accelerator_requests r ON r.uuid = h.arq_uuid"
    " WHERE h.attach_type = 'PCI'",
    "faults": "SELECT instance_uuid FROM instance_faults",
}


@dataclass(frozen=True)
class Tables:
    """All of them at one moment."""

    devices: list[Row]
    servers: list[Row]
    builds: list[Row]
    extra: list[Row]
    actions: list[Row]
    faults: list[Row]
    handles: list[Row]


def tables_of(cloud: Cloud) -> Tables:
    sqlite = cloud.database_url.get_backend_name() == "sqlite"
    level = "AUTOCOMMIT" if sqlite else "REPEATABLE READ"
    engine = sa.create_engine(cloud.database_url, isolation_level=level)
    try:
        with engine.connect() as conn:
            if sqlite:  # the driver begins no transaction for a SELECT, and each would see another moment
                conn.exec_driver_sql("BEGIN")
            rows = {name: [dict(row) for row in conn.execute(sa.text(q)).mappings()] for name, q in _QUERIES.items()}
            if sqlite:
                conn.exec_driver_sql("ROLLBACK")
            return Tables(**rows)  # type: ignore[arg-type]
    finally:
        engine.dispose()


def check_always(cloud: Cloud) -> Tables:
    """One owner per device, who lives on its host; free + owned + blocked = all; a PF and its VFs are never both given; who is on a
    host has all that was asked for; a claim has a build."""
    tables = tables_of(cloud)
    servers = {row["uuid"]: row for row in tables.servers}
    building = {row["instance_uuid"] for row in tables.builds}
    wanted = {row["instance_uuid"]: _wanted(row["pci_requests"]) for row in tables.extra}
    places = Counter((row["compute_node_id"], row["address"]) for row in tables.devices)
    assert not [place for place, count in places.items() if count > 1], "a function has one row"
    families = {(row["compute_node_id"], row["address"]): row for row in tables.devices}
    for row in tables.devices:
        about = {name: row[name] for name in ("node_host", "address", "status", "condition", "instance_uuid")}
        assert row["status"] in LIVING, about
        owned = row["status"] in OWNED
        assert owned == (row["instance_uuid"] is not None), about
        if owned:
            server = servers.get(row["instance_uuid"])
            assert server is not None, f"its owner doesn't live: {about}"
            assert server["compute_node_id"] == row["compute_node_id"], f"its owner is elsewhere: {about} {server}"
            assert row["status"] == "allocated" or row["instance_uuid"] in building, f"nobody builds on it: {about}"
        parent = families.get((row["compute_node_id"], row["parent_addr"]))
        if parent is not None:
            assert not (owned and parent["status"] not in BLOCKED), f"its PF is not blocked: {about}"
            assert not (parent["status"] in OWNED and row["status"] not in BLOCKED), f"its PF is given: {about}"
    owners = Counter(row["instance_uuid"] for row in tables.devices if row["status"] in OWNED)
    for uuid, server in servers.items():
        expected = 0 if server["compute_node_id"] is None else wanted.get(uuid, 0)
        assert owners[uuid] == expected, f"server {uuid} owns {owners[uuid]} devices, not {expected}: {server}"
    return tables


def check_at_rest(cloud: Cloud) -> None:
    """Every request has an answer, nothing is claimed, and hypervisors and Placement hold exactly what the tables say."""
    tables = check_always(cloud)
    assert tables.builds == []
    assert [row for row in tables.devices if row["status"] == "claimed"] == []
    assert tables.actions == [], f"requests without an answer: {_about(tables)}"
    faults = {row["instance_uuid"] for row in tables.faults}
    for server in tables.servers:
        assert server["task_state"] is None, server
        assert server["vm_state"] != "building", server
        if server["vm_state"] == "error":
            assert server["uuid"] in faults, f"in ERROR without a reason: {server}"
    addresses: dict[str, list[str]] = {}
    for row in tables.devices:
        if row["status"] in OWNED:
            addresses.setdefault(row["instance_uuid"], []).append(row["address"])
    for row in tables.handles:
        addresses.setdefault(row["instance_uuid"], []).append(row["address"])
    servers = {row["uuid"]: row for row in tables.servers}
    seen = set()
    for folder in _folders(cloud):
        for name, domain in cloud.domains(folder.name).items():
            server = servers.get(domain["uuid"])
            assert server is not None, f"domain {name} on {folder.name} has no server"
            assert server["host"] == folder.name, f"domain {name} on {folder.name} is of a server on {server['host']}"
            seen.add(domain["uuid"])
            running = domain["state"] in HOLDING
            held = sorted(addresses.get(domain["uuid"], [])) if running else []
            assert sorted(domain["held"]) == held, f"domain {name} on {folder.name}"
            if server["vm_state"] in ("active", "stopped"):
                assert running == (server["vm_state"] == "active"), f"{server} {domain['state']}"
        files = {path.name for path in (folder / "guests").glob("*")}
        assert files <= set(cloud.domains(folder.name)), f"files without a domain on {folder.name}"
    cloud.until(
        lambda: not disagreements(cloud), "Placement has what the tables have", lambda: "; ".join(disagreements(cloud))
    )
    missing = [row["uuid"] for row in tables.servers if row["vm_state"] == "active" and row["uuid"] not in seen]
    assert not missing, f"ACTIVE without a domain: {missing}"


def holdings(cloud: Cloud) -> dict[str, Any]:
    """Every ledger: the devices, what counts on each host, and what the hypervisors have."""
    return {
        "devices": cloud.devices(),
        "usage": cloud.sql(
            "SELECT n.host, COUNT(i.id) FROM compute_nodes n LEFT JOIN instances i ON i.compute_node_id = n.id AND i.deleted = 0"
            " GROUP BY n.host ORDER BY n.host"
        ),
        "domains": {path.name: cloud.domains(path.name) for path in sorted((cloud.state / "sim").glob("*"))},
        "files": sorted(str(path) for path in (cloud.state / "sim").glob("*/guests/*")),
    }


class Journals:
    """Ownership over time as the hypervisors saw it: nobody gets a function that another domain holds, and nobody tries."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._read: dict[Path, int] = {}
        self._holders: dict[Path, dict[str, str]] = {}
        self.given = 0

    def check(self) -> None:
        """What was written since the last time."""
        for folder in _folders(self._cloud):
            path = folder / "journal.jsonl"
            if path.exists():
                self._check(path)

    def killed(self) -> None:
        """A hypervisor whose process died between a line and its effect didn't do what the line says."""
        self.check()
        for path in self._holders:
            domains = self._cloud.domains(path.parent.name)
            self._holders[path] = {address: name for name, domain in domains.items() for address in domain["held"]}

    def holders(self, host_name: str) -> dict[str, str]:
        """Address to domain, now."""
        return self._holders.get(self._cloud.state / "sim" / host_name / "journal.jsonl", {})

    def _check(self, path: Path) -> None:
        with path.open() as stream:
            stream.seek(self._read.get(path, 0))
            text = stream.read()
            whole = text[: text.rfind("\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole.encode())
        holders = self._holders.setdefault(path, {})
        for line in whole.splitlines():
            entry = json.loads(line)
            assert IN_USE not in entry.get("error", ""), f"{path.parent.name}: {entry}"
            if entry["call"] == "give":
                for address in entry["devices"]:
                    assert address not in holders, f"{path.parent.name}: {holders[address]} holds it: {entry}"
                    holders[address] = entry["domain"]
                    self.given += 1
            elif entry["call"] == "take-back":
                for address in entry["devices"]:
                    assert holders.pop(address, None) == entry["domain"], f"{path.parent.name}: {entry}"


def _folders(cloud: Cloud) -> list[Path]:
    return sorted(path for path in (cloud.state / "sim").glob("*") if path.is_dir())


def _about(tables: Tables) -> str:
    """The requests without an answer, each with its server: what is begun for it may be stuck."""
    servers = {row["uuid"]: row for row in tables.servers}
    lines = []
    for row in tables.actions:
        server = servers.get(row["instance_uuid"], {"vm_state": "deleted"})
        told = {name: row[name] for name in ("instance_uuid", "action", "request_id", "start_time")}
        lines.append(
            str(told | {name: server.get(name) for name in ("display_name", "host", "vm_state", "task_state")})
        )
    return "\n".join(lines)


def _wanted(pci_requests: str | None) -> int:
    content = json.loads(pci_requests) if pci_requests else {}
    requests = content.get("requests", []) if isinstance(content, dict) else content
    return sum(request["count"] for request in requests)
