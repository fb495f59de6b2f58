"""What a routing strategy is: who among the neighbours should have a subscription, and over which link an event goes.

A strategy decides, and does nothing: the engine tells neighbours what follows, under the policies that it meets.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import ClassVar, Protocol

from tidings.model.filter import ContextFilter
from tidings.model.subscription import Subscription
from tidings.routing.announced import Announced
from tidings.routing.offers import Offers
from tidings.routing.topology import Topology


class Placed(Protocol):
    """A subscription in a broker's table."""

    value: Subscription
    hop: str  # the client or the neighbour that it came from
    origin: str  # the broker whose client has it
    bound: ContextFilter | None  # its `publishers`, with the subscriber's context in the place of `this.`


class Around(Protocol):
    """What a broker knows of the overlay."""

    name: str
    offers: Offers  # advertisements, by the neighbour that they came from
    announced: Announced  # contexts, by the broker whose clients have them

    @property
    def topology(self) -> Topology: ...


class Strategy(ABC):
    """What the strategies share; each is a file of its own that says where it comes from."""

    name: ClassVar[str]
    phases: ClassVar[int] = 1  # how often all have to wait for all before tables are complete
    covers: ClassVar[bool] = False  # whether a subscription may stand for those that it covers
    binds: ClassVar[bool] = False  # whether subscriptions are sent with the subscriber's context in them
    announces: ClassVar[bool] = False  # whether brokers announce the contexts of their clients
    by_source: ClassVar[bool] = False  # whether events follow the tree of the broker where they were published
    spares_context: ClassVar[bool] = False  # whether a publisher's context goes only as far as it is asked for

    @abstractmethod
    def toward(self, around: Around, one: Placed) -> Mapping[str, bool]:
        """The neighbours that should have the subscription; for each, whether it is judged there by its subscriber's
        context (it is *scoped*)."""

    def link(self, around: Around, one: Placed, topology: Topology, source: str) -> str | None:
        """The neighbour that an event for the subscription goes to next; None if its way does not pass here."""
        return one.hop


def along(tree_neighbours: Collection[str], one: Placed) -> dict[str, bool]:
    """Everywhere on a tree but back."""
    return {name: False for name in tree_neighbours if name != one.hop}
