"""The registry of subjects: the schema of each, and the short number that frames carry instead of its name."""

from collections.abc import Iterator

from tidings.model.errors import SchemaError
from tidings.model.schema import Schema


class Subjects:
    """The known subjects with the newest schema and the number of each."""

    def __init__(self) -> None:
        self._newest: dict[str, Schema] = {}
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def define(self, schema: Schema) -> int:
        """Add a subject, or a later version of its schema, and return the subject's number.

        Raises a `SchemaError` if the schema is not a later version of the known one.
        """
        newest = self._newest.get(schema.subject)
        if newest is not None:
            newest.check_successor(schema)
        elif schema.subject not in self._numbers:
            self._numbers[schema.subject] = len(self._names)
            self._names.append(schema.subject)
        self._newest[schema.subject] = schema
        return self.number(schema.subject)

    def number_as(self, former: "Subjects") -> None:
        """Take over the numbering of `former`, so that numbers already sent to clients stay valid.

        Subjects that `former` lacks get the numbers after its last one.
        """
        names = [*former._names, *(name for name in self._names if name not in former._numbers)]
        self._names, self._numbers = names, {name: number for number, name in enumerate(names)}

    def schema(self, subject: str, version: int | None = None) -> Schema:
        """Return the newest schema of a subject, or the given version; raise a `SchemaError` if there is none."""
        if subject not in self._newest:
            raise SchemaError(f"{subject}: no such subject; known are {', '.join(self._names) or 'none yet'}")
        newest = self._newest[subject]
        return newest if version is None else newest.at_version(version)

    def find(self, subject: str) -> Schema | None:
        """Return the newest schema of a subject, or None."""
        return self._newest.get(subject)

    def number(self, subject: str) -> int:
        """Return the number of a subject; raise a `SchemaError` if the subject is unknown."""
        return self._numbers[self.schema(subject).subject]

    def subject(self, number: int) -> str:
        """Return the name of the subject with this number; raise a `SchemaError` if there is none."""
        if not 0 <= number < len(self._names):
            raise SchemaError(f"no subject has the number {number}")
        return self._names[number]

    def __len__(self) -> int:
        return len(self._newest)

    def __iter__(self) -> Iterator[Schema]:
        return iter(self._newest.values())
