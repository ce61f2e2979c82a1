"""The command line as a client of a running service."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from jetbridge.cli.failures import FAILURE, NOT_FOUND, UNREACHABLE, USAGE, CliError
from jetbridge.cli.options import state_dir_or_default

if TYPE_CHECKING:
    import httpx

DEFAULT_URL = "http://127.0.0.1:8774"
SECONDS = 70.0
"""Longer than the service waits for a host, so that its own answer arrives."""

_LISTS = {"Compute host ": "jetbridge hosts", "Server ": "jetbridge servers", "Device ": "jetbridge devices"}

_LOCAL = ("localhost", "127.0.0.1", "::1")

START = "`jetbridge up` (where the services are processes of their own: `jetbridge api`)"


@dataclass
class Client:
    """``base``: http://HOST:PORT. One connection, kept open."""

    base: str
    user: str | None = None
    password: str | None = None
    seconds: float = SECONDS
    guessed: Path | None = None
    """The file that does not exist and would have named the address."""

    @cached_property
    def _http(self) -> httpx.Client:
        import httpx

        parts = urlsplit(self.base)
        return httpx.Client(
            base_url=self.base,
            auth=(self.user, self.password or "") if self.user else None,
            timeout=self.seconds,
            trust_env=parts.hostname not in _LOCAL,  # a proxy can't reach this machine's loopback
            verify=parts.scheme != "http",  # certificates take a while to load
        )

    def close(self) -> None:
        if "_http" in self.__dict__:
            self._http.close()

    def get(self, path: str, **parameters: str | None) -> Any:
        """The JSON at ``path``. Parameters that are None are left out. Raises ``CliError``."""
        return self.send("GET", path, {key: value for key, value in parameters.items() if value is not None})

    def get_or_none(self, path: str, key: str) -> Any:
        """What stands under ``key`` in the JSON at ``path``; None when there is nothing (any more)."""
        try:
            return self.get(path)[key]
        except CliError as error:
            if error.code == NOT_FOUND:
                return None
            raise

    def post(
        self, path: str, body: Mapping[str, Any] | Sequence[Any] | None = None, *, version: str | None = None
    ) -> Any:
        """``version``: the Compute API's microversion."""
        return self.send("POST", path, {}, body, {"OpenStack-API-Version": f"compute {version}"} if version else None)

    def send(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str],
        body: Mapping[str, Any] | Sequence[Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Raises ``CliError``."""
        import httpx

        try:
            answer = self._http.request(method, path, params=dict(parameters), json=body, headers=headers)
        except httpx.ConnectError:
            guess = other = ""
            if self.guessed:
                guess = f" (the default: {self.guessed} does not exist)"
                other = ", or name the --state-dir of the one that runs"
            raise CliError(
                f"nothing listens at {self.base}{guess}: start it with {START}{other}", UNREACHABLE
            ) from None
        except httpx.TimeoutException:
            raise CliError(f"{self.base} did not answer within {self.seconds:.0f} s", UNREACHABLE) from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError):
            raise CliError(f"{self.base!r} is not an address: write --url http://HOST:PORT", USAGE) from None
        except httpx.TransportError as error:
            raise CliError(f"{self.base} does not speak HTTP with us: {error}", UNREACHABLE) from None
        return self._understood(answer)

    def _understood(self, answer: Any) -> Any:
        if not answer.content and answer.status_code < 300:
            return {}
        try:
            body = answer.json()
        except ValueError:
            raise self._not_ours(answer) from None
        if answer.status_code < 400:
            return body
        if answer.status_code in (404, 405) and _message(body) is None:
            raise self._not_ours(answer)
        message = _message(body) or f"{self.base} answered {answer.status_code}"
        if answer.status_code == 401:
            hint = "set JETBRIDGE_USER and JETBRIDGE_PASSWORD" if not self.user else f"as user {self.user!r}"
            raise CliError(f"{self.base} refused us, {hint}: {message}", FAILURE)
        if answer.status_code == 404:
            raise CliError(message + _known_by(message), NOT_FOUND)
        raise CliError(message, FAILURE)

    def _not_ours(self, answer: Any) -> CliError:
        return CliError(
            f"there is no Jetbridge at {self.base}: it answered {answer.status_code} as another service would. Give --url"
            " http://HOST:PORT of yours, `jetbridge up` prints it as ready",
            UNREACHABLE,
        )


def _known_by(message: str) -> str:
    """Which command lists what could not be found."""
    for noun, command in _LISTS.items():
        if message.startswith(noun) and message.endswith("could not be found."):
            return f" `{command}` lists those there are"
    return ""


def segment(text: str) -> str:
    """``text`` as one part of a path."""
    return quote(text, safe="")


def _message(body: Any) -> str | None:
    """The message of an error in any of the shapes the front doors use."""
    if not isinstance(body, Mapping):
        return None
    for value in (body, *body.values()):
        if isinstance(value, Mapping) and isinstance(value.get("message"), str):
            return str(value["message"])
    return None


def connect(url: str | None, state_dir: Path | None, user: str | None = None, password: str | None = None) -> Client:
    """The service that the options name: by ``url``, else by the clouds.yaml of the state folder, else the default address. A folder
    that somebody named and that has no such file is refused (``CliError``): another service may listen at the default."""
    path = state_dir_or_default(state_dir) / "clouds.yaml"
    cloud: Mapping[str, Any] | None = {} if url else _cloud(path)
    if cloud is None and state_dir is not None:
        raise CliError(
            f"{path} does not exist: no service was started with this --state-dir. Start it with {START}, or give --url",
            UNREACHABLE,
        )
    guessed = path if cloud is None else None
    cloud = cloud or {}
    auth = cloud.get("auth")
    if not isinstance(auth, Mapping):
        auth = {}
    # OS_* may belong to another cloud: they are only for a service that asks for them.
    environment = os.environ if cloud.get("auth_type") == "http_basic" else {}
    base = url or str(cloud.get("compute_endpoint_override", DEFAULT_URL)).partition("/compute")[0]
    return Client(
        base=base.rstrip("/"),
        user=user or auth.get("username") or environment.get("OS_USERNAME"),
        password=password or auth.get("password") or environment.get("OS_PASSWORD"),
        guessed=guessed,
    )


def _cloud(path: Path) -> Mapping[str, Any] | None:
    """None: there is no such file, as before the first start."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return None
    import yaml

    with contextlib.suppress(yaml.YAMLError, AttributeError, KeyError, TypeError):
        cloud = yaml.safe_load(text)["clouds"]["jetbridge"]
        if isinstance(cloud, Mapping):
            return cloud
    raise CliError(f"{path} can't be understood: give --url, or start the service anew with {START}")
