"""Messages of the handshake and of connection control: hello, welcome, bye, ping, subject binding, challenge and proof.

The connecting side sends HELLO; the broker answers WELCOME or BYE.
"""

from typing import Literal

import msgspec

VERSION = 1
MAGIC = "tidings"


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The first frame of the connecting side.

    `versions` are the protocol versions that it speaks, in order of preference. `session` rises with each connection
    under this name, at any broker. `last_broker` is the broker to which the client was last connected; "" if it does
    not know, as after a start. An `observer` is a client that only sends queries: it has no context, and its connection
    does not change routing tables.
    """

    magic: str
    versions: tuple[int, ...]
    role: Literal["client", "broker"]
    name: str
    session: int
    last_broker: str = ""
    cost: int = 1  # the cost of the link by this side's configuration
    program: str = ""  # the client program's name, for the broker's log
    observer: bool = False


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    """The broker's answer to `Hello`.

    `sequence` is the number of the last event that the broker knows from this client; `session` and `cost` are for
    another broker. Each side closes the connection if it receives nothing for `patience` heartbeats.
    """

    version: int
    broker: str
    session: int
    heartbeat_milliseconds: int
    patience: int
    frame_bytes: int
    in_flight: int  # publications that a client may have in flight
    sequence: int = 0
    cost: int = 1
    is_durable: bool = False  # whether this broker has a journal
    told: str = ""  # a message for the user
    nonce: bytes = b""  # for this connection's proofs of token possession; empty if the broker checks no tokens


class Bye(msgspec.Struct, frozen=True, array_like=True):
    """The last frame of a connection, with the reason.

    `again` says whether another attempt, at this broker or another one, makes sense.
    """

    reason: str
    again: bool = True


class Ping(msgspec.Struct, frozen=True, array_like=True):
    """A request for a PONG with the same number."""

    number: int = 0


class SubjectBound(msgspec.Struct, frozen=True, array_like=True):
    """The sender binds a subject to a number, for publications that it receives on this connection.

    The bits of the vectors in these publications are positions in the subject's schema.
    """

    number: int
    subject: str
    versions: tuple[dict[str, str], ...]  # the attributes that each version of the schema added


class Challenge(msgspec.Struct, frozen=True, array_like=True):
    """A request to prove membership of a trust group or, without a group, possession of the certificate's key."""

    number: int
    nonce: bytes
    group: str | None = None


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """The answer to the challenge with this number. An empty proof means that the sender has none.

    `nonce` is the prover's own, for the proof of a group.
    """

    number: int
    nonce: bytes = b""
    proof: bytes = b""
