"""The handshake: who connects says hello, the broker says welcome or goodbye; then both know how to go on."""

from typing import Literal

import msgspec

VERSION = 1
MAGIC = "tidings"


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The first frame of whoever connects.

    `versions` are those of the protocol that it speaks, the one that it likes best first. `session` rises with each
    connection of that name, wherever. `last_broker` is where a client was connected before, "" if it does not know: a
    program that has just started. An `observer` is a client that only asks questions: it has no context, and routing
    tables do not change when it connects.
    """

    magic: str
    versions: tuple[int, ...]
    role: Literal["client", "broker"]
    name: str
    session: int
    last_broker: str = ""
    cost: int = 1  # of the link, as this side counts it
    program: str = ""  # for the broker's log
    observer: bool = False


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    """The broker's answer. `sequence` is the number of the last event that it knows of this client; `session` and
    `cost` are for another broker. A side from which nothing is heard for `patience` heartbeats is gone."""

    version: int
    broker: str
    session: int
    heartbeat_milliseconds: int
    patience: int
    frame_bytes: int
    in_flight: int  # publications that a client may have under way
    sequence: int = 0
    cost: int = 1
    is_durable: bool = False  # whether this broker has a journal
    told: str = ""  # what a person should know
    nonce: bytes = b""  # of this connection alone, for subscriptions with a token; empty where none are checked


class Bye(msgspec.Struct, frozen=True, array_like=True):
    """The last frame: why the connection ends. `again` tells whether to try again makes sense, now or elsewhere."""

    reason: str
    again: bool = True


class Ping(msgspec.Struct, frozen=True, array_like=True):
    """Answered with a PONG of the same number."""

    number: int = 0


class Bound(msgspec.Struct, frozen=True, array_like=True):
    """In the publications that are sent to me, this number stands for that subject, and bits for its attributes."""

    number: int
    subject: str
    versions: tuple[dict[str, str], ...]  # what each version of the schema added
