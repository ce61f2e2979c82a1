"""Runs in the environment of the peer: answers questions, one JSON line each, with Nova's released package alone.

It must not import anything of Jetbridge, and nothing of it is imported there. A question is ``{"ask": NAME, ...}``; the answer ``{"answer": ...}`` or
``{"raised": CLASS}``.
"""

# ruff: noqa: BLE001, E402
from __future__ import annotations

import copy
import gc
import itertools
import json
import logging
import os
import statistics
import sys
import time
import uuid
import warnings
from importlib.metadata import version

warnings.filterwarnings("ignore")
os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")

import nova.conf
from nova import (
    config,  # noqa: F401
    objects,
)
from nova.objects import pci_device_pool
from nova.pci import request as pci_request
from nova.pci import stats, whitelist
from nova.scheduler import host_manager
from nova.scheduler.filters import pci_passthrough_filter
from nova.virt import hardware

CONF = nova.conf.CONF
CONF([], project="nova", default_config_files=[])
objects.register_all()
logging.disable(logging.CRITICAL)


# --- values -----------------------------------------------------------------------------------


def host_topology(cells):
    return objects.NUMATopology(
        cells=[
            objects.NUMACell(
                id=cell["id"],
                cpuset=set(cell["cpus"]),
                pcpuset=set(cell["pinnable"]),
                memory=cell["memory_mb"],
                cpu_usage=cell.get("cpu_usage", 0),
                memory_usage=cell.get("memory_usage_mb", 0),
                pinned_cpus=set(cell.get("pinned", ())),
                siblings=[set(group) for group in cell["siblings"]],
                socket=cell.get("socket"),
                mempages=[
                    objects.NUMAPagesTopology(size_kb=size, total=total, used=used)
                    for size, total, used in cell.get("pages", ())
                ],
                network_metadata=objects.NetworkMetadata(physnets=set(), tunneled=False),
            )
            for cell in cells
        ]
    )


def guest_topology(guest):
    if guest is None:
        return None
    return objects.InstanceNUMATopology(
        cells=[
            objects.InstanceNUMACell(
                id=cell["id"],
                cpuset=set(cell["cpus"]),
                pcpuset=set(cell["pinned_cpus"]),
                memory=cell["memory_mb"],
                pagesize={"small": -1, "large": -2, "any": -3}.get(cell["page_request"], cell["page_request"]),
                cpu_policy=guest["cpu_policy"],
                cpu_thread_policy=guest["thread_policy"],
            )
            for cell in guest["cells"]
        ],
        emulator_threads_policy="isolate" if guest.get("emulator_isolate") else None,
    )


def requests_of(wanted):
    found = []
    for one in wanted:
        facts = {"numa_policy": one["numa_policy"]} if one.get("numa_policy") else {}
        found.append(
            objects.InstancePCIRequest(
                count=one["count"],
                spec=one["spec"],
                alias_name=one["alias_name"],
                request_id=one["request_id"],
                requester_id=one.get("requester_id"),
                **facts,
            )
        )
    return found


def device_of(row):
    facts = {
        key: row.get(key) for key in ("address", "vendor_id", "product_id", "dev_type", "numa_node", "parent_addr")
    }
    return objects.PciDevice(
        compute_node_id=1, dev_id="d", label="l", status="available", request_id=None, extra_info={}, **facts
    )


def host_of(rows, specs, topology):
    """Pools from free devices, with relatives known, as the tracker makes them."""
    summary = stats.PciDeviceStats(topology, dev_filter=whitelist.Whitelist(specs))
    devices = [device_of(row) for row in rows]
    known = {device.address: device for device in devices}
    for device in devices:
        device.child_devices = []
    for device in devices:
        device.parent_device = known.get(device.parent_addr)
        if device.parent_device is not None:
            device.parent_device.child_devices.append(device)
    for device, row in zip(devices, rows, strict=True):
        if row.get("free", True):
            summary.add_device(device)
    return summary


# --- questions --------------------------------------------------------------------------------


def ask_version():
    return version("nova")


def ask_match(specs, devices):
    """Per device: whether it may be given away, and with which tags."""
    lines = whitelist.Whitelist(specs)
    found = []
    for device in devices:
        spec = lines.get_devspec(device_of(device))
        found.append(None if spec is None else spec.get_tags())
    return found


def ask_alias(aliases, term):
    CONF.set_override("alias", aliases, group="pci")
    for function in vars(pci_request).values():
        getattr(function, "cache_clear", lambda: None)()  # the option is read once per process there
    flavor = {"extra_specs": {"pci_passthrough:alias": term}}
    requests = pci_request.get_pci_requests_from_flavor(flavor)
    return [[one.alias_name, one.count, one.spec, one.numa_policy] for one in requests.requests]


