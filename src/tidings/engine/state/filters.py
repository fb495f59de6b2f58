"""Filter entries and tables: a broker's advertisements and subscriptions, with their rules and where they were sent.

There may be very many entries, so they share equal parts (`Placement`, `Ownership`, `FilterRules`), and only entries
that came from a neighbour have the fields of `RemoteFilterEntry`.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from tidings.engine.headers import Version
from tidings.engine.state.filter_rules import NO_RULES, Ruling, StaticProjection, rules_of
from tidings.engine.state.recipients import RecipientColumns
from tidings.model.advertisement import Advertisement
from tidings.model.filter import ContextFilterValue
from tidings.model.limits import MAX_CACHED_PLACES
from tidings.model.schema import Schema
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.policy.ast import Matching, MessageType, RuleOperation
from tidings.policy.evaluation.compiled import CompiledPolicy
from tidings.policy.evaluation.evaluation import RuleSource
from tidings.routing.context_table import ContextSelection

Value = TypeVar("Value", bound=Advertisement | Subscription)
_NO_BROKERS: frozenset[str] = frozenset()


class ContextBinding(NamedTuple):
    """What contexts have made of a subscription; see the properties of `FilterEntry`."""

    bound_publishers: ContextFilterValue | None
    selection: ContextSelection | None
    context: bytes


class FilterEntry(Generic[Value]):
    """A filter of a local client in a broker's table: where it was sent, and its policy rules.

    Filters that came from a neighbour are `RemoteFilterEntry`.

    Args:
        value: The advertisement or subscription.
        hop: The client or neighbour that it came from.
        origin: The broker whose client has it.
        is_own: Whether it is that broker's own.
        governs: Whether its owner's rules may act on others' events.
    """

    __slots__ = (
        *("_arrival", "_number", "_placement", "_rules", "_binding", "_ownership"),
        *("hop", "is_plain", "value"),
    )
    is_client: bool = True
    is_local: bool = True  # from a client or from another sub-overlay, which a broker treats like a client
    digest: str = ""
    senders: frozenset[str] = _NO_BROKERS
    scoped: bool = False
    former_contexts: tuple[tuple[bytes, int], ...] = ()

    def __init__(self, value: Value, hop: str, origin: str, *, is_own: bool, governs: bool) -> None:
        self.value = value
        self.hop = hop  # the client or the neighbour that it came from
        self._ownership = shared_ownership(origin, is_own, governs)
        self._placement = NOWHERE
        self._arrival = self._number = 0
        self._binding: ContextBinding | None = None
        self._rules = NO_RULES
        self.is_plain = False  # a client's, with notifications of its own and no rule on them
        self._update_is_plain()

    @property
    def id(self) -> str:
        return self.value.id

    @property
    def owner(self) -> str:
        value = self.value
        return value.subscriber if isinstance(value, Subscription) else value.publisher

    @property
    def names(self) -> frozenset[str]:
        """The attributes that the filter uses."""
        value = self.value
        names = value.content.names
        if isinstance(value, Subscription) and value.structure is not None:
            return names.union(value.structure.names, value.structure.absent)
        return names

    @property
    def origin(self) -> str:
        """The broker whose client has the filter."""
        return self._ownership.origin

    @origin.setter
    def origin(self, origin: str) -> None:
        self._ownership = shared_ownership(origin, self.is_own, self.governs)

    @property
    def is_own(self) -> bool:
        """Whether the filter is the broker's own."""
        return self._ownership.is_own

    @property
    def governs(self) -> bool:
        """Whether its owner's rules may act on others' events."""
        return self._ownership.governs

    @property
    def bound_publishers(self) -> ContextFilterValue | None:
        """The filter on publishers as it is sent, with the subscriber's context in place of `this.`."""
        if self._binding is None:
            return getattr(self.value, "publishers", None)
        return self._binding.bound_publishers

    @bound_publishers.setter
    def bound_publishers(self, bound: ContextFilterValue | None) -> None:
        if bound is not self.bound_publishers:
            self._binding = ContextBinding(bound, self.selection, self.context)

    @property
    def selection(self) -> ContextSelection | None:
        """Which announced contexts `bound_publishers` selects (strategy spcf)."""
        return None if self._binding is None else self._binding.selection

    @selection.setter
    def selection(self, reach: ContextSelection | None) -> None:
        if reach is not self.selection:
            self._binding = ContextBinding(self.bound_publishers, reach, self.context)

    @property
    def context(self) -> bytes:
        """The id of its subscriber's context (strategy spcf)."""
        return b"" if self._binding is None else self._binding.context

    @context.setter
    def context(self, context: bytes) -> None:
        if context != self.context:
            self._binding = ContextBinding(self.bound_publishers, self.selection, context)

    @property
    def sent_to(self) -> frozenset[str]:
        """The neighbours that have been sent the filter."""
        return self._placement.sent_to

    @sent_to.setter
    def sent_to(self, sent: frozenset[str]) -> None:
        self._placement = shared_placement(sent, self._placement.flooded, self._placement.target_links)

    @property
    def flooded(self) -> frozenset[str]:
        """The neighbours to which a policy rule, not the routing strategy, sends the filter."""
        return self._placement.flooded

    @flooded.setter
    def flooded(self, flooded: frozenset[str]) -> None:
        self._placement = shared_placement(self._placement.sent_to, flooded, self._placement.target_links)

    @property
    def target_links(self) -> Mapping[str, bool]:
        """The neighbours that should have the filter, each with whether it is scoped there."""
        return self._placement.target_links

    @target_links.setter
    def target_links(self, toward: Mapping[str, bool]) -> None:
        self._placement = shared_placement(self._placement.sent_to, self._placement.flooded, toward)

    @property
    def version(self) -> Version:
        """The session of its client and a number of its broker; the newest version wins."""
        return self._arrival, self._number

    @version.setter
    def version(self, version: Version) -> None:
        self._arrival, self._number = version

    @property
    def source(self) -> RuleSource:
        """The source of its owner's rules. Created on demand, because most filters have no rules."""
        kind = "broker" if self.is_own else "subscription" if isinstance(self.value, Subscription) else "advertisement"
        return RuleSource(kind, self.id, self.owner, self.value.content, self.names, self.governs)

    def govern(self, policy: CompiledPolicy | None, *, operator: bool = False) -> None:
        """Replace its owner's policy, or with `operator` the operator's."""
        owners, operators = (self.policy, policy) if operator else (policy, self.operator_policy)
        self._rules = NO_RULES if owners is operators is None else rules_of(owners, operators, self.source)
        self._update_is_plain()

    def _update_is_plain(self) -> None:
        self.is_plain = self._has_own_notifications and not self._rules.on_publications

    @property
    def _has_own_notifications(self) -> bool:
        """Whether it is a local client's subscription that gets notifications of its own."""
        return self.is_client and not self.is_own and getattr(self.value, "notify", "") == "subscription"

    @property
    def policy(self) -> CompiledPolicy | None:
        """The policy that the filter's owner set on it."""
        return self._rules.policy

    @property
    def operator_policy(self) -> CompiledPolicy | None:
        """The policy that this broker's operator set on it."""
        return self._rules.operator_policy

    @property
    def on_publications(self) -> tuple[Ruling, ...]:
        """Its rules on publications that are applied here after matching."""
        return self._rules.on_publications

    @property
    def for_publications(self) -> tuple[Ruling, ...]:
        """Its rules that publications inherit."""
        return self._rules.for_publications

    @property
    def projection(self) -> StaticProjection | None:
        """The fixed projection that its only rule applies to every notification; None if there is none."""
        return self._rules.projection if self._rules.projection is not None and self._has_own_notifications else None

    def rulings(
        self, operation: RuleOperation, message: MessageType, matching: Matching = Matching.AFTER
    ) -> tuple[Ruling, ...]:
        """Return its rules on such messages that are applied here, without those that messages inherit."""
        return self._rules.applied(operation, message, matching)

    def inherited(self, message: MessageType) -> tuple[Ruling, ...]:
        """Return its rules that messages of this type inherit."""
        return self._rules.inherited(message)

    def concerns(self, message: MessageType) -> bool:
        """Whether it has any rule on messages of this type."""
        return self._rules.concern(message)

    def has_one_rule_on(self, message: MessageType) -> bool:
        """Whether it has exactly one rule on messages of this type, which is not inherited."""
        return self._rules.has_one_on(message)


