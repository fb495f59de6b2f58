"""Templates of topics: which events are on a secure topic, and on which part of it a token gives rights.

`/Sports/Football` is a subject; `Sports=NBA,Team=*` are tags, each an attribute that has the value, or is there. A tag
is text, an attribute may be typed: `Floor=3` means '3' and 3.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

import msgspec

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.model.limits import MAX_SUBJECT_CHARACTERS, MAX_TEMPLATE_TAGS

ANY = "*"
# The attributes of what brokers, centres and members tell each other: nobody may claim that for a topic of its own.
SYSTEM = frozenset({"security", "topic", "service_topic", "ask", "reply_to"})
_LARGE = Decimal(10) ** 30
_WORD = 64  # characters


class Template(msgspec.Struct, frozen=True):
    """`tags` are sorted by name. One of a subject has none."""

    subject: str | None = None
    tags: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Template":
        return _parsed(text)

    @classmethod
    def read(cls, text: str) -> "Template":
        """Of what somebody has signed: in canonical form, or a `SecurityError`."""
        try:
            template = _parsed(text)
        except InvalidValueError as error:
            raise SecurityError("form", str(error)) from None
        if str(template) != text:
            raise SecurityError("form", "a template is signed in canonical form")
        return template

    def __str__(self) -> str:
        return self.subject if self.subject is not None else ",".join(f"{name}={value}" for name, value in self.tags)

    def matches(self, subject: str | None, attributes: Mapping[str, Any]) -> bool:
        """Whether an event is on the topic."""
        if self.subject is not None:
            return subject == self.subject
        for name, wanted in self.tags:
            value = attributes.get(name)
            if value != wanted and not _has(value, wanted):
                return False
        return True

    def admits(self, subject: str | None, attributes: Mapping[str, Any]) -> bool:
        """Whether nothing that is left of an event says that it was not on the topic."""
        if self.subject is not None:
            return subject == self.subject
        for name, wanted in self.tags:
            if name in attributes and attributes[name] != wanted and not _has(attributes[name], wanted):
                return False
        return True

    @property
    def key(self) -> tuple[str, str]:
        """A name and a value that every event on it has: for whoever has many templates."""
        name, value = self.mark
        return (name, key_of(value)) if name else (name, value)

    @property
    def mark(self) -> tuple[str, str]:
        """The same, the value as it is written: the subject, which has no name, or the first tag that says one."""
        if self.subject is not None:
            return "", self.subject
        return next(one for one in self.tags if one[1] != ANY)

    def covers(self, other: "Template") -> bool:
        """Whether all that is on the other one is on this one."""
        if self.subject is not None or other.subject is not None:
            return self.subject == other.subject and self.subject is not None
        narrower = dict(other.tags)
        return all(name in narrower and value in (ANY, narrower[name]) for name, value in self.tags)

    def overlaps(self, other: "Template") -> bool:
        """Whether they claim the same events. One of a subject and one of tags do not: on which of them an event is
        that has both, its seal says."""
        if self.subject is not None or other.subject is not None:
            return self.subject == other.subject
        mine = dict(self.tags)
        return all(name not in mine or ANY in (value, mine[name]) or value == mine[name] for name, value in other.tags)


@lru_cache(4_096)
def _parsed(text: str) -> Template:
    if not isinstance(text, str) or not text or len(text) > MAX_SUBJECT_CHARACTERS:
        raise InvalidValueError(f"template: a text of 1 to MAX_SUBJECT_CHARACTERS ({MAX_SUBJECT_CHARACTERS:,})")
    if "=" not in text:
        if ANY in text:
            raise InvalidValueError(f"template: {text}: a subject has no *; for several use tags, as in Team=*")
        return Template(subject=text)
    tags = read_tags(text)
    if all(value == ANY for value in tags.values()):
        raise InvalidValueError("template: at least one tag has a value; else it would claim too many events")
    if tags.keys() <= SYSTEM:
        raise InvalidValueError(f"template: {text}: {', '.join(sorted(SYSTEM))} are the system's own; add another tag")
    return Template(tags=tuple(sorted(tags.items())))


def read_tags(text: str) -> dict[str, str]:
    """`Sports=NBA,Team=*` by name."""
    tags: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (one.strip() for one in part.partition("="))
        if not equals or not name or not value or "=" in value:
            raise InvalidValueError(f"template: {part.strip()!r}: a tag is name=value, or name=* for 'present'")
        if ANY in value and value != ANY:
            raise InvalidValueError(f"template: {part.strip()!r}: * stands alone and means 'present'")
        if name in tags:
            raise InvalidValueError(f"template: {name} stands there twice")
        tags[name] = value
    if len(tags) > MAX_TEMPLATE_TAGS:
        raise InvalidValueError(f"template: more than MAX_TEMPLATE_TAGS ({MAX_TEMPLATE_TAGS}) tags")
    return tags


def key_of(value: Any) -> str:
    """The same for all values that a tag means, and maybe for some more."""
    return _key_of_word(value) if type(value) is str and len(value) <= _WORD else _key_of(value)


@lru_cache(4_096)
def _key_of_word(value: str) -> str:
    """It is asked with every event, mostly for the same few."""
    return _key_of(value)


def _key_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        return format(Decimal(value).normalize(), "f") if abs(Decimal(value)) < _LARGE else str(value)
    except (InvalidOperation, TypeError, ValueError):
        return str(value).lower()


def _has(value: Any, wanted: str) -> bool:
    if value is None:
        return False
    if wanted == ANY or value == wanted:
        return True
    if isinstance(value, bool):
        return wanted.lower() == ("true" if value else "false")
    if isinstance(value, int | float):
        try:
            return Decimal(wanted) == value  # exactly: a template grants no neighbouring number
        except InvalidOperation:
            return False
    return False
