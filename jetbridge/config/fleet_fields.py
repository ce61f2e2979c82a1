"""Reading the fleet file's YAML: every scalar as text, every field converted by its type, every error with its place."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import yaml

from jetbridge.errors import InvalidFleet

_MAX_DEPTH = 30
_MAX_NODES = 2_000_000
_NULLS = {"", "~", "null", "Null", "NULL"}
_TRUE = {"true", "yes", "on", "1", "t", "y"}
_FALSE = {"false", "no", "off", "0", "f", "n"}
_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)
_HEX_ID = re.compile(r"(?:0x)?([0-9a-f]{1,4})", re.IGNORECASE)
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")
_CLASS = re.compile(r"(?:0x)?([0-9a-f]{6})", re.IGNORECASE)
# What ends up in file names, XML and sysfs paths.
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

T = TypeVar("T", bound=str)


def read_yaml(path: str, text: str) -> Any:
    """The document with scalars as text (an unquoted null or nothing at all: None). Raises InvalidFleet."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise InvalidFleet(path=path, reason=f"is not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise InvalidFleet(path=path, reason="is nested too deeply") from error
    return None if node is None else _Converter(path).convert(node, 0)


class _Converter:
    def __init__(self, path: str) -> None:
        self._path = path
        self._nodes = 0

    def _refuse(self, node: yaml.Node, reason: str) -> NoReturn:
        raise InvalidFleet(path=self._path, reason=f"line {node.start_mark.line + 1}: {reason}")

    def convert(self, node: yaml.Node, depth: int) -> Any:
        # An alias can contain itself or multiply: both end at these limits.
        self._nodes += 1
        if depth > _MAX_DEPTH or self._nodes > _MAX_NODES:
            self._refuse(node, "nested too deeply, or grown too large by aliases")
        if isinstance(node, yaml.ScalarNode):
            return None if node.style is None and node.value in _NULLS else node.value
        if isinstance(node, yaml.SequenceNode):
            return [self.convert(item, depth + 1) for item in node.value]
        assert isinstance(node, yaml.MappingNode)
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(key_node, "a key must be a single word, not a list or a mapping")
            key = key_node.value
            value = self.convert(value_node, depth + 1)
            if key == "<<" and key_node.style is None:
                for part in value if isinstance(value, list) else [value]:
                    if not isinstance(part, dict):
                        self._refuse(value_node, "<< takes a mapping, or a list of mappings")
                    merged = part | merged
            elif key in own:
                self._refuse(key_node, f"the key {key!r} is given twice")
            else:
                own[key] = value
        return merged | own


