"""Bindings: subjects by numbers, in publications that come to this broker.

Each side of a connection says which numbers stand for which subjects in what is sent to it (the event channel broker's
job in 003); 0 stands for none.
"""

from tidings.hub.desk import Desk
from tidings.model.schema import Schema
from tidings.model.schematext import versions_of
from tidings.model.subjects import Subjects
from tidings.protocol.handshake import Bound


class Bindings:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @property
    def _subjects(self) -> Subjects:
        return self._desk.engine.subjects  # of the engine that there is now: one may take another's place

    def bound(self, subject: str) -> Bound:
        schema = self._subjects.schema(subject)
        return Bound(self._subjects.number(subject) + 1, subject, tuple(versions_of(schema)))

    def all(self) -> list[Bound]:
        return [self.bound(schema.subject) for schema in self._subjects]

    def schema(self, number: int) -> Schema:
        """The newest schema of the subject that a number stands for."""
        return self._subjects.schema(self._subjects.subject(number - 1))
