"""The subjects that are known, with their schemas: where anyone can look up what the events of a subject may hold.

Each subject is bound to a short number when it is first defined; frames carry the number instead of the name.
"""

from collections.abc import Iterator

from tidings.model.errors import SchemaError
from tidings.model.schema import Schema


class Subjects:
    def __init__(self) -> None:
        self._newest: dict[str, Schema] = {}
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def define(self, schema: Schema) -> int:
        """Takes a new subject or a later version of a known one, and answers the subject's number."""
        known = self._newest.get(schema.subject)
        if known is not None:
            known.check_successor(schema)
        elif schema.subject not in self._numbers:
            self._numbers[schema.subject] = len(self._names)
            self._names.append(schema.subject)
        self._newest[schema.subject] = schema
        return self.number(schema.subject)

    def number_as(self, former: "Subjects") -> None:
        """Subjects have the numbers that they have there, also those that are defined here later: others were told."""
        names = [*former._names, *(one for one in self._names if one not in former._numbers)]
        self._names, self._numbers = names, {name: number for number, name in enumerate(names)}

    def schema(self, subject: str, version: int | None = None) -> Schema:
        """The newest schema of a subject, or the one of an earlier version."""
        if subject not in self._newest:
            raise SchemaError(f"{subject}: no such subject; known are {', '.join(self._names) or 'none yet'}")
        newest = self._newest[subject]
        return newest if version is None else newest.at_version(version)

    def find(self, subject: str) -> Schema | None:
        """The newest schema of a subject, where it has one."""
        return self._newest.get(subject)

    def number(self, subject: str) -> int:
        return self._numbers[self.schema(subject).subject]

    def subject(self, number: int) -> str:
        if not 0 <= number < len(self._names):
            raise SchemaError(f"no subject has the number {number}")
        return self._names[number]

    def __len__(self) -> int:
        return len(self._newest)

    def __iter__(self) -> Iterator[Schema]:
        return iter(self._newest.values())
