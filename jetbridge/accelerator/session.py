"""The connection to an accelerator service: the embedded one, or the one of the options ``[cyborg]``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keystoneauth1 import adapter, noauth, service_token, session
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

GROUP = "cyborg"

NEEDS_ENDPOINT = (
    "[cyborg]endpoint_override is not set, and this process has no accelerator service of its own: set it to that of `jetbridge api`, such as"
    " http://API-HOST:8774/accelerator/v2, or of another Cyborg, in a file jetbridge.conf"
)


class OwnToken(BaseAuthPlugin):
    """Shows the embedded service who asks: ``issue`` makes a token of ``project``, anew for each request."""

    def __init__(self, url: str, issue: Callable[[], str], project: str) -> None:
        super().__init__()
        self._url = url
        self._issue = issue
        self._project = project

    def get_project_id(self, session: Any, **kwargs: Any) -> str:
        return self._project

    def get_token(self, session: Any, **kwargs: Any) -> str:
        return self._issue()

    def get_endpoint(self, session: Any, **kwargs: Any) -> str:
        return self._url


def embedded_adapter(url: str, issue: Callable[[], str], project: str) -> adapter.Adapter:
    connection = pooled_connection()
    connection.trust_env = False  # a proxy for the world outside must not get an address of this process
    return _adapter(
        session.Session(auth=OwnToken(url, issue, project), session=connection, timeout=TIMEOUT_SECONDS), url
    )


def external_adapter(settings: Settings) -> adapter.Adapter:
    """Raises ``InvalidConfiguration`` naming what ``[cyborg]`` lacks."""
    opened = session.Session(
        auth=_auth(settings), session=pooled_connection(), verify=verify(settings, GROUP), timeout=TIMEOUT_SECONDS
    )
    return _adapter(
        opened,
        settings.cyborg_endpoint_override,
        interface=list(settings.cyborg_valid_interfaces),
        region_name=settings.cyborg_region_name,
    )


def _adapter(opened: session.Session, endpoint: str | None, **more: Any) -> adapter.Adapter:
    return adapter.Adapter(
        opened,
        service_type="accelerator",
        endpoint_override=endpoint.rstrip("/") if endpoint else None,
        raise_exc=False,
        **more,
    )


def _auth(settings: Settings) -> BaseAuthPlugin:
    if settings.cyborg_auth_type == "password":
        auth = keystone_password(settings, GROUP)
        # Cyborg lets only those bind and delete who also show a service's token.
        return service_token.ServiceTokenAuthWrapper(user_auth=auth, service_auth=auth)
    require_options(settings, GROUP, "endpoint_override")
    if settings.cyborg_auth_type == "http_basic":
        return basic_auth(settings, GROUP)
    return noauth.NoAuth(settings.cyborg_endpoint_override)
