"""Overlaps: of many templates, those that may overlap one, without a look at each."""

from typing import Generic, TypeVar

from tidings.security.template import ANY, Template

Key = TypeVar("Key")


class Overlaps(Generic[Key]):
    """By key. Templates that give one tag different values have no event in common, and neither have two subjects."""

    def __init__(self) -> None:
        self._templates: dict[Key, Template] = {}
        self._subjects: dict[str, set[Key]] = {}
        self._tagged: set[Key] = set()
        self._valued: dict[str, dict[str, set[Key]]] = {}  # by name and value of a tag; * is no value
        self._set: dict[str, set[Key]] = {}  # by name: all that give it a value

    def put(self, key: Key, template: Template) -> None:
        self.remove(key)
        self._templates[key] = template
        if template.subject is not None:
            self._subjects.setdefault(template.subject, set()).add(key)
            return
        self._tagged.add(key)
        for name, value in template.tags:
            if value != ANY:
                self._valued.setdefault(name, {}).setdefault(value, set()).add(key)
                self._set.setdefault(name, set()).add(key)

    def remove(self, key: Key) -> None:
        template = self._templates.pop(key, None)
        if template is None:
            return
        if template.subject is not None:
            _discard(self._subjects, template.subject, key)
            return
        self._tagged.discard(key)
        for name, value in template.tags:
            if value != ANY:
                _discard(self._valued[name], value, key)
                _discard(self._set, name, key)
                if name not in self._set:
                    del self._valued[name]

    def near(self, template: Template) -> list[Key]:
        """All that overlap it."""
        return [key for key in self._candidates(template) if self._templates[key].overlaps(template)]

    def _candidates(self, template: Template) -> set[Key]:
        if template.subject is not None:
            return self._subjects.get(template.subject, set())
        valued = [one for one in template.tags if one[1] != ANY]
        name, value = min(valued, key=lambda one: len(self._same(*one)) - len(self._set.get(one[0], ())))
        return (self._tagged - self._set.get(name, set())) | self._same(name, value)

    def _same(self, name: str, value: str) -> set[Key]:
        return self._valued.get(name, {}).get(value, set())


def _discard(sets: dict[str, set[Key]], name: str, key: Key) -> None:
    sets[name].discard(key)
    if not sets[name]:
        del sets[name]
