"""Who asks: without authentication everybody is ``admin``; with http_basic a password file decides.

A password file has one user per line, ``user:bcrypt:project:roles`` (roles separated by commas; blank lines and
lines that begin with ``#`` are skipped). ``htpasswd -nBC 10 USER`` prints the first two fields.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import bcrypt
from anyio import CapacityLimiter, to_thread
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from jetbridge.api.faults import fault
from jetbridge.config.settings import Settings
from jetbridge.errors import InvalidConfiguration, Unauthorized
from jetbridge.model.context import ADMIN_ID, RequestContext

TOKEN_SECONDS = 3600
KNOWN_PASSWORDS = 1024
ALL_ROLES = ("admin", "member", "reader", "service")
_IMPLIED = {"admin": ("member", "reader"), "member": ("reader",)}
_BCRYPT = re.compile(r"\$2[abxy]\$(0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")
_ROLE = re.compile(r"[a-z][a-z0-9_-]*")
_NAMESPACE = uuid.UUID("7c0f2f0e-54a8-5d2b-9d43-6a1f0b1f6f51")


@dataclass(frozen=True)
class Principal:
    """A user in a project, by ids and names."""

    user_id: str
    user_name: str
    project_id: str
    project_name: str
    roles: frozenset[str]

    def context(self, request_id: str) -> RequestContext:
        return RequestContext(self.user_id, self.project_id, self.roles, request_id)


ADMIN = Principal(ADMIN_ID, "admin", ADMIN_ID, "admin", frozenset(ALL_ROLES))
NOBODY = Principal("", "", "", "", frozenset())
"""Who reads the version documents, which need no authentication."""


def stable_id(kind: str, name: str) -> str:
    """The id of a user or project: the same on every start. ``admin`` has the id it has without authentication, so
    that what was made before authentication was switched on stays the admin's."""
    return ADMIN_ID if name == "admin" else uuid.uuid5(_NAMESPACE, f"{kind}:{name}").hex


@dataclass(frozen=True)
class PasswordEntry:
    principal: Principal
    bcrypt_hash: bytes


def read_password_file(path: Path) -> Mapping[str, PasswordEntry]:
    """Users by name. Raises ``InvalidConfiguration`` naming the file and the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfiguration(reason=f"[api]http_basic_auth_user_file={path}: {error}") from None
    entries: dict[str, PasswordEntry] = {}
    line_of: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            entry = _parse_line(line.strip())
            name = entry.principal.user_name
            if name in entries:
                raise ValueError(f"the user {name!r} stands on line {line_of[name]} already")
        except ValueError as error:
            raise InvalidConfiguration(
                reason=f"{path} line {number}: {error}. Write user:bcrypt:project:roles"
            ) from None
        entries[name], line_of[name] = entry, number
    if not entries:
        raise InvalidConfiguration(reason=f"{path} names no user. Write user:bcrypt:project:roles, one per line")
    return entries


def _parse_line(line: str) -> PasswordEntry:
    fields = line.split(":")
    if len(fields) != 4:
        raise ValueError(f"{len(fields)} fields instead of 4")
    user, password, project, roles_text = (part.strip() for part in fields)
    if not user or not project:
        raise ValueError("user and project must not be empty")
    if not _BCRYPT.fullmatch(password):
        raise ValueError(
            f"the second field of user {user!r} is not a bcrypt hash (make one with htpasswd -nBC 10 {user})"
        )
    roles = {role.strip() for role in roles_text.split(",") if role.strip()}
    if not roles:
        raise ValueError(f"user {user!r} has no role (admin, member, reader or service)")
    for role in sorted(roles):
        if not _ROLE.fullmatch(role):
            raise ValueError(f"{role!r} is not a role")
    implied = {more for role in roles for more in _IMPLIED.get(role, ())}
    principal = Principal(
        stable_id("user", user), user, stable_id("project", project), project, frozenset(roles | implied)
    )
    return PasswordEntry(principal, password.encode())


@dataclass
class Authenticator:
    """Knows the users (None: everybody is admin) and checks what a request brings.

    Right passwords are remembered by a keyed hash, since bcrypt is slow on purpose; wrong ones never are.
    Tokens are signed, not stored: they end with the process that made them.
    """

    users: Mapping[str, PasswordEntry] | None = None
    clock: Callable[[], float] = time.time
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _known: OrderedDict[bytes, str] = field(default_factory=OrderedDict)
    _revoked: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    # Checked against when the user does not exist, so that the answer takes as long as for one that does.
    _decoy: bytes = field(default_factory=lambda: bcrypt.hashpw(b"nobody", bcrypt.gensalt(10)))

    @classmethod
    def from_settings(cls, settings: Settings) -> Authenticator:
        """Raises ``InvalidConfiguration``."""
        match settings.auth_strategy:
            case "none":
                return cls(_decoy=b"")  # no password is ever checked
            case "http_basic":
                if settings.http_basic_auth_user_file is None:
                    raise InvalidConfiguration(
                        reason="[api]auth_strategy=http_basic needs [api]http_basic_auth_user_file: the path of a"
                        " file with lines user:bcrypt:project:roles"
                    )
                return cls(read_password_file(settings.http_basic_auth_user_file))
            case other:
                raise InvalidConfiguration(reason=f"[api]auth_strategy={other}: use none or http_basic")

    @property
    def open_to_all(self) -> bool:
        return self.users is None

    def principals(self) -> tuple[Principal, ...]:
        if self.users is None:
            return (ADMIN,)
        return tuple(entry.principal for entry in self.users.values())

    def remembered(self, user: str, password: str) -> Principal | None:
        """The principal when this very password was found right before; costs no bcrypt."""
        if self.users is None:
            return ADMIN
        digest = self._digest(user, password)
        with self._lock:
            if digest not in self._known:
                return None
            self._known.move_to_end(digest)
        return self.users[user].principal

    def check_password(self, user: str, password: str) -> Principal:
        """Takes as long as bcrypt does. Raises ``Unauthorized``, with the same words whether user or password is wrong."""
        known = self.remembered(user, password)
        if known is not None or self.users is None:
            return known or ADMIN
        entry = self.users.get(user)
        try:
            secret = password.encode()
        except UnicodeEncodeError:
            raise Unauthorized(reason="the password holds a lone surrogate, which is no character") from None
        # bcrypt reads 72 bytes; a longer password would be cut silently.
        right = bcrypt.checkpw(secret[:72], entry.bcrypt_hash if entry else self._decoy)
        if entry is None or not right or len(secret) > 72:
            raise Unauthorized(reason="the user or the password is wrong")
        with self._lock:
            self._known[self._digest(user, password)] = user
            while len(self._known) > KNOWN_PASSWORDS:
                self._known.popitem(last=False)
        return entry.principal

    def _digest(self, user: str, password: str) -> bytes:
        return hmac.digest(self._key, json.dumps([user, password]).encode(), "sha256")

    def issue_token(self, principal: Principal) -> tuple[str, float]:
        """A token and when it ends (seconds since the epoch)."""
        ends = self.clock() + TOKEN_SECONDS
        payload = base64.urlsafe_b64encode(json.dumps([principal.user_name, ends]).encode())
        return f"{payload.decode()}.{self._sign(payload)}", ends

    def check_token(self, token: str) -> tuple[Principal, float]:
        """Whose token it is and when it ends. Raises ``Unauthorized``."""
        if self.users is None:
            return ADMIN, self.clock() + TOKEN_SECONDS
        payload, _, signature = token.partition(".")
        if not hmac.compare_digest(self._sign(payload.encode()).encode(), signature.encode()):
            raise Unauthorized(reason="the token is not one of this service (tokens end when it restarts)")
        user, ends = json.loads(base64.urlsafe_b64decode(payload))
        if ends <= self.clock() or token in self._revoked:
            raise Unauthorized(reason="the token has expired")
        return self.users[user].principal, ends

    def revoke_token(self, token: str) -> None:
        """The token is worth nothing from now on. Raises ``Unauthorized`` when it isn't now."""
        _, ends = self.check_token(token)
        with self._lock:
            self._revoked = {old: end for old, end in self._revoked.items() if end > self.clock()} | {token: ends}

    def _sign(self, payload: bytes) -> str:
        return hmac.new(self._key, payload, hashlib.sha256).hexdigest()


