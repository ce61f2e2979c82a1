"""XML as declarations: a dataclass field says where its value lives, and both directions are derived from that.

A place is a path of element names from the enclosing element, ending in an element or an ``@attribute``. A step may
carry constants: ``memory[@unit='KiB']`` is written with that attribute and read only where it has that value.
Fields that share leading steps share those elements. Elements appear in the order of the fields.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from lxml import etree

from jetbridge.errors import GuestXmlInvalid
from jetbridge.numa.cpulist import format_cpu_list

NAMESPACES: Mapping[str, str] = {"jetbridge": "urn:jetbridge:guest:1"}
"""Prefix to namespace of the elements in ``<metadata>``: libvirt keeps those of foreign namespaces as they are."""


@dataclass(frozen=True)
class Codec:
    """A value as text and back. ``parse`` raises ``ValueError`` for text that is not of its form."""

    write: Callable[[Any], str]
    parse: Callable[[str], Any]


def _choice(yes: str, no: str) -> Codec:
    def parse(text: str) -> bool:
        if text not in (yes, no):
            raise ValueError(f"{text!r} is neither {yes} nor {no}")
        return text == yes

    return Codec(lambda value: yes if value else no, parse)


def hexadecimal(digits: int) -> Codec:
    """An integer written 0x-prefixed with at least ``digits`` digits, read with or without the prefix."""
    return Codec(lambda value: f"0x{value:0{digits}x}", lambda text: int(text, 16))


def parse_cpu_set(text: str) -> frozenset[int]:
    """Reads ``0-7,^3,12``; exclusions apply to what stands before them, as in libvirt."""
    cpus: set[int] = set()
    for term in text.split(","):
        excluded = term.strip().startswith("^")
        first, dash, last = term.strip().lstrip("^").partition("-")
        numbers = range(int(first), int(last if dash else first) + 1)
        cpus = cpus.difference(numbers) if excluded else cpus.union(numbers)
    return frozenset(cpus)


TEXT = Codec(str, str)
INTEGER = Codec(str, int)
YES_NO = _choice("yes", "no")
ON_OFF = _choice("on", "off")
CPU_SET = Codec(format_cpu_list, parse_cpu_set)


@dataclass(frozen=True)
class _Step:
    tag: str
    constants: Mapping[str, str]


@dataclass(frozen=True)
class _Place:
    path: str
    steps: tuple[_Step, ...]
    attribute: str | None = None
    codec: Codec = TEXT
    element: type | None = None  # of nested declarations
    many: bool = False
    presence: bool = False  # a bool: the element is there or not


_STEP = re.compile(r"((?:\w+:)?[\w-]+)((?:\[@[\w-]+='[^']*'\])*)")
_CONSTANT = re.compile(r"\[@([\w-]+)='([^']*)'\]")
_PLACE = "place"
REQUIRED: Any = dataclasses.MISSING
"""As a default: the field has none, and XML without it is refused."""


def _steps(path: str) -> tuple[tuple[_Step, ...], str | None]:
    *parents, last = path.split("/")
    names, attribute = (parents, last[1:]) if last.startswith("@") else ([*parents, last], None)
    steps = []
    for name in names:
        match = _STEP.fullmatch(name)
        if match is None:
            raise ValueError(f"malformed step {name!r} in {path!r}")
        prefix, _, local = match[1].rpartition(":")
        tag = f"{{{NAMESPACES[prefix]}}}{local}" if prefix else local
        steps.append(_Step(tag, dict(_CONSTANT.findall(match[2]))))
    return tuple(steps), attribute


def _declare(place: _Place, default: Any) -> Any:
    return dataclasses.field(default=default, metadata={_PLACE: place})


def value(path: str, codec: Codec = TEXT, *, default: Any = REQUIRED) -> Any:
    """Text of an element or attribute. A field whose value is None is not written; a missing one reads as its default."""
    steps, attribute = _steps(path)
    return _declare(_Place(path, steps, attribute, codec), default)


def present(path: str, *, default: bool = False) -> Any:
    """True: the (empty) element stands there."""
    return _declare(_Place(path, _steps(path)[0], presence=True), default)


def child(path: str, element: type, *, default: Any = None) -> Any:
    """One nested declaration, or None."""
    return _declare(_Place(path, _steps(path)[0], element=element), default)


def children(path: str, element: type) -> Any:
    """A tuple of nested declarations: one element each, in order."""
    return _declare(_Place(path, _steps(path)[0], element=element, many=True), ())


# --- building ---------------------------------------------------------------------------------


def build(step: str, declared: Any) -> etree._Element:
    """The element that the dataclass instance ``declared`` describes; ``step`` is its name, with constants if any."""
    ((root_step,), _) = _steps(step)
    root = etree.Element(root_step.tag, attrib=dict(root_step.constants))
    _fill(root, declared)
    return root


def to_text(element: etree._Element) -> str:
    """Indented XML text without a declaration, as libvirt prints it."""
    etree.indent(element, space="  ")
    return etree.tostring(element, encoding="unicode") + "\n"


def _fill(root: etree._Element, declared: Any) -> None:
    for field in dataclasses.fields(declared):
        place: _Place = field.metadata[_PLACE]
        content = getattr(declared, field.name)
        if content is None or (place.presence and not content):
            continue
        if place.many:
            for item in content:
                _fill(_append(_reach(root, place.steps[:-1]), place.steps[-1]), item)
            continue
        target = _reach(root, place.steps)
        if place.element is not None:
            _fill(target, content)
        elif place.attribute is not None:
            target.set(place.attribute, place.codec.write(content))
        elif not place.presence:
            target.text = place.codec.write(content)


def _reach(root: etree._Element, steps: tuple[_Step, ...]) -> etree._Element:
    for step in steps:
        found = next(_matching(root, step), None)
        root = _append(root, step) if found is None else found
    return root


def _append(parent: etree._Element, step: _Step) -> etree._Element:
    namespace = etree.QName(step.tag).namespace
    prefixes = {prefix: uri for prefix, uri in NAMESPACES.items() if uri == namespace}
    return etree.SubElement(parent, step.tag, attrib=dict(step.constants), nsmap=prefixes)


def _matching(parent: etree._Element, step: _Step) -> Any:
    for element in parent.iterchildren(step.tag):
        if all(element.get(name) == wanted for name, wanted in step.constants.items()):
            yield element


# --- parsing ----------------------------------------------------------------------------------

T = TypeVar("T")


def read(text: str) -> etree._Element:
    """The root element of a document. Raises ``GuestXmlInvalid``."""
    try:
        # A domain's XML comes from the hypervisor, but nothing in it is a reason to open files or the network.
        return etree.fromstring(text.encode(), etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError as error:
        raise GuestXmlInvalid(path="the document", reason=str(error)) from None


def parse(declaration: type[T], root: etree._Element) -> T:
    """The declaration's values out of ``root``; what is not declared is passed over. Raises ``GuestXmlInvalid``."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(declaration):  # type: ignore[arg-type]
        place: _Place = field.metadata[_PLACE]
        content = _content(root, place)
        if content is not None:
            found[field.name] = content
        elif field.default is REQUIRED:
            raise GuestXmlInvalid(path=f"{root.tag}/{place.path}", reason="is missing")
    return declaration(**found)


def _content(root: etree._Element, place: _Place) -> Any:
    parents = [root]
    for step in place.steps:
        parents = [element for parent in parents for element in _matching(parent, step)]
    if place.many:
        assert place.element is not None
        return tuple(parse(place.element, element) for element in parents)
    if place.presence:
        return bool(parents)
    if not parents:
        return None
    if place.element is not None:
        return parse(place.element, parents[0])
    text = parents[0].text or "" if place.attribute is None else parents[0].get(place.attribute)
    if text is None:
        return None
    try:
        return place.codec.parse(text)
    except ValueError as error:
        raise GuestXmlInvalid(path=f"{root.tag}/{place.path}", reason=f"holds {text!r}: {error}") from None
