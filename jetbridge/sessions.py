"""What the connections to other services of OpenStack (``[placement]``, ``[cyborg]``, ``[neutron]``) have in common: their sections hold the
same options, in fields of ``Settings`` that begin with the section's name (config/service_options)."""

from __future__ import annotations

from typing import Any

import requests
from keystoneauth1 import http_basic, identity, session

from jetbridge.config.settings import Settings
from jetbridge.errors import InvalidConfiguration

TIMEOUT_SECONDS = 60.0
CONNECTIONS = 64
"""As many as threads may ask at once; more wait for one."""


def is_configured(settings: Settings, group: str) -> bool:
    """Whether the options of a section name a service that somebody else runs."""
    return _option(settings, group, "endpoint_override") is not None or _option(settings, group, "auth_url") is not None


def verify(settings: Settings, group: str) -> bool | str:
    """What is looked at of an https URL's certificate, as ``requests`` takes it."""
    if _option(settings, group, "insecure"):
        return False
    return _option(settings, group, "cafile") or True


def pooled_connection() -> requests.Session:
    """For a session that many threads use."""
    connection = requests.Session()
    for scheme in ("http://", "https://"):
        connection.mount(scheme, session.TCPKeepAliveAdapter(pool_connections=4, pool_maxsize=CONNECTIONS))
    return connection


def keystone_password(settings: Settings, group: str) -> identity.Password:
    """As whom the options of a section ask Keystone. Raises ``InvalidConfiguration`` naming what they lack."""
    require_options(settings, group, "auth_url", "username", "password", "project_name")
    names = ("auth_url", "username", "password", "project_name", "user_domain_name", "project_domain_name")
    return identity.Password(**{name: _option(settings, group, name) for name in names})


def basic_auth(settings: Settings, group: str) -> http_basic.HTTPBasicAuth:
    """As whom the options of a section ask a service without Keystone. Raises ``InvalidConfiguration`` naming what they lack."""
    require_options(settings, group, "username", "password")
    endpoint, user, password = (
        _option(settings, group, name) for name in ("endpoint_override", "username", "password")
    )
    return http_basic.HTTPBasicAuth(endpoint, user, password)


def require_options(settings: Settings, group: str, *names: str) -> None:
    """Raises ``InvalidConfiguration`` naming those of a section's options that are not set."""
    missing = [name for name in names if not _option(settings, group, name)]
    if missing:
        raise InvalidConfiguration(
            reason=f"[{group}]auth_type = {_option(settings, group, 'auth_type')} needs {' and '.join(missing)}: add"
            f" {', '.join(f'{name} = ...' for name in missing)} to the section [{group}] of a file jetbridge.conf"
        )


def _option(settings: Settings, group: str, name: str) -> Any:
    return getattr(settings, f"{group}_{name}")
