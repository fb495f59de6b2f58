"""The three kinds of text pattern: LIKE, topics and regular expressions.

`like` and `topic` parse a pattern into elements: a character stands for itself, `ANY` for one character, `RUN` for any
number of characters, `LEVEL` for any number of characters without a slash.
"""

from enum import Enum
from functools import lru_cache
from typing import Any, Literal

import re2

from tidings.model.limits import MAX_CACHED_PATTERNS, MAX_PATTERN_CHARACTERS, MAX_REGEX_MEMORY_BYTES


class Wildcard(Enum):
    """An element of a pattern that stands for more than one literal character."""

    ANY = "one character"
    RUN = "any run of characters"
    LEVEL = "any run of characters without a slash"


Element = str | Literal[Wildcard.ANY, Wildcard.RUN, Wildcard.LEVEL]
Elements = tuple[Element, ...]


class PatternError(ValueError):
    """A pattern cannot be parsed. Parsers convert this error into a `FilterError` with a position."""


@lru_cache(MAX_CACHED_PATTERNS)
def parse_like(pattern: str) -> Elements:
    """Parse a LIKE pattern into elements; raise a `PatternError` for a wrong escape or a pattern that is too long."""
    _check_length(pattern)
    elements: list[Element] = []
    characters = iter(pattern)
    for character in characters:
        if character == "%":
            if not elements or elements[-1] is not Wildcard.RUN:
                elements.append(Wildcard.RUN)
        elif character == "_":
            elements.append(Wildcard.ANY)
        elif character == "\\":
            escaped = next(characters, "")
            if escaped not in ("%", "_", "\\"):
                raise PatternError(
                    f"in LIKE a backslash stands before %, _ or a backslash, not {escaped or 'at the end'}"
                )
            elements.append(escaped)
        else:
            elements.append(character)
    return tuple(elements)


@lru_cache(MAX_CACHED_PATTERNS)
def compile_piece(elements: Elements) -> Any:
    """Return an RE2 pattern that finds these elements, characters and `ANY`, somewhere in a text."""
    return re2.compile(
        "(?s)" + "".join("." if element is Wildcard.ANY else re2.escape(str(element)) for element in elements),
        _REGEX_OPTIONS,
    )


def escape_like(text: str) -> str:
    """Escape a text so that a LIKE pattern matches it literally."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


@lru_cache(MAX_CACHED_PATTERNS)
def parse_topic(pattern: str) -> tuple[Elements, ...]:
    """Parse a topic pattern into its alternatives: `/a/#` becomes `/a` and anything below `/a/`.

    Raises a `PatternError` if `#` is not the last level or a wildcard is only a part of a level.
    """
    _check_length(pattern)
    levels = pattern.split("/")
    for place, level in enumerate(levels):
        if level == "#" and place < len(levels) - 1:
            raise PatternError("in a topic, # stands only at the end")
        if len(level) > 1 and ("*" in level or "#" in level):
            raise PatternError(f"in a topic, * and # stand for whole levels, not for a part of {level!r}")
    if levels[-1] == "#":
        stem = _parse_levels(levels[:-1])
        return ((*stem, "/", Wildcard.RUN), stem) if len(levels) > 1 else ((Wildcard.RUN,),)
    return (_parse_levels(levels),)


def check_mqtt_words(pattern: str) -> None:
    """Refuse MQTT syntax in a topic pattern (`+`, `$share/`), which would be literal text here and match nothing."""
    levels = pattern.split("/")
    if "+" in levels:
        suggestion = "/".join("*" if level == "+" else level for level in levels)
        raise PatternError(f"in a topic, * stands for one level, as + does in MQTT: write {suggestion!r}")
    if levels[0] == "$share":
        raise PatternError("$share/ is for shared subscriptions of MQTT; write the topic alone")


@lru_cache(MAX_CACHED_PATTERNS)
def compile_regex(pattern: str) -> Any:
    """Return the compiled RE2 pattern: linear in the text, bounded in memory, without backreferences and lookaround.

    Raises a `PatternError` if RE2 refuses the pattern.
    """
    _check_length(pattern)
    try:
        return re2.compile(pattern, _REGEX_OPTIONS)
    except re2.error as error:
        reason = _plain(error.args[0] if error.args else "not its syntax")
        limit = f" (MAX_REGEX_MEMORY_BYTES is {MAX_REGEX_MEMORY_BYTES:,})" if "too large" in reason else ""
        raise PatternError(f"not a pattern that RE2 can read: {reason}{limit}") from None


def _parse_levels(levels: list[str]) -> Elements:
    elements: list[Element] = []
    for place, level in enumerate(levels):
        elements.extend(["/"] if place else [])
        elements.extend([Wildcard.LEVEL] if level == "*" else level)
    return tuple(elements)


def _check_length(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise PatternError(f"the pattern is longer than MAX_PATTERN_CHARACTERS ({MAX_PATTERN_CHARACTERS:,})")


def _plain(reason: object) -> str:
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


_REGEX_OPTIONS = re2.Options()
_REGEX_OPTIONS.max_mem = MAX_REGEX_MEMORY_BYTES
_REGEX_OPTIONS.log_errors = False
