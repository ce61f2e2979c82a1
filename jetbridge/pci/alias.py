"""``[pci]alias``: names for device requirements, which flavors ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jetbridge.errors import PciInvalidAlias
from jetbridge.pci.request import Alias, AliasTable, NumaPolicy, Properties
from jetbridge.pci.words import bool_word, nearest, read_json, strict_bool

EXAMPLE = '{"name": "GPU", "vendor_id": "10de", "product_id": "1eb8", "device_type": "type-PCI"}'
DEVICE_TYPES = ("type-PCI", "type-PF", "type-VF")


def parse_aliases(values: Sequence[str], *, pci_in_placement: bool = False) -> AliasTable:
    """The table of aliases by name, in the order they are written. Lines with one name are alternatives.

    ``pci_in_placement`` is ``[filter_scheduler]pci_in_placement``, under which a resource class can stand for the ids
    and alternatives are refused. Raises ``PciInvalidAlias`` naming the alias, the field and the value.
    """
    table: dict[str, Alias] = {}
    written: dict[str, str] = {}  # by name, the last line
    for value in values:
        alias = _parse_one(value)
        written[alias.name] = value
        known = table.get(alias.name)
        table[alias.name] = alias if known is None else _merged(known, alias)
    _check_table(table, written, pci_in_placement)
    return table


def _parse_one(value: str) -> Alias:
    try:
        fields = read_json(value)
    except (ValueError, RecursionError) as error:
        raise PciInvalidAlias(reason=f"{value!r} is not JSON: {error}; write {EXAMPLE}") from None
    if not isinstance(fields, dict):
        raise PciInvalidAlias(reason=f"expected an object, got {value!r}: write one alias per option value")
    if "name" not in fields:
        raise PciInvalidAlias(reason=f"name is missing in {value!r}; write {EXAMPLE}")
    for field, content in fields.items():
        check = _CHECKS.get(field)
        if check is None:
            raise PciInvalidAlias(reason=_unknown_field(field, value))
        expected = check(content)
        if expected:
            raise PciInvalidAlias(reason=f"{field} {json.dumps(content)} in {value!r}: expected {expected}")
    return Alias(
        name=fields["name"].strip(),
        numa_policy=NumaPolicy(fields.get("numa_policy", NumaPolicy.LEGACY)),
        properties=(_properties(fields),),
    )


def _properties(fields: Mapping[str, str]) -> Properties:
    """The fields that pools are compared with. ``capability_type`` is no property of a device, so it is left out."""
    properties: dict[str, str | None] = {}
    for field, content in fields.items():
        if field == "device_type":
            properties["dev_type"] = content
        elif field == "live_migratable":
            properties[field] = bool_word(strict_bool(content))
        elif field not in ("name", "numa_policy", "capability_type"):
            properties[field] = content
    return properties


def _merged(known: Alias, new: Alias) -> Alias:
    if known.numa_policy != new.numa_policy:
        raise PciInvalidAlias(
            reason=f"alias {new.name}: policy mismatch: {known.numa_policy} and {new.numa_policy}; "
            "lines with one name need the same numa_policy"
        )
    types = known.properties[0].get("dev_type"), new.properties[0].get("dev_type")
    if types[0] != types[1]:
        raise PciInvalidAlias(
            reason=f"alias {new.name}: device type mismatch: {types[0] or 'none'} and {types[1] or 'none'}; "
            "lines with one name need the same device_type"
        )
    return Alias(name=known.name, numa_policy=known.numa_policy, properties=known.properties + new.properties)


def _check_table(table: AliasTable, written: Mapping[str, str], pci_in_placement: bool) -> None:
    if pci_in_placement:
        several = [name for name, alias in table.items() if len(alias.properties) > 1]
        if several:
            raise PciInvalidAlias(
                reason=f"{','.join(several)}: several lines for one name can't be used with "
                "[filter_scheduler]pci_in_placement; give the devices one resource_class in [pci]device_spec instead"
            )
    bare = sorted(
        name
        for name, alias in table.items()
        if not all(_identifies(properties, pci_in_placement) for properties in alias.properties)
    )
    if bare:
        wanted = "vendor_id and product_id, or resource_class" if pci_in_placement else "vendor_id and product_id"
        lines = " and ".join(repr(written[name]) for name in bare)
        raise PciInvalidAlias(reason=f"{','.join(bare)}: needs {wanted}, in {lines}; write {EXAMPLE}")


def _identifies(properties: Properties, pci_in_placement: bool) -> bool:
    ids = "vendor_id" in properties and "product_id" in properties
    return ids or (pci_in_placement and "resource_class" in properties)


def _unknown_field(field: str, value: str) -> str:
    near = nearest(field, list(_CHECKS))
    advice = f"did you mean {near}?" if near else f"known fields are {', '.join(_CHECKS)}"
    return f"unknown field {field} in {value!r}: {advice}"


def _text(content: Any) -> str | None:
    return None if isinstance(content, str) else "text"


def _name(content: Any) -> str | None:
    return None if isinstance(content, str) and 1 <= len(content) <= 256 else "text of 1 to 256 characters"


def _hex_id(content: Any) -> str | None:
    return None if isinstance(content, str) and re.fullmatch("[0-9a-fA-F]{4}", content) else "four hexadecimal digits"


def _one_of(*words: str) -> Callable[[Any], str | None]:
    return lambda content: None if content in words else f"one of {', '.join(words)}"


def _boolean_text(content: Any) -> str | None:
    if isinstance(content, str):
        try:
            strict_bool(content)
        except ValueError:
            pass
        else:
            return None
    return 'text, "true" or "false"'


_CHECKS: Mapping[str, Callable[[Any], str | None]] = {
    "name": _name,
    "vendor_id": _hex_id,
    "product_id": _hex_id,
    "device_type": _one_of(*DEVICE_TYPES),
    "numa_policy": _one_of(*NumaPolicy),
    "resource_class": _text,
    "traits": _text,
    "live_migratable": _boolean_text,
    "capability_type": _one_of("pci"),
}
"""Each field's check: None, or what was expected."""
