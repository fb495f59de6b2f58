"""What clients and brokers of a world hold of secure topics: certificates, tokens and keys are made outside of it."""

from typing import Protocol

from tidings.model.event import Event
from tidings.security.gate import Gate


class Secrecy(Protocol):
    begins: int  # microseconds: the time at which the world begins; certificates and tokens are valid then

    def gate(self, broker: str) -> Gate:
        """A new one, as a broker has it that has just been set up."""
        ...

    def token(self, client: str) -> bytes | None:
        """What a client subscribes with; None: it holds none."""
        ...

    def sealed(self, event: Event) -> Event:
        """The event as its publisher publishes it: sealed, if it is on a secure topic and its publisher may."""
        ...
