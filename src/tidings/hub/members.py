"""Members among the clients of a hub: what they publish on secure topics is sealed, and what they take is opened."""

from typing import TYPE_CHECKING

import msgspec

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.policy.conversion import converted

if TYPE_CHECKING:
    from tidings.security.member import Member


class Members:
    """By their names. Their tokens and keys are for who has made them to look after."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}

    def put(self, name: str, member: "Member") -> None:
        if member.name != name:
            raise InvalidValueError(f"member: is {member.name}, and the client is {name}")
        self._members[name] = member

    def forget(self, name: str) -> None:
        self._members.pop(name, None)

    def token(self, name: str, topic: bytes) -> bytes | None:
        """With which that client may subscribe to a topic, if it has one."""
        member = self._members.get(name)
        found = None if member is None else member.token(topic)
        return None if found is None else found.data

    def sealed(self, event: Event, now: int) -> Event:
        """As it goes: of a member on a secure topic, sealed; a `SecurityError` says what is missing for that."""
        member = self._members.get(event.publisher)
        return event if member is None else member.seal(event, now)

    def opened(self, note: Notification, policy: str | None) -> Notification | None:
        """As its subscriber gets it, None if that cannot be opened. Who is no member gets what is sealed as it is."""
        member = self._members.get(note.subscriber)
        if member is None or note.event.signature is None:
            return note
        try:
            event, added = member.opened(note.event, note.event.timestamp, again=True)  # what came is known by its id
        except SecurityError:
            return None
        made = msgspec.structs.replace(
            note, event=event, attributes=event.attributes, payload=event.payload, added=added
        )
        return made if policy is None else converted(made, policy)
