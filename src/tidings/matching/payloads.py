"""Read payloads as text and as XML for filters. A payload that cannot be read as such gives unknown, never an error."""

from functools import lru_cache
from typing import Any

from lxml import etree

from tidings.model.limits import MAX_CACHED_PATTERNS, MAX_TEXT_BYTES, MAX_XML_BYTES, MAX_XML_NESTING


def text_of(payload: bytes | str | None) -> str | None:
    """Return the payload as text, or None if it is not UTF-8 or longer than MAX_TEXT_BYTES.

    Payloads in a table may be text already; the same limit applies to them.
    """
    if payload is None or len(payload) > MAX_TEXT_BYTES:
        return None
    try:
        if isinstance(payload, str):
            return payload if len(payload.encode()) <= MAX_TEXT_BYTES else None
        return payload.decode()
    except UnicodeError:
        return None


def found_by_xpath(path: str, payload: bytes) -> bool | None:
    """Return whether the path selects something in the payload; None if the payload is not XML that is accepted.

    XML is refused, as unknown, if it is too large, nested too deeply, or has a DTD.
    """
    try:
        document = _document(payload)
        return None if document is None else bool(_compiled(path)(document))
    except (etree.LxmlError, ValueError):  # payload and path come from different clients, so neither gets an error
        return None


@lru_cache(maxsize=1)  # many filters are evaluated on one event in succession
def _document(payload: bytes) -> Any:
    if len(payload) > MAX_XML_BYTES:
        return None
    # No DTD is loaded, no entity resolved, nothing fetched; a document with a DTD is refused altogether.
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(payload, parser)
    except (etree.XMLSyntaxError, ValueError):
        return None
    tree = root.getroottree()
    has_dtd = tree.docinfo.internalDTD is not None or tree.docinfo.externalDTD is not None
    return None if has_dtd or _TOO_DEEP(tree) else tree


# A path may ask for the text of every element. Each character is then read once per level of nesting above it.
_TOO_DEEP = etree.XPath(f"boolean({'/*' * (MAX_XML_NESTING + 1)})")


@lru_cache(MAX_CACHED_PATTERNS)
def _compiled(path: str) -> Any:
    # lxml's EXSLT regular expressions backtrack: they stay disabled.
    return etree.XPath(f"boolean({path})", regexp=False, smart_strings=False)
