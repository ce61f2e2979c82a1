"""PCI addresses, and the patterns by which ``device_spec`` picks them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from jetbridge.errors import PciConfigInvalidSpec, PciDeviceWrongAddressFormat

MAX_DOMAIN = 0xFFFF
MAX_BUS = 0xFF
MAX_SLOT = 0x1F
MAX_FUNCTION = 0x7
MAX_ID = 0xFFFF

ANY = "*"
FIELDS = ("domain", "bus", "slot", "function")


def parse_hex(name: str, text: str, maximum: int) -> int:
    """``text`` as a base-16 number of at most ``maximum``; ``PciConfigInvalidSpec`` names ``name`` and the text."""
    try:
        number = int(text, 16)
    except ValueError:
        raise PciConfigInvalidSpec(
            reason=f"property {name} ({text!r}) is not a hexadecimal number up to {maximum:X}"
        ) from None
    if number > maximum:
        raise PciConfigInvalidSpec(reason=f"property {name} ({text!r}) is greater than the maximum {maximum:X}")
    return number


def split_address(text: str) -> tuple[list[str], str]:
    """The fields before the first dot (domain, bus, slot: at most three), and what follows it."""
    left, _, function = text.partition(".")
    fields = left.split(":")
    if len(fields) > 3:
        raise PciDeviceWrongAddressFormat(address=text)
    return fields, function


@dataclass(frozen=True, order=True)
class PciAddress:
    """Where a function sits. Sorts as its canonical text ``dddd:bb:ss.f`` does."""

    domain: int
    bus: int
    slot: int
    function: int

    @classmethod
    def parse(cls, text: str) -> PciAddress:
        """A device's address: all four fields are there.

        Raises ``PciDeviceWrongAddressFormat`` when the number of fields is wrong, ``PciConfigInvalidSpec`` when a field
        is out of range: 32-bit PCI domains (``10000:e1:00.0``) exist on real machines and can't be assigned.
        """
        fields, function = split_address(text)
        if len(fields) != 3:
            raise PciDeviceWrongAddressFormat(address=text)
        function_number = parse_hex("func", function, MAX_FUNCTION)
        return cls(
            domain=parse_hex("domain", fields[0], MAX_DOMAIN),
            bus=parse_hex("bus", fields[1], MAX_BUS),
            slot=parse_hex("slot", fields[2], MAX_SLOT),
            function=function_number,
        )

    @property
    def texts(self) -> tuple[str, str, str, str]:
        """Domain, bus, slot and function, each as in the canonical text."""
        return f"{self.domain:04x}", f"{self.bus:02x}", f"{self.slot:02x}", f"{self.function:x}"

    def __str__(self) -> str:
        domain, bus, slot, function = self.texts
        return f"{domain}:{bus}:{slot}.{function}"


@dataclass(frozen=True)
class GlobPattern:
    """Each field is canonical hexadecimal text, or ``*``."""

    domain: str = ANY
    bus: str = ANY
    slot: str = ANY
    function: str = ANY

    @classmethod
    def parse(cls, text: str) -> GlobPattern:
        """``[[domain:]bus:]slot[.function]`` where every field may be ``*`` or left out, which means the same."""
        fields, function = split_address(text)
        fields = [ANY] * (3 - len(fields)) + [field.strip() for field in fields]
        canonical_function = _glob_field("func", function.strip() if function.strip() else function, MAX_FUNCTION, 1)
        return cls(
            domain=_glob_field("domain", fields[0], MAX_DOMAIN, 4),
            bus=_glob_field("bus", fields[1], MAX_BUS, 2),
            slot=_glob_field("slot", fields[2], MAX_SLOT, 2),
            function=canonical_function,
        )

    @property
    def texts(self) -> tuple[str, str, str, str]:
        return self.domain, self.bus, self.slot, self.function

    @property
    def single(self) -> str | None:
        """The one address it stands for; None when it is a wildcard."""
        return None if ANY in self.texts else f"{self.domain}:{self.bus}:{self.slot}.{self.function}"

    def matches(self, address: PciAddress) -> bool:
        return all(mine in (ANY, theirs) for mine, theirs in zip(self.texts, address.texts, strict=True))

    def covers(self, other: AddressPattern) -> bool:
        """Whether every address the other can match is one of these, as far as the patterns tell."""
        if isinstance(other, RegexPattern):
            return self == GlobPattern()
        return all(mine in (ANY, theirs) for mine, theirs in zip(self.texts, other.texts, strict=True))


@dataclass(frozen=True)
class RegexPattern:
    """Each field is a regular expression that has to match at the field's start (so ``3`` matches bus ``3b``)."""

    domain: str = ".*"
    bus: str = ".*"
    slot: str = ".*"
    function: str = ".*"

    @classmethod
    def parse(cls, fields: dict[str, object]) -> RegexPattern:
        """Keys other than the four are ignored here (``suspicious_keys`` names them)."""
        wanted = {name: fields[name] for name in FIELDS if name in fields}
        texts: dict[str, str] = {}
        for name, expression in wanted.items():
            if not isinstance(expression, str):
                raise PciDeviceWrongAddressFormat(address=fields)
            try:
                re.compile(expression)
            except re.error:
                raise PciDeviceWrongAddressFormat(address=fields) from None
            texts[name] = expression
        return cls(**texts)

    @property
    def texts(self) -> tuple[str, str, str, str]:
        return self.domain, self.bus, self.slot, self.function

    @property
    def single(self) -> str | None:
        """The one address it stands for, judged by its characters: four plain hexadecimal texts."""
        if all(re.fullmatch("[0-9a-fA-F]+", text) for text in self.texts):
            return f"{self.domain}:{self.bus}:{self.slot}.{self.function}"
        return None

    def matches(self, address: PciAddress) -> bool:
        return all(re.match(mine, theirs) for mine, theirs in zip(self.texts, address.texts, strict=True))

    def covers(self, other: AddressPattern) -> bool:
        """Expressions are compared by their text: a true answer is certain, a false one may be too cautious."""
        return self in (RegexPattern(), other)


AddressPattern = GlobPattern | RegexPattern


def _glob_field(name: str, text: str, maximum: int, width: int) -> str:
    return ANY if text in ("", ANY) else f"{parse_hex(name, text, maximum):0{width}x}"
