from __future__ import annotations

from typing import Any

import pytest

from jetbridge import errors
from jetbridge.pci.address import GlobPattern, PciAddress, RegexPattern
from tests.unit.pci.build import cases


@pytest.mark.parametrize("case", cases("pci_glob.yaml"))
def test_glob(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(getattr(errors, case["error"])) as caught:
            GlobPattern.parse(case["glob"])
        for word in case["says"]:
            assert word in str(caught.value)
    else:
        assert GlobPattern.parse(case["glob"]).texts == tuple(case["fields"])


def test_a_device_address_is_canonical_text_again() -> None:
    assert PciAddress.parse("0:3B:a.5") == PciAddress(domain=0, bus=0x3B, slot=0xA, function=5)
    assert str(PciAddress.parse("0:3B:a.5")) == "0000:3b:0a.5"
    assert str(PciAddress.parse("FFFF:FF:1F.7")) == "ffff:ff:1f.7"


def test_addresses_sort_by_domain_bus_slot_function() -> None:
    texts = ["0001:00:00.0", "0000:3b:01.0", "0000:3b:00.7", "0000:0a:1f.0", "0000:3b:00.1"]
    assert [str(address) for address in sorted(map(PciAddress.parse, texts))] == sorted(texts)


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("3b:00.0", errors.PciDeviceWrongAddressFormat, "3b:00.0"),
        ("0000:3b:00:00.0", errors.PciDeviceWrongAddressFormat, "0000:3b:00:00.0"),
        ("10000:e1:00.0", errors.PciConfigInvalidSpec, "property domain ("),
        ("0000:3b:00", errors.PciConfigInvalidSpec, "property func ("),
        ("0000:3b:00.8", errors.PciConfigInvalidSpec, "property func ("),
        ("0000:100:00.0", errors.PciConfigInvalidSpec, "property bus ("),
        ("0000:3b:20.0", errors.PciConfigInvalidSpec, "property slot ("),
    ],
)
def test_a_device_address_has_all_its_fields(text: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as caught:
        PciAddress.parse(text)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("glob", "address", "matches"),
    [
        ("*:3b:*.*", "0000:3b:1f.7", True),
        ("*:3b:*.*", "0001:3b:00.0", True),
        ("*:3b:*.*", "0000:3c:00.0", False),
        ("0000:3b:00.*", "0000:3b:01.2", False),
        ("0000:3b:00.0", "0000:3b:00.0", True),
        ("0000:3b:00.0", "0001:3b:00.0", False),
        ("0000:3b:00.0", "0000:3b:00.1", False),
    ],
)
def test_a_glob_matches_field_by_field(glob: str, address: str, matches: bool) -> None:
    assert GlobPattern.parse(glob).matches(PciAddress.parse(address)) is matches


@pytest.mark.parametrize(
    ("fields", "address", "matches"),
    [
        ({"bus": "3[a-f]"}, "0000:3b:00.0", True),
        ({"bus": "3[a-f]"}, "0000:4b:00.0", False),
        ({"bus": "3"}, "0000:3b:00.0", True),
        ({"bus": "b"}, "0000:3b:00.0", False),
        ({"bus": "3B"}, "0000:3b:00.0", False),
        ({"slot": "a"}, "0000:3b:0a.0", False),
        ({"function": "[0-3]"}, "0000:3b:00.5", False),
        ({"function": "[0-3]"}, "0000:3b:00.3", True),
        ({"domain": "0001"}, "0000:3b:00.3", False),
        ({"slot": "0a", "func": "9"}, "0000:3b:0a.0", True),
    ],
)
def test_expressions_match_at_the_start_of_their_field(fields: dict[str, object], address: str, matches: bool) -> None:
    assert RegexPattern.parse(fields).matches(PciAddress.parse(address)) is matches


@pytest.mark.parametrize("expression", ["[", 3, None, ["3b"]])
def test_a_broken_expression_is_refused(expression: object) -> None:
    with pytest.raises(errors.PciDeviceWrongAddressFormat) as caught:
        RegexPattern.parse({"bus": expression})
    assert str({"bus": expression}) in str(caught.value)


def test_a_single_address_is_known_by_its_characters() -> None:
    assert GlobPattern.parse("0:3b:0.1").single == "0000:3b:00.1"
    assert GlobPattern.parse("3b:0.1").single is None
    expressions = {"domain": "0000", "bus": "3B", "slot": "00", "function": "1"}
    assert RegexPattern.parse(expressions).single == "0000:3B:00.1"
    assert RegexPattern.parse({**expressions, "bus": "3[ab]"}).single is None
    assert RegexPattern.parse({**expressions, "bus": "3b$"}).single is None


@pytest.mark.parametrize(
    ("broad", "narrow", "covers"),
    [
        ("*", "3b:00.0", True),
        ("*:3b:*.*", "0000:3b:00.0", True),
        ("0000:3b:00.0", "*:3b:*.*", False),
        ("0000:3b:00.0", "0000:3b:00.0", True),
        ("0000:3b:*.*", "0000:*:00.0", False),
    ],
)
def test_globs_that_cover_others(broad: str, narrow: str, covers: bool) -> None:
    assert GlobPattern.parse(broad).covers(GlobPattern.parse(narrow)) is covers


def test_expressions_cover_when_that_is_certain() -> None:
    some, other = RegexPattern(bus="3."), RegexPattern(bus="4.")
    assert GlobPattern().covers(some)
    assert not GlobPattern(bus="3b").covers(some)
    assert RegexPattern().covers(some)
    assert RegexPattern().covers(GlobPattern(bus="3b"))
    assert some.covers(some)
    assert not some.covers(other)
    assert not some.covers(GlobPattern(bus="3b"))
