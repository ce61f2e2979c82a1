"""The ``config`` of a fleet file: options by section, in YAML instead of ini."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jetbridge.config import options
from jetbridge.config.setting import Setting, converted, json_text
from jetbridge.config.settings import Settings
from jetbridge.config.type_sections import PREFIX, TYPE_SETTINGS, type_of, type_setting, with_option
from jetbridge.errors import InvalidConfiguration


def apply_overrides(settings: Settings, overrides: Mapping[str, Mapping[str, Any]], origin: str) -> Settings:
    """``settings`` with the given options replaced (multi-valued ones as a whole).

    Values are text, numbers, booleans, and lists of them; ``device_spec`` and ``alias`` are objects or lists of objects (or JSON text).
    ``origin`` says in errors and in ``Settings.origins`` where they stand. Raises ``InvalidConfiguration`` for an unknown section or
    option (with the nearest name) and for a value that does not fit.
    """
    changes: dict[str, Any] = {}
    origins = dict(settings.origins)
    for group, values in overrides.items():
        section = "DEFAULT" if group.upper() == "DEFAULT" else group
        if section in options.SECTIONS_WITHOUT_OPTIONS_YET:
            raise InvalidConfiguration(
                reason=f"{origin}: config: section {group!r} is for a part that this version of Jetbridge doesn't have; remove it"
            )
        if section in options.SECTIONS_OF_FILES_ALONE:
            raise InvalidConfiguration(
                reason=f"{origin}: config: section {group!r} is not for fleet files; write it into a jetbridge.conf, and give --config-file"
            )
        type_id = type_of(section)
        if section not in options.groups() and type_id is None:
            near = options.nearest(section, options.groups())
            known = f"did you mean {near}?" if near else f"use one of {', '.join(options.groups())}"
            raise InvalidConfiguration(reason=f"{origin}: config: section {group!r} is not known; {known}")
        if not isinstance(values, Mapping):
            raise InvalidConfiguration(
                reason=f"{origin}: config: {group} = {values!r}: write the section's options as a mapping, option: value"
            )
        for name, value in values.items():
            if type_id is not None:
                changed = changes.get("mdev_types", settings.mdev_types)
                setting = replace(_type_setting(section, name, origin), group=section)
                known = converted(setting, _texts(setting, value, origin), origin)
                changes["mdev_types"] = with_option(changed, type_id, setting.field, known)
                origins[PREFIX + type_id, setting.name] = origin
                continue
            setting = _setting(section, name, origin)
            changes[setting.field] = converted(setting, _texts(setting, value, origin), origin)
            origins[setting.group, setting.name] = origin
    return replace(settings, **changes, origins=origins)


def _type_setting(section: str, name: str, origin: str) -> Setting:
    setting = type_setting(name)
    if setting is not None:
        return setting
    names = [setting.name for setting in TYPE_SETTINGS]
    near = options.nearest(name, names)
    fix = f"did you mean [{section}]{near}?" if near else f"use one of {', '.join(names)}"
    raise InvalidConfiguration(reason=f"{origin}: config: [{section}]{name} is not known; {fix}")


def _setting(group: str, name: str, origin: str) -> Setting:
    setting = options.lookup(group, name) or options.lookup_old(group, name)
    if setting is not None:
        return setting
    near = options.nearest_option(group, name)
    known = ", ".join(setting.name for setting in options.SETTINGS if setting.group == group)
    fix = f"did you mean {near}?" if near else f"use one of {known}"
    raise InvalidConfiguration(reason=f"{origin}: config: [{group}]{name} is not known; {fix}")


def _texts(setting: Setting, value: object, origin: str) -> list[str]:
    if setting.multi:
        items = value if isinstance(value, list | tuple) else [value]
        return [
            item if isinstance(item, str) else _json_text(setting, item, origin) for item in items if item is not None
        ]
    if isinstance(value, list | tuple):
        return [",".join(_text(setting, item, origin) for item in value)]
    return [_text(setting, value, origin)]


def _json_text(setting: Setting, item: object, origin: str) -> str:
    if not isinstance(item, Mapping):
        raise InvalidConfiguration(
            reason=f"{origin}: {setting.label}: {item!r} is not an object; write {setting.expects}"
        )
    return json_text(item)


def _text(setting: Setting, value: object, origin: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidConfiguration(reason=f"{origin}: {setting.label} = {value!r}: write {setting.expects}")
