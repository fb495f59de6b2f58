"""Opening: what a subscriber does to a sealed event. It trusts no broker: everything is checked again."""

from typing import NamedTuple

import msgspec

from tidings.model.errors import SecurityError
from tidings.model.event import Event
from tidings.model.values import Attributes
from tidings.security import envelope
from tidings.security.credentials import Credentials
from tidings.security.envelope import ContentKeys, Seal
from tidings.security.gate import additions
from tidings.security.keys import Keyring
from tidings.security.replay import Window
from tidings.security.signatures import Signatures
from tidings.security.token import Right


class Opened(NamedTuple):
    """`added`: attributes that are not the publisher's, each with the broker that has signed it."""

    event: Event
    added: tuple[tuple[str, str], ...] = ()


class Opener:
    """With the keys that a member holds, and what it knows of topics and revocations."""

    def __init__(self, credentials: Credentials, keyring: Keyring) -> None:
        self.credentials, self.keyring = credentials, keyring
        self._keys = ContentKeys(keyring)
        self._window, self._signatures = Window(), Signatures()

    def open(self, event: Event, now: int, *, again: bool = False) -> Event:
        """The event with its payload readable. `now` is when it was accepted, for what is read from a journal, and
        `again`: it may have been opened before."""
        return self.opened(event, now, again=again).event

    def opened(self, event: Event, now: int, *, again: bool = False) -> Opened:
        """The same, with what of it is not its publisher's."""
        seal = Seal.of(event)
        if event.token is None:
            raise SecurityError("token", "the sealed event has no token")
        self.credentials.revocations.check_fresh(now)
        token = self.credentials.token(event.token, now)
        self.credentials.check_trusted(token, now)
        token.check_use(Right.PUBLISH, now)
        if token.holder.name != event.publisher:
            raise SecurityError("publisher", f"the token is that of {token.holder.name}, not of {event.publisher}")
        if seal.topic != token.topic or not token.template.admits(event.subject, event.attributes):
            raise SecurityError("topic", f"the event is not on {token.template}, which its publisher has a token for")
        added, by = additions(event, seal, self.credentials, now) if seal.additions else ({}, ())
        unsigned = [name for name in event.attributes if "a" + name not in seal.salts and name not in added]
        if unsigned:  # by anybody: they are as good as not there
            signed = {name: value for name, value in event.attributes.items() if name not in unsigned}
            event = msgspec.structs.replace(event, attributes=Attributes.trusted(signed))
        envelope.check_attributes(event, seal, added)
        header = seal.header(event)
        self._signatures.check(envelope.digest_of(header, event.payload), seal, token.key)
        payload = envelope.opened(event, seal, header, self._keys)
        if not again and not self._window.is_new(event.publisher, seal):
            raise SecurityError("replay", "the event came before")
        made = msgspec.structs.replace(event, payload=payload or None, token=None, signature=None)
        if not by:
            return Opened(made)
        return Opened(made, tuple(one for one in by if one[0] in event.attributes and "a" + one[0] not in seal.salts))


def open_sealed(event: Event, opener: Opener, *, now: int | None = None) -> Event:
    """The event with its payload readable, or a `SecurityError`; its own time counts where none is given."""
    return opener.open(event, event.timestamp if now is None else now)
