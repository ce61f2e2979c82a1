"""``[pci]device_spec``: which functions of a host may be given to guests, and with which tags."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jetbridge.errors import (
    JetbridgeError,
    PciConfigInvalidSpec,
    PciDeviceInvalidDeviceName,
    PciDeviceInvalidPFRemoteManaged,
    PciDeviceNotFoundById,
    PciDeviceRemoteManagedNotPresent,
    PciDeviceWrongAddressFormat,
)
from jetbridge.pci.address import ANY, FIELDS, MAX_ID, AddressPattern, GlobPattern, PciAddress, RegexPattern, parse_hex
from jetbridge.pci.device import DeviceType
from jetbridge.pci.words import bool_word, lenient_bool, read_json, strict_bool

EXAMPLE = '{"vendor_id": "10de", "product_id": "1eb8"}'

SELECTORS = ("vendor_id", "product_id", "address", "devname")
"""Keys of a line that select devices; all others are tags."""

BOOLEAN_TAGS = ("managed", "live_migratable", "one_time_use")
PROVIDER_TAGS = ("resource_class", "traits", "rp_uuid", "rp_uuids")
"""Tags that describe a device to Placement; they don't tell pools apart."""

KNOWN_TAGS = (*BOOLEAN_TAGS, "resource_class", "traits", "physical_network", "trusted", "remote_managed")

Report = Mapping[str, Any]
"""One device as the host reports it: ``address, vendor_id, product_id, dev_type, dev_id, label, numa_node, parent_addr, ...``"""


class HostFacts(Protocol):
    """What a line has to know of the host it is for. Addresses are canonical text; ids are hexadecimal text with or without ``0x``."""

    def sriov_totalvfs(self, address: str) -> int | None:
        """How many VFs the function can have; None: it is no SR-IOV PF, or not there."""
        ...

    def netdev_address(self, devname: str) -> str | None:
        """The PCI address behind a network interface; None: there is no such interface."""
        ...

    def pf_ids(self, address: str) -> tuple[str, str] | None:
        """Vendor and product id of a function; None: not readable."""
        ...

    def vf_product_id(self, pf_address: str) -> str | None:
        """Product id of a PF's VFs; None: not readable."""
        ...


@dataclass(frozen=True)
class DeviceSpec:
    """One line, ready to match. ``address`` None: its interface isn't on this host, so nothing matches.

    ``position`` counts lines from 1 in the order they are read; ``text`` is the line as JSON, for messages.
    ``pf_aware``: the address is that of an SR-IOV PF, so its VFs match too. ``tags`` are text or None.
    """

    vendor_id: str
    product_id: str
    address: AddressPattern | None
    tags: Mapping[str, str | None]
    pf_aware: bool
    devname: str | None
    ignored_keys: tuple[str, ...]
    position: int
    text: str

    @property
    def remote_managed(self) -> bool:
        return lenient_bool(self.tags.get("remote_managed"))

    def matches(self, report: Report) -> bool:
        """Raises ``PciConfigInvalidSpec`` or ``PciDeviceWrongAddressFormat`` when the report's address can't be read."""
        address_fits = self._address_matches(report)  # first, so that a bad address shows whatever the ids are
        return (
            address_fits
            and self.vendor_id in (ANY, report["vendor_id"])
            and self.product_id in (ANY, report["product_id"])
            and (not self.remote_managed or bool(card_serial(report.get("capabilities"))))
        )

    def gives(self, report: Report) -> bool:
        """Whether it matches a function that somebody can be given: one in a 32-bit PCI domain is left out, as the devices are."""
        try:
            return self.matches(report)
        except PciConfigInvalidSpec:
            return False  # an address that nobody can be given

    def _address_matches(self, report: Report) -> bool:
        if self.address is None:
            return False
        parent = report.get("parent_addr")
        if self.pf_aware and parent and self.address.matches(PciAddress.parse(parent)):
            return True
        return self.address.matches(PciAddress.parse(report["address"]))

    def pool_tags(self, dev_type: DeviceType) -> dict[str, str | None]:
        """The tags that split pools, for a device of this type (see ``PciDevice.pool_tags``)."""
        tags = {name: value for name, value in self.tags.items() if name not in PROVIDER_TAGS}
        if dev_type is not DeviceType.PCI and tags.get("remote_managed") is None:
            tags["remote_managed"] = "false"
        return tags


def parse_device_specs(
    values: Sequence[str], facts: HostFacts, *, report_in_placement: bool = False
) -> tuple[DeviceSpec, ...]:
    """All lines of all values, in order. An error names the line, the key and the value.

    Interfaces and SR-IOV capability are looked up on the host now: parse again before each inventory pass.
    Raises ``PciConfigInvalidSpec``, ``PciDeviceWrongAddressFormat``, ``PciDeviceInvalidDeviceName``,
    ``PciDeviceRemoteManagedNotPresent``, ``PciDeviceInvalidPFRemoteManaged`` or ``PciDeviceNotFoundById``.
    """
    lines = [line for value in values for line in _lines(value)]
    return tuple(
        _parse_line_named(line, position, facts, report_in_placement) for position, line in enumerate(lines, start=1)
    )


def first_match(specs: Sequence[DeviceSpec], report: Report) -> DeviceSpec | None:
    """The first line that matches; only its tags count."""
    return next((spec for spec in specs if spec.matches(report)), None)


def card_serial(capabilities: object) -> str | None:
    """The serial number in a card's vital product data; ``capabilities`` as reported, or as the JSON text kept in
    ``extra_info``. None: there is none, or it can't be read."""
    if isinstance(capabilities, str):
        capabilities = json.loads(capabilities)
    if not isinstance(capabilities, Mapping):
        return None
    vpd = capabilities.get("vpd")
    serial = vpd.get("card_serial_number") if isinstance(vpd, Mapping) else None
    return str(serial) if serial else None


