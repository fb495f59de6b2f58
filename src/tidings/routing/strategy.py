"""The interface of routing strategies: which neighbours get a subscription, and which link an event takes.

A strategy only decides. The engine sends the messages, and policies may block or change them. A strategy that `binds`
sends filters with the values of its client's context (`bound`): they can then be evaluated where only the other party's
context is known (paper 004, section 3.1.2). A name that the context lacks stays `this.x`, which is NULL everywhere.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import ClassVar, Protocol, TypeVar, cast

import msgspec

from tidings.model.expression import Constant, Expression, OwnContextValue
from tidings.model.filter import ContextFilterValue
from tidings.model.limits import MAX_CACHED_BINDINGS
from tidings.model.subscription import Subscription
from tidings.model.values import Context, Value
from tidings.routing.advertisement_table import AdvertisementTable
from tidings.routing.context_table import ContextTable
from tidings.routing.topology import BrokerGraph


class RoutedSubscription(Protocol):
    """A subscription in a broker's routing table."""

    value: Subscription
    hop: str  # the client or neighbour that sent it
    origin: str  # the broker of its subscriber
    bound_publishers: (
        ContextFilterValue | None
    )  # its `publishers` filter, with the subscriber's context in place of `this.`


class OverlayView(Protocol):
    """What a strategy may see of a broker's knowledge of the overlay."""

    name: str
    offers: AdvertisementTable  # advertisements, by the neighbour that sent them
    announced: ContextTable  # contexts, by the broker of their clients

    @property
    def topology(self) -> BrokerGraph: ...


class Strategy(ABC):
    """The base class of all routing strategies."""

    name: ClassVar[str]
    phases: ClassVar[int] = 1  # how many rounds all brokers take before their tables are complete
    covers: ClassVar[bool] = False  # whether covered subscriptions are left out
    binds: ClassVar[bool] = False  # whether subscriptions are sent with the subscriber's context bound into them
    announces: ClassVar[bool] = False  # whether brokers announce the contexts of their clients
    by_source: ClassVar[bool] = False  # whether events follow the tree of their source broker
    prunes_context: ClassVar[bool] = False  # whether a publisher's context travels only where a subscription needs it

    @abstractmethod
    def subscription_targets(self, overlay: OverlayView, subscription: RoutedSubscription) -> Mapping[str, bool]:
        """Return the neighbours to which the broker must forward the subscription.

        The value for a neighbour says whether brokers there match the subscription with its subscriber's context (it is
        *scoped*).
        """

    def next_hop(
        self, overlay: OverlayView, subscription: RoutedSubscription, topology: BrokerGraph, source: str
    ) -> str | None:
        """Return the neighbour to which an event for the subscription goes next; None if its path avoids this broker.

        Args:
            overlay: What the broker knows of the overlay.
            subscription: The subscription that the event matches.
            topology: The network in which the event is routed.
            source: The broker where the event was published.
        """
        return subscription.hop


def along(tree_neighbours: Collection[str], subscription: RoutedSubscription) -> dict[str, bool]:
    """Return all neighbours in a tree except the one that sent the subscription; none of them matches it scoped."""
    return {name: False for name in tree_neighbours if name != subscription.hop}


_Term = TypeVar("_Term", bound=Expression)


def bound(context_filter: ContextFilterValue, this: Context) -> ContextFilterValue:
    """Return the filter with `this.x` replaced by the values of the context `this`; the same object if none applies."""
    return context_filter if context_filter.own_names.isdisjoint(this) else _bound(context_filter, this)


@lru_cache(MAX_CACHED_BINDINGS, typed=True)  # typed: `ContextFilter` equals its plain base class but has more methods
def _bound(context_filter: ContextFilterValue, this: Context) -> ContextFilterValue:
    return type(context_filter)(_with_values(context_filter.expression, this))


def _with_values(node: _Term, this: Context) -> _Term:
    """Return the tree with `this.x` replaced by constants; a value stays a value and a condition a condition."""
    if isinstance(node, OwnContextValue):
        value: Value | None = this.get(node.name)
        return cast("_Term", node if value is None else Constant(value))
    changes: dict[str, object] = {}
    for name in node.__struct_fields__:
        part = getattr(node, name)
        if isinstance(part, tuple):
            changes[name] = tuple(_with_values(item, this) for item in part)
        elif isinstance(part, msgspec.Struct):
            changes[name] = _with_values(cast("Expression", part), this)
    return msgspec.structs.replace(node, **changes) if changes else node
