"""Which secure topic an event is on: the templates of all that are known, found by a value that is written in them."""

from collections.abc import Mapping
from typing import Any

from tidings.security.credentials import Credentials
from tidings.security.records import TopicRecord
from tidings.security.template import key_of


class Topics:
    """Those that the credentials know, whenever it is asked."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._templates: dict[tuple[str, str], list[TopicRecord]] = {}
        self._names: set[str] = set()
        self._marks: dict[str, set[str]] = {}
        self._version = -1

    def of(self, subject: str | None, attributes: Mapping[str, Any]) -> TopicRecord | None:
        """The one that an event is on, if it is on one."""
        if not self._credentials.topics:
            return None
        self._keep_up()
        if subject is not None:
            for record in self._templates.get(("", subject), ()):
                return record
        for name in self._names.intersection(attributes):
            for record in self._templates.get((name, key_of(attributes[name])), ()):
                if record.template.matches(subject, attributes):
                    return record
        return None

    @property
    def marks(self) -> dict[str, set[str]]:
        """By name ("" is the subject) values that are written in templates. What has none of them is on no topic."""
        self._keep_up()
        return self._marks

    def _keep_up(self) -> None:
        if self._version == self._credentials.version:
            return
        self._templates, self._names, self._marks = {}, set(), {}
        for record in self._credentials.topics.values():
            key = record.template.key
            self._templates.setdefault(key, []).append(record)
            self._names.add(key[0])
            name, value = record.template.mark
            self._marks.setdefault(name, set()).add(value)
        self._version = self._credentials.version
