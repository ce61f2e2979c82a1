"""The connection to a Placement: one session per process, whose connections stay open."""

from __future__ import annotations

from dataclasses import dataclass

import requests
from keystoneauth1 import adapter, http_basic, identity, session, token_endpoint
from keystoneauth1.plugin import BaseAuthPlugin

from jetbridge.config.settings import Settings
from jetbridge.errors import InvalidConfiguration

GROUP = "placement"
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


def pooled_connection() -> requests.Session:
    """For a session that many threads use."""
    connection = requests.Session()
    for scheme in ("http://", "https://"):
        connection.mount(scheme, session.TCPKeepAliveAdapter(pool_connections=4, pool_maxsize=CONNECTIONS))
    return connection


def placement_adapter(settings: Settings, embedded: Endpoint | None = None) -> adapter.Adapter:
    """``embedded`` None: the one of the options ``[placement]``. Raises ``InvalidConfiguration`` naming what they lack."""
    connection = pooled_connection()
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
        return keystone_password(settings, GROUP)
    require_options(settings, GROUP, "endpoint_override")
    if kind == "http_basic":
        require_options(settings, GROUP, "username", "password")
        return http_basic.HTTPBasicAuth(endpoint, settings.placement_username, settings.placement_password)
    # A Placement that is run without Keystone takes this token for the administrator (its auth_strategy noauth2); ours takes any.
    return token_endpoint.Token(endpoint, "admin")


def keystone_password(settings: Settings, group: str) -> identity.Password:
    """As whom the options of a section ask Keystone. Raises ``InvalidConfiguration`` naming what they lack."""
    require_options(settings, group, "auth_url", "username", "password", "project_name")

    def option(name: str) -> str:
        return str(getattr(settings, f"{group}_{name}"))

    return identity.Password(
        auth_url=option("auth_url"),
        username=option("username"),
        password=option("password"),
        project_name=option("project_name"),
        user_domain_name=option("user_domain_name"),
        project_domain_name=option("project_domain_name"),
    )


def require_options(settings: Settings, group: str, *names: str) -> None:
    """Raises ``InvalidConfiguration`` naming those of a section's options that are not set."""
    missing = [name for name in names if not getattr(settings, f"{group}_{name}")]
    if missing:
        raise InvalidConfiguration(
            reason=f"[{group}]auth_type = {getattr(settings, f'{group}_auth_type')} needs {' and '.join(missing)}: add"
            f" {', '.join(f'{name} = ...' for name in missing)} to the section [{group}] of a file jetbridge.conf"
        )
