"""What is asked of a discovery node, and what it answers: the bodies of `exchange`'s questions and answers."""

import msgspec

TOPIC = "tdn"  # where all discovery nodes listen; each has one of its own for sealed questions
ASK, REPLY_TO = "ask", "reply_to"  # attributes of what is asked there in the clear
HELLO = "hello"  # who is there? Each node answers with its service
NEWS = "news"  # of one node to the others: it has learnt something

# Kinds of sealed questions
FIND, ADVERTISE, WITHDRAW, REPLICATE = "find", "advertise", "withdraw", "replicate"

Key = tuple[bytes, str]  # of an advertisement: its id, and its owner's name. The same at every node


class Finds(msgspec.Struct, frozen=True, array_like=True):
    """`topics` is a query; `centre`, the fingerprint of a key management centre's certificate, finds that one.
    `revocations`: so many entries of the list are known to the asker. `after`: what comes behind that one, the last
    of the page before; it need not be there any more, and any node can go on."""

    topics: str | None = None
    centre: bytes | None = None
    revocations: int = 0
    after: Key | None = None


class Found(msgspec.Struct, frozen=True, array_like=True):
    """What the asker may find, as its owners have signed it: topics, and the centres that count for them, a page of
    them in the order of their keys. `more`: there was no room for all; ask again, after the last. `revocations` is what
    the asker lacks of the list."""

    advertised: tuple[bytes, ...]
    more: bool = False
    revocations: bytes | None = None


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """An advertisement as discovery nodes keep it, and tell it each other. `since`: its owner has the topic from then
    on, without a break; `era` is the version after which that break was."""

    data: bytes
    era: int
    since: int


class Replicates(msgspec.Struct, frozen=True, array_like=True):
    """What has changed at a node after so many changes; these were counted by that `instance` of it."""

    instance: bytes = b""
    after: int = 0
    revocations: int = 0


class Changes(msgspec.Struct, frozen=True, array_like=True):
    """`more`: ask again after `number`."""

    instance: bytes
    number: int
    kept: tuple[Kept, ...]
    more: bool = False
    revocations: bytes | None = None
