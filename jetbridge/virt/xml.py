"""Reading XML that others wrote: no entities, no network, no external documents."""

from __future__ import annotations

from lxml import etree

Element = etree._Element


def parse_xml(text: str) -> Element:
    """The document's root. Raises ValueError with the parser's own words when it isn't well-formed XML."""
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True, remove_pis=True
    )
    try:
        root = etree.fromstring(text.encode(), parser)
    except (etree.XMLSyntaxError, UnicodeEncodeError) as error:
        raise ValueError(f"is not well-formed XML: {error}") from error
    if root.getroottree().docinfo.internalDTD is not None:
        raise ValueError("carries a document type declaration, which is not accepted")
    return root


def child_text(element: Element, path: str) -> str | None:
    """Stripped text at ``path``; None when the element is absent or empty."""
    return (element.findtext(path) or "").strip() or None
