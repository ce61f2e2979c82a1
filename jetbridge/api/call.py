"""What a handler is given: who asks, at which version, and what the service may touch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request

from jetbridge.api import microversions, policy
from jetbridge.api.microversions import Version
from jetbridge.api.services import ApiServices
from jetbridge.model.context import RequestContext


@dataclass(frozen=True)
class Call:
    """``url`` is the front door's address as this caller sees it, without a trailing slash (for links)."""

    context: RequestContext
    services: ApiServices
    version: Version
    url: str

    def at_least(self, minor: int) -> bool:
        return self.version.minor >= minor

    def allowed(self, rule: str) -> bool:
        return policy.allowed(self.context, rule)

    def require(self, rule: str) -> None:
        policy.require(self.context, rule)

    def shape(self, view: str, full: dict[str, Any]) -> dict[str, Any]:
        return microversions.shape(view, full, self.version, self.allowed)


def context_of(request: Request) -> RequestContext:
    """The context that authentication left in the request's state. Raises ``Forbidden`` for a change by somebody who may only look:
    here, where every handler gets its caller from, none can forget it."""
    context: RequestContext = request.state.context
    policy.require_method(context, request.method)
    return context


def services_of(request: Request) -> ApiServices:
    services: ApiServices = request.app.state.services
    return services


def compute_call(request: Request) -> Call:
    return Call(
        context=context_of(request),
        services=services_of(request),
        version=getattr(request.state, "version", microversions.MINIMUM),
        url=f"{str(request.base_url).rstrip('/')}/compute/v2.1",
    )


ComputeCall = Annotated[Call, Depends(compute_call)]
ContextOf = Annotated[RequestContext, Depends(context_of)]
ServicesOf = Annotated[ApiServices, Depends(services_of)]


def at_version(route: str) -> Any:
    """A route's dependency: the resource exists only in the versions that ``version_table.ROUTES`` gives it."""

    def check(call: ComputeCall) -> None:
        microversions.check_route(route, call.version)

    return Depends(check)
