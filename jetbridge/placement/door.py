"""The front door before the embedded Placement: who may come in, and as whom.

Placement's mode without Keystone believes whatever a request says of itself. So all that a caller says is taken away here, and
what was found out about the caller is put there instead.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jetbridge.errors import Forbidden, JetbridgeError, Unauthorized

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]

OWN_USER = "jetbridge"
_KEPT = frozenset({"HTTP_X_OPENSTACK_REQUEST_ID"})
_TITLES = {401: "Unauthorized", 403: "Forbidden"}


@dataclass(frozen=True)
class Caller:
    """Ids of user and project, and what the user may."""

    user: str
    project: str
    roles: frozenset[str]


@dataclass(frozen=True)
class Door:
    """``complaint`` says what is wrong with a Host and Origins, or None; ``identify`` finds the caller by the Authorization header,
    or raises ``Unauthorized``. Who brings ``own_token`` is Jetbridge itself."""

    application: Application
    complaint: Callable[[str | None, Sequence[str]], str | None]
    identify: Callable[[str | None], Caller]
    own_token: str

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        try:
            self._check_host(environ)
            caller = None if _is_version_document(environ) else self._caller(environ)
        except JetbridgeError as error:
            return _refused(error, start_response)
        return self.application(_introduced(environ, caller), start_response)

    def _check_host(self, environ: Mapping[str, Any]) -> None:
        origin = environ.get("HTTP_ORIGIN")
        reason = self.complaint(environ.get("HTTP_HOST"), [] if origin is None else [origin])
        if reason is not None:
            raise Forbidden(reason=reason)

    def _caller(self, environ: Mapping[str, Any]) -> Caller:
        token = environ.get("HTTP_X_AUTH_TOKEN", "")
        if hmac.compare_digest(token.encode("latin-1"), self.own_token.encode()):
            return Caller(OWN_USER, OWN_USER, frozenset({"admin", "service"}))
        return self.identify(environ.get("HTTP_AUTHORIZATION"))


def _is_version_document(environ: Mapping[str, Any]) -> bool:
    return environ.get("PATH_INFO") in ("", "/") and environ.get("REQUEST_METHOD") in ("GET", "HEAD")


def _introduced(environ: Mapping[str, Any], caller: Caller | None) -> Environ:
    known = {
        name: value
        for name, value in environ.items()
        if not name.startswith(("HTTP_X_", "HTTP_OPENSTACK_SYSTEM_SCOPE", "HTTP_AUTHORIZATION")) or name in _KEPT
    }
    if caller is not None:
        known["HTTP_X_AUTH_TOKEN"] = f"{caller.user}:{caller.project}"
        known["HTTP_X_ROLES"] = ",".join(sorted(caller.roles))
    return known


def _refused(error: JetbridgeError, start_response: StartResponse) -> Iterable[bytes]:
    # The form of Placement's own errors.
    title = _TITLES[error.http_status]
    body = json.dumps({"errors": [{"status": error.http_status, "title": title, "detail": error.message}]}).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    if isinstance(error, Unauthorized):
        headers.append(("WWW-Authenticate", 'Basic realm="jetbridge"'))
    start_response(f"{error.http_status} {title}", headers)
    return [body]
