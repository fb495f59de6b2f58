"""What a client has to know to use secure topics, beyond who it is."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.security.credentials import Credentials
from tidings.security.exchange import Service
from tidings.security.identity import Identity
from tidings.security.member import Member
from tidings.security.records import TopicRecord
from tidings.security.revocation import Update

_Read = TypeVar("_Read")
Answerer = Callable[[str], str | Awaitable[str]]


class Security(msgspec.Struct, frozen=True):
    """Services, topics and the list of revocations may each be a value, or the file of one. What is not given is found:
    services at discovery nodes, the list and the topic of an event that was refused by the broker.

    A client that knows of a topic beforehand never sends anything on it in the clear; one that learns of it when its
    broker refuses an event has shown that event to its broker.
    """

    services: tuple[Service | str | Path, ...] = ()  # of key management centres
    topics: tuple[TopicRecord | str | Path, ...] = ()
    revocations: Update | str | Path | None = None
    overlay: str = "tidings"
    finds: str | None = None  # a query for topics at discovery nodes, such as `*`, with which the client begins
    answer: Answerer | None = None  # to the queries that were agreed upon with a centre
    wait: float = 0.0  # seconds since `connect`, in which services that are not there yet are asked again

    def member(self, identity: Identity) -> Member:
        """An entity that knows what is given here."""
        credentials = Credentials(identity.anchor, self.overlay)
        if self.revocations is not None:
            credentials.revoke(_read(self.revocations, Update, Update.read))
        for one in self.topics:
            credentials.learn(_read(one, TopicRecord, TopicRecord), now())
        return Member(identity, credentials)

    def read_services(self) -> list[Service]:
        return [_read(one, Service, Service) for one in self.services]


def _read(given: object, kind: type[_Read], reader: Callable[[bytes], _Read]) -> _Read:
    if isinstance(given, kind):
        return given
    if not isinstance(given, str | Path):
        raise InvalidValueError(f"security: a {kind.__name__} or the file of one, not {type(given).__name__}")
    try:
        return reader(Path(given).read_bytes())
    except OSError as error:
        raise InvalidValueError(f"security: {given}: {error.strerror or error}") from None


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000
