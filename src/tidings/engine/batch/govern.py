"""Evaluate policy rules for many copies at once, and decide what becomes of each copy.

How it works:

1. For each rule, `EventCopies.branches` finds in columns which branch holds for each copy.
2. Copies for which the same branches of the same rules hold (and, where an action depends on it, that have the same
   sender) have the same code.
3. For each code, the rules are evaluated by the engine's own code on one copy. All copies of the code get the decision:
   blocked, or a transformation.
4. An event is special, and processed alone by the engine's steps, if one of its copies has a `SPECIAL` branch, a
   conflict between rules, an unanswered trust question, or a notification that is composed from several subscriptions
   with rules.
5. For events without copies, rules are evaluated once without a receiver, to find special events.
"""

from typing import NamedTuple

import numpy as np

from tidings.engine.batch.rule_branches import NOBODY, SPECIAL, EventCopies, Ints, depends_on_sender, renumber
from tidings.engine.batch.rule_sets import RuleSet, message_of
from tidings.engine.batch.transformations import AS_PUBLISHED, Transformation, Transformations, transformation_of
from tidings.engine.batch.value_columns import Bools
from tidings.engine.message import PublicationMessage
from tidings.engine.state.filter_rules import Ruling
from tidings.engine.state.filters import FilterEntry
from tidings.engine.steps.decisions import Decision, blocking, conflicts, decide
from tidings.model.subscription import Subscription
from tidings.policy.ast import MessageType, Point, RuleOperation, calls_in
from tidings.policy.evaluation.evaluation import TrustAnswerNeeded

BLOCKED = -1
_ALL_POINTS, _INGRESS_ONLY = frozenset({Point.INGRESS, Point.EGRESS}), frozenset({Point.INGRESS})
_UNDECIDED = -2


class CopyDecisions(NamedTuple):
    """Per copy its shape or `BLOCKED`; per event whether it is special, and whether rules were evaluated."""

    shape: Ints
    special: Bools
    governed: Bools


class BranchTable(NamedTuple):
    """Per copy a code for the branches that hold, whether it is special, and whether a rule may apply."""

    code: Ints
    special: Bools
    present: Bools


