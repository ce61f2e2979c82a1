"""How another service of OpenStack is reached: the same options in ``[placement]``, ``[neutron]`` and ``[cyborg]``. Names as keystoneauth has
them, so that a section of nova.conf can be copied."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from oslo_config import cfg, types

from jetbridge.config.setting import Setting

AUTH_TYPE = (
    "How to show who asks. password: by Keystone, whose catalog also knows the URL when endpoint_override is not set. http_basic: "
    "by username and password. none: not at all."
)


class _AnyName(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return name


class ServiceUrl(types.String):
    """The URL of a service, kept as text once it is known to be one that can be asked. ``filled_in``: keystoneauth fills in names that
    are written as ``%(project_id)s``."""

    def __init__(self, *, filled_in: bool = False) -> None:
        super().__init__()
        self._filled_in = filled_in

    def __call__(self, value: str) -> str:
        try:
            parts = urlsplit(value)
            known = parts.scheme in ("http", "https") and parts.hostname is not None and parts.port != 0
        except ValueError:  # of a port or an IPv6 address
            known = False
        if not known or re.search(r"\s", value):
            raise ValueError("not the URL of a service: http:// or https://, a host, and a port unless it is 80 or 443")
        if self._filled_in:
            try:
                value % _AnyName()
            except (TypeError, ValueError) as error:
                raise ValueError(
                    "a % begins a name to fill in, such as %(project_id)s: write %% for one that is meant"
                ) from error
        return value


def service_settings(
    group: str, *, endpoint: str, example: str, project_name: str, auth_type: str = AUTH_TYPE
) -> tuple[Setting, ...]:
    """The options of the section ``group``, whose fields begin with its name. ``endpoint``, ``project_name`` and ``auth_type`` are
    the helps of these options, where the services differ; ``example`` is a URL of the service."""

    def setting(option: cfg.Opt, expects: str) -> Setting:
        return Setting(group, f"{group}_{option.dest}", option, expects)

    return (
        setting(
            cfg.Opt("endpoint_override", type=ServiceUrl(filled_in=True), help=endpoint), f"a URL such as {example}"
        ),
        setting(
            cfg.StrOpt("auth_type", choices=["none", "http_basic", "password"], help=auth_type),
            "none, http_basic or password",
        ),
        setting(
            cfg.Opt("auth_url", type=ServiceUrl(), help="Keystone, for auth_type password."),
            "a URL such as http://controller:5000/v3",
        ),
        setting(cfg.StrOpt("username", help="For auth_type http_basic and password."), "a user's name"),
        setting(cfg.StrOpt("password", secret=True, help="For auth_type http_basic and password."), "a password"),
        setting(cfg.StrOpt("project_name", help=project_name), "a project's name, such as service"),
        setting(cfg.StrOpt("user_domain_name", help="For auth_type password."), "a domain's name"),
        setting(cfg.StrOpt("project_domain_name", help="For auth_type password."), "a domain's name"),
        setting(
            cfg.StrOpt("region_name", help="For auth_type password: of which region the URL is taken."),
            "a region's name",
        ),
        setting(
            cfg.ListOpt(
                "valid_interfaces",
                help="For auth_type password: which of the catalog's URLs are taken, the first choice first.",
            ),
            "names separated by commas, such as internal,public",
        ),
        setting(
            cfg.StrOpt("cafile", help="Certificates to trust, in place of the system's."), "the path of a PEM file"
        ),
        setting(cfg.BoolOpt("insecure", help="Don't look at the certificate of an https URL."), "true or false"),
    )
