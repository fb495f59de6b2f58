"""The requests that are sent to a topic discovery node, and its responses.

These are the bodies of the questions and answers in `messages`.
"""

import msgspec

TOPIC = "tdn"  # the service topic of all discovery nodes; each node has its own as well, for sealed questions
ASK, REPLY_TO = "ask", "reply_to"  # attributes of unsealed requests to that topic
HELLO = "hello"  # value of `ASK`: each node answers with its service record
NEWS = "news"  # value of `ASK`: a node tells the others that it has something new

# Kinds of sealed requests
FIND, ADVERTISE, WITHDRAW, REPLICATE = "find", "advertise", "withdraw", "replicate"

Key = tuple[bytes, str]  # identifies a discovery record at every node: its id and its owner's name


class FindRequest(msgspec.Struct, frozen=True, array_like=True):
    """Find topics by a query, or a key management centre by the fingerprint of its certificate (`centre`).

    `revocations` is the number of revocation entries that the asker has. `after` is the last key of the previous
    page; it need not exist any more, and any node can continue.
    """

    topics: str | None = None
    centre: bytes | None = None
    revocations: int = 0
    after: Key | None = None


class FindResponse(msgspec.Struct, frozen=True, array_like=True):
    """One page of the discovery records that the asker may find: topics and their centres, signed by their owners.

    Records are in the order of their keys. If `more` is set, ask again after the last one. `revocations` is the
    update of the revocation list that the asker lacks.
    """

    advertised: tuple[bytes, ...]
    more: bool = False
    revocations: bytes | None = None


class ReplicatedRecord(msgspec.Struct, frozen=True, array_like=True):
    """A discovery record as nodes store and replicate it.

    `since` is the time from which the owner has the topic without interruption. `era` is the version after which
    the last interruption was.
    """

    data: bytes
    era: int
    since: int


class ReplicateRequest(msgspec.Struct, frozen=True, array_like=True):
    """Request the changes after change number `after`, as counted by that `instance` of the node.

    `revocations` is the number of revocation entries that the asker has.
    """

    instance: bytes = b""
    after: int = 0
    revocations: int = 0


class ReplicateResponse(msgspec.Struct, frozen=True, array_like=True):
    """Changed records, up to change number `number` of that `instance`. If `more` is set, ask again after `number`."""

    instance: bytes
    number: int
    kept: tuple[ReplicatedRecord, ...]
    more: bool = False
    revocations: bytes | None = None
