"""Assurance: what brokers tell each other of secure topics: their records, notices of their centres, and revocations.

All of it is signed, so nobody has to be believed: a neighbour that lies changes nothing. What is new goes on to all
other neighbours, what is known goes no further. Of revocations a neighbour is told only what it does not have.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from tidings.engine.confines import Confines
from tidings.engine.effects import Effect, Learnt, Log, Reject, Send
from tidings.engine.operations import (
    AskRevocations,
    Heed,
    Learn,
    Revoke,
    TellNotices,
    TellRevocations,
    TellTopics,
)
from tidings.model.errors import SecurityError
from tidings.model.event import Event
from tidings.model.limits import MAX_FRAME_BYTES
from tidings.security.gate import Gate
from tidings.security.notices import SignedNotice
from tidings.security.records import TopicRecord
from tidings.security.replay import Latest
from tidings.security.revocation import Update

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

TOGETHER = 64  # records or notices in one message
_ROOM = MAX_FRAME_BYTES - 4_096  # for an update on the wire


class _State(msgspec.Struct, frozen=True, array_like=True):
    topics: list[bytes]
    notices: list[bytes]
    revocations: bytes | None
    latest: list[Latest]
    floor: int
    floors: dict[str, int] = {}


class Assurance:
    def __init__(self, engine: "Engine", gate: Gate) -> None:
        self._engine, self.gate, self._credentials = engine, gate, gate.credentials
        self.confines = Confines(gate.credentials)
        self._version = gate.credentials.version  # the topics up to here have been told
        self._lists: dict[str, int] = {}  # neighbour -> how many revocations it has
        self._reminded: set[tuple[str, bytes]] = set()  # neighbours, and the topics that they let something pass of

    # By the driver

    def learn(self, operation: Learn) -> list[Effect]:
        return self._by_driver(self._learn, operation.record)

    def heed(self, operation: Heed) -> list[Effect]:
        return self._by_driver(self._heed, operation.notice)

    def revoke(self, operation: Revoke) -> list[Effect]:
        return self._by_driver(self._revoke, operation.update)

    def _by_driver(self, take: Callable[[bytes, str], list[Effect]], data: bytes) -> list[Effect]:
        """It is in the driver's own journal already."""
        try:
            effects = take(data, "")
        except SecurityError as error:
            return [Reject("admit", error.reason)]
        return [one for one in effects if not isinstance(one, Learnt)]

    # By neighbours

    def take_topics(self, told: TellTopics, sender: str) -> list[Effect]:
        return self._by_neighbour(self._learn, told.records, sender)

    def take_notices(self, told: TellNotices, sender: str) -> list[Effect]:
        return self._by_neighbour(self._heed, told.notices, sender)

    def take_revocations(self, told: TellRevocations, sender: str) -> list[Effect]:
        return self._by_neighbour(self._revoke, [told.update], sender)

    def take_question(self, asked: AskRevocations, sender: str) -> list[Effect]:
        self._lists[sender] = asked.version
        head = self._credentials.revocations.head
        if head is None or (head.version, head.issued) <= (asked.version, asked.issued):
            return []
        return self._tell_list(sender)

    def _by_neighbour(
        self, take: Callable[[bytes, str], list[Effect]], told: Iterable[bytes], sender: str
    ) -> list[Effect]:
        effects: list[Effect] = []
        for data in told:
            try:
                effects += take(data, sender)
            except SecurityError:
                self.gate.refused["told"] += 1
        return effects

    # Links

    def joined(self, neighbour: str) -> list[Effect]:
        """A new neighbour is told all, and asked for the revocations that are not known here."""
        credentials = self._credentials
        topics = [one.data for one in credentials.topics.values()]
        notices = [one.data for one in credentials.notices.values()]
        return [
            Send(neighbour, self._question()),
            *(Send(neighbour, TellTopics(piece)) for piece in _pieces(topics)),
            *(Send(neighbour, TellNotices(piece)) for piece in _pieces(notices)),
        ]

    def left(self, neighbour: str) -> None:
        self._lists.pop(neighbour, None)
        self._reminded = {one for one in self._reminded if one[0] != neighbour}

    def remind(self, neighbour: str, event: Event) -> list[Effect]:
        """The neighbour has let an event pass that has no token: it does not know the topic. Told once for each."""
        record = self.gate.topics.of(event.subject, event.attributes)
        if record is None or (neighbour, record.digest) in self._reminded:
            return []
        self._reminded.add((neighbour, record.digest))
        return [Send(neighbour, TellTopics((record.data,)))]

    def news(self, sender: str = "") -> list[Effect]:
        """Topics that were learnt since this was asked last, from a record or from a token that was seen."""
        many = self._credentials.version - self._version
        if not many:
            return []
        self._version += many
        newest = list(islice(reversed(self._credentials.topics.values()), many))  # the one learnt last is the last
        new = [one.data for one in reversed(newest)]
        effects: list[Effect] = [Learnt(Learn(data)) for data in new]
        for name in self._others(sender):
            effects += (Send(name, TellTopics(piece)) for piece in _pieces(new))
        return effects

    # What the above is made of

    def _learn(self, data: bytes, sender: str) -> list[Effect]:
        self._credentials.learn(TopicRecord(data), self._engine.now)
        return self.news(sender)

    def _heed(self, data: bytes, sender: str) -> list[Effect]:
        if not self._credentials.heed(SignedNotice(data), self._engine.now):
            return []
        told = TellNotices((data,))
        return [Learnt(Heed(data)), *(Send(name, told) for name in self._others(sender))]

    def _revoke(self, data: bytes, sender: str) -> list[Effect]:
        known, before = self._credentials.revocations, self._credentials.revocations.head
        version, update = known.version, Update.read(data)
        if update.after > version and sender:
            return [Send(sender, self._question())]  # what is between is missing
        self._credentials.revoke(update)
        if sender:
            self._lists[sender] = max(self._lists.get(sender, 0), update.after + len(update.entries))
        new = known.since(version)
        if known.head == before or new is None:
            return []
        effects: list[Effect] = [Learnt(Revoke(new.data))]
        for name in self._others(sender):
            effects += self._tell_list(name)
        return effects

    def _tell_list(self, neighbour: str) -> list[Effect]:
        known = self._credentials.revocations
        update = known.since(self._lists.get(neighbour, 0))
        if update is None:
            return []
        if len(update.data) > _ROOM:
            return [Log(f"the list of revocations is too long to be told to {neighbour}: give it to that one by hand")]
        self._lists[neighbour] = known.version
        return [Send(neighbour, TellRevocations(update.data))]

    def _question(self) -> AskRevocations:
        known = self._credentials.revocations
        return AskRevocations(known.version, 0 if known.head is None else known.head.issued)

    def _others(self, sender: str) -> list[str]:
        return [name for name in self._engine.neighbours if name != sender]

    # What outlives the process

    def state(self) -> bytes:
        credentials, ingress = self._credentials, self.gate.ingress
        update = credentials.revocations.since(0)
        return msgspec.msgpack.encode(
            _State(
                [one.data for one in credentials.topics.values()],
                [one.data for one in credentials.notices.values()],
                None if update is None else update.data,
                ingress.state(),
                ingress.floor,
                ingress.floors,
            )
        )

    def restore(self, data: bytes) -> None:
        said = msgspec.msgpack.decode(data, type=_State)
        self._credentials.recall(
            map(TopicRecord, said.topics),
            map(SignedNotice, said.notices),
            None if said.revocations is None else Update.read(said.revocations),
        )
        self.gate.ingress.restore(said.latest, said.floor, said.floors)
        self._version = self._credentials.version

    def recall(self, operation: Learn | Heed | Revoke) -> None:
        """What was accepted before a restart."""
        match operation:
            case Learn(record):
                self._credentials.recall([TopicRecord(record)], (), None)
            case Heed(notice):
                self._credentials.recall((), [SignedNotice(notice)], None)
            case Revoke(update):
                self._credentials.recall((), (), Update.read(update))
        self._version = self._credentials.version

    def recall_event(self, event: Event, accepted: int) -> None:
        """An event that was accepted before a restart must not be accepted again, and its token tells of a topic."""
        try:
            self.gate.recall(event)
            if event.token is not None:
                self._credentials.token(event.token, accepted)
        except SecurityError:
            self.gate.refused["recalled"] += 1
        self._version = self._credentials.version


def _pieces(told: Sequence[bytes]) -> list[tuple[bytes, ...]]:
    return [tuple(told[start : start + TOGETHER]) for start in range(0, len(told), TOGETHER)]