def _lines(value: str) -> list[dict[str, Any]]:
    try:
        parsed = read_json(value)
    except (ValueError, RecursionError) as error:
        raise PciConfigInvalidSpec(reason=f"{value!r} is not JSON: {error}; write {EXAMPLE}") from None
    lines = [parsed] if isinstance(parsed, dict) else parsed
    if not isinstance(lines, list):
        raise PciConfigInvalidSpec(reason=f"expected an object or a list of objects, got {value!r}; write {EXAMPLE}")
    for line in lines:
        if not isinstance(line, dict):
            raise PciConfigInvalidSpec(
                reason=f"expected an object, got {json.dumps(line)} in {value!r}; write {EXAMPLE}"
            )
    return lines


def _parse_line_named(line: dict[str, Any], position: int, facts: HostFacts, report_in_placement: bool) -> DeviceSpec:
    try:
        return _parse_line(line, position, facts, report_in_placement)
    except JetbridgeError as error:
        fix = "; write domain:bus:slot.function such as 0000:3b:00.0, where a field may be *"
        what = error.message.rstrip(".") + (fix if isinstance(error, PciDeviceWrongAddressFormat) else "")
        raise type(error)(f"{what}, in line {position}: {json.dumps(line)}") from None


def _parse_line(line: dict[str, Any], position: int, facts: HostFacts, report_in_placement: bool) -> DeviceSpec:
    text = json.dumps(line)
    devname, address = line.get("devname"), line.get("address")
    if devname and address:
        raise PciDeviceInvalidDeviceName(spec=text)
    if devname and not isinstance(devname, str):
        raise PciConfigInvalidSpec(reason=f"property devname ({devname!r}) is not text, in {text}")
    vendor_id = _parse_id("vendor_id", line.get("vendor_id", ANY))
    product_id = _parse_id("product_id", line.get("product_id", ANY))
    tags = _parse_tags(line, report_in_placement)
    pattern = _netdev_pattern(devname, facts) if devname else _address_pattern(address)
    single = pattern.single if pattern else None
    pf_address = single if single and (facts.sriov_totalvfs(single) or 0) > 0 else None
    spec = DeviceSpec(
        vendor_id=vendor_id,
        product_id=product_id,
        address=pattern,
        tags=tags,
        pf_aware=pf_address is not None,
        devname=devname or None,
        ignored_keys=_ignored_address_keys(address),
        position=position,
        text=text,
    )
    if spec.remote_managed:
        _check_remote_managed(spec, pf_address, facts)
    return spec


def _parse_id(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise PciConfigInvalidSpec(
            reason=f'property {name} ({json.dumps(value)}) is not text: write it in quotes, for example "{name}": "10de"'
        )
    stripped = value.strip()
    return ANY if stripped == ANY else f"{parse_hex(name, stripped, MAX_ID):04x}"


def _parse_tags(line: Mapping[str, Any], report_in_placement: bool) -> dict[str, str | None]:
    tags: dict[str, str | None] = {}
    for name, value in line.items():
        if name in SELECTORS:
            continue
        tags[name] = _boolean_tag(name, value) if name in BOOLEAN_TAGS else _tag_text(value)
    if tags.get("one_time_use") == "true" and not report_in_placement:
        raise PciConfigInvalidSpec(
            reason="one_time_use needs [pci]report_in_placement = true, or leave one_time_use out"
        )
    return tags


def _boolean_tag(name: str, value: object) -> str | None:
    if value is None:
        return None
    try:
        return bool_word(strict_bool(value))
    except ValueError as error:
        raise PciConfigInvalidSpec(reason=f"tag {name}: {error}") from None


def _tag_text(value: object) -> str | None:
    """Requests carry text, so a tag that stayed a JSON boolean or number could never be matched."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return str(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _address_pattern(address: object) -> AddressPattern:
    if not address:
        return GlobPattern()
    if isinstance(address, str):
        return GlobPattern.parse(address)
    if isinstance(address, dict):
        return RegexPattern.parse(address)
    raise PciDeviceWrongAddressFormat(address=json.dumps(address))


def _ignored_address_keys(address: object) -> tuple[str, ...]:
    if not isinstance(address, dict):
        return ()
    return tuple(sorted(set(address) - set(FIELDS)))


def _netdev_pattern(devname: str, facts: HostFacts) -> AddressPattern | None:
    found = facts.netdev_address(devname)
    return GlobPattern.parse(found.strip("./")) if found else None


def _check_remote_managed(spec: DeviceSpec, pf_address: str | None, facts: HostFacts) -> None:
    """Only VFs can be driven by a SmartNIC's own system; a line that would select their PF is a mistake."""
    if spec.address is None:
        raise PciDeviceRemoteManagedNotPresent(devname=spec.devname)
    if pf_address is None:
        return
    ids, vf_product = facts.pf_ids(pf_address), facts.vf_product_id(pf_address)
    if ids is None or vf_product is None:
        raise PciDeviceNotFoundById(id=pf_address)
    vendor, product, vf_id = (_parse_id("read from the host", text) for text in (*ids, vf_product))
    vendor_fits = spec.vendor_id in (ANY, vendor)
    if vendor_fits and spec.product_id == vf_id:
        return
    if vendor_fits and spec.product_id in (ANY, product):
        raise PciDeviceInvalidPFRemoteManaged(address=pf_address)
    raise PciConfigInvalidSpec(
        reason=f"remote_managed: vendor {spec.vendor_id} and product {spec.product_id} are not those of the VFs of PF "
        f"{pf_address} ({vendor}:{vf_id})"
    )
