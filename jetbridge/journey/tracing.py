"""OpenTelemetry's SDK, put together for one process."""

from __future__ import annotations

from urllib.parse import urlsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Tracer

from jetbridge import __version__
from jetbridge.errors import InvalidConfiguration
from jetbridge.journey.store import SpanStore, Write

OTLP_SECONDS = 3
"""A collector that is away must not keep a process from stopping."""


class Tracing:
    """Makes spans (``tracer``) and gives them to ``write`` and, with ``otlp_endpoint``, to an OpenTelemetry collector as well. ``service`` names
    the process there, ``instance`` tells it from others of its name. Raises ``InvalidConfiguration``.

    It is no global tracer provider: what belongs to this process goes through what is given to it.
    """

    def __init__(self, write: Write, service: str, instance: str, otlp_endpoint: str | None = None) -> None:
        self.store = SpanStore(write)
        processors: list[SpanProcessor] = [self.store]
        if otlp_endpoint is not None:
            processors.append(_collector(otlp_endpoint))
        named = {"service.name": service, "service.instance.id": instance, "service.version": __version__}
        # Everything explicit: OTEL_* variables of the environment are meant for other programs.
        self._provider = TracerProvider(sampler=ALWAYS_ON, resource=Resource(named), shutdown_on_exit=False)
        for processor in processors:
            self._provider.add_span_processor(processor)

    @property
    def tracer(self) -> Tracer:
        return self._provider.get_tracer("jetbridge", __version__)

    def flush(self) -> None:
        """Returns when what has ended is in the database (or lost)."""
        self.store.force_flush()

    def stop(self) -> None:
        """Give away what waits, and end the threads."""
        self._provider.shutdown()


def otlp_url(endpoint: str) -> str:
    """Where traces go, of an address of a collector, as OpenTelemetry's exporters build it (OTLP/HTTP: /v1/traces under the base). Raises
    ``InvalidConfiguration``."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidConfiguration(
            reason=f"[jetbridge]otlp_endpoint is {endpoint!r}: write the URL of a collector that takes OTLP over HTTP, such as"
            " http://collector:4318"
        )
    return endpoint if parts.path.rstrip("/") else f"{endpoint.rstrip('/')}/v1/traces"


def _collector(endpoint: str) -> SpanProcessor:
    url = otlp_url(endpoint)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # most have no collector

    return BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=OTLP_SECONDS))
