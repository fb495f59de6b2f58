"""What a client asks of its broker. Every request has a number of the client's own, by which it is answered."""

from typing import Any, Literal

import msgspec

from tidings.protocol.events import Values


class Subscribe(msgspec.Struct, frozen=True, array_like=True):
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
