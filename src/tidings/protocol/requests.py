"""Requests of a client to its broker. Each has a number, chosen by the client, which the broker's answer repeats."""

from typing import Any, Literal

import msgspec

from tidings.protocol.events import Values

# MessagePack: the header size of an array by its first byte, and the size of an integer after its first byte.
_ARRAYS = {**dict.fromkeys(range(0x91, 0xA0), 1), 0xDC: 3, 0xDD: 5}
_INTEGERS = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_SIGNED = 0xD0


class SubscribeRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Add a subscription."""

    request: int
    id: str
    content: str = ""
    publishers: str | None = None
    policy: str | None = None
    durable: str | None = None
    notify: Literal["subscription", "client"] = "subscription"
    subject: str | None = None
    structure: str | None = None  # JSON object with subject, versions, names, absent
    limit: int | None = None  # notifications that may wait at the broker; if durable: that may be unacknowledged
    token: bytes | None = None  # the subscriber's token for a secure topic
    proof: bytes | None = None  # the token holder's signature over the bytes of `signed_request_bytes`


class UnsubscribeRequest(msgspec.Struct, frozen=True, array_like=True):
    """Remove a subscription."""

    request: int
    id: str
    policy: str | None = None


class AdvertiseRequest(msgspec.Struct, frozen=True, array_like=True):
    """Add an advertisement."""

    request: int
    id: str
    content: str = ""
    publisher_context: str | tuple[str, ...] = ()
    subscriber_context: str | tuple[str, ...] = ()
    policy: str | None = None


class AdvertiseAll(AdvertiseRequest, frozen=True, array_like=True):
    """An `AdvertiseRequest` with one more element: the publisher offers all names of its context.

    A broker decodes both kinds as this class. An older broker ignores the element; it sees the empty
    `publisher_context`, takes it for an advertisement that offers no names, and so reveals nothing.
    """

    publisher_context_all: bool = False


class UnadvertiseRequest(msgspec.Struct, frozen=True, array_like=True):
    """Remove an advertisement."""

    request: int
    id: str
    policy: str | None = None


class SetContextRequest(msgspec.Struct, frozen=True, array_like=True):
    """Set the client's own context, or the context of another client `of`, which must have allowed it."""

    request: int
    context: Values
    of: str | None = None


class DelegateContextRequest(msgspec.Struct, frozen=True, array_like=True):
    """Allow another client to set this client's context, or end the permission."""

    request: int
    other: str
    allowed: bool = True


class SetPolicyRequest(msgspec.Struct, frozen=True, array_like=True):
    """Set, or with None remove, the policy of a subscription or advertisement."""

    request: int
    id: str
    policy: str | None


class DefineSchemaRequest(msgspec.Struct, frozen=True, array_like=True):
    """Define a subject's schema, by the attributes that each version added."""

    request: int
    subject: str
    versions: tuple[dict[str, str], ...]


class AcknowledgeRequest(msgspec.Struct, frozen=True, array_like=True):
    """Acknowledge events of a durable subscription: the broker does not deliver them again. It sends no answer."""

    subscription: str
    events: tuple[bytes, ...]


class QueryRequest(msgspec.Struct, frozen=True, array_like=True):
    """A query, which changes nothing. `about` has the arguments of the query."""

    request: int
    question: str
    about: dict[str, Any] = {}


Request = (
    SubscribeRequest
    | UnsubscribeRequest
    | AdvertiseRequest
    | UnadvertiseRequest
    | SetContextRequest
    | DelegateContextRequest
    | SetPolicyRequest
    | DefineSchemaRequest
    | QueryRequest
)


def request_of(body: bytes, begin: int = 0) -> int:
    """Return the number of a request: the first element of the MessagePack array at `begin`; 0 if there is none.

    The rest is not decoded, so that the broker can answer a request whose body is invalid by its number.
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


def signed_request_bytes(request: SubscribeRequest, broker: str) -> bytes:
    """Return the bytes that a subscriber signs to prove that it holds its token: the request and the broker's name.

    The request number is left out because it has no meaning for the proof.
    """
    return _ENCODER.encode((broker, msgspec.structs.replace(request, request=0, proof=None)))


_ENCODER = msgspec.msgpack.Encoder()
