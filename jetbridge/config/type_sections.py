"""The ``[mdev_TYPE]`` sections: one for each vGPU type, so that their names are not known before they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oslo_config import cfg, types

from jetbridge.config.setting import Setting
from jetbridge.mdev.config import TypeOptions

PREFIX, OLD_PREFIX = "mdev_", "vgpu_"
GROUP = f"{PREFIX}TYPE"


class ResourceClass(types.String):
    """The classes that vGPUs may have."""

    def __init__(self) -> None:
        super().__init__(regex=r"^(VGPU|CUSTOM_[A-Z0-9_]+)\Z", max_length=255)


TYPE_SETTINGS: tuple[Setting, ...] = (
    Setting(
        GROUP,
        "device_addresses",
        cfg.ListOpt(
            "device_addresses",
            help="The cards that carry this type: PCI addresses, of an SR-IOV card its physical function's or those of single virtual "
            "functions, or names of virtual parents such as mtty_mtty. Of the types in enabled_mdev_types one may do without: it is that of all cards "
            "of which nothing is listed.",
        ),
        "PCI addresses separated by commas, such as 0000:3b:00.0,0000:5e:00.0",
    ),
    Setting(
        GROUP,
        "mdev_class",
        cfg.Opt(
            "mdev_class",
            type=ResourceClass(),
            help="The resource class that flavors ask for this type by, such as CUSTOM_SMALL_VGPU for resources:CUSTOM_SMALL_VGPU=1.",
        ),
        "VGPU, or CUSTOM_ followed by A to Z, 0 to 9 and underscores",
    ),
    Setting(
        GROUP,
        "max_instances",
        cfg.IntOpt(
            "max_instances",
            min=1,
            help="How many of this type a host may have at most. Several cards are filled in the order of their addresses. Without it: as many as "
            "the cards can carry.",
        ),
        "a whole number of at least 1",
    ),
    Setting(
        GROUP,
        "display",
        cfg.BoolOpt(
            "display",
            help="The guest's display is that of its vGPU, on a VNC socket of the host. The type's driver has to support it.",
        ),
        "true or false",
    ),
    Setting(
        GROUP,
        "ramfb",
        cfg.BoolOpt(
            "ramfb", help="With display: it shows something also before the guest has loaded the vGPU's driver."
        ),
        "true or false",
    ),
)


def type_of(section: str) -> str | None:
    """The type that a section is about; None: it is no such section."""
    for prefix in (PREFIX, OLD_PREFIX):
        if section.startswith(prefix) and len(section) > len(prefix):
            return section.removeprefix(prefix)
    return None


def type_setting(name: str) -> Setting | None:
    return next((setting for setting in TYPE_SETTINGS if setting.name == name), None)


def with_option(known: Mapping[str, TypeOptions], type_id: str, option: str, value: Any) -> dict[str, TypeOptions]:
    """The sections with one option of one of them replaced."""
    options = known.get(type_id, TypeOptions())
    return {**known, type_id: replace(options, **{option: value})}
