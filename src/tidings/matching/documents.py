"""Payloads that can be looked into: text, and XML. What cannot be read as such is unknown, never an error."""

from functools import lru_cache
from typing import Any

from lxml import etree

from tidings.model.limits import MAX_CACHED_PATTERNS, MAX_TEXT_BYTES, MAX_XML_BYTES, MAX_XML_NESTING


def text_of(payload: bytes | str | None) -> str | None:
    """The payload as text, or None where it is not UTF-8, or longer than patterns are held against.

    A table may have payloads that are text already: the same limit holds for them.
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
    """Whether the path finds something; None where the payload is not XML that we read."""
    try:
        document = _document(payload)
        return None if document is None else bool(_compiled(path)(document))
    except (etree.LxmlError, ValueError):  # the payload is one client's and the path another's: neither gets an error
        return None


@lru_cache(maxsize=1)  # an event meets many filters in a row
def _document(payload: bytes) -> Any:
    if len(payload) > MAX_XML_BYTES:
        return None
    # No DTD is loaded, no entity resolved, nothing fetched; and a document that brings a DTD is not read at all.
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(payload, parser)
    except (etree.XMLSyntaxError, ValueError):
        return None
    tree = root.getroottree()
    has_dtd = tree.docinfo.internalDTD is not None or tree.docinfo.externalDTD is not None
    return None if has_dtd or _TOO_DEEP(tree) else tree


# A path may ask for the text of every element; how often each character is then read is the depth at which it stands.
_TOO_DEEP = etree.XPath(f"boolean({'/*' * (MAX_XML_NESTING + 1)})")


@lru_cache(MAX_CACHED_PATTERNS)
def _compiled(path: str) -> Any:
    # lxml's EXSLT regular expressions backtrack: they stay off.
    return etree.XPath(f"boolean({path})", regexp=False, smart_strings=False)
