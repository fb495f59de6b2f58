"""Values on the command line: JSON objects, and pairs such as x=1.0."""

import base64
import datetime as dt
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from tidings.model.errors import InvalidValueError


def json_object(text: str | bytes, where: str) -> dict[str, Any]:
    """An object, such as the attributes of an event."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"{where} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidValueError(f'{where} must be a JSON object, such as {{"class": "report"}}')
    return found


def pairs(given: Iterable[str]) -> dict[str, Any]:
    """`x=1.0 name=bus` as values: what is JSON is that, all else is text."""
    found: dict[str, Any] = {}
    for one in given:
        name, sign, text = one.partition("=")
        if not sign or not name:
            raise typer.BadParameter(f"{one!r} is no pair such as x=1.0")
        try:
            found[name] = json.loads(text)
        except (ValueError, RecursionError):
            found[name] = text
    return found


def file_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidValueError(f"{path}: {error.strerror or error}") from None


def payload_text(payload: bytes | None) -> str | dict[str, str] | None:
    """Text, if it is UTF-8; else base64, which says so."""
    if payload is None:
        return None
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(payload).decode()}


def payload_of(told: Any) -> bytes | None:
    """The payload that was written so."""
    if told is None:
        return None
    if isinstance(told, str):
        return told.encode()
    if isinstance(told, dict) and list(told) == ["base64"] and isinstance(told["base64"], str):
        try:
            return base64.b64decode(told["base64"], validate=True)
        except ValueError as error:
            raise InvalidValueError(f"payload: is not base64: {error}") from None
    raise InvalidValueError('payload: must be a text, or {"base64": "..."}')


def time_of(text: str | None, name: str) -> dt.datetime | None:
    """A time such as 2026-01-31T12:00:00Z; without a zone, in UTC."""
    if text is None:
        return None
    try:
        found = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time such as 2026-01-31T12:00:00Z", param_hint=f"'{name}'"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)
