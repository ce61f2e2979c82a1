"""The options of accelerators: what a host's accelerator service owns, and which service is asked. Names as Nova and keystoneauth have them,
so that the section ``[cyborg]`` of a nova.conf can be copied."""

from __future__ import annotations

from oslo_config import cfg

from jetbridge.config.setting import Setting


def _cyborg(option: cfg.Opt, expects: str) -> Setting:
    return Setting("cyborg", f"cyborg_{option.dest}", option, expects)


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "accelerator",
        "accelerator_device_spec",
        cfg.MultiStrOpt(
            "device_spec",
            help="Which functions of this host the embedded accelerator service owns: flavors ask for them by accel:device_profile. A JSON "
            "object, or a list of them, with the selecting keys of [pci]device_spec and type (GPU, FPGA, AICHIP, QAT, NIC, SSD), resource_class, "
            'traits, mdev_type and mdev_count. May be repeated. Example: {"vendor_id": "10de", "product_id": "1eb8", "type": "GPU"}.',
        ),
        'a JSON object such as {"vendor_id": "10de", "product_id": "1eb8", "type": "GPU"}',
    ),
    Setting(
        "DEFAULT",
        "arq_binding_timeout",
        cfg.IntOpt(
            "arq_binding_timeout",
            min=1,
            help="Seconds that a build waits for its accelerator requests to be bound before it fails.",
        ),
        "a whole number of at least 1",
    ),
    _cyborg(
        cfg.StrOpt(
            "endpoint_override",
            help="URL of the accelerator service, such as http://controller:6666/v2. Without it and auth_url it is the embedded one of "
            "`jetbridge up`. Services as processes of their own need it: http://API-HOST:8774/accelerator/v2 is the one of `jetbridge api`.",
        ),
        "a URL such as http://controller:6666/v2",
    ),
    _cyborg(
        cfg.StrOpt(
            "auth_type",
            choices=["none", "http_basic", "password"],
            help="How to show who asks. password: by Keystone, whose catalog also knows the URL when endpoint_override is not set, and whose "
            "token is sent as the service token, too. http_basic: by username and password, of a user with the role service. none: not at all.",
        ),
        "none, http_basic or password",
    ),
    _cyborg(
        cfg.StrOpt("auth_url", help="Keystone, for auth_type password."), "a URL such as http://controller:5000/v3"
    ),
    _cyborg(cfg.StrOpt("username", help="For auth_type http_basic and password."), "a user's name"),
    _cyborg(cfg.StrOpt("password", secret=True, help="For auth_type http_basic and password."), "a password"),
    _cyborg(
        cfg.StrOpt(
            "project_name",
            help="For auth_type password: the project of the services, where the user has the roles admin and service.",
        ),
        "a project's name, such as service",
    ),
    _cyborg(cfg.StrOpt("user_domain_name", help="For auth_type password."), "a domain's name"),
    _cyborg(cfg.StrOpt("project_domain_name", help="For auth_type password."), "a domain's name"),
    _cyborg(
        cfg.StrOpt("region_name", help="For auth_type password: of which region the URL is taken."), "a region's name"
    ),
    _cyborg(
        cfg.ListOpt(
            "valid_interfaces",
            help="For auth_type password: which of the catalog's URLs are taken, the first choice first.",
        ),
        "names separated by commas, such as internal,public",
    ),
    _cyborg(cfg.StrOpt("cafile", help="Certificates to trust, in place of the system's."), "the path of a PEM file"),
    _cyborg(cfg.BoolOpt("insecure", help="Don't look at the certificate of an https URL."), "true or false"),
)
