"""Templates: which events are on a secure topic, and which part of the topic a token is for.

A template is a subject, as `/Sports/Football`, or tags, as `Sports=NBA,Team=*`: each names an attribute that must
have the value, or must be present. A tag's value is text but matches typed attributes: `Floor=3` matches '3' and
3.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.model.limits import MAX_SUBJECT_CHARACTERS, MAX_TEMPLATE_TAGS

ANY = "*"
# Attributes of the system's own events (notices, requests, answers): a template may not consist of these alone.
SYSTEM = frozenset({"security", "topic", "service_topic", "ask", "reply_to"})
_LARGE = Decimal(10) ** 30
_WORD = 64  # characters


class Template(msgspec.Struct, frozen=True):
    """A subject, or tags sorted by name. A template with a subject has no tags."""

    subject: str | None = None
    tags: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Template":
        """Parse a template. Raises `InvalidValueError` if it is not valid."""
        return _parse(text)

    @classmethod
    def read(cls, text: str) -> "Template":
        """Parse a template from signed data. Raises `SecurityError` if it is not valid or not in canonical form."""
        try:
            template = _parse(text)
        except InvalidValueError as error:
            raise SecurityError("form", str(error)) from None
        if str(template) != text:
            raise SecurityError("form", "a template is signed in canonical form")
        return template

    def __str__(self) -> str:
        return self.subject if self.subject is not None else ",".join(f"{name}={value}" for name, value in self.tags)

    def matches(self, subject: str | None, attributes: Mapping[str, Any]) -> bool:
        """Return whether an event is on the topic."""
        if self.subject is not None:
            return subject == self.subject
        for name, required in self.tags:
            value = attributes.get(name)
            if value != required and not _value_matches(value, required):
                return False
        return True

    def may_match(self, subject: str | None, attributes: Mapping[str, Any]) -> bool:
        """Return whether an event may be on the topic, if attributes may have been removed from it.

        Missing attributes are ignored; those that are left must match.
        """
        if self.subject is not None:
            return subject == self.subject
        for name, required in self.tags:
            if name in attributes and attributes[name] != required and not _value_matches(attributes[name], required):
                return False
        return True

    @property
    def key(self) -> tuple[str, str]:
        """An attribute name and a normalised value that every matching event has, as a key for an index."""
        name, value = self.required_value
        return (name, key_of(value)) if name else (name, value)

    @property
    def required_value(self) -> tuple[str, str]:
        """An attribute name and a value as the template writes it: ("", subject), or the first tag with a value."""
        if self.subject is not None:
            return "", self.subject
        return next(tag for tag in self.tags if tag[1] != ANY)

    def covers(self, other: "Template") -> bool:
        """Return whether this template matches all events that `other` matches."""
        if self.subject is not None or other.subject is not None:
            return self.subject == other.subject and self.subject is not None
        narrower = dict(other.tags)
        return all(name in narrower and value in (ANY, narrower[name]) for name, value in self.tags)

    def overlaps(self, other: "Template") -> bool:
        """Return whether an event could be claimed by both templates.

        A subject and tags never overlap: for an event that fits both, the seal says which topic it is on.
        """
        if self.subject is not None or other.subject is not None:
            return self.subject == other.subject
        own_tags = dict(self.tags)
        return all(
            name not in own_tags or ANY in (value, own_tags[name]) or value == own_tags[name]
            for name, value in other.tags
        )


@lru_cache(4_096)
def _parse(text: str) -> Template:
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
    """Parse tags such as `Sports=NBA,Team=*` into a dict by name. Raises `InvalidValueError`."""
    tags: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
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
    """Return a normalised string for an attribute value: equal for all values that one tag value matches, and
    possibly for others."""
    return _key_of_word(value) if type(value) is str and len(value) <= _WORD else _key_of(value)


@lru_cache(4_096)
def _key_of_word(value: str) -> str:
    """`_key_of` with a cache, for short strings: most events have the same few values."""
    return _key_of(value)


def _key_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        return format(Decimal(value).normalize(), "f") if abs(Decimal(value)) < _LARGE else str(value)
    except (InvalidOperation, TypeError, ValueError):
        return str(value).lower()


def _value_matches(value: Any, required: str) -> bool:
    if value is None:
        return False
    if required == ANY or value == required:
        return True
    if isinstance(value, bool):
        return required.lower() == ("true" if value else "false")
    if isinstance(value, int | float):
        try:
            return Decimal(required) == value  # an exact comparison: rounding would match further numbers
        except InvalidOperation:
            return False
    return False


Key = TypeVar("Key")


class TemplateIndex(Generic[Key]):
    """An index that finds the templates overlapping a given one.

    Templates that give one tag different values cannot overlap, nor can two different subjects.
    """

    def __init__(self) -> None:
        self._templates: dict[Key, Template] = {}
        self._by_subject: dict[str, set[Key]] = {}
        self._tagged_keys: set[Key] = set()
        self._by_tag_value: dict[str, dict[str, set[Key]]] = {}  # by name and value of a tag, without *
        self._by_tag_name: dict[str, set[Key]] = {}  # by name of a tag: templates that give it a value

    def put(self, key: Key, template: Template) -> None:
        """Add a template, or replace the one with this key."""
        self.remove(key)
        self._templates[key] = template
        if template.subject is not None:
            self._by_subject.setdefault(template.subject, set()).add(key)
            return
        self._tagged_keys.add(key)
        for name, value in template.tags:
            if value != ANY:
                self._by_tag_value.setdefault(name, {}).setdefault(value, set()).add(key)
                self._by_tag_name.setdefault(name, set()).add(key)

    def remove(self, key: Key) -> None:
        """Remove a template, if present."""
        template = self._templates.pop(key, None)
        if template is None:
            return
        if template.subject is not None:
            _discard(self._by_subject, template.subject, key)
            return
        self._tagged_keys.discard(key)
        for name, value in template.tags:
            if value != ANY:
                _discard(self._by_tag_value[name], value, key)
                _discard(self._by_tag_name, name, key)
                if name not in self._by_tag_name:
                    del self._by_tag_value[name]

    def overlapping(self, template: Template) -> list[Key]:
        """Return the keys of all templates that overlap `template`."""
        return [key for key in self._candidates(template) if self._templates[key].overlaps(template)]

    def _candidates(self, template: Template) -> set[Key]:
        """Return a superset of the overlapping templates, by the most selective tag."""
        if template.subject is not None:
            return self._by_subject.get(template.subject, set())
        valued = [tag for tag in template.tags if tag[1] != ANY]
        name, value = min(
            valued, key=lambda tag: len(self._keys_with_tag(*tag)) - len(self._by_tag_name.get(tag[0], ()))
        )
        return (self._tagged_keys - self._by_tag_name.get(name, set())) | self._keys_with_tag(name, value)

    def _keys_with_tag(self, name: str, value: str) -> set[Key]:
        return self._by_tag_value.get(name, {}).get(value, set())


def _discard(sets: dict[str, set[Key]], name: str, key: Key) -> None:
    sets[name].discard(key)
    if not sets[name]:
        del sets[name]
