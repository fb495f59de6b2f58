"""What a client asks of its broker. Every request has a number of the client's own, by which it is answered."""

from typing import Any, Literal

import msgspec

from tidings.protocol.events import Values

# In MessagePack: how many bytes an array has in front of its first element, and a number behind its first byte.
_ARRAYS = {**dict.fromkeys(range(0x91, 0xA0), 1), 0xDC: 3, 0xDD: 5}
_INTEGERS = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_SIGNED = 0xD0


class Subscribe(msgspec.Struct, frozen=True, array_like=True, gc=False):
    request: int
    id: str
    content: str = ""
    publishers: str | None = None
    policy: str | None = None
    durable: str | None = None
    notify: Literal["subscription", "client"] = "subscription"
    subject: str | None = None
    structure: str | None = None  # JSON: subject, versions, names, absent
    limit: int | None = None  # notifications that may wait at the broker; of a durable one: that may be unacknowledged
    token: bytes | None = None  # of the subscriber, for a secure topic
    proof: bytes | None = None  # that it is the token's holder who asks: its signature over what is `proved`


class Unsubscribe(msgspec.Struct, frozen=True, array_like=True):
    request: int
    id: str
    policy: str | None = None


class Advertise(msgspec.Struct, frozen=True, array_like=True):
    request: int
    id: str
    content: str = ""
    publisher_context: str | tuple[str, ...] = ()
    subscriber_context: str | tuple[str, ...] = ()
    policy: str | None = None


class AdvertiseAll(Advertise, frozen=True, array_like=True):
    """An `Advertise` with one element more, by which the publisher offers all names of its context.

    A broker reads both kinds as this one. The list in front is empty then: an older broker, which ignores the element,
    takes the advertisement for one that offers no names, and so reveals nothing.
    """

    publisher_context_all: bool = False


class Unadvertise(msgspec.Struct, frozen=True, array_like=True):
    request: int
    id: str
    policy: str | None = None


class SetContext(msgspec.Struct, frozen=True, array_like=True):
    request: int
    context: Values
    of: str | None = None


class Entrust(msgspec.Struct, frozen=True, array_like=True):
    request: int
    other: str
    allowed: bool = True


class SetPolicy(msgspec.Struct, frozen=True, array_like=True):
    request: int
    id: str
    policy: str | None


class Define(msgspec.Struct, frozen=True, array_like=True):
    request: int
    subject: str
    versions: tuple[dict[str, str], ...]


class Acknowledge(msgspec.Struct, frozen=True, array_like=True):
    """Of a durable subscription: these events need not be given again. Not answered."""

    subscription: str
    events: tuple[bytes, ...]


class Ask(msgspec.Struct, frozen=True, array_like=True):
    """A question that changes nothing; `about` is what the question needs to know."""

    request: int
    question: str
    about: dict[str, Any] = {}


Request = Subscribe | Unsubscribe | Advertise | Unadvertise | SetContext | Entrust | SetPolicy | Define | Ask


def request_of(body: bytes, begin: int = 0) -> int:
    """The number by which a request is answered, 0 if there is none: the first thing in the array that begins there.

    It is read without what follows, so that who sends what cannot be read is told which of its requests that was.
    """
    ahead = _ARRAYS.get(body[begin]) if begin < len(body) else None
    if ahead is None or begin + ahead >= len(body):
        return 0
    begin += ahead
    first = body[begin]
    size = _INTEGERS.get(first, 0)
    if not size:
        return first if first < 0x80 else 0
    return int.from_bytes(body[begin + 1 : begin + 1 + size], "big", signed=first >= _SIGNED)


def proved(wanted: Subscribe, broker: str) -> bytes:
    """What a subscriber signs to show that it holds its token: all that it asks for, and of whom. The number is left
    out, as it says nothing."""
    return _ENCODER.encode((broker, msgspec.structs.replace(wanted, request=0, proof=None)))


_ENCODER = msgspec.msgpack.Encoder()
