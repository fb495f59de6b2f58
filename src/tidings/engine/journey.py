"""What a publication carries from broker to broker beside the event itself."""

import msgspec

from tidings.model.notification import Trace
from tidings.model.values import Value
from tidings.routing.bloom import Bloom


class Shape(msgspec.Struct, frozen=True, array_like=True):
    """What rules have decided for the copy of a publication: for all who get it, or for one subscription."""

    blocked: bool = False
    removed: frozenset[str] = frozenset()
    added: tuple[tuple[str, Value], ...] = ()
    trace: tuple[Trace, ...] = ()
    payload: bytes | None = None  # after a conversion; None: the event's own

    @property
    def is_plain(self) -> bool:
        return self is PLAIN or self == PLAIN


PLAIN = Shape()
ABROAD = ""  # no broker has this name


class Route(msgspec.Struct, frozen=True, array_like=True):
    """How a publication finds its way: the broker where it was published, and the network as that broker knew it.

    `flood`: it goes everywhere, since tables are not to be relied on. `unpruned`: it goes everywhere in the tree of its
    source, since subscriptions may be on their way there. `context` and `audience` are for the strategy spcf: which
    context its publisher has, and which contexts of subscribers it is for (None: it is for all). `withheld` are names
    of the publisher's context that stayed behind, since nobody on the way has asked for them.

    `round`: 0 when it is sent for the first time, later the time at which it is sent again. `only` are the brokers that
    deliver it then; all others just pass it on. `ABROAD` among them stands for all other sub-overlays. `without` are
    brokers that do not deliver it, since they will get it again, in order. `whose`: it is for the durable subscriptions
    of these clients alone, which have come from a broker that is gone.
    """

    source: str = ""
    digest: str = ""
    flood: bool = False
    unpruned: bool = False
    context: bytes = b""
    audience: Bloom | None = None
    withheld: tuple[str, ...] = ()
    round: int = 0
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    whose: tuple[str, ...] = ()

    def is_delivered_at(self, broker: str) -> bool:
        return (not self.only or broker in self.only) and broker not in self.without


Version = tuple[int, int]


class Way(msgspec.Struct, frozen=True, array_like=True):
    """How a filter or a context came: from which broker's client, in which version, in which network.

    A version is the session in which the client said it, wherever it was, and a number of its broker's: the newest
    wins. What is told under the digest of another network is not taken: it is told again. `scoped`: it stands for its
    subscriber alone, whose context is known here. `context` names the subscriber's context (spcf).
    """

    origin: str
    version: Version
    digest: str
    scoped: bool = False
    context: bytes = b""


class Journey(msgspec.Struct, frozen=True):
    """`common` holds for every subscription behind the link, `own` for single ones, by their ids.

    `policy` is the policy that is attached, once the ingress broker has let it inherit; `meta` marks an event that a
    broker made itself, and that causes no others.
    """

    policy: str | None = None
    meta: bool = False
    common: Shape = PLAIN
    own: dict[str, Shape] = {}
    route: Route = Route()


NEW = Journey()
META = Journey(meta=True)