class BatchGovernor:
    """Evaluates the rules for some copies."""

    def __init__(
        self, copies: EventCopies, entries: list[FilterEntry[Subscription]], place: Ints, shapes: Transformations
    ) -> None:
        """Create the governor of `copies`; each one's `place` is the position of its subscription in `entries`.

        Args:
            copies: The copies.
            entries: The subscriptions.
            place: The position of each copy's subscription in `entries`.
            shapes: Numbers the transformations.
        """
        self._copies, self._entries, self._place, self._shapes = copies, entries, place, shapes
        count = copies.govern_input.publications.count
        self._is_special, self._is_governed = np.zeros(count, bool), np.zeros(count, bool)

    def decide_copies(self, rule_set: Ints, rule_sets: list[RuleSet]) -> CopyDecisions:
        """Return the decisions for all copies; `rule_set` is the number of each event's rule set in `rule_sets`."""
        copies = self._copies
        common, by_sender = self._common_branches(rule_set, rule_sets)
        own, own_by_sender = self._subscription_branches()
        code = common * (int(own.max(initial=0)) + 1) + own
        senders = np.where(
            by_sender | own_by_sender, copies.govern_input.publications.publishers.codes[copies.event], 0
        )
        code, _ = renumber(code)
        code, first = renumber(code * (int(senders.max(initial=0)) + 1) + senders)
        shape = self._shapes_by_code(code, first, rule_set, rule_sets)
        self._mark_unmatched_events(rule_set, rule_sets)
        return CopyDecisions(shape, self._is_special, self._is_governed)

    # Which branches hold

    def _common_branches(self, rule_set: Ints, rule_sets: list[RuleSet]) -> tuple[Ints, Bools]:
        """Return per copy a code for the branches of its event's rule set, and whether the sender matters."""
        copies = self._copies
        codes, by_sender = np.zeros(len(copies), np.int64), np.zeros(len(copies), bool)
        numbers = rule_set[copies.event]
        offset = 1
        for number, positions in _group_by_number(numbers, len(rule_sets)):
            rulings = rule_sets[number].rulings
            if not rulings:
                continue
            group = copies.select(positions)
            branches = _branches(group, rulings, _ALL_POINTS)
            self._is_special[group.event[branches.special]] = True
            self._is_governed[group.event[branches.present]] = True
            codes[positions] = offset + branches.code
            offset += int(branches.code.max(initial=0)) + 1
            by_sender[positions] = rule_sets[number].by_sender
        return codes, by_sender

    def _subscription_branches(self) -> tuple[Ints, Bools]:
        """Return per copy a code for the branches of its subscription's rules, and whether the sender matters."""
        copies, place = self._copies, self._place
        rule_lists, rule_list = _distinct_rule_lists(self._entries)
        codes, by_sender = np.zeros(len(copies), np.int64), np.zeros(len(copies), bool)
        if not rule_lists:
            return codes, by_sender
        is_grouped = np.array([entry.value.notify == "client" for entry in self._entries], bool)
        is_projection = np.array([entry.projection is not None for entry in self._entries], bool)
        is_own = np.array([entry.is_own for entry in self._entries], bool)
        offset = 1
        for number, positions in _group_by_number(rule_list[place], len(rule_lists)):
            rulings, group = rule_lists[number], copies.select(positions)
            at = place[positions]
            branches = _branches(group, rulings, _ALL_POINTS)
            composed = is_grouped[at] & bool(rulings)  # rules of several subscriptions act on one copy
            self._is_special[group.event[branches.special | composed]] = True
            is_governed = is_own[at] | is_grouped[at] | (branches.present & ~is_projection[at])
            self._is_governed[group.event[is_governed]] = True
            codes[positions] = offset + branches.code
            offset += int(branches.code.max(initial=0)) + 1
            by_sender[positions] = any(depends_on_sender(rule) for rule, _ in rulings)
        return codes, by_sender

    # Decisions

    def _shapes_by_code(self, code: Ints, first: Ints, rule_set: Ints, rule_sets: list[RuleSet]) -> Ints:
        """Return the shape of each copy, decided on the first copy of each code."""
        copies = self._copies
        templates: list[Transformation] = []
        shapes, trims = np.zeros(len(first), np.int64), np.zeros(len(first), bool)
        for number, copy in enumerate(first.tolist()):
            template = AS_PUBLISHED
            row = int(copies.event[copy])
            if not self._is_special[row]:
                shapes[number], template, trims[number] = self._decide_copy(copy, rule_sets[rule_set[row]].rulings)
            else:
                shapes[number] = _UNDECIDED
            templates.append(template)
        # If the event of the first copy is special for another reason, decide on another copy of the code.
        for number in np.flatnonzero(shapes == _UNDECIDED).tolist():
            others = np.flatnonzero((code == number) & ~self._is_special[copies.event])
            if len(others):
                row = int(copies.event[others[0]])
                decision = self._decide_copy(int(others[0]), rule_sets[rule_set[row]].rulings)
                shapes[number], templates[number], trims[number] = decision
        shape = shapes[code]
        self._is_special[copies.event[shape == _UNDECIDED]] = True
        if trims.any():
            self._trim(code, trims, templates, shape)
        return shape

    def _decide_copy(self, copy: int, rulings: tuple[Ruling, ...]) -> tuple[int, Transformation, bool]:
        """Return the shape for all copies like this one, and whether each is trimmed to its subscription's names.

        The shape is `BLOCKED`, or `_UNDECIDED` if the event must be processed alone. The third value is the
        transformation.
        """
        govern_input, row = self._copies.govern_input, int(self._copies.event[copy])
        govern_input.turn.begin(int(govern_input.publications.now[row]))
        message = message_of(govern_input.turn, govern_input.publications.event(row), None)
        rule_context = message.rule_context.for_receiver(self._copies.receivers[self._copies.receiver[copy]])
        entry = self._entries[self._place[copy]]
        own: list[Decision] = []
        try:
            common = decide(rulings, rule_context, _ALL_POINTS)
            if not blocking(common) and not entry.is_own:
                own = decide(entry.rulings(RuleOperation.FORWARD, MessageType.PUBLICATION), rule_context, _ALL_POINTS)
        except TrustAnswerNeeded:
            return _UNDECIDED, AS_PUBLISHED, False
        if conflicts(common, []) or (own and conflicts(common, own)):
            return _UNDECIDED, AS_PUBLISHED, False
        decisions = [*common, *own]
        if blocking(decisions):
            return BLOCKED, AS_PUBLISHED, False
        template, trims = transformation_of(decisions, govern_input.turn.state.name)
        return self._shapes.number(template), template, trims

    def _trim(self, code: Ints, trims: Bools, templates: list[Transformation], shape: Ints) -> None:
        """Replace the shapes of trimmed copies by transformations that keep only the names of their subscriptions."""
        trimmed = np.flatnonzero(trims[code] & (shape >= 0))
        number_of_names: dict[frozenset[str], int] = {}
        names = np.zeros(len(self._entries), np.int64)
        for place in np.flatnonzero(np.bincount(self._place[trimmed])).tolist():
            names[place] = number_of_names.setdefault(self._entries[place].names, len(number_of_names))
        name_sets = list(number_of_names)
        numbers, first = renumber(code[trimmed] * len(name_sets) + names[self._place[trimmed]])
        numbers_by_code = []
        for copy in trimmed[first].tolist():
            template = templates[code[copy]].trimmed(name_sets[names[self._place[copy]]])
            numbers_by_code.append(self._shapes.number(template))
        shape[trimmed] = np.array(numbers_by_code, np.int64)[numbers]

    def _mark_unmatched_events(self, rule_set: Ints, rule_sets: list[RuleSet]) -> None:
        """Mark events that match nothing as `SPECIAL` (handled one by one) if their rules have effects even without a
        receiver."""
        copies = self._copies
        has_copies = np.zeros(len(rule_set), bool)
        has_copies[copies.event] = True
        rows = np.flatnonzero(~has_copies & (rule_set > 0))
        for number, positions in _group_by_number(rule_set[rows], len(rule_sets)):
            rulings = rule_sets[number].rulings
            if not rulings:
                continue
            group_rows = rows[positions]
            copies_without_receiver = EventCopies(
                copies.govern_input, group_rows, np.full(len(group_rows), NOBODY), copies.receivers
            )
            branches = _branches(copies_without_receiver, rulings, _INGRESS_ONLY)
            self._is_special[group_rows[branches.special]] = True
            _, first = renumber(branches.code)
            for place in first.tolist():
                message = message_of(
                    copies.govern_input.turn, copies.govern_input.publications.event(int(group_rows[place])), None
                )
                if not branches.special[place] and self._has_conflict(rulings, message):
                    self._is_special[group_rows[branches.code == branches.code[place]]] = True

    def _has_conflict(self, rulings: tuple[Ruling, ...], message: PublicationMessage) -> bool:
        try:
            return bool(conflicts(decide(rulings, message.rule_context.for_receiver(None), _INGRESS_ONLY), []))
        except TrustAnswerNeeded:
            return True