class RemoteFilterEntry(FilterEntry[Value]):
    """A filter that came from a neighbour. With `is_local`, the neighbour is in another sub-overlay."""

    __slots__ = ("_senders", "digest", "former_contexts", "is_local", "scoped")
    is_client = False

    def __init__(
        self, value: Value, hop: str, origin: str, *, is_own: bool, governs: bool, is_local: bool = False
    ) -> None:
        super().__init__(value, hop, origin, is_own=is_own, governs=governs)
        self.is_local = is_local
        self.digest = ""
        self._senders = _NO_BROKERS
        self.scoped = False  # whether it is matched here with its subscriber's context
        self.former_contexts = ()  # ids of former contexts of its subscriber, and until when they count (spcf)

    @property
    def senders(self) -> frozenset[str]:
        """The neighbours that have sent it and not withdrawn it."""
        return self._senders

    @senders.setter
    def senders(self, senders: frozenset[str]) -> None:
        self._senders = shared_brokers(senders)


class FilterTable(Generic[Value]):
    """Filter entries by id and by owner."""

    def __init__(self) -> None:
        self._entries: dict[str, FilterEntry[Value]] = {}
        self._by_owner: dict[str, dict[str, FilterEntry[Value]]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[FilterEntry[Value]]:
        return iter(self._entries.values())

    def __getitem__(self, id: str) -> FilterEntry[Value]:  # noqa: A002
        return self._entries[id]

    def get(self, id: str) -> FilterEntry[Value] | None:  # noqa: A002
        return self._entries.get(id)

    def get_many(self, ids: Iterable[str]) -> list[FilterEntry[Value]]:
        """Return the entries of these ids, in their order. Raises `KeyError` if one is missing."""
        return [self._entries[name] for name in ids]

    def projections_of(
        self, directory: RecipientColumns
    ) -> tuple[npt.NDArray[np.int32], list[StaticProjection]] | None:
        """Return, for each recipient, the number of its fixed projection or -1, and the projections.

        Returns None if the table stores no projections as columns: then `RuleIndex.non_trivial` lists all special
        subscriptions.
        """
        return None

    def of(self, owner: str) -> list[FilterEntry[Value]]:
        """Return the entries of an owner."""
        return list(self._by_owner.get(owner, {}).values())

    def count(self, owner: str) -> int:
        """Return how many entries an owner has."""
        return len(self._by_owner.get(owner, ()))

    def put(self, entry: FilterEntry[Value]) -> None:
        """Add an entry, in place of the one with its id."""
        self._entries[entry.id] = entry
        self._by_owner.setdefault(entry.owner, {})[entry.id] = entry

    def remove(self, id: str) -> FilterEntry[Value]:  # noqa: A002
        """Remove an entry and return it. Raises `KeyError` if there is none."""
        entry = self._entries.pop(id)
        owned = self._by_owner[entry.owner]
        del owned[id]
        if not owned:
            del self._by_owner[entry.owner]
        return entry


class BrokerTables(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's tables as plain values, to be listed and compared; policies are keyed by the ids of their filters."""

    advertisements: list[Advertisement]
    subscriptions: list[Subscription]
    contexts: dict[str, Context]
    policies: dict[str, str]
    operator_policies: dict[str, str]
    schemas: list[Schema]
    hops: dict[str, str]  # id -> the client or the neighbour that the filter came from
    sent: dict[str, list[str]]  # id -> the neighbours that it was sent to


class Placement(NamedTuple):
    """Where a filter was sent: the values of `FilterEntry.sent_to`, `flooded` and `target_links`."""

    sent_to: frozenset[str] = frozenset()
    flooded: frozenset[str] = frozenset()
    target_links: Mapping[str, bool] = {}


NOWHERE = Placement()


def shared_placement(sent: frozenset[str], flooded: frozenset[str], toward: Mapping[str, bool]) -> Placement:
    """Return a placement; equal placements are shared."""
    return _cached_placement(sent, flooded, tuple(toward.items())) if sent or flooded or toward else NOWHERE


@lru_cache(MAX_CACHED_PLACES)
def _cached_placement(sent: frozenset[str], flooded: frozenset[str], toward: tuple[tuple[str, bool], ...]) -> Placement:
    return Placement(sent, flooded, dict(toward))


@lru_cache(MAX_CACHED_PLACES)
def shared_brokers(brokers: frozenset[str]) -> frozenset[str]:
    """Return a shared set, so that filters which came from the same brokers use one set."""
    return brokers


class Ownership(NamedTuple):
    """Who has a filter; shared by all filters with the same values."""

    origin: str  # the broker whose client has the filter
    is_own: bool  # whether it is that broker's own
    governs: bool  # whether its owner's rules may act on others' events


@lru_cache(MAX_CACHED_PLACES)
def shared_ownership(origin: str, is_own: bool, governs: bool) -> Ownership:
    """Return an ownership; equal ones are shared."""
    return Ownership(origin, is_own, governs)
