"""Finds the secure topic that an event is on, by a value that the topic's template requires."""

from collections.abc import Mapping
from typing import Any, Protocol

from tidings.security.template import key_of
from tidings.security.topic_record import TopicRecord


class SecureTopics(Protocol):
    """The secure topics that are known, and a number that rises with each of them."""

    topics: dict[bytes, TopicRecord]
    version: int


class TopicLookup:
    """An index over the templates of all topics in the credentials. It follows changes of the credentials on each
    call."""

    def __init__(self, credentials: SecureTopics) -> None:
        self._credentials = credentials
        self._templates: dict[tuple[str, str], list[TopicRecord]] = {}
        self._names: set[str] = set()
        self._required_values: dict[str, set[str]] = {}
        self._version = -1

    def of(self, subject: str | None, attributes: Mapping[str, Any]) -> TopicRecord | None:
        """Return the record of the secure topic that an event is on, or None."""
        if not self._credentials.topics:
            return None
        self._update()
        if subject is not None:
            for record in self._templates.get(("", subject), ()):
                return record
        for name in self._names.intersection(attributes):
            for record in self._templates.get((name, key_of(attributes[name])), ()):
                if record.template.matches(subject, attributes):
                    return record
        return None

    @property
    def required_values(self) -> dict[str, set[str]]:
        """By attribute name ("" is the subject), the values that templates require. An event with none of them is on
        no secure topic."""
        self._update()
        return self._required_values

    def _update(self) -> None:
        """Rebuild the index if topics were learnt since."""
        if self._version == self._credentials.version:
            return
        self._templates, self._names, self._required_values = {}, set(), {}
        for record in self._credentials.topics.values():
            key = record.template.key
            self._templates.setdefault(key, []).append(record)
            self._names.add(key[0])
            name, value = record.template.required_value
            self._required_values.setdefault(name, set()).add(value)
        self._version = self._credentials.version
