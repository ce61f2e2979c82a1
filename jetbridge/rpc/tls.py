"""TLS to RabbitMQ, by the options that oslo.messaging has for it."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jetbridge.errors import InvalidConfiguration

GROUP = "oslo_messaging_rabbit"
PROTOCOLS: Mapping[str, int] = {"TLSv1_2": ssl.PROTOCOL_TLSv1_2, "SSLv23": ssl.PROTOCOL_TLS}


@dataclass(frozen=True)
class Tls:
    """Files are PEM. ``ca_file``: who signed RabbitMQ's certificate; None: it is not checked, as with oslo.messaging.
    ``cert_file`` and ``key_file``: our own certificate, for a RabbitMQ that asks for one. ``version``: a key of ``PROTOCOLS``; None: the newest
    that both sides have."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    version: str | None = None

    def options(self) -> dict[str, object]:
        """For oslo.messaging's driver, of section ``GROUP``."""
        named = {
            "ssl_ca_file": self.ca_file,
            "ssl_cert_file": self.cert_file,
            "ssl_key_file": self.key_file,
            "ssl_version": self.version,
        }
        return {"ssl": True, **{name: value for name, value in named.items() if value is not None}}

    def of_connection(self, host: str) -> dict[str, Any] | bool:
        """For a connection of kombu's: the same as the driver makes of the options."""
        found: dict[str, Any] = {}
        if self.version is not None:
            found["ssl_version"] = PROTOCOLS[self.version]
        if self.key_file is not None:
            found["keyfile"] = self.key_file
        if self.cert_file is not None:
            found["certfile"] = self.cert_file
        if self.ca_file is not None:
            found |= {"ca_certs": self.ca_file, "cert_reqs": ssl.CERT_REQUIRED, "server_hostname": host}
        return found or True

    def check(self) -> None:
        """Raises ``InvalidConfiguration`` for a file that is missing or isn't what it should be: connecting would say less."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.ca_file is not None:
            try:
                context.load_verify_locations(self.ca_file)
            except (OSError, ssl.SSLError) as error:
                raise _unusable("ssl_ca_file", self.ca_file, error) from error
        if self.key_file is not None and self.cert_file is None:
            raise InvalidConfiguration(
                reason=f"[{GROUP}]ssl_key_file is set without [{GROUP}]ssl_cert_file: give the certificate of that key, or neither"
            )
        if self.cert_file is not None:
            try:
                context.load_cert_chain(self.cert_file, self.key_file)
            except (OSError, ssl.SSLError) as error:
                raise _unusable("ssl_cert_file", f"{self.cert_file} (key: {self.key_file})", error) from error


def _unusable(option: str, value: str, error: Exception) -> InvalidConfiguration:
    return InvalidConfiguration(
        reason=f"[{GROUP}]{option} = {value} can't be used: {error}; give a PEM file that this user can read"
    )
