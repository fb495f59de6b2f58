"""The sessions of a broker's clients and observers, and the numbers that stand for subjects in their frames."""

import logging
from collections.abc import Callable, Collection

from tidings.broker.ports import NodePort, Scheduler, SessionPort
from tidings.engine.operations import Disconnect
from tidings.model.errors import JournalError
from tidings.model.schema import Schema, versions_of
from tidings.model.subjects import Subjects
from tidings.protocol.frames import FrameKind
from tidings.protocol.handshake import SubjectBound

_LOG = logging.getLogger("tidings.broker")


class SubjectNumbers:
    """The numbers that stand for subjects in frames to this broker: the engine's numbers plus 1, since 0 means none.

    `subjects` returns the subjects of the current engine, which a rebuild replaces.
    """

    def __init__(self, subjects: Callable[[], Subjects]) -> None:
        self._subjects = subjects

    def announcement(self, subject: str) -> SubjectBound:
        """Return the message that announces the number and the schema of a subject."""
        subjects = self._subjects()
        schema = subjects.schema(subject)
        return SubjectBound(subjects.number(subject) + 1, subject, tuple(versions_of(schema)))

    def announcements(self) -> list[SubjectBound]:
        """Return such a message for every subject with a schema."""
        return [self.announcement(schema.subject) for schema in self._subjects()]

    def schema(self, number: int) -> Schema:
        """Return the newest schema of the subject with this number; raise an error if there is none."""
        subjects = self._subjects()
        return subjects.schema(subjects.subject(number - 1))


class ClientSessions:
    """The sessions of a broker: `clients` by name, and `observers`.

    Several observers may have the same name, even that of a client.
    """

    def __init__(self, node: NodePort, scheduler: Scheduler, subject_numbers: SubjectNumbers) -> None:
        self._node, self._scheduler = node, scheduler
        self.subject_numbers = subject_numbers
        self.clients: dict[str, SessionPort] = {}
        self.observers: set[SessionPort] = set()

    def get(self, client: str) -> SessionPort | None:
        """Return the session of a client that is connected; None if it is not."""
        return self.clients.get(client)

    def all(self) -> list[SessionPort]:
        """Return the sessions of clients and of observers."""
        return [*self.clients.values(), *self.observers]

    def client_names(self) -> Collection[str]:
        """Return the names of the connected clients; observers are no clients."""
        return self.clients.keys()

    def ended(self, session: SessionPort, reason: str) -> None:
        """Remove the session of a client whose connection is gone, and disconnect the client in the engine.

        The client's durable subscriptions stay. If a newer session of the client has replaced this one, nothing is
        done.
        """
        self.observers.discard(session)
        if self.clients.get(session.name) is not session:
            return
        del self.clients[session.name]
        _LOG.debug("%s has left: %s", session.name, reason)
        try:
            self._node.operate(Disconnect(session.name), sync=False)
        except JournalError as error:
            self._node.log_line(f"{session.name} has left, and {error}")
        self._scheduler.flush()

    def announce_subject(self, subject: str) -> None:
        """Tell every client the number by which it may name a subject from now on."""
        announcement = self.subject_numbers.announcement(subject)
        for session in self.all():
            session.connection.send_message(FrameKind.BOUND, announcement)