def ask_fit(specs, devices, requests, cells, topology):
    """Whether all requests fit jointly, and per request the devices it could take if it were alone."""
    numa = host_topology(topology)
    chosen = None
    if cells is not None:
        chosen = [objects.InstanceNUMACell(id=cell, cpuset=set(), pcpuset=set(), memory=1) for cell in cells]
    alone = []
    for request in requests_of(requests):
        summary = host_of(devices, specs, numa)
        pools = summary._filter_pools(summary.pools, request, chosen, [])
        alone.append(None if pools is None else sorted(device.address for pool in pools for device in pool["devices"]))
    try:
        taken = host_of(devices, specs, numa).consume_requests(requests_of(requests), chosen)
    except nova.exception.PciDeviceRequestFailed:
        taken = None
    return {"fits": taken is not None, "alone": alone}


def ask_numa(host, guest, specs, devices, requests, limits):
    """Whether a guest fits on a host's cells, its devices near enough."""
    topology = host_topology(host)
    summary = host_of(devices, specs, topology)
    bounds = None
    if limits:
        bounds = objects.NUMATopologyLimits(cpu_allocation_ratio=limits[0], ram_allocation_ratio=limits[1])
    fitted = hardware.numa_fit_instance_to_host(
        topology, guest_topology(guest), None, limits=bounds, pci_requests=requests_of(requests), pci_stats=summary
    )
    return bool(fitted)


# --- figures ----------------------------------------------------------------------------------


def _cpu(work, repeat):
    taken = []
    for _ in range(repeat):
        gc.collect()
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def time_filter_pass(states, requests, repeat):
    """One pass of PciPassthroughFilter over hosts given as ``[pools, cells]``."""
    hosts = []
    for number, (pools, cells) in enumerate(states):
        summary = stats.PciDeviceStats(host_topology(cells), stats=pci_device_pool.from_pci_stats(copy.deepcopy(pools)))
        host = host_manager.HostState(f"h{number}", f"h{number}", "cell1")
        host.pci_stats, host.numa_topology = summary, summary.numa_topology
        hosts.append(host)
    spec = objects.RequestSpec(
        pci_requests=objects.InstancePCIRequests(instance_uuid=str(uuid.uuid4()), requests=requests_of(requests)),
        numa_topology=None,
        flavor=objects.Flavor(extra_specs={}),
        instance_uuid=str(uuid.uuid4()),
    )
    judge = pci_passthrough_filter.PciPassthroughFilter()
    passed = []

    def once():
        for host in hosts:
            host.allocation_candidates = [{"allocations": {}, "mappings": {}}]
        passed[:] = list(judge.filter_all(hosts, spec))

    return {"seconds": _cpu(once, repeat), "passed": len(passed)}


def time_pools(specs, devices):
    rows = [device_of(row) for row in devices]
    made = []

    def once():
        summary = stats.PciDeviceStats(objects.NUMATopology(cells=[]), dev_filter=whitelist.Whitelist(specs))
        for row in rows:
            summary.add_device(row)
        made[:] = [len(summary.pools)]

    return {"seconds": _cpu(once, 1), "pools": made[0]}


def time_numa(host, guest, specs, devices, requests, repeat):
    topology = host_topology(host)
    summary = host_of(devices, specs, topology)
    wanted, asked, fitted = guest_topology(guest), requests_of(requests), []

    def once():
        fitted[:] = [
            hardware.numa_fit_instance_to_host(
                topology, copy.deepcopy(wanted), None, limits=None, pci_requests=asked, pci_stats=summary
            )
        ]

    return {"seconds": _cpu(once, repeat), "fits": bool(fitted[0])}


def time_claim(specs, devices, requests, repeat):
    """Take devices from the pools and give them back."""
    summary = host_of(devices, specs, objects.NUMATopology(cells=[]))
    asked = requests_of(requests)

    def once():
        for _ in range(repeat):
            for device in summary.consume_requests(asked, None):
                summary.add_device(device)

    return {"seconds": _cpu(once, 5) / repeat}


QUESTIONS = {
    name: function for name, function in itertools.chain(globals().items()) if name.startswith(("ask_", "time_"))
}


def main():
    answers = os.fdopen(os.dup(1), "w")  # whatever prints must not come between the answers
    os.dup2(2, 1)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = {"answer": QUESTIONS[question.pop("ask")](**question)}
        except Exception as error:
            answer = {"raised": type(error).__name__, "text": str(error)}
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
