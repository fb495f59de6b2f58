"""What a publication carries from broker to broker beside the event itself."""

import msgspec

from tidings.model.notification import Trace
from tidings.model.values import Value


class Shape(msgspec.Struct, frozen=True, array_like=True):
    """What rules have decided for the copy of a publication: for all who get it, or for one subscription."""

    blocked: bool = False
    removed: frozenset[str] = frozenset()
    added: tuple[tuple[str, Value], ...] = ()
    trace: tuple[Trace, ...] = ()
    payload: bytes | None = None  # after a conversion; None: the event's own

    @property
    def is_plain(self) -> bool:
        return self == PLAIN


PLAIN = Shape()


class Journey(msgspec.Struct, frozen=True):
    """`common` holds for every subscription behind the link, `own` for single ones, by their ids.

    `policy` is the policy that is attached, once the ingress broker has let it inherit; `meta` marks an event that a
    broker made itself, and that causes no others.
    """

    policy: str | None = None
    meta: bool = False
    common: Shape = PLAIN
    own: dict[str, Shape] = {}


NEW = Journey()
META = Journey(meta=True)
