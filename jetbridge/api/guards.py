"""What keeps a service without passwords to this machine: the listening address, and the Host and Origin of requests.

A page in a browser can reach a loopback address; it can't choose the Host and Origin the browser sends.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from jetbridge.api.faults import fault
from jetbridge.config.settings import Settings
from jetbridge.errors import InvalidConfiguration


def is_loopback(host: str) -> bool:
    """Whether a host name or address (without port) can only mean this machine."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """The host of a Host header: without port and brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if header.count(":") == 1 else header


def check_listen(settings: Settings, listen: str) -> None:
    """Refuse to serve without passwords on an address that others can reach. Raises ``InvalidConfiguration``."""
    if is_loopback(listen) or (settings.auth_strategy == "http_basic" and settings.http_basic_auth_user_file):
        return
    raise InvalidConfiguration(
        reason=f"listen={listen} can be reached from other machines and [api]auth_strategy={settings.auth_strategy}"
        f"{'' if settings.http_basic_auth_user_file else ' without [api]http_basic_auth_user_file'} lets everybody be"
        " admin. Listen on 127.0.0.1, or set auth_strategy = http_basic and http_basic_auth_user_file = FILE in"
        " section [api] (lines user:bcrypt:project:roles)"
    )


def complaint_about(host: str | None, origins: Iterable[str], *, loopback: bool) -> str | None:
    """What is wrong with a request's Host and Origins; None: nothing. Ports aren't compared.

    On a ``loopback`` address both must be loopback names; on any other, an Origin must be the Host asked.
    """
    if loopback and host is not None and not is_loopback(host_of(host)):
        return f"the Host {host!r} is not this machine: use localhost, 127.0.0.1 or ::1"
    for origin in origins:
        try:
            name = urlsplit(origin).hostname
        except ValueError:
            name = None
        at_home = name is not None and (
            is_loopback(name) if loopback else host is not None and name == host_of(host).lower()
        )
        if not at_home:
            return f"requests of the Origin {origin!r} are refused"
    return None


class HostGuard:
    """Answers 403 to requests whose Host or Origin is foreign, as ``complaint_about``."""

    def __init__(self, app: ASGIApp, listen: str) -> None:
        self.app = app
        self.loopback = is_loopback(listen)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        complaint = None
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            complaint = complaint_about(headers.get("host"), headers.getlist("origin"), loopback=self.loopback)
        if complaint is None:
            await self.app(scope, receive, send)
        else:
            await fault(scope["path"], 403, complaint, code="Forbidden")(scope, receive, send)
