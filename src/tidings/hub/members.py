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

    def sealed(self, event: Event, now: int, *, required: bool = False) -> Event:
        """As it goes: of a member on a secure topic, sealed; a `SecurityError` says what is missing for that. Where a
        seal is `required`, nothing goes in the clear."""
        member = self._members.get(event.publisher)
        if member is None and required:
            raise InvalidValueError(f"sealed: {event.publisher} is no member, and cannot seal events")
        return event if member is None else member.seal(event, now, required=required)

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


def epoch_of(event: Event) -> int | None:
    """The epoch of the key under which an event is sealed; None if it is not, or if its seal cannot be read."""
    if event.signature is None:
        return None
    from tidings.security.envelope import Seal  # cryptography is loaded by those who need it

    try:
        return Seal.of(event).epoch
    except SecurityError:
        return None
