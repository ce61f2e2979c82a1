"""The spans of one request as people read them: each under the one that led to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jetbridge.model.span import Span


@dataclass(frozen=True)
class Step:
    """``depth`` 0: nothing that is known led to it."""

    depth: int
    span: Span


def steps(spans: Sequence[Span], server: str | None = None) -> tuple[Step, ...]:
    """Depth first, what began earlier first. ``server``: without what a request for several servers did for the others alone."""
    known = {span.span_id for span in spans}
    children: dict[str | None, list[Span]] = {}
    for span in sorted(spans, key=lambda span: span.started_at):
        parent = span.parent_id if span.parent_id in known else None  # lost ones leave their children as roots
        children.setdefault(parent, []).append(span)

    def about(span: Span) -> bool:
        return (
            server is None
            or span.server in (None, server)
            or "servers" in span.essentials
            or any(about(child) for child in children.get(span.span_id, ()))
        )

    def walk(parent: str | None, depth: int) -> Iterator[Step]:
        for span in children.get(parent, ()):
            if about(span):
                yield Step(depth, span)
                yield from walk(span.span_id, depth + 1)

    return tuple(walk(None, 0))
