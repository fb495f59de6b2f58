"""The settings of a client for secure topics, beyond its identity."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.security.ca.identity import Identity
from tidings.security.ca.revocation import RevocationUpdate
from tidings.security.member import Member
from tidings.security.rpc.messages import ServiceRecord
from tidings.security.tokens.credentials import Credentials
from tidings.security.topic_record import TopicRecord

_Read = TypeVar("_Read")
Answerer = Callable[[str], str | Awaitable[str]]


class Security(msgspec.Struct, frozen=True):
    """The services, topics and revocations that a client knows when it connects, and how it finds others.

    Each service, topic or revocation list is a value, or the file of one. If they are not given, the client finds
    services at discovery nodes, gets the revocation list from its broker, and learns of a secure topic when the broker
    refuses an event. A client that knows a topic beforehand never sends an event on it unsealed; one that learns of it
    from the refusal has shown that event to its broker.
    """

    services: tuple[ServiceRecord | str | Path, ...] = ()  # services of key management centres
    topics: tuple[TopicRecord | str | Path, ...] = ()
    revocations: RevocationUpdate | str | Path | None = None
    overlay: str = "tidings"
    finds: str | None = None  # a query for discovery nodes, such as `*`; the client learns its topics on connecting
    answer: Answerer | None = None  # answers the challenges that were agreed upon with a centre
    wait: float = 0.0  # seconds after `connect` during which services that do not answer are retried

    def member(self, identity: Identity) -> Member:
        """Return a member with this identity that knows the topics and revocations of these settings."""
        credentials = Credentials(identity.anchor, self.overlay)
        if self.revocations is not None:
            credentials.revoke(_read(self.revocations, RevocationUpdate, RevocationUpdate.read))
        for topic in self.topics:
            credentials.learn(_read(topic, TopicRecord, TopicRecord), now())
        return Member(identity, credentials)

    def read_services(self) -> list[ServiceRecord]:
        """Return the services of these settings, reading their files."""
        return [_read(service, ServiceRecord, ServiceRecord) for service in self.services]


def _read(value_or_file: object, kind: type[_Read], reader: Callable[[bytes], _Read]) -> _Read:
    if isinstance(value_or_file, kind):
        return value_or_file
    if not isinstance(value_or_file, str | Path):
        raise InvalidValueError(f"security: a {kind.__name__} or the file of one, not {type(value_or_file).__name__}")
    try:
        return reader(Path(value_or_file).read_bytes())
    except OSError as error:
        raise InvalidValueError(f"security: {value_or_file}: {error.strerror or error}") from None


def now() -> int:
    """Return microseconds since 1970."""
    return time.time_ns() // 1000
