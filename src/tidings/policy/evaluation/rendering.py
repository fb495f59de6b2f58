"""Render publications as XML or JSON documents: the built-in conversions `ToXML` and `ToJSON`."""

import base64
import re
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import msgspec

from tidings.model.values import Value
from tidings.policy.evaluation.evaluation import OutgoingPublication

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TYPE_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def json(publication: OutgoingPublication) -> bytes:
    """Return a JSON object with `publisher`, `attributes` and, if present, `subject`, `payload` and `trace`."""
    document: dict[str, Any] = {"publisher": publication.publisher, "attributes": dict(publication.attributes)}
    if publication.subject is not None:
        document["subject"] = publication.subject
    if publication.payload is not None:
        encoding, text = _payload(publication.payload)
        document["payload"] = text if encoding is None else {encoding: text}
    if publication.trace:
        document["trace"] = [_trace_fields(hop) for hop in publication.trace]
    return msgspec.json.encode(document)


def xml(publication: OutgoingPublication) -> bytes:
    """Return a `<publication>` with an `<attribute name= type=>` for each attribute.

    Characters that XML cannot contain become U+FFFD.
    """
    subject = "" if publication.subject is None else f" subject={_quoted(publication.subject)}"
    lines = [f"<publication publisher={_quoted(publication.publisher)}{subject}>"]
    for name, value in publication.attributes.items():
        kind = _TYPE_NAMES[type(value)]
        lines.append(f'  <attribute name={_quoted(name)} type="{kind}">{escape(_text(value))}</attribute>')
    if publication.payload is not None:
        encoding, text = _payload(publication.payload)
        mark = "" if encoding is None else f' encoding="{encoding}"'
        lines.append(f"  <payload{mark}>{escape(_replace_invalid(text))}</payload>")
    for hop in publication.trace:
        fields = "".join(f" {name}={_quoted(str(value))}" for name, value in _trace_fields(hop).items())
        lines.append(f"  <trace{fields}/>")
    return "\n".join([*lines, "</publication>"]).encode()


def _trace_fields(trace: msgspec.Struct) -> dict[str, Any]:
    fields = {name: getattr(trace, name) for name in trace.__struct_fields__}
    return {name: value for name, value in fields.items() if value is not None}


def _payload(payload: bytes) -> tuple[str | None, str]:
    """Return the encoding and the payload as text: None and the text if it is UTF-8, otherwise "base64"."""
    try:
        return None, payload.decode()
    except UnicodeDecodeError:
        return "base64", base64.b64encode(payload).decode()


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _replace_invalid(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    return quoteattr(_replace_invalid(text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def _replace_invalid(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
