"""The event in a `Publish`, in PADRES' brackets: `[class,DropMessage],[cause,'Broker load'],[message,$Message]`."""

import re

from tidings.model.errors import InvalidValueError
from tidings.model.expression import Constant
from tidings.model.limits import MAX_ATTRIBUTES
from tidings.model.values import BARE_NAME, checked_name, checked_value
from tidings.policy.numbers import read_number, written_number
from tidings.policy.statement import Publication, Scalar, Variable

_BLANK = re.compile(r"\s*")
_WORD = re.compile(r"""'((?:[^']|'')*)'|`((?:[^`]|``)*)`|\$([A-Za-z_]\w*)|([^\s,\[\]'"`$][^,\[\]'"`]*)""", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_BOOLEANS = {"true": True, "false": False}
_FORM = "an event is written [name,value],[name,value]"


class PublicationRefused(Exception):  # noqa: N818 - never leaves the room
    """What is wrong, and at which character of the event."""

    def __init__(self, message: str, offset: int) -> None:
        self.message, self.offset = message, offset


def read_publication(text: str) -> Publication:
    """The event that a text states. A value in quotes is a string; else it is a number if it looks like one."""
    attributes: dict[str, Scalar] = {}
    at = _sign(text, 0, "[")
    while True:
        name, start = _name(text, at)
        if name in attributes:
            raise PublicationRefused(f"{name[:40]} is given twice", start)
        if len(attributes) >= MAX_ATTRIBUTES:
            raise PublicationRefused(f"more than MAX_ATTRIBUTES ({MAX_ATTRIBUTES:,}) values", start)
        at = _sign(text, _word(text, start).end(), ",")
        value = _word(text, _skip(text, at))
        attributes[name] = _value(value)
        at = _skip(text, _sign(text, value.end(), "]"))
        if at == len(text):
            return Publication(tuple(attributes.items()))
        at = _sign(text, _sign(text, at, ","), "[")


def written_publication(event: Publication) -> str:
    return ",".join(f"[{_written_name(name)},{_written_value(value)}]" for name, value in event.attributes)


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _sign(text: str, at: int, sign: str) -> int:
    at = _skip(text, at)
    if not text.startswith(sign, at):
        raise PublicationRefused(_FORM, at)
    return at + 1


def _word(text: str, at: int) -> re.Match[str]:
    found = _WORD.match(text, at)
    if found is None:
        hint = "; the quotes inside of an event are '" if text[at : at + 1] in ("\u2019", "\u2018", '"') else ""
        raise PublicationRefused(f"{_FORM}{hint}", at)
    if found[4] is not None and found[4][0] in "\u2019\u2018\u201c\u201d":
        raise PublicationRefused("a typeset quote; strings inside of an event stand in plain single quotes", at)
    return found


def _name(text: str, at: int) -> tuple[str, int]:
    start = _skip(text, at)
    found = _word(text, start)
    if found[3] is not None:
        raise PublicationRefused("the name of an attribute is no variable", start)
    try:
        return checked_name(_string(found)), start
    except InvalidValueError as error:
        raise PublicationRefused(str(error), start) from None


def _string(found: re.Match[str]) -> str:
    for group, quote in ((1, "'"), (2, "`")):
        if found[group] is not None:
            return found[group].replace(quote * 2, quote)
    return found[4].rstrip()


def _value(found: re.Match[str]) -> Scalar:
    if found[3] is not None:
        return Variable(found[3])
    word = _string(found)
    try:
        if found[4] is None:
            return Constant(checked_value(word))
        if word.lower() in _BOOLEANS:
            return Constant(_BOOLEANS[word.lower()])
        return Constant(read_number(word) if _NUMBER.fullmatch(word) else checked_value(word))
    except ValueError as error:
        raise PublicationRefused(str(error), found.start()) from None


def _written_name(name: str) -> str:
    return name if BARE_NAME.fullmatch(name) else "'" + name.replace("'", "''") + "'"


def _written_value(value: Scalar) -> str:
    if isinstance(value, Variable):
        return f"${value.name}"
    plain = value.value
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, str):
        bare = BARE_NAME.fullmatch(plain) and plain.lower() not in _BOOLEANS
        return plain if bare else "'" + plain.replace("'", "''") + "'"
    return written_number(0 if plain is None else plain)
