"""Find the set of rules that apply to every copy of an event, for many events at once.

The set follows from the policy attached to the event, the advertisements with rules that match the event, and the
broker's own subscriptions with rules that match it. Events for which these are the same share one `RuleSet`.
"""

from typing import Any

import msgspec
import numpy as np

from tidings.engine.batch.rule_branches import GovernInput, Ints, depends_on_sender
from tidings.engine.batch.value_columns import Bools
from tidings.engine.matcher import FastMatcher
from tidings.engine.message import Arrival, PublicationMessage, Refusal
from tidings.engine.operations import Publish
from tidings.engine.security import sealed_events
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.filter_rules import Ruling
from tidings.engine.state.filters import FilterEntry
from tidings.engine.steps.match import rulings_of_matching_filters
from tidings.engine.turn import Turn
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.subscription import Subscription
from tidings.policy.ast import MessageType, RuleOperation
from tidings.policy.evaluation.compiled import CompiledPolicy

_PUBLICATION = MessageType.PUBLICATION
_BITS = 60  # bits of the number that represents a set of filters


class RuleSet:
    """The rules that apply to every copy of some events; `refusal` is set if the events are refused for these rules."""

    def __init__(self, rulings: tuple[Ruling, ...] = (), refusal: Refusal | None = None) -> None:
        self.rulings, self.refusal = rulings, refusal
        self.by_sender = any(depends_on_sender(rule) for rule, _ in rulings)


