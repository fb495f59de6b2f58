"""Publications as documents: what `ToXML` and `ToJSON` put into the payload of a notification."""

import base64
import re
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import msgspec

from tidings.model.values import Value
from tidings.policy.situation import Shaped

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string"}


def json(publication: Shaped) -> bytes:
    """An object with `attributes` and, where there are any, `subject`, `publisher`, `payload` and `trace`."""
    document: dict[str, Any] = {"publisher": publication.publisher, "attributes": dict(publication.attributes)}
    if publication.subject is not None:
        document["subject"] = publication.subject
    if publication.payload is not None:
        encoding, text = _payload(publication.payload)
        document["payload"] = text if encoding is None else {encoding: text}
    if publication.trace:
        document["trace"] = [_known(one) for one in publication.trace]
    return msgspec.json.encode(document)


def xml(publication: Shaped) -> bytes:
    """A `<publication>` with an `<attribute name type>` each; characters that XML cannot carry become U+FFFD."""
    subject = "" if publication.subject is None else f" subject={_quoted(publication.subject)}"
    lines = [f"<publication publisher={_quoted(publication.publisher)}{subject}>"]
    for name, value in publication.attributes.items():
        kind = _KINDS[type(value)]
        lines.append(f'  <attribute name={_quoted(name)} type="{kind}">{escape(_text(value))}</attribute>')
    if publication.payload is not None:
        encoding, text = _payload(publication.payload)
        mark = "" if encoding is None else f' encoding="{encoding}"'
        lines.append(f"  <payload{mark}>{escape(_sayable(text))}</payload>")
    for one in publication.trace:
        told = "".join(f" {name}={_quoted(str(value))}" for name, value in _known(one).items())
        lines.append(f"  <trace{told}/>")
    return "\n".join([*lines, "</publication>"]).encode()


def _known(trace: msgspec.Struct) -> dict[str, Any]:
    told = {name: getattr(trace, name) for name in trace.__struct_fields__}
    return {name: value for name, value in told.items() if value is not None}


def _payload(payload: bytes) -> tuple[str | None, str]:
    """Text as it is, anything else in base64."""
    try:
        return None, payload.decode()
    except UnicodeDecodeError:
        return "base64", base64.b64encode(payload).decode()


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _sayable(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    return quoteattr(_sayable(text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def _sayable(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
