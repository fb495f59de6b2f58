"""Gossip about secure topics: brokers send each other topic records, key management notices and revocations.

All of it is signed, so a lying neighbour changes nothing. What is new goes on to all other neighbours; what is known
already goes no further. A neighbour gets only the revocations that it lacks.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice

import msgspec

from tidings.engine.effects import Effect, LogMessage, Reject, SecurityNewsLearnt, Send
from tidings.engine.operations import (
    ApplyNotice,
    AskRevocations,
    LearnTopic,
    Revoke,
    TellNotices,
    TellRevocations,
    TellTopics,
)
from tidings.engine.security.token_requirements import TokenRequirements
from tidings.model.errors import SecurityError
from tidings.model.event import Event
from tidings.model.limits import MAX_FRAME_BYTES
from tidings.security.ca.revocation import RevocationUpdate
from tidings.security.gate import Gate
from tidings.security.sealing.replay import LatestEvent
from tidings.security.tokens.notices import SignedNotice
from tidings.security.topic_record import TopicRecord

_Apply = Callable[[bytes, str, int], list[Effect]]  # applies data of a sender at a time
TOGETHER = 64  # records or notices in one message
_ROOM = MAX_FRAME_BYTES - 4_096  # bytes left for an update in a frame


class _State(msgspec.Struct, frozen=True, array_like=True):
    topics: list[bytes]
    notices: list[bytes]
    revocations: bytes | None
    latest: list[LatestEvent]
    floor: int
    floors: dict[str, int] = {}


class TopicGossip:
    """Applies security operations of the driver and of neighbours, and forwards what is new.

    Args:
        neighbours: The neighbours that are linked at any time.
        gate: The broker's gate.
    """

    def __init__(self, neighbours: Collection[str], gate: Gate) -> None:
        self._neighbours, self.gate, self._credentials = neighbours, gate, gate.credentials
        self.token_requirements = TokenRequirements(gate.credentials)
        self._version = gate.credentials.version  # topics up to this version have been sent
        self._lists: dict[str, int] = {}  # neighbour -> how many revocations it has
        self._reminded: set[tuple[str, bytes]] = set()  # neighbours, and the topics they were reminded of

    # From the driver

    def learn(self, operation: LearnTopic, now: int) -> list[Effect]:
        """Apply a topic record of the driver."""
        return self._by_driver(self._learn, operation.record, now)

    def heed(self, operation: ApplyNotice, now: int) -> list[Effect]:
        """Apply a key management notice of the driver."""
        return self._by_driver(self._heed, operation.notice, now)

    def revoke(self, operation: Revoke, now: int) -> list[Effect]:
        """Apply a revocation update of the driver."""
        return self._by_driver(self._revoke, operation.update, now)

    def _by_driver(self, take: _Apply, data: bytes, now: int) -> list[Effect]:
        """Apply data of the driver, which has it in its journal already."""
        try:
            effects = take(data, "", now)
        except SecurityError as error:
            return [Reject("admit", error.reason)]
        return [effect for effect in effects if not isinstance(effect, SecurityNewsLearnt)]

    # From neighbours

    def take_topics(self, told: TellTopics, sender: str, now: int) -> list[Effect]:
        """Apply topic records of a neighbour."""
        return self._by_neighbour(self._learn, told.records, sender, now)

    def take_notices(self, told: TellNotices, sender: str, now: int) -> list[Effect]:
        """Apply key management notices of a neighbour."""
        return self._by_neighbour(self._heed, told.notices, sender, now)

    def take_revocations(self, told: TellRevocations, sender: str, now: int) -> list[Effect]:
        """Apply a revocation update of a neighbour."""
        return self._by_neighbour(self._revoke, [told.update], sender, now)

    def take_question(self, asked: AskRevocations, sender: str) -> list[Effect]:
        """Send a neighbour the revocations that it lacks."""
        self._lists[sender] = asked.version
        head = self._credentials.revocations.head
        if head is None or (head.version, head.issued) <= (asked.version, asked.issued):
            return []
        return self._tell_list(sender)

    def _by_neighbour(self, take: _Apply, told: Iterable[bytes], sender: str, now: int) -> list[Effect]:
        effects: list[Effect] = []
        for data in told:
            try:
                effects += take(data, sender, now)
            except SecurityError:
                self.gate.refused["told"] += 1
        return effects

    # Links

    def joined(self, neighbour: str) -> list[Effect]:
        """Send a new neighbour all topics and notices, and ask for the revocations that this broker lacks."""
        credentials = self._credentials
        topics = [record.data for record in credentials.topics.values()]
        notices = [notice.data for notice in credentials.notices.values()]
        return [
            Send(neighbour, self._question()),
            *(Send(neighbour, TellTopics(piece)) for piece in _pieces(topics)),
            *(Send(neighbour, TellNotices(piece)) for piece in _pieces(notices)),
        ]

    def left(self, neighbour: str) -> None:
        """Forget what a neighbour has."""
        self._lists.pop(neighbour, None)
        self._reminded = {reminder for reminder in self._reminded if reminder[0] != neighbour}

    def remind(self, neighbour: str, event: Event) -> list[Effect]:
        """Send a neighbour the topic of an unsealed event that it should have refused; once for each topic."""
        record = self.gate.topics.of(event.subject, event.attributes)
        if record is None or (neighbour, record.digest) in self._reminded:
            return []
        self._reminded.add((neighbour, record.digest))
        return [Send(neighbour, TellTopics((record.data,)))]

    def news(self, sender: str = "") -> list[Effect]:
        """Send the topics learnt since the last call, from records or tokens, to all neighbours but the sender."""
        many = self._credentials.version - self._version
        if not many:
            return []
        self._version += many
        newest = list(islice(reversed(self._credentials.topics.values()), many))  # in the order of learning
        new = [record.data for record in reversed(newest)]
        effects: list[Effect] = [SecurityNewsLearnt(LearnTopic(data)) for data in new]
        for name in self._others(sender):
            effects += (Send(name, TellTopics(piece)) for piece in _pieces(new))
        return effects

    # Shared

    def _learn(self, data: bytes, sender: str, now: int) -> list[Effect]:
        self._credentials.learn(TopicRecord(data), now)
        return self.news(sender)

    def _heed(self, data: bytes, sender: str, now: int) -> list[Effect]:
        if not self._credentials.heed(SignedNotice(data), now):
            return []
        told = TellNotices((data,))
        return [SecurityNewsLearnt(ApplyNotice(data)), *(Send(name, told) for name in self._others(sender))]

    def _revoke(self, data: bytes, sender: str, _: int) -> list[Effect]:
        known, before = self._credentials.revocations, self._credentials.revocations.head
        version, update = known.version, RevocationUpdate.read(data)
        if update.after > version and sender:
            return [Send(sender, self._question())]  # entries between are missing
        self._credentials.revoke(update)
        if sender:
            self._lists[sender] = max(self._lists.get(sender, 0), update.after + len(update.entries))
        new = known.since(version)
        if known.head == before or new is None:
            return []
        effects: list[Effect] = [SecurityNewsLearnt(Revoke(new.data))]
        for name in self._others(sender):
            effects += self._tell_list(name)
        return effects

    def _tell_list(self, neighbour: str) -> list[Effect]:
        known = self._credentials.revocations
        update = known.since(self._lists.get(neighbour, 0))
        if update is None:
            return []
        if len(update.data) > _ROOM:
            return [
                LogMessage(
                    f"the list of revocations is too long to be told to {neighbour}: give it to that one by hand"
                )
            ]
        self._lists[neighbour] = known.version
        return [Send(neighbour, TellRevocations(update.data))]

    def _question(self) -> AskRevocations:
        known = self._credentials.revocations
        return AskRevocations(known.version, 0 if known.head is None else known.head.issued)

    def _others(self, sender: str) -> list[str]:
        return [name for name in self._neighbours if name != sender]

    # Across restarts

    def state(self) -> bytes:
        """Return the security state as bytes, for snapshots."""
        credentials, ingress = self._credentials, self.gate.ingress
        update = credentials.revocations.since(0)
        return msgspec.msgpack.encode(
            _State(
                [record.data for record in credentials.topics.values()],
                [notice.data for notice in credentials.notices.values()],
                None if update is None else update.data,
                ingress.state(),
                ingress.floor,
                ingress.floors,
            )
        )

    def restore(self, data: bytes) -> None:
        """Load a state that `state` returned."""
        said = msgspec.msgpack.decode(data, type=_State)
        self._credentials.recall(
            map(TopicRecord, said.topics),
            map(SignedNotice, said.notices),
            None if said.revocations is None else RevocationUpdate.read(said.revocations),
        )
        self.gate.ingress.restore(said.latest, said.floor, said.floors)
        self._version = self._credentials.version

    def recall(self, operation: LearnTopic | ApplyNotice | Revoke) -> None:
        """Apply a security operation that was verified before a restart, without verifying it again."""
        match operation:
            case LearnTopic(record):
                self._credentials.recall([TopicRecord(record)], (), None)
            case ApplyNotice(notice):
                self._credentials.recall((), [SignedNotice(notice)], None)
            case Revoke(update):
                self._credentials.recall((), (), RevocationUpdate.read(update))
        self._version = self._credentials.version

    def recall_event(self, event: Event, accepted: int) -> None:
        """Remember an event accepted before a restart, so that a replay of it is refused; learn its token's topic."""
        try:
            self.gate.recall(event)
            if event.token is not None:
                self._credentials.token(event.token, accepted)
        except SecurityError:
            self.gate.refused["recalled"] += 1
        self._version = self._credentials.version


def _pieces(told: Sequence[bytes]) -> list[tuple[bytes, ...]]:
    return [tuple(told[start : start + TOGETHER]) for start in range(0, len(told), TOGETHER)]
