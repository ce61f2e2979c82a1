"""Configuration files into ``Settings``.

``jetbridge*.conf`` is read whole. Of any other file (an existing nova.conf) only the sections that say what devices there are and how they
are scheduled: its databases, message bus and addresses belong to another system.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oslo_config import cfg

from jetbridge.config import options
from jetbridge.config.setting import Setting, converted
from jetbridge.config.settings import Settings
from jetbridge.config.type_sections import PREFIX, TYPE_SETTINGS, type_of, type_setting, with_option
from jetbridge.errors import InvalidConfiguration
from jetbridge.mdev.config import TypeOptions

OUR_FILES = "jetbridge*.conf"
SHARED_SECTIONS = ("pci", "filter_scheduler", "scheduler", "devices", "libvirt", "compute", "cyborg", "neutron")
SHARED_PATTERNS = ("mdev_*", "vgpu_*")

# Section -> option -> the values written, in order.
Sections = dict[str, dict[str, list[str]]]


@dataclass(frozen=True)
class LoadedSettings:
    """``warnings`` are sentences for the log and the terminal."""

    settings: Settings
    warnings: tuple[str, ...] = ()


@dataclass
class _Gathered:
    values: dict[str, list[str]] = field(default_factory=dict)  # by field of Settings
    origins: dict[tuple[str, str], str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    types: dict[str, TypeOptions] = field(default_factory=dict)


def load_settings(paths: Sequence[Path]) -> LoadedSettings:
    """Later files win; values of multi-valued options add up in the order of the files.

    Raises ``InvalidConfiguration`` naming file, section, option and value, and what to write instead.
    """
    settings = Settings()
    gathered = _Gathered()
    for path in paths:
        ours = fnmatch.fnmatch(path.name, OUR_FILES)
        sections = _read(path)
        if not ours:
            sections = _without_foreign(path, sections, gathered.warnings)
        changes = _take(path, sections, ours, gathered)
        settings = replace(settings, **changes)
    return LoadedSettings(replace(settings, origins=gathered.origins), tuple(gathered.warnings))


def _read(path: Path) -> Sections:
    raw: dict[str, dict[str, Any]] = {}
    try:
        cfg.ConfigParser(str(path), raw).parse()
    except FileNotFoundError as error:
        raise InvalidConfiguration(
            reason=f"{path}: the file does not exist; give --config-file an existing one"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfiguration(reason=f"{path}: can't be read: {error}") from error
    except cfg.ParseError as error:
        raise InvalidConfiguration(
            reason=f"{path}, line {error.lineno}: {error.msg}: {error.line!r}; write [section] and option = value"
        ) from error
    sections: Sections = {}
    for section, written in raw.items():
        name = "DEFAULT" if section.upper() == "DEFAULT" else section
        merged = sections.setdefault(name, {})
        for option, values in written.items():
            merged.setdefault(option.replace("-", "_"), []).extend(values)
    return sections


def _without_foreign(path: Path, sections: Sections, warnings: list[str]) -> Sections:
    left_out = [name for name in sections if not _is_shared(name)]
    if left_out:
        known = [
            f"[{section}]{name}"
            for section in left_out
            for name in sections[section]
            if section not in options.SECTIONS_OF_FILES_ALONE
            and (options.lookup(section, name) or options.lookup_old(section, name))
        ]
        also = f" Of these Jetbridge knows {', '.join(known)}: repeat there what you want to keep." if known else ""
        warnings.append(
            f"{path}: its sections {', '.join(f'[{name}]' for name in left_out)} are not read, since the file is not named {OUR_FILES} "
            f"and they may describe another system; give what Jetbridge needs of them in a file jetbridge.conf.{also}"
        )
    return {name: written for name, written in sections.items() if _is_shared(name)}


def _is_shared(section: str) -> bool:
    return section in SHARED_SECTIONS or any(fnmatch.fnmatch(section, pattern) for pattern in SHARED_PATTERNS)


def _take(path: Path, sections: Sections, ours: bool, gathered: _Gathered) -> Mapping[str, Any]:
    changes: dict[str, Any] = {}
    unknown: list[str] = []
    without_effect: list[str] = []
    for section, written in sections.items():
        type_id = type_of(section)
        if type_id is not None:
            unknown += _take_type(path, section, type_id, sections, gathered)
            changes["mdev_types"] = dict(gathered.types)
            continue
        if not _has_options(section):
            if section in options.SECTIONS_WITHOUT_OPTIONS_YET or _is_shared(section):
                without_effect += [f"[{section}]{name}" for name in written]
            else:
                gathered.warnings.append(_unknown_section(path, section))
            continue
        for name, values in written.items():
            setting = options.lookup(section, name) or _by_old_name(path, section, name, sections, gathered.warnings)
            if setting is not None:
                changes[setting.field] = _value(path, setting, values, gathered)
            elif (section, name) in options.NO_EFFECT_YET:
                without_effect.append(f"[{section}]{name}")
            else:
                unknown.append(_unknown_option(section, name, ours))
    if unknown:
        _warn_of_unknown(path, unknown, ours, gathered.warnings)
    if without_effect:
        gathered.warnings.append(f"{path}: {', '.join(without_effect)}: without effect in this version of Jetbridge")
    return changes


def _take_type(path: Path, section: str, type_id: str, sections: Sections, gathered: _Gathered) -> list[str]:
    """What a section says of a vGPU type; answers the options that are not known."""
    present = PREFIX + type_id
    if section != present:
        gathered.warnings.append(f"{path}: [{section}] is an old name; write [{present}]")
    unknown = []
    for name, values in sections[section].items():
        setting = type_setting(name)
        if setting is None:
            near = options.nearest(name, (setting.name for setting in TYPE_SETTINGS))
            unknown.append(f"[{section}]{name}" + (f" (did you mean [{present}]{near}?)" if near else ""))
        elif section == present or name not in sections.get(present, {}):
            named = replace(setting, group=section)
            gathered.types = with_option(gathered.types, type_id, setting.field, converted(named, values, str(path)))
            gathered.origins[present, name] = str(path)
    return unknown


def _value(path: Path, setting: Setting, values: list[str], gathered: _Gathered) -> Any:
    key = (setting.group, setting.name)
    if setting.multi:
        values = [*gathered.values.get(setting.field, []), *values]
        gathered.values[setting.field] = values
        before = gathered.origins.get(key)
        gathered.origins[key] = str(path) if before in (None, str(path)) else f"{before}, {path}"
    else:
        gathered.origins[key] = str(path)
        if re.search(r"\$\{?[a-z_]+", values[-1]):
            gathered.warnings.append(
                f"{path}: {setting.label} = {'***' if setting.secret else repr(values[-1])}: references to other options are not resolved; write the value itself"
            )
    return converted(setting, values, str(path))


def _by_old_name(path: Path, section: str, name: str, sections: Sections, warnings: list[str]) -> Setting | None:
    setting = options.lookup_old(section, name)
    if setting is None:
        return None
    if not setting.multi and setting.name in sections.get(setting.group, {}):
        return None  # the present name says it as well, and wins
    warnings.append(f"{path}: [{section}]{name} is an old name; write {setting.label}")
    return setting


def _has_options(section: str) -> bool:
    return section in options.groups()


def _unknown_section(path: Path, section: str) -> str:
    near = options.nearest(section, (*options.groups(), *SHARED_SECTIONS))
    return f"{path}: section [{section}] is not known and has no effect" + (f"; did you mean [{near}]?" if near else "")


def _unknown_option(section: str, name: str, ours: bool) -> str:
    # The other options of a nova.conf are often similar to ours: only near misses are slips there.
    near = options.nearest_option(section, name, 0.65 if ours else 0.85)
    return f"[{section}]{name}" + (f" (did you mean {near}?)" if near else "")


def _warn_of_unknown(path: Path, unknown: list[str], ours: bool, warnings: list[str]) -> None:
    if ours:
        warnings += [f"{path}: {text} is not known and has no effect" for text in unknown]
        return
    warnings += [f"{path}: {text} is not known and has no effect" for text in unknown if text.endswith("?)")]
    others = [text for text in unknown if not text.endswith("?)")]
    if others:
        warnings.append(f"{path}: {', '.join(others)}: options that Jetbridge does not have; they have no effect")
