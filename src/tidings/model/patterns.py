"""The three kinds of pattern that text is held against: LIKE, topics, and regular expressions.

`like` and `topic` take a pattern apart into elements: a character stands for itself, `ANY` for one character, `RUN`
for any number of them, `LEVEL` for any number of them without a slash.
"""

from enum import Enum
from functools import lru_cache
from typing import Any, Literal

import re2

from tidings.model.limits import MAX_CACHED_PATTERNS, MAX_PATTERN_CHARACTERS, MAX_REGEX_MEMORY_BYTES


class Wild(Enum):
    ANY = "one character"
    RUN = "any run of characters"
    LEVEL = "any run of characters without a slash"


Element = str | Literal[Wild.ANY, Wild.RUN, Wild.LEVEL]
Elements = tuple[Element, ...]


class PatternError(ValueError):
    """A pattern that cannot be read; the languages turn it into a `FilterError` with a position."""


@lru_cache(MAX_CACHED_PATTERNS)
def like(pattern: str) -> Elements:
    _check_length(pattern)
    elements: list[Element] = []
    characters = iter(pattern)
    for character in characters:
        if character == "%":
            if not elements or elements[-1] is not Wild.RUN:
                elements.append(Wild.RUN)
        elif character == "_":
            elements.append(Wild.ANY)
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
def piece(elements: Elements) -> Any:
    """Characters and `ANY` as an RE2 pattern, to find them somewhere in a text."""
    return re2.compile(
        "(?s)" + "".join("." if one is Wild.ANY else re2.escape(str(one)) for one in elements), _REGEX_OPTIONS
    )


def literally(text: str) -> str:
    """The text as a part of a LIKE pattern that stands for itself."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


@lru_cache(MAX_CACHED_PATTERNS)
def topic(pattern: str) -> tuple[Elements, ...]:
    """The alternatives that a topic pattern stands for: `/a/#` is `/a` or anything below it."""
    _check_length(pattern)
    levels = pattern.split("/")
    for place, level in enumerate(levels):
        if level == "#" and place < len(levels) - 1:
            raise PatternError("in a topic, # stands only at the end")
        if len(level) > 1 and ("*" in level or "#" in level):
            raise PatternError(f"in a topic, * and # stand for whole levels, not for a part of {level!r}")
    if levels[-1] == "#":
        stem = _levels(levels[:-1])
        return ((*stem, "/", Wild.RUN), stem) if len(levels) > 1 else ((Wild.RUN,),)
    return (_levels(levels),)


def check_mqtt_words(pattern: str) -> None:
    """Refuse what only MQTT understands in a topic pattern: here it would be literal text, and match nothing."""
    levels = pattern.split("/")
    if "+" in levels:
        meant = "/".join("*" if level == "+" else level for level in levels)
        raise PatternError(f"in a topic, * stands for one level, as + does in MQTT: write {meant!r}")
    if levels[0] == "$share":
        raise PatternError("$share/ is for shared subscriptions of MQTT; write the topic alone")


@lru_cache(MAX_CACHED_PATTERNS)
def regex(pattern: str) -> Any:
    """The compiled RE2 pattern: linear in the text, bounded in memory, no backreferences and no lookaround."""
    _check_length(pattern)
    try:
        return re2.compile(pattern, _REGEX_OPTIONS)
    except re2.error as error:
        reason = _plain(error.args[0] if error.args else "not its syntax")
        limit = f" (MAX_REGEX_MEMORY_BYTES is {MAX_REGEX_MEMORY_BYTES:,})" if "too large" in reason else ""
        raise PatternError(f"not a pattern that RE2 can read: {reason}{limit}") from None


def _levels(levels: list[str]) -> Elements:
    elements: list[Element] = []
    for place, level in enumerate(levels):
        elements.extend(["/"] if place else [])
        elements.extend([Wild.LEVEL] if level == "*" else level)
    return tuple(elements)


def _check_length(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise PatternError(f"the pattern is longer than MAX_PATTERN_CHARACTERS ({MAX_PATTERN_CHARACTERS:,})")


def _plain(reason: object) -> str:
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


_REGEX_OPTIONS = re2.Options()
_REGEX_OPTIONS.max_mem = MAX_REGEX_MEMORY_BYTES
_REGEX_OPTIONS.log_errors = False
