"""The connection to a Placement: one session per process, whose connections stay open."""

from __future__ import annotations

from dataclasses import dataclass

import requests
from keystoneauth1 import adapter, http_basic, identity, session, token_endpoint
from keystoneauth1.plugin import BaseAuthPlugin

from jetbridge.config.settings import Settings
from jetbridge.errors import InvalidConfiguration

TIMEOUT_SECONDS = 60.0
CONNECTIONS = 64
"""As many as threads may ask at once; more wait for one."""

MICROVERSION = "1.36"
"""What we ask for: released in 2019 (Train), so that every Placement that lives has it."""


@dataclass(frozen=True)
class Endpoint:
    """The embedded Placement: where it is, and the token by which it knows us."""

    url: str
    own_token: str


def is_external(settings: Settings) -> bool:
    """Whether the options name a Placement that somebody else runs."""
    return settings.placement_endpoint_override is not None or settings.placement_auth_url is not None


def placement_adapter(settings: Settings, embedded: Endpoint | None = None) -> adapter.Adapter:
    """``embedded`` None: the one of the options ``[placement]``. Raises ``InvalidConfiguration`` naming what they lack."""
    connection = requests.Session()
    for scheme in ("http://", "https://"):
        connection.mount(scheme, session.TCPKeepAliveAdapter(pool_connections=4, pool_maxsize=CONNECTIONS))
    if embedded is not None:
        connection.trust_env = False  # a proxy for the world outside must not get our own child's address
        auth: BaseAuthPlugin = token_endpoint.Token(embedded.url, embedded.own_token)
        verify: bool | str = True
    else:
        auth = _auth(settings)
        verify = False if settings.placement_insecure else (settings.placement_cafile or True)
    return adapter.Adapter(
        session.Session(auth=auth, session=connection, verify=verify, timeout=TIMEOUT_SECONDS),
        service_type="placement",
        interface=list(settings.placement_valid_interfaces),
        region_name=settings.placement_region_name,
        endpoint_override=embedded.url if embedded is not None else settings.placement_endpoint_override,
        default_microversion=MICROVERSION,
        raise_exc=False,
    )


def _auth(settings: Settings) -> BaseAuthPlugin:
    kind, endpoint = settings.placement_auth_type, settings.placement_endpoint_override
    if kind == "password":
        _require(settings, "auth_url", "username", "password", "project_name")
        return identity.Password(
            auth_url=settings.placement_auth_url or "",
            username=settings.placement_username,
            password=settings.placement_password,
            project_name=settings.placement_project_name,
            user_domain_name=settings.placement_user_domain_name,
            project_domain_name=settings.placement_project_domain_name,
        )
    _require(settings, "endpoint_override")
    if kind == "http_basic":
        _require(settings, "username", "password")
        return http_basic.HTTPBasicAuth(endpoint, settings.placement_username, settings.placement_password)
    # A Placement that is run without Keystone takes this token for the administrator (its auth_strategy noauth2); ours takes any.
    return token_endpoint.Token(endpoint, "admin")


def _require(settings: Settings, *names: str) -> None:
    missing = [name for name in names if not getattr(settings, f"placement_{name}")]
    if missing:
        raise InvalidConfiguration(
            reason=f"[placement]auth_type = {settings.placement_auth_type} needs {' and '.join(missing)}: add"
            f" {', '.join(f'{name} = ...' for name in missing)} to the section [placement] of a file jetbridge.conf"
        )