class RuleSetIndex:
    """An index of the filters whose rules apply to every copy: advertisements, and the broker's own subscriptions."""

    def __init__(self, turn: Turn) -> None:
        state = turn.state
        self._key = _index_sources(state)
        self.advertisements = state.rules.advertisements_with_rules(_PUBLICATION)
        self.own = _own(state)
        self._index = _build_index([*map(_as_subscription, self.advertisements), *(entry.value for entry in self.own)])
        self._index.set_context(state.name, state.contexts.context(state.name))

    def is_current(self, turn: Turn) -> bool:
        """Return whether the engine still has the filters and the context from which this index was made."""
        sources = _index_sources(turn.state)
        return len(sources) == len(self._key) and all(
            source is other for source, other in zip(sources, self._key, strict=True)
        )

    def matching_filters(self, govern_input: GovernInput, rows: Any) -> tuple[Ints, Ints]:
        """Return pairs of an event's row and a matching filter: twice its position, plus 1 if it is the publisher's.

        An advertisement of another client counts only if its owner may govern, or if the operator set a policy on it.
        """
        events = govern_input.publications
        table = events.matcher_table(rows, payload=self._index.reads_payload, subscribers=False)
        event, position = self._index.pairs(table)
        event = event if rows is None else rows[event]
        place = np.array([int(name) for name in self._index.names], np.int64)[position]
        codes = {name: code for code, name in enumerate(events.publishers.texts)}
        owners = [codes.get(entry.owner, -2) for entry in self.advertisements] + [-2] * len(self.own)
        is_general = [entry.governs or entry.operator_policy is not None for entry in self.advertisements]
        applies_to_all = np.array(is_general + [True] * len(self.own), bool)
        is_publishers = np.array(owners, np.int64)[place] == events.publishers.codes[event]
        is_relevant = is_publishers | applies_to_all[place]
        return event[is_relevant], 2 * place[is_relevant] + is_publishers[is_relevant]

    def filters(self, codes: list[int]) -> tuple[list[FilterEntry[Advertisement]], list[FilterEntry[Subscription]]]:
        """Return the advertisements and the subscriptions with these codes."""
        places = sorted(item // 2 for item in codes)
        count = len(self.advertisements)
        return (
            [self.advertisements[place] for place in places if place < count],
            [self.own[place - count] for place in places if place >= count],
        )

    def __len__(self) -> int:
        return len(self.advertisements) + len(self.own)


def advertised_events(govern_input: GovernInput, rows: Any) -> Bools:
    """Return the events that match an advertisement of their publisher; only `rows` (None: all) are checked."""
    events = govern_input.publications
    advertisements = [
        entry for name in events.publishers.texts for entry in govern_input.turn.state.filters.advertisements.of(name)
    ]
    codes = {name: code for code, name in enumerate(events.publishers.texts)}
    index = _build_index([*map(_as_subscription, advertisements)])
    event, position = index.pairs(events.matcher_table(rows, payload=index.reads_payload, subscribers=False))
    event = event if rows is None else rows[event]
    owners = np.array([codes[advertisements[int(name)].owner] for name in index.names], np.int64)
    is_advertised = np.zeros(events.count, bool)
    is_advertised[event[owners[position] == events.publishers.codes[event]]] = True
    return is_advertised


def _build_index(filters: list[Subscription]) -> FastMatcher:
    """Return an index of subscriptions whose ids are their positions."""
    index = FastMatcher()
    index.put_many([msgspec.structs.replace(subscription, id=str(place)) for place, subscription in enumerate(filters)])
    return index


def _as_subscription(entry: FilterEntry[Advertisement]) -> Subscription:
    return Subscription(id="", subscriber=entry.owner, content=entry.value.content)


def _index_sources(state: BrokerState) -> list[object]:
    filters: list[FilterEntry[Any]] = [*state.rules.advertisements_with_rules(_PUBLICATION), *_own(state)]
    return [*filters, *(entry.value for entry in filters), state.contexts.context(state.name)]


def _own(state: BrokerState) -> list[FilterEntry[Subscription]]:
    entries = [
        entry
        for entry in state.filters.subscriptions.of(state.name)
        if entry.rulings(RuleOperation.FORWARD, _PUBLICATION)
    ]
    return sorted(entries, key=lambda entry: entry.id)


def rule_sets_of(
    govern_input: GovernInput, rows: Any, policies: list[CompiledPolicy | None], rule_index: RuleSetIndex
) -> tuple[Ints, list[RuleSet]]:
    """Return the number of each event's rule set, and the rule sets; number 0 has no rules.

    Args:
        govern_input: The engine and the publications.
        rows: The rows to find rule sets for; None: all.
        policies: The attached policies, by the publications' policy codes.
        rule_index: The index of the filters with rules.
    """
    events = govern_input.publications
    sets = np.zeros(events.count, np.int64)  # of filters; 0 is none
    filter_sets: list[list[int]] = [[]]
    if len(rule_index):
        event, item = rule_index.matching_filters(govern_input, rows)
        order = np.lexsort((item, event))
        event, item = event[order], item[order]
        starts = np.flatnonzero(np.diff(event, prepend=-1))
        if len(starts):
            numbers, new_sets = _distinct_sets(item, starts, 2 * len(rule_index))
            sets[event[starts]] = 1 + numbers
            filter_sets += new_sets
    keys = sets * (len(policies) + 1) + events.policies.codes + 1
    distinct_of = keys if rows is None else keys[rows]
    numbers = np.zeros(events.count, np.int64)
    rule_sets = [RuleSet()]
    distinct, first, inverse = np.unique(distinct_of, return_index=True, return_inverse=True)
    numbers_by_key = []
    for key, place in zip(distinct.tolist(), first.tolist(), strict=True):
        numbers_by_key.append(len(rule_sets) if key else 0)
        if key:
            filter_set, policy = divmod(key, len(policies) + 1)
            row = place if rows is None else int(rows[place])
            attached = policies[policy - 1] if policy else None
            rule_sets.append(_rule_set(govern_input, row, attached, rule_index.filters(filter_sets[filter_set])))
    numbers[slice(None) if rows is None else rows] = np.array(numbers_by_key, np.int64)[inverse]
    return numbers, rule_sets


def message_of(turn: Turn, event: Event, attached: CompiledPolicy | None) -> PublicationMessage:
    """Return the message for a client's publication that has been admitted."""
    message = PublicationMessage(
        Publish(event),
        Arrival(event.publisher, from_broker=False, is_ingress=True),
        attached=attached,
        rule_context=turn.rule_context,
    )
    sealed_events.let_govern(turn, message)
    return message


def _rule_set(govern_input: GovernInput, row: int, attached: CompiledPolicy | None, filters: Any) -> RuleSet:
    message = message_of(govern_input.turn, govern_input.publications.event(row), attached)
    try:
        return RuleSet(rulings_of_matching_filters(message, *filters))
    except Refusal as refusal:
        return RuleSet(refusal=refusal)


def _distinct_sets(item: Ints, starts: Ints, items: int) -> tuple[Ints, list[list[int]]]:
    """Return for each slice of items the number of its set, and the sets."""
    ends = [*starts[1:].tolist(), len(item)]
    if items <= _BITS:
        masks = np.bitwise_or.reduceat(np.int64(1) << item, starts)
        _, first, inverse = np.unique(masks, return_index=True, return_inverse=True)
        return inverse, [item[starts[at] : ends[at]].tolist() for at in first.tolist()]
    numbers: dict[bytes, int] = {}
    numbers_by_slice = np.empty(len(starts), np.int64)
    sets: list[list[int]] = []
    for place, (start, end) in enumerate(zip(starts.tolist(), ends, strict=True)):
        items_in_slice = item[start:end]
        number = numbers.setdefault(items_in_slice.tobytes(), len(sets))
        if number == len(sets):
            sets.append(items_in_slice.tolist())
        numbers_by_slice[place] = number
    return numbers_by_slice, sets
