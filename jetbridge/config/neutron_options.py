"""The options of ``[neutron]``: which Network service has the networks and ports. Names as Nova has them, too."""

from __future__ import annotations

from oslo_config import cfg

from jetbridge.config.service_options import service_settings
from jetbridge.config.setting import Setting

GROUP = "neutron"

SETTINGS: tuple[Setting, ...] = (
    *service_settings(
        GROUP,
        endpoint=(
            "URL of the Network service that has the networks and ports, such as http://controller:9696. Without it and auth_url they are "
            "Jetbridge's own, served under /network."
        ),
        example="http://controller:9696",
        project_name=(
            "For auth_type password: the project of the services, where the user has the role admin or service: it binds other "
            "projects' ports."
        ),
    ),
    Setting(
        GROUP,
        "neutron_timeout",
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
