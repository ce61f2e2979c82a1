from __future__ import annotations

from collections.abc import Iterator

import pytest

from jetbridge.errors import InvalidConfiguration
from jetbridge.journey.seams import CLIENT, Seams
from jetbridge.journey.tracing import Tracing, otlp_url
from jetbridge.model.events import Seam
from jetbridge.model.span import Span
from tests.servers.collector import Collector


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def cross(tracing: Tracing) -> None:
    seams = Seams(tracer=tracing.tracer)
    with (
        seams.crossing(Seam.REST, CLIENT, "api", "POST /servers", request_id="req-1", server="s1"),
        seams.crossing(Seam.CAST, "api", "conductor", "build_servers", request_id="req-1", essentials={"servers": "2"}),
    ):
        pass


def test_a_collector_gets_what_the_database_gets(collector: Collector) -> None:
    stored: list[Span] = []
    tracing = Tracing(stored.extend, "jetbridge", "host1", collector.url)
    cross(tracing)
    tracing.stop()
    path, request = collector.received.get(timeout=20)
    assert path == "/v1/traces"
    (of_resource,) = request.resource_spans
    named = {each.key: each.value.string_value for each in of_resource.resource.attributes}
    assert (named["service.name"], named["service.instance.id"]) == ("jetbridge", "host1")
    sent = of_resource.scope_spans[0].spans
    assert [(span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex() or None) for span in sent] == [
        (span.trace_id, span.span_id, span.parent_id) for span in stored
    ]
    cast = {each.key: each.value.string_value for each in sent[0].attributes}
    assert cast["jetbridge.seam"] == "CAST"
    assert (cast["jetbridge.source"], cast["jetbridge.target"]) == ("api", "conductor")
    assert cast["jetbridge.essential.servers"] == "2"


def test_a_collector_that_is_away_costs_nothing_but_its_spans() -> None:
    stored: list[Span] = []
    tracing = Tracing(stored.extend, "jetbridge", "host1", "http://127.0.0.1:1")
    cross(tracing)
    tracing.flush()
    assert len(stored) == 2
    tracing.stop()


def test_the_environment_does_not_change_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_* variables are for programs that have no configuration of their own."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "another")
    stored: list[Span] = []
    tracing = Tracing(stored.extend, "jetbridge", "host1")
    cross(tracing)
    tracing.stop()
    assert [span.what for span in stored] == ["build_servers", "POST /servers"]


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("http://collector:4318/", "http://collector:4318/v1/traces"),
        ("https://collector/otlp/v1/traces", "https://collector/otlp/v1/traces"),
    ],
)
def test_spans_go_where_collectors_take_them(endpoint: str, url: str) -> None:
    assert otlp_url(endpoint) == url


@pytest.mark.parametrize("endpoint", ["collector:4318", "grpc://collector:4317", "http://", ""])
def test_an_endpoint_that_is_no_url_is_refused(endpoint: str) -> None:
    with pytest.raises(InvalidConfiguration, match=r"\[jetbridge\]otlp_endpoint.*http://collector:4318"):
        Tracing(lambda spans: None, "jetbridge", "host1", endpoint)
