"""How RabbitMQ is reached over TLS: options of oslo.messaging's, by their names there."""

from __future__ import annotations

from oslo_config import cfg

from jetbridge.config.setting import Setting

SECTION = "oslo_messaging_rabbit"


def _tls() -> tuple[Setting, ...]:
    files = {
        "ssl_ca_file": "PEM file with the certificate of who signed RabbitMQ's. Without it RabbitMQ's certificate is not checked.",
        "ssl_cert_file": "PEM file with our own certificate, for a RabbitMQ that asks for one.",
        "ssl_key_file": "PEM file with the key of that certificate. Without it: the key is in ssl_cert_file.",
    }
    return (
        Setting(
            SECTION,
            f"{SECTION}_ssl",
            cfg.BoolOpt("ssl", help="Connect to RabbitMQ over TLS (its port is often 5671)."),
            "true or false",
        ),
        *(
            Setting(SECTION, f"{SECTION}_{name}", cfg.StrOpt(name, help=meaning), "the path of a PEM file")
            for name, meaning in files.items()
        ),
        Setting(
            SECTION,
            f"{SECTION}_ssl_version",
            cfg.StrOpt(
                "ssl_version",
                choices=["TLSv1_2", "SSLv23"],
                help="TLSv1_2: nothing else. SSLv23, or none: the newest version that both sides have.",
            ),
            "TLSv1_2 or SSLv23",
        ),
    )


SETTINGS = _tls()