def basic_credentials(header: str) -> tuple[str, str]:
    """User and password of an ``Authorization: Basic`` header. Raises ``Unauthorized``."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        raise Unauthorized(reason=f"the scheme {scheme!r} of the Authorization header is not Basic")
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:  # not base64, not ASCII, not UTF-8
        raise Unauthorized(reason="the Authorization header can't be decoded") from None
    if not colon:
        raise Unauthorized(reason="the Authorization header has no password")
    return user, password


# Version documents, by which clients find out how to authenticate.
_OPEN_GET = frozenset(
    [
        "",
        "/compute",
        "/compute/v2.1",
        "/image",
        "/image/versions",
        "/identity",
        "/identity/v3",
        "/network",
        "/accelerator",
        "/accelerator/v2",
        "/jetbridge/v1",
    ]
)
_OPEN_POST = frozenset(["/identity/v3/auth/tokens"])


class AuthenticationMiddleware:
    """Puts the caller's context, principal and the authenticator into the request's state, or answers 401."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self.app = app
        self.authenticator = authenticator
        self._bcrypt_threads = CapacityLimiter(2)  # a flood of wrong passwords must not take all workers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            principal = await self._principal(Headers(scope=scope))
        except Unauthorized as error:
            if not _is_open(scope):
                headers = {"WWW-Authenticate": 'Basic realm="jetbridge"'}
                answer = fault(scope["path"], error.http_status, error.message, code=error.code, headers=headers)
                await answer(scope, receive, send)
                return
            principal = NOBODY
        state = scope.setdefault("state", {})
        request_id = state.setdefault("request_id", f"req-{uuid.uuid4()}")
        state.update(principal=principal, context=principal.context(request_id), authenticator=self.authenticator)
        await self.app(scope, receive, send)

    async def _principal(self, headers: Headers) -> Principal:
        if self.authenticator.open_to_all:
            return ADMIN
        if (token := headers.get("x-auth-token")) is not None:
            return self.authenticator.check_token(token)[0]
        if (header := headers.get("authorization")) is not None:
            user, password = basic_credentials(header)
            known = self.authenticator.remembered(user, password)
            if known is not None:
                return known
            return await to_thread.run_sync(
                self.authenticator.check_password, user, password, limiter=self._bcrypt_threads
            )
        raise Unauthorized(reason="send user and password (http_basic) or a token of /identity/v3")


def _is_open(scope: Scope) -> bool:
    path = scope["path"].rstrip("/")
    return path in (
        _OPEN_POST if scope["method"] == "POST" else _OPEN_GET if scope["method"] in ("GET", "HEAD") else ()
    )


def principal_of(request: HTTPConnection) -> Principal:
    """Who asks, as the middleware found it."""
    principal: Principal = request.state.principal
    return principal


def authenticator_of(request: HTTPConnection) -> Authenticator:
    authenticator: Authenticator = request.state.authenticator
    return authenticator