def _branches(copies: EventCopies, rulings: tuple[Ruling, ...], points: frozenset[Point]) -> BranchTable:
    code = np.zeros(len(copies), np.int64)
    special, present = np.zeros(len(copies), bool), np.zeros(len(copies), bool)
    for rule, source in rulings:
        branch = copies.branches(rule, source)
        present |= True if source.kind == "message" or not rule.is_common else branch != 0
        if rule.rule.points.isdisjoint(points):
            continue
        special |= branch == SPECIAL
        code = code * (len(rule.rule.branches) + 2) + branch + 1
        if code.max(initial=0) > 1 << 40:
            code, _ = renumber(code)
    code, _ = renumber(code)
    return BranchTable(code, special, present)


def _group_by_number(numbers: Ints, count: int) -> list[tuple[int, Ints]]:
    """Return for each number from 0 the positions that have it; negative numbers are left out."""
    if count <= 1 or not len(numbers):
        positions = np.flatnonzero(numbers == 0)
        return [(0, positions)] if len(positions) else []
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-2))
    parts = np.split(order, starts[1:])
    return [(int(ordered[at]), part) for at, part in zip(starts, parts, strict=True) if len(part) and ordered[at] >= 0]


def _distinct_rule_lists(entries: list[FilterEntry[Subscription]]) -> tuple[list[tuple[Ruling, ...]], Ints]:
    """Return the distinct rule lists of subscriptions, and the number of each subscription's list; -1 without rules."""
    depends_on_filter: dict[int, bool] = {}  # id of a rule -> whether its conditions depend on the filter
    numbers: dict[object, int] = {}
    rule_lists: list[tuple[Ruling, ...]] = []
    numbers_by_entry = []
    for entry in entries:
        if entry.is_plain:
            numbers_by_entry.append(-1)
            continue
        rulings = () if entry.is_own else entry.rulings(RuleOperation.FORWARD, MessageType.PUBLICATION)
        first = id(rulings[0][0]) if len(rulings) == 1 else 0
        # Most have one rule.
        key = first if depends_on_filter.get(first) is False else _rule_list_key(rulings, depends_on_filter)
        number = numbers.setdefault(key, len(rule_lists))
        if number == len(rule_lists):
            rule_lists.append(rulings)
        numbers_by_entry.append(number)
    return rule_lists, np.array(numbers_by_entry, np.int64)


def _rule_list_key(rulings: tuple[Ruling, ...], depends_on_filter: dict[int, bool]) -> object:
    """Return a key that is equal for rule lists whose conditions choose the same branches for every copy."""
    key: list[object] = []
    for rule, source in rulings:
        name = id(rule)
        if name not in depends_on_filter:
            calls = (call for part in rule.rule.branches for call in calls_in(part.condition))
            depends_on_filter[name] = any(call.name == "StrictMatch" for call in calls)
        key.append((name, source.filter) if depends_on_filter[name] else name)
    return key[0] if len(key) == 1 else tuple(key)
