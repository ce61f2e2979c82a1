"""The microversions of the Compute API as data: which field of which view or request exists from when to when.

Names that aren't listed exist at every version. Only differences that Jetbridge implements are listed; a
resource or field that it doesn't have is refused by name whatever the version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

OLDEST = 1
NEWEST = 96


@dataclass(frozen=True)
class Span:
    """Minor versions ``since`` to ``until``, both included; ``rule``: the policy rule a caller needs to see it."""

    since: int = OLDEST
    until: int = NEWEST
    rule: str | None = None

    def has(self, minor: int) -> bool:
        return self.since <= minor <= self.until

    def describe(self) -> str:
        if self.until == NEWEST:
            return f"from 2.{self.since}"
        return f"up to 2.{self.until}" if self.since == OLDEST else f"from 2.{self.since} to 2.{self.until}"


def since(minor: int, rule: str | None = None) -> Span:
    return Span(since=minor, rule=rule)


def until(minor: int, rule: str | None = None) -> Span:
    return Span(until=minor, rule=rule)


ATTRIBUTES = "os_compute_api:os-extended-server-attributes"
HOST_STATUS = "os_compute_api:servers:show:host_status"
EVENT_HOST = "os_compute_api:os-instance-actions:events:details"

VIEW_FIELDS: Mapping[str, Mapping[str, Span]] = {
    "server": {
        "flavor@ref": until(46),
        "flavor@embedded": since(47),
        "OS-EXT-SRV-ATTR:host": Span(rule=ATTRIBUTES),
        "OS-EXT-SRV-ATTR:hypervisor_hostname": Span(rule=ATTRIBUTES),
        "OS-EXT-SRV-ATTR:instance_name": Span(rule=ATTRIBUTES),
        "OS-EXT-SRV-ATTR:reservation_id": since(3, ATTRIBUTES),
        "OS-EXT-SRV-ATTR:launch_index": since(3, ATTRIBUTES),
        "OS-EXT-SRV-ATTR:hostname@admin": Span(3, 89, ATTRIBUTES),
        "OS-EXT-SRV-ATTR:hostname@all": since(90),
        "OS-EXT-SRV-ATTR:kernel_id": since(3, ATTRIBUTES),
        "OS-EXT-SRV-ATTR:ramdisk_id": since(3, ATTRIBUTES),
        "OS-EXT-SRV-ATTR:root_device_name": since(3, ATTRIBUTES),
        "OS-EXT-SRV-ATTR:user_data": since(3, ATTRIBUTES),
        "locked": since(9),
        "host_status": since(16, HOST_STATUS),
        "description": since(19),
        "tags": since(26),
        "trusted_image_certificates": since(63),
        "server_groups": since(71),
        "locked_reason": since(73),
        "pinned_availability_zone": since(96),
    },
    "server-updated": {  # the answer of PUT grew to the whole server
        "flavor@ref": until(46),
        "flavor@embedded": since(47),
        "locked": since(9),
        "description": since(19),
        "tags": since(26),
        "trusted_image_certificates": since(63),
        "server_groups": since(71),
        "pinned_availability_zone": since(96),
        **{
            name: since(75, rule)
            for name, rule in {
                "OS-EXT-AZ:availability_zone": None,
                "OS-EXT-SRV-ATTR:host": ATTRIBUTES,
                "OS-EXT-SRV-ATTR:hypervisor_hostname": ATTRIBUTES,
                "OS-EXT-SRV-ATTR:instance_name": ATTRIBUTES,
                "OS-EXT-SRV-ATTR:kernel_id": ATTRIBUTES,
                "OS-EXT-SRV-ATTR:launch_index": ATTRIBUTES,
                "OS-EXT-SRV-ATTR:ramdisk_id": ATTRIBUTES,
                "OS-EXT-SRV-ATTR:reservation_id": ATTRIBUTES,
                "OS-EXT-SRV-ATTR:root_device_name": ATTRIBUTES,
                "OS-EXT-SRV-ATTR:user_data": ATTRIBUTES,
                "OS-EXT-STS:power_state": None,
                "OS-EXT-STS:task_state": None,
                "OS-EXT-STS:vm_state": None,
                "OS-SRV-USG:launched_at": None,
                "OS-SRV-USG:terminated_at": None,
                "config_drive": None,
                "host_status": HOST_STATUS,
                "key_name": None,
                "os-extended-volumes:volumes_attached": None,
                "locked_reason": None,
            }.items()
        },
        "OS-EXT-SRV-ATTR:hostname@admin": Span(75, 89, ATTRIBUTES),
        "OS-EXT-SRV-ATTR:hostname@all": since(90),
    },
    "flavor": {
        "swap@text": until(74),  # 0 was written as an empty text
        "swap@number": since(75),
        "description": since(55),
        "extra_specs": since(61),
    },
    "flavor-brief": {"description": since(55)},
    "hypervisor": {
        "id@number": until(52),
        "id@uuid": since(53),
        "cpu_info@text": until(27),
        "cpu_info@object": Span(28, 87),
        "servers": since(53),
        "uptime": since(88),
        **{
            name: until(87)
            for name in (
                "current_workload",
                "disk_available_least",
                "free_disk_gb",
                "free_ram_mb",
                "local_gb",
                "local_gb_used",
                "memory_mb",
                "memory_mb_used",
                "running_vms",
                "vcpus",
                "vcpus_used",
            )
        },
    },
    "hypervisor-brief": {
        "id@number": until(52),
        "id@uuid": since(53),
        "servers": since(53),
    },
    "hypervisor-service": {"id@number": until(52), "id@uuid": since(53)},
    "service": {
        "id@number": until(52),
        "id@uuid": since(53),
        "forced_down": since(11),
    },
    "keypair": {"type": since(2)},
    "action": {"updated_at": since(58)},
    "event": {
        "traceback": Span(rule=EVENT_HOST),
        "host": since(62, EVENT_HOST),
        "hostId": since(62),
        "details": since(84, EVENT_HOST),
    },
    "limits": {
        **{name: until(35) for name in ("maxSecurityGroups", "maxSecurityGroupRules", "maxTotalFloatingIps")},
        **{name: until(35) for name in ("totalSecurityGroupsUsed", "totalFloatingIpsUsed")},
        "maxImageMeta": until(38),
        **{name: until(56) for name in ("maxPersonality", "maxPersonalitySize")},
    },
    "quota": {
        **{name: until(35) for name in ("fixed_ips", "floating_ips", "security_groups", "security_group_rules")},
        **{name: until(56) for name in ("injected_files", "injected_file_content_bytes", "injected_file_path_bytes")},
    },
    "interface": {"tag": since(70)},
}

REQUEST_FIELDS: Mapping[str, Mapping[str, Span]] = {
    "server": {
        "description": since(19),
        "tags": since(52),
        "host": since(74),
        "hypervisor_hostname": since(74),
        "hostname": since(90),
    },
    "flavor": {"description": since(55)},
    "network": {"tag": since(42)},
    "interface": {"tag": since(49)},
    "keypair": {"type": since(2), "user_id": since(10)},
    "lock": {"locked_reason": since(73)},
}

ROUTES: Mapping[str, Span] = {
    "flavor-update": since(55),
    "hypervisor-uptime": until(87),
    "hypervisor-statistics": until(87),
    "hypervisor-search": until(52),
    "server-tags": since(26),
    "service-force-down": Span(11, 52),
    "service-by-host": until(52),
    "service-by-uuid": since(53),
}
