"""What an option is: its section and name, its meaning, and how its text becomes a value."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oslo_config import cfg, types

from jetbridge.config.settings import Settings
from jetbridge.errors import InvalidConfiguration
from jetbridge.mdev.config import TypeOptions
from jetbridge.numa.cpulist import parse_cpu_list


@dataclass(frozen=True)
class Setting:
    """An option of a section and the field of ``Settings`` that holds it. ``expects``: what to write, for error messages."""

    group: str
    field: str
    option: cfg.Opt
    expects: str

    @property
    def name(self) -> str:
        return str(self.option.dest)

    @property
    def multi(self) -> bool:
        return bool(self.option.multi)

    @property
    def secret(self) -> bool:
        """Whether its value must not be shown."""
        return bool(self.option.secret)

    @property
    def label(self) -> str:
        return f"[{self.group}]{self.name}"


class CpuSet(types.String):
    """A list of CPU numbers, kept as text once it is known to be one."""

    def __call__(self, value: str) -> str:
        parse_cpu_list(value)
        return value


def converted(setting: Setting, texts: Sequence[str], origin: str) -> Any:
    """The value of ``Settings`` for what was written; the last counts, of multi-valued options all do. Empty text of an option that
    may be absent means absent. Raises ``InvalidConfiguration`` naming origin, option, value and what to write instead."""
    if setting.multi:
        return tuple(text for text in texts if text.strip())
    text = texts[-1]
    if not text.strip() and default_of(setting) is None:
        return None
    try:
        value = setting.option.type(text)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("not a finite number")
    except ValueError as error:
        raise InvalidConfiguration(
            reason=f"{origin}: {setting.label} = {text!r}: {error}; write {setting.expects}"
        ) from error
    if setting.field in ("http_basic_auth_user_file", "image_dir"):
        return Path(value).expanduser()
    return tuple(value) if isinstance(value, list) else value


def default_of(setting: Setting) -> Any:
    fields = (*dataclasses.fields(Settings), *dataclasses.fields(TypeOptions))
    return next(field.default for field in fields if field.name == setting.field)


def json_text(value: object) -> str:
    """A JSON option's value from its parts, as an operator would write it."""
    return json.dumps(value)
