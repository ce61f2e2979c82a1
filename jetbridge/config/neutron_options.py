"""The options of ``[neutron]``: which Network service has the networks and ports. Names as Nova and keystoneauth have them, so that a section
of nova.conf can be copied."""

from __future__ import annotations

from oslo_config import cfg

from jetbridge.config.setting import Setting

GROUP = "neutron"


def _setting(option: cfg.Opt, expects: str) -> Setting:
    return Setting(GROUP, f"neutron_{option.dest}", option, expects)


SETTINGS: tuple[Setting, ...] = (
    _setting(
        cfg.StrOpt(
            "endpoint_override",
            help="URL of the Network service that has the networks and ports, such as http://controller:9696. Without it and auth_url they are "
            "Jetbridge's own, served under /network.",
        ),
        "a URL such as http://controller:9696",
    ),
    _setting(
        cfg.StrOpt(
            "auth_type",
            choices=["none", "http_basic", "password"],
            help="How to show who asks. password: by Keystone, whose catalog also knows the URL when endpoint_override is not set. http_basic: "
            "by username and password. none: not at all.",
        ),
        "none, http_basic or password",
    ),
    _setting(
        cfg.StrOpt("auth_url", help="Keystone, for auth_type password."), "a URL such as http://controller:5000/v3"
    ),
    _setting(cfg.StrOpt("username", help="For auth_type http_basic and password."), "a user's name"),
    _setting(cfg.StrOpt("password", secret=True, help="For auth_type http_basic and password."), "a password"),
    _setting(
        cfg.StrOpt(
            "project_name",
            help="For auth_type password: the project of the services, where the user has the role admin or service: it binds other "
            "projects' ports.",
        ),
        "a project's name, such as service",
    ),
    _setting(cfg.StrOpt("user_domain_name", help="For auth_type password."), "a domain's name"),
    _setting(cfg.StrOpt("project_domain_name", help="For auth_type password."), "a domain's name"),
    _setting(
        cfg.StrOpt("region_name", help="For auth_type password: of which region the URL is taken."), "a region's name"
    ),
    _setting(
        cfg.ListOpt(
            "valid_interfaces",
            help="For auth_type password: which of the catalog's URLs are taken, the first choice first.",
        ),
        "names separated by commas, such as internal,public",
    ),
    _setting(cfg.StrOpt("cafile", help="Certificates to trust, in place of the system's."), "the path of a PEM file"),
    _setting(cfg.BoolOpt("insecure", help="Don't look at the certificate of an https URL."), "true or false"),
    _setting(
        cfg.IntOpt("timeout", min=1, help="Seconds to wait for an answer of the Network service."),
        "a whole number of at least 1",
    ),
)

NO_EFFECT = frozenset(
    (GROUP, name)
    for name in (
        "auth_section",
        "default_floating_pool",
        "extension_sync_interval",
        "http_retries",
        "metadata_proxy_shared_secret",
        "ovs_bridge",
        "physnets",
        "service_metadata_proxy",
        "service_name",
        "service_type",
    )
)
"""Options of this section in nova.conf that say nothing here."""
