"""Resource classes and traits as Placement names them, from what operators write. Pure.

The rules are those by which nova-compute names them, so that providers, aliases and operators' commands agree (Nova Administration
Guide, Attaching physical PCI devices to guests, PCI tracking in Placement).
"""

from __future__ import annotations

import re

import os_resource_classes
import os_traits

CUSTOM = "CUSTOM_"

_STANDARD_CLASSES = frozenset(os_resource_classes.STANDARDS)
_STANDARD_TRAITS = frozenset(os_traits.get_traits())
_FOREIGN = re.compile("[^A-Z0-9]+")
_VALID = re.compile("[A-Z0-9_]{1,255}")


def resource_class_name(name: str | None, vendor_id: str | None, product_id: str | None) -> str:
    """The class of devices whose device_spec line or alias says ``resource_class``; without it (None or empty) the one made of
    the ids. A name that begins with CUSTOM_ stays as it is, even if Placement won't take it."""
    if not name:
        return f"{CUSTOM}PCI_{vendor_id}_{product_id}".upper()
    upper = name.upper()
    return upper if upper in _STANDARD_CLASSES else _customised(upper)


def trait_names(text: str | None) -> frozenset[str]:
    """The traits in the text of ``traits``, separated by commas. Nothing is trimmed: a blank becomes an underscore, in device_spec
    and alias alike. Standard traits count only as they are written."""
    if not text:
        return frozenset()
    return frozenset(name if name in _STANDARD_TRAITS else _customised(name.upper()) for name in text.split(","))


def is_resource_class(name: str) -> bool:
    """Whether Placement can have a class of that name."""
    return name in _STANDARD_CLASSES or _is_custom(name)


def is_trait(name: str) -> bool:
    """Whether Placement can have a trait of that name."""
    return name in _STANDARD_TRAITS or _is_custom(name)


def _is_custom(name: str) -> bool:
    return name.startswith(CUSTOM) and name != CUSTOM and _VALID.fullmatch(name) is not None


def _customised(upper: str) -> str:
    return upper if upper.startswith(CUSTOM) else CUSTOM + _FOREIGN.sub("_", upper)
