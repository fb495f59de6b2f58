"""Parse and print the event of a `Publish` action: `[class,DropMessage],[cause,'Broker load'],[message,$Message]`.

The syntax is PADRES' bracket notation. A value in quotes is a string; a bare value is a boolean or a number if it looks
like one.
"""

import re

from tidings.model.errors import InvalidValueError
from tidings.model.expression import Constant
from tidings.model.limits import MAX_ATTRIBUTES
from tidings.model.values import BARE_NAME, checked_name, checked_value
from tidings.policy.ast import PublishTemplate, Scalar, Variable, format_number, read_number

_BLANK = re.compile(r"\s*")
_WORD = re.compile(r"""'((?:[^']|'')*)'|`((?:[^`]|``)*)`|\$([A-Za-z_]\w*)|([^\s,\[\]'"`$][^,\[\]'"`]*)""", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_BOOLEANS = {"true": True, "false": False}
_FORM = "an event is written [name,value],[name,value]"


class TemplateRefusal(Exception):  # noqa: N818 - never leaves the package
    """The event of a `Publish` action cannot be parsed; `offset` is the position of the error in its text."""

    def __init__(self, message: str, offset: int) -> None:
        self.message, self.offset = message, offset


def parse_publication(text: str) -> PublishTemplate:
    """Parse the event of a `Publish` action; raise `TemplateRefusal` if the text is invalid."""
    attributes: dict[str, Scalar] = {}
    position = _expect_sign(text, 0, "[")
    while True:
        name, start = _parse_name(text, position)
        if name in attributes:
            raise TemplateRefusal(f"{name[:40]} is given twice", start)
        if len(attributes) >= MAX_ATTRIBUTES:
            raise TemplateRefusal(f"more than MAX_ATTRIBUTES ({MAX_ATTRIBUTES:,}) values", start)
        position = _expect_sign(text, _match_word(text, start).end(), ",")
        value = _match_word(text, _skip_blanks(text, position))
        attributes[name] = _parse_value(value)
        position = _skip_blanks(text, _expect_sign(text, value.end(), "]"))
        if position == len(text):
            return PublishTemplate(tuple(attributes.items()))
        position = _expect_sign(text, _expect_sign(text, position, ","), "[")


def format_publication(event: PublishTemplate) -> str:
    """Return the event as text that `parse_publication` parses to an equal event."""
    return ",".join(f"[{_format_name(name)},{_format_value(value)}]" for name, value in event.attributes)


def _skip_blanks(text: str, position: int) -> int:
    blank = _BLANK.match(text, position)
    return blank.end() if blank else position


def _expect_sign(text: str, position: int, sign: str) -> int:
    position = _skip_blanks(text, position)
    if not text.startswith(sign, position):
        raise TemplateRefusal(_FORM, position)
    return position + 1


def _match_word(text: str, position: int) -> re.Match[str]:
    match = _WORD.match(text, position)
    if match is None:
        hint = (
            "; the quotes inside of an event are '"
            if text[position : position + 1] in ("\u2019", "\u2018", '"')
            else ""
        )
        raise TemplateRefusal(f"{_FORM}{hint}", position)
    if match[4] is not None and match[4][0] in "\u2019\u2018\u201c\u201d":
        raise TemplateRefusal("a typeset quote; strings inside of an event stand in plain single quotes", position)
    return match


def _parse_name(text: str, position: int) -> tuple[str, int]:
    start = _skip_blanks(text, position)
    match = _match_word(text, start)
    if match[3] is not None:
        raise TemplateRefusal("the name of an attribute is no variable", start)
    try:
        return checked_name(_unquote(match)), start
    except InvalidValueError as error:
        raise TemplateRefusal(str(error), start) from None


def _unquote(match: re.Match[str]) -> str:
    for group, quote in ((1, "'"), (2, "`")):
        if match[group] is not None:
            return match[group].replace(quote * 2, quote)
    return match[4].rstrip()


def _parse_value(match: re.Match[str]) -> Scalar:
    if match[3] is not None:
        return Variable(match[3])
    word = _unquote(match)
    try:
        if match[4] is None:
            return Constant(checked_value(word))
        if word.lower() in _BOOLEANS:
            return Constant(_BOOLEANS[word.lower()])
        return Constant(read_number(word) if _NUMBER.fullmatch(word) else checked_value(word))
    except ValueError as error:
        raise TemplateRefusal(str(error), match.start()) from None


def _format_name(name: str) -> str:
    return name if BARE_NAME.fullmatch(name) else "'" + name.replace("'", "''") + "'"


def _format_value(value: Scalar) -> str:
    if isinstance(value, Variable):
        return f"${value.name}"
    plain = value.value
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, str):
        bare = BARE_NAME.fullmatch(plain) and plain.lower() not in _BOOLEANS
        return plain if bare else "'" + plain.replace("'", "''") + "'"
    return format_number(0 if plain is None else plain)
