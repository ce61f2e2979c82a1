"""The way of a request: one trace from the front door to the hypervisor, through threads, messages and processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from jetbridge.config.settings import Settings
from jetbridge.db.clock import utcnow
from tests.servers.collector import Collector
from tests.system.cloud import Cloud, fleet, gpu, host
from tests.system.conftest import Launch, on_both_deployments, on_every_database

Spans = list[dict[str, Any]]


def requests_of(cloud: Cloud, server: str) -> list[dict[str, Any]]:
    answer = cloud.client.get(f"{cloud.url}/jetbridge/v1/servers/{server}/journey")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["requests"]
    return found


def way_to(cloud: Cloud, server: str, *awaited: str) -> Spans:
    """The spans of the latest request, once all of ``awaited`` are among them: each process stores its own within a second or two."""

    def arrived() -> Spans | None:
        requests = requests_of(cloud, server)
        spans: Spans = requests[-1]["spans"] if requests else []
        known = {span["span_id"] for span in spans}
        whole = all(span["parent_id"] in known or span["parent_id"] is None for span in spans)
        return spans if whole and {span["what"] for span in spans} >= set(awaited) else None

    what = f"{', '.join(awaited)} in the journey of {server}"
    found: Spans = cloud.until(arrived, what, lambda: requests_of(cloud, server))
    return found


def parents(spans: Spans) -> dict[str, str | None]:
    """By what crossed, what led to it."""
    names = {span["span_id"]: span["what"] for span in spans}
    return {span["what"]: names.get(span["parent_id"]) for span in spans}


def shown(span: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return span["seam"], span["from"], span["to"], span["what"]


@on_both_deployments
def test_a_boot_is_one_trace_from_the_front_door_to_the_hypervisor(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)]), host("h2", [])))
    flavor = cloud.flavor("gpu1", {"pci_passthrough:alias": "GPU:1"})
    server = cloud.boot(flavor)
    cloud.wait(server, "ACTIVE")
    spans = way_to(cloud, server, "start_domain", f"PUT /allocations/{server}")
    assert len({span["trace_id"] for span in spans}) == 1
    assert [shown(span) for span in spans if span["seam"] != "LIBRARY"] == [
        ("REST", "client", "api", "POST /compute/v2.1/servers"),
        ("CAST", "api", "conductor", "build_servers"),
        ("CALL", "conductor", "scheduler", "select_destinations"),
        ("REST", "scheduler", "placement", f"PUT /allocations/{server}"),
        ("CAST", "conductor", "compute:h1", "build_server"),
    ]
    led = parents(spans)
    assert led["POST /compute/v2.1/servers"] is None
    assert led["build_servers"] == "POST /compute/v2.1/servers"
    assert led["select_destinations"] == led["build_server"] == "build_servers"
    assert led[f"PUT /allocations/{server}"] == "select_destinations"
    library = [span for span in spans if span["seam"] == "LIBRARY"]
    assert {"define_domain", "start_domain"} <= {span["what"] for span in library}
    assert {led[span["what"]] for span in library} == {"build_server"}
    assert all(span["essentials"]["host"] == "h1" and span["seconds"] > 0 for span in library)

    cloud.delete(server)
    cloud.wait_gone(server)
    spans = way_to(cloud, server, "undefine_domain")
    assert shown(spans[0]) == ("REST", "client", "api", "DELETE /compute/v2.1/servers/{server_id}")
    assert parents(spans)["undefine_domain"] == "delete_server"
    assert len(requests_of(cloud, server)) == 2
    assert requests_of(cloud, server)[0]["spans"][0]["what"] == "POST /compute/v2.1/servers"


@on_every_database
def test_every_server_of_one_request_has_its_own_way(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)]), host("h2", [gpu(2)])))
    flavor = cloud.flavor("gpu1", {"pci_passthrough:alias": "GPU:1"})
    cloud.boot(flavor, name="s", min_count=2, max_count=2)
    ids = [server["id"] for server in cloud.client.get("/servers").json()["servers"]]
    hosts = {server: cloud.wait(server, "ACTIVE")["OS-EXT-SRV-ATTR:host"] for server in ids}
    assert set(hosts.values()) == {"h1", "h2"}
    for server in ids:
        spans = way_to(cloud, server, "start_domain")
        assert [span["to"] for span in spans if span["what"] == "build_server"] == [f"compute:{hosts[server]}"]
        assert {span["server"] for span in spans if span["seam"] == "LIBRARY"} == {server}


def test_a_boot_that_no_host_takes_says_where_it_failed(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [])))
    server = cloud.boot(cloud.flavor("gpu1", {"pci_passthrough:alias": "GPU:1"}))
    cloud.wait(server, "ERROR")
    (select,) = [span for span in way_to(cloud, server, "select_destinations") if span["seam"] == "CALL"]
    assert select["error"].startswith("NoValidHost: ")


@pytest.mark.all_in_one
def test_looking_leaves_no_trace(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    server = cloud.boot(cloud.flavor("gpu1", {"pci_passthrough:alias": "GPU:1"}))
    cloud.wait(server, "ACTIVE")
    for _ in range(20):
        cloud.show(server)
    requests_of(cloud, server)  # stores what waits
    assert cloud.sql("SELECT count(*) FROM spans WHERE what LIKE 'GET %'") == [(0,)]
    assert cloud.client.get(f"{cloud.url}/jetbridge/v1/servers/{server}/xml").status_code == 200
    assert [shown(span) for span in requests_of(cloud, server)[-1]["spans"]] == [
        ("REST", "client", "api", "GET /jetbridge/v1/servers/{key}/xml"),
        ("CALL", "api", "compute:h1", "domain_xml"),
        ("LIBRARY", "compute:h1", "libvirt", "domain_xml"),
    ]


def test_a_collector_gets_the_whole_boot(launch: Launch) -> None:
    collector = Collector()
    try:
        cloud = launch(fleet(host("h1", [gpu(1)])), Settings(otlp_endpoint=collector.url))
        server = cloud.boot(cloud.flavor("gpu1", {"pci_passthrough:alias": "GPU:1"}))
        cloud.wait(server, "ACTIVE")
        stored = {span["span_id"] for span in way_to(cloud, server, "start_domain")}
        cloud.stop()
        sent: set[str] = set()
        while not collector.received.empty():
            _, request = collector.received.get()
            of_scopes = [of_scope for of_resource in request.resource_spans for of_scope in of_resource.scope_spans]
            sent |= {span.span_id.hex() for of_scope in of_scopes for span in of_scope.spans}
        assert stored <= sent
    finally:
        collector.close()


def test_a_collector_that_is_away_disturbs_nobody(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])), Settings(otlp_endpoint="http://127.0.0.1:1"))
    server = cloud.boot(cloud.flavor("gpu1", {"pci_passthrough:alias": "GPU:1"}))
    cloud.wait(server, "ACTIVE")
    assert way_to(cloud, server, "start_domain")
    cloud.stop()
    assert "127.0.0.1" in cloud.log()  # its trouble is in the log


@pytest.mark.all_in_one
def test_spans_are_kept_as_long_as_explanations(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [])), Settings(keep_days=2))
    server = cloud.boot(cloud.flavor("gpu1", {"pci_passthrough:alias": "GPU:1"}))
    cloud.wait(server, "ERROR")
    assert way_to(cloud, server, "select_destinations")
    for days, left in ((1, True), (3, False)):
        cloud.change("UPDATE spans SET started_at = :then", then=utcnow() - timedelta(days=days))
        assert cloud.service is not None
        cloud.service._purge()  # once an hour
        assert bool(requests_of(cloud, server)) is left


def test_what_is_under_way_at_the_stop_is_stored(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    server = cloud.boot(cloud.flavor("gpu1", {"pci_passthrough:alias": "GPU:1"}))
    cloud.wait(server, "ACTIVE")
    cloud.stop()
    stored = {row[0] for row in cloud.sql("SELECT what FROM spans WHERE request_id IS NOT NULL")}
    assert {"POST /compute/v2.1/servers", "build_servers", "build_server", "start_domain"} <= stored


def test_the_command_shows_the_way_as_a_tree(launch: Launch) -> None:
    cloud = launch(fleet(host("h1", [gpu(1)])))
    server = cloud.boot(cloud.flavor("gpu1", {"pci_passthrough:alias": "GPU:1"}), name="mine")
    cloud.wait(server, "ACTIVE")
    spans = way_to(cloud, server, "start_domain")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "jetbridge.cli.main", "journey", *arguments, "--url", cloud.url],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "JETBRIDGE_DEBUG": ""},
        )

    told = run("mine")
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[0] == f"mine ({server})"
    assert any("CAST         conductor -> compute:h1" in line and "build_server" in line for line in lines)
    assert any(
        "LIBRARY        compute:h1 -> libvirt" in line and "start_domain" in line and " ms" in line for line in lines
    )
    request = lines[1].split()[0]
    listed = run(server, "--request", request, "--json")
    assert [span["span_id"] for span in json.loads(listed.stdout)["requests"][0]["spans"]] == [
        span["span_id"] for span in spans
    ]
    assert run(server, "--request", "req-none").returncode == 3
    assert run("nobody").returncode == 3
