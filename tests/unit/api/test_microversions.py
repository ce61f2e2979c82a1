from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from fastapi import Request

from jetbridge.api import flavor_views, hypervisors, limits, server_views
from jetbridge.api.call import Call
from jetbridge.api.microversions import (
    MAXIMUM,
    MINIMUM,
    InvalidVersionText,
    Version,
    VersionOutOfRange,
    negotiate,
    parse_version,
    shape,
)
from jetbridge.api.policy import RULES
from jetbridge.api.version_table import REQUEST_FIELDS, ROUTES, VIEW_FIELDS, Span
from jetbridge.db import flavors, servers
from jetbridge.model.context import ADMIN_ID, RequestContext
from tests.unit.api.clouds import Cloud, message

NEW, OLD = "openstack-api-version", "x-openstack-nova-api-version"


@pytest.mark.parametrize(
    ("headers", "version"),
    [
        ({}, MINIMUM),
        ({NEW: "compute 2.47"}, Version(2, 47)),
        ({NEW: "volume 3.1, compute 2.47"}, Version(2, 47)),
        ({NEW: "volume 3.1"}, MINIMUM),
        ({OLD: "2.79"}, Version(2, 79)),
        ({NEW: "compute 2.47", OLD: "2.79"}, Version(2, 47)),
        ({NEW: "volume 3.1", OLD: "2.79"}, Version(2, 79)),
        ({NEW: "compute latest"}, MAXIMUM),
        ({OLD: "latest"}, MAXIMUM),
        ({NEW: "compute   2.9 "}, Version(2, 9)),
    ],
)
def test_either_header_chooses_and_the_newer_wins(headers: dict[str, str], version: Version) -> None:
    assert negotiate(headers) == version


@pytest.mark.parametrize("text", ["", "2", "2.x", "a.b", "2.01", "02.1", "2.1.1", "-2.1", "2.99999", "٢.١"])
def test_versions_that_are_none(text: str) -> None:
    with pytest.raises(InvalidVersionText, match=r"MajorNum\.MinorNum"):
        parse_version(text)


@pytest.mark.parametrize("text", ["2.0", "1.1", "2.97", "3.1"])
def test_versions_out_of_range(text: str) -> None:
    with pytest.raises(VersionOutOfRange, match=r"Minimum is 2\.1 and maximum is 2\.96"):
        parse_version(text)


def test_minor_versions_are_numbers() -> None:
    assert parse_version("2.9") < parse_version("2.10")


@pytest.mark.parametrize("version", ["2.1", "2.37", "2.47", "2.79", "2.96"])
def test_every_answer_tells_its_version_in_both_headers(shared: Cloud, version: str) -> None:
    for path in ("/flavors", "/nothing"):
        answer = shared.get(path, version=version)
        assert answer.headers[NEW] == f"compute {version}"
        assert answer.headers[OLD] == version
        assert NEW in answer.headers["vary"].lower()
        assert OLD in answer.headers["vary"].lower()


def test_the_older_header_alone_is_enough(shared: Cloud) -> None:
    assert shared.get("/flavors", headers={OLD: "2.37"}).headers[NEW] == "compute 2.37"


def test_latest_is_answered_with_its_number(shared: Cloud) -> None:
    assert shared.get("/flavors", version="latest").headers[OLD] == str(MAXIMUM)


def test_out_of_range_is_406_and_nonsense_400(shared: Cloud) -> None:
    outside = shared.get("/flavors", version="2.97")
    assert outside.status_code == 406
    assert outside.json()["computeFault"]["code"] == 406
    assert "maximum is 2.96" in message(outside)
    assert shared.get("/flavors", version="two").status_code == 400


def test_the_version_document(shared: Cloud) -> None:
    for path in ("/compute/v2.1", "/compute/v2.1/"):
        document = shared.client.get(path).json()["version"]
        assert (document["id"], document["status"]) == ("v2.1", "CURRENT")
        assert (document["min_version"], document["version"]) == ("2.1", "2.96")
    (only,) = shared.client.get("/compute").json()["versions"]
    assert only["id"] == "v2.1"


def test_every_span_is_possible_and_names_a_rule_that_exists() -> None:
    for table in (*VIEW_FIELDS.values(), *REQUEST_FIELDS.values(), ROUTES):
        for name, span in table.items():
            assert MINIMUM.minor <= span.since <= span.until <= MAXIMUM.minor, name
            assert span.rule is None or span.rule in RULES, name


def test_variants_of_a_field_never_overlap_and_leave_no_gap_between_them() -> None:
    for view, table in VIEW_FIELDS.items():
        by_name: dict[str, list[Span]] = {}
        for name, span in table.items():
            if "@" in name:
                by_name.setdefault(name.partition("@")[0], []).append(span)
        for name, spans in by_name.items():
            spans.sort(key=lambda span: span.since)
            for before, after in pairwise(spans):
                assert after.since == before.until + 1, (view, name)


def test_shape_keeps_what_the_version_and_the_caller_may_see() -> None:
    full = {"flavor@ref": 1, "flavor@embedded": 2, "OS-EXT-SRV-ATTR:host": "h", "locked": True, "name": "n"}
    assert shape("server", full, Version(2, 1), lambda rule: False) == {"flavor": 1, "name": "n"}
    newest = shape("server", full, MAXIMUM, lambda rule: True)
    assert newest == {"flavor": 2, "OS-EXT-SRV-ATTR:host": "h", "locked": True, "name": "n"}


class EveryField(Call):
    """Shows views before any version takes fields away."""

    def shape(self, view: str, full: dict[str, Any]) -> dict[str, Any]:
        return full


def test_the_table_names_only_fields_that_views_have(shared: Cloud) -> None:
    server_id = shared.booted()
    context = RequestContext(ADMIN_ID, ADMIN_ID, frozenset({"admin"}), "req-test")
    call = EveryField(context, shared.services, MAXIMUM, "http://host/compute/v2.1")
    with shared.database.read() as conn:
        server = servers.get(conn, server_id)
        (flavor,) = flavors.find(conn)
    assert set(VIEW_FIELDS["server"]) <= set(server_views.detailed(call, server, server_views.Surroundings()))
    assert set(VIEW_FIELDS["server-updated"]) <= set(server_views.updated(call, server, server_views.Surroundings()))
    assert set(VIEW_FIELDS["flavor"]) <= set(flavor_views.detailed(call, flavor))
    assert set(VIEW_FIELDS["limits"]) <= set(limits.limits(call)["limits"]["absolute"])
    hosts = hypervisors.detail(hypervisors.HypervisorListing(with_servers=True), _request(), call)["hypervisors"]
    assert set(VIEW_FIELDS["hypervisor"]) <= set(hosts[0])


def _request() -> Request:
    return Request({"type": "http", "query_string": b"", "headers": []})