class Section:
    """A mapping of the file, read field by field; ``done`` refuses the keys nobody asked for."""

    def __init__(self, path: str, where: str, value: object) -> None:
        self.path = path
        self.where = where
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            self._refuse(where or "the file", value, "must be a mapping of keys and values")
        self._values: Mapping[str, Any] = value
        self._known: list[str] = []

    def _place(self, key: str) -> str:
        if not self.where:
            return key
        return f"{self.where}{' ' if self.where.startswith('host ') and self.where.count(' ') == 1 else '.'}{key}"

    def _refuse(self, place: str, value: object, reason: str) -> NoReturn:
        shown = repr(value) if len(repr(value)) <= 80 else repr(value)[:77] + "..."
        raise InvalidFleet(path=self.path, reason=f"{place}={shown}: {reason}")

    def refuse(self, key: str, reason: str) -> NoReturn:
        """Refuses the value of ``key``; ``reason`` says what is wrong and the fix."""
        self._refuse(self._place(key), self._values.get(key), reason)

    def has(self, key: str) -> bool:
        return self._values.get(key) is not None

    def raw(self, key: str) -> Any:
        self._known.append(key)
        return self._values.get(key)

    def text(self, key: str) -> str | None:
        value = self.raw(key)
        if value is not None and (not isinstance(value, str) or not value or not value.isprintable()):
            self.refuse(key, "must be text of printable characters")
        return value

    def word(self, key: str) -> str | None:
        value = self.text(key)
        if value is not None and not _WORD.fullmatch(value):
            self.refuse(key, "may hold only letters, digits, dots, dashes and underscores")
        return value

    def required(self, key: str, value: T | None, example: str) -> T:
        if value is None:
            place = self.where or "the file"
            raise InvalidFleet(
                path=self.path, reason=f"{place}: {key} is missing; give it, for example {key}: {example}"
            )
        return value

    def choice(self, key: str, allowed: Sequence[T], default: T) -> T:
        value = self.text(key)
        if value is None:
            return default
        found = next((candidate for candidate in allowed if candidate == value), None)
        if found is None:
            self.refuse(key, f"must be one of {', '.join(allowed)}")
        return found

    def integer(self, key: str, *, low: int = 0, high: int = 2**31 - 1) -> int | None:
        value = self.text(key)
        if value is None:
            return None
        # isdecimal alone takes digits of other scripts; twelve digits are beyond every bound.
        if not (value.isascii() and value.isdecimal() and len(value) <= 12) or not low <= int(value) <= high:
            self.refuse(key, f"must be a whole number from {low} to {high}")
        return int(value)

    def seconds(self, key: str) -> float:
        value = self.text(key) or "0"
        if not re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,6})?", value):
            self.refuse(key, "must be a number of seconds, for example 0.5")
        return float(value)

    def boolean(self, key: str) -> bool:
        value = (self.text(key) or "false").lower()
        if value not in _TRUE | _FALSE:
            self.refuse(key, "must be true or false")
        return value in _TRUE

    def hex_id(self, key: str) -> str | None:
        value = self.text(key)
        if value is None:
            return None
        match = _HEX_ID.fullmatch(value)
        if match is None:
            self.refuse(key, 'must be up to four hexadecimal digits, for example "10de"')
        return match[1].lower().zfill(4)

    def class_code(self, key: str) -> str | None:
        value = self.text(key)
        if value is None:
            return None
        match = _CLASS.fullmatch(value)
        if match is None:
            self.refuse(key, 'must be six hexadecimal digits, for example "0x030200"')
        return f"0x{match[1].lower()}"

    def address(self, key: str) -> str | None:
        value = self.text(key)
        if value is None:
            return None
        match = _ADDRESS.fullmatch(value)
        if match is None or int(match[3], 16) > 0x1F:
            self.refuse(key, 'must be a PCI address domain:bus:slot.function, for example "0000:3b:00.0"')
        domain, bus, slot, function = match.groups()
        return f"{int(domain or '0', 16):04x}:{bus}:{slot}.{function}".lower()

    def mac(self, key: str) -> str | None:
        value = self.text(key)
        if value is not None and not _MAC.fullmatch(value.lower()):
            self.refuse(key, "must be a MAC address, for example 52:54:00:12:34:56")
        return value.lower() if value else None

    def section(self, key: str) -> Section:
        return Section(self.path, self._place(key), self.raw(key))

    def keys(self) -> Iterable[str]:
        return self._values.keys()

    def sections(self, key: str) -> list[Section]:
        return [Section(self.path, f"{self._place(key)}[{n}]", item) for n, item in enumerate(self._list(key))]

    def words(self, key: str) -> tuple[str, ...]:
        """A list of words."""
        found = []
        for item in self._list(key):
            if not isinstance(item, str) or not _WORD.fullmatch(item):
                self._refuse(self._place(key), item, "may hold only letters, digits, dots, dashes and underscores")
            found.append(item)
        return tuple(found)

    def _list(self, key: str) -> list[Any]:
        value = self.raw(key)
        if value is not None and not isinstance(value, list):
            self.refuse(key, "must be a list")
        return value or []

    def done(self) -> None:
        """Refuses unknown keys, with the nearest known name."""
        for key in self._values:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(self._known)}"
                place = self.where or "the file"
                raise InvalidFleet(path=self.path, reason=f"{place}: unknown key {key!r}; {hint}")
