"""The options of accelerators: what a host's accelerator service owns, and which service is asked."""

from __future__ import annotations

from oslo_config import cfg

from jetbridge.config.service_options import service_settings
from jetbridge.config.setting import Setting

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "accelerator",
        "accelerator_device_spec",
        cfg.MultiStrOpt(
            "device_spec",
            help="Which functions of this host the embedded accelerator service owns: flavors ask for them by accel:device_profile. A JSON "
            "object, or a list of them, with the selecting keys of [pci]device_spec and type (GPU, FPGA, AICHIP, QAT, NIC, SSD), resource_class, "
            'traits, mdev_type and mdev_count, and physical_network (for ports). May be repeated. Example: {"vendor_id": "10de", "product_id": "1eb8", "type": "GPU"}.',
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
    *service_settings(
        "cyborg",
        endpoint=(
            "URL of the accelerator service, such as http://controller:6666/v2. Without it and auth_url it is the embedded one of "
            "`jetbridge up`. Services as processes of their own need it: http://API-HOST:8774/accelerator/v2 is the one of `jetbridge api`."
        ),
        example="http://controller:6666/v2",
        auth_type=(
            "How to show who asks. password: by Keystone, whose catalog also knows the URL when endpoint_override is not set, and whose "
            "token is sent as the service token, too. http_basic: by username and password, of a user with the role service. none: not at all."
        ),
        project_name="For auth_type password: the project of the services, where the user has the roles admin and service.",
    ),
)
