"""`GET /allocation_candidates` for servers of several devices, answered by the released Placement in a process that ends when it takes too long."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESOURCE_CLASS = "CUSTOM_PCI_10DE_1EB8"
WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "advised": {
        "max_allocation_candidates": 1000,
        "allocation_candidates_generation_strategy": "breadth-first",
        "optimize_for_wide_provider_trees": True,
    },
}
"""Placement as it comes, and with what its documentation advises for hosts with many providers."""


def in_time(database: Path, devices: int, limit_s: float) -> dict[str, Any]:
    """For each of ``WAYS`` the CPU seconds of one query with limit=1000 (as Nova asks) and how many hosts its answer has; ``over_s`` when it was given up."""
    return {way: _asked(database, devices, way, limit_s) for way in WAYS}


def _asked(database: Path, devices: int, way: str, limit_s: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.candidates", str(database), str(devices), way]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # everything is imported
        said, _ = process.communicate(timeout=limit_s)
        answer: dict[str, Any] = json.loads(said)
        return answer
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"over_s": limit_s}


def query(devices: int) -> str:
    text = "/allocation_candidates?limit=1000&resources=VCPU:2,MEMORY_MB:2048,DISK_GB:1"
    text += "".join(
        f"&resources_pci-{each}={RESOURCE_CLASS}:1&required_pci-{each}=OWNER_NOVA" for each in range(devices)
    )
    return text + ("&group_policy=none" if devices > 1 else "")


def main() -> None:
    import webob
    from oslo_config import cfg
    from placement import conf, db_api, deploy

    database, devices, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    config = cfg.ConfigOpts()
    conf.register_opts(config)
    config.set_default("connection", f"sqlite:///{database}", group="placement_database")
    config([], project="placement", default_config_files=[], default_config_dirs=[])
    config.set_override("auth_strategy", "noauth2", group="api")
    for name, value in WAYS[way].items():
        group = "workarounds" if name.startswith("optimize") else "placement"
        config.set_override(name, value, group=group)
    db_api.configure(config)
    application = deploy.loadapp(config)

    def get(path: str) -> Any:
        request = webob.Request.blank(path)
        request.headers.update(
            {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.36", "Accept": "application/json"}
        )
        answer = request.get_response(application)
        assert answer.status_int == 200, answer.text
        return answer.json

    get("/resource_providers?name=none")
    print("ready", flush=True)
    start = time.process_time()
    found = get(query(devices))
    taken = time.process_time() - start
    roots = {
        found["provider_summaries"][next(iter(each["allocations"]))]["root_provider_uuid"]
        for each in found["allocation_requests"]
    }
    print(json.dumps({"cpu_s": round(taken, 2), "candidates": len(found["allocation_requests"]), "hosts": len(roots)}))


if __name__ == "__main__":
    main()
