"""The connection to a Placement: one session per process, whose connections stay open."""

from __future__ import annotations

from dataclasses import dataclass

from keystoneauth1 import adapter, session, token_endpoint
from keystoneauth1.plugin import BaseAuthPlugin

from jetbridge.config.settings import Settings
from jetbridge.sessions import (
    TIMEOUT_SECONDS,
    basic_auth,
    keystone_password,
    pooled_connection,
    require_options,
    verify,
)

GROUP = "placement"

MICROVERSION = "1.36"
"""What we ask for: released in 2019 (Train), so that every Placement that lives has it."""


@dataclass(frozen=True)
class Endpoint:
    """The embedded Placement: where it is, and the token by which it knows us."""

    url: str
    own_token: str


def placement_adapter(settings: Settings, embedded: Endpoint | None = None) -> adapter.Adapter:
    """``embedded`` None: the one of the options ``[placement]``. Raises ``InvalidConfiguration`` naming what they lack."""
    connection = pooled_connection()
    if embedded is not None:
        connection.trust_env = False  # a proxy for the world outside must not get our own child's address
        auth: BaseAuthPlugin = token_endpoint.Token(embedded.url, embedded.own_token)
        trusted: bool | str = True
    else:
        auth = _auth(settings)
        trusted = verify(settings, GROUP)
    made = adapter.Adapter(
        session.Session(auth=auth, session=connection, verify=trusted, timeout=TIMEOUT_SECONDS),
        service_type="placement",
        interface=list(settings.placement_valid_interfaces),
        region_name=settings.placement_region_name,
        endpoint_override=embedded.url if embedded is not None else settings.placement_endpoint_override,
        default_microversion=MICROVERSION,
        raise_exc=False,
    )
    if embedded is None and settings.placement_auth_type == "none":
        # Who moves allocations between providers has to be a service, and without Keystone a caller says itself what it is.
        made.additional_headers["X-Roles"] = "admin,service"
    return made


def _auth(settings: Settings) -> BaseAuthPlugin:
    if settings.placement_auth_type == "password":
        return keystone_password(settings, GROUP)
    require_options(settings, GROUP, "endpoint_override")
    if settings.placement_auth_type == "http_basic":
        return basic_auth(settings, GROUP)
    # A Placement that is run without Keystone takes this token for the administrator (its auth_strategy noauth2); ours takes any.
    return token_endpoint.Token(settings.placement_endpoint_override, "admin")
