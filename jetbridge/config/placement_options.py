"""The options of ``[placement]``: which Placement is used."""

from __future__ import annotations

from jetbridge.config.service_options import service_settings

SETTINGS = service_settings(
    "placement",
    endpoint=(
        "URL of the Placement to use, such as http://controller:8778. Without it and auth_url `jetbridge up` runs one of its own. "
        "Services as processes of their own need it: `jetbridge placement` serves one. Only read from a file named jetbridge*.conf, as "
        "the whole section."
    ),
    example="http://controller:8778",
    project_name="For auth_type password: the project of the services, where the user has the role admin or service.",
)
