"""Sealing and decryption for those clients of a hub that are members of secure topics."""

from typing import TYPE_CHECKING, Protocol

import msgspec

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.policy.client_conversion import convert_for_client

if TYPE_CHECKING:
    from tidings.security.member import OpenedEvent
    from tidings.security.tokens.token import Token


class SealingMember(Protocol):
    """What a hub needs of a `tidings.security.Member`: to seal events and to decrypt notifications."""

    @property
    def name(self) -> str: ...

    def token(self, topic: bytes) -> "Token | None":
        """Return the member's token for subscribing to a topic, or None if it has none."""
        ...

    def seal(self, event: Event, now: int, *, required: bool = False) -> Event:
        """Seal the event if it is on a secure topic; otherwise return it unchanged."""
        ...

    def opened(self, event: Event, now: int, *, again: bool = False) -> "OpenedEvent":
        """Verify and decrypt an event."""
        ...


class SecureClients:
    """The members among a hub's clients, by name. The program that created a member fetches its tokens and keys."""

    def __init__(self) -> None:
        self._members: dict[str, SealingMember] = {}

    def put(self, name: str, member: SealingMember) -> None:
        """Register the member that acts for the client of that name."""
        if member.name != name:
            raise InvalidValueError(f"member: is {member.name}, and the client is {name}")
        self._members[name] = member

    def forget(self, name: str) -> None:
        """Remove the member of that client."""
        self._members.pop(name, None)

    def token(self, name: str, topic: bytes) -> bytes | None:
        """Return the client's token for subscribing to a topic, or None if it has none."""
        member = self._members.get(name)
        token = None if member is None else member.token(topic)
        return None if token is None else token.data

    def seal(self, event: Event, now: int, *, required: bool = False) -> Event:
        """Seal the event if its publisher is a member and it is on a secure topic; otherwise return it unchanged.

        Raises:
            SecurityError: The member lacks the token or the key, or with `required` the event is on no secure topic.
            InvalidValueError: With `required`, the publisher is no member.
        """
        member = self._members.get(event.publisher)
        if member is None and required:
            raise InvalidValueError(f"sealed: {event.publisher} is no member, and cannot seal events")
        return event if member is None else member.seal(event, now, required=required)

    def decrypt(self, notification: Notification, policy: str | None) -> Notification | None:
        """Return the notification decrypted for its subscriber, or None if it cannot be decrypted.

        A subscriber that is no member gets a sealed event unchanged.
        """
        member = self._members.get(notification.subscriber)
        if member is None or notification.event.signature is None:
            return notification
        try:
            # `again`: ids deduplicate already.
            event, added = member.opened(notification.event, notification.event.timestamp, again=True)
        except SecurityError:
            return None
        decrypted = msgspec.structs.replace(
            notification, event=event, attributes=event.attributes, payload=event.payload, added=added
        )
        return decrypted if policy is None else convert_for_client(decrypted, policy)
