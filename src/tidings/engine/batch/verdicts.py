"""Govern, for many copies at once: what becomes of each.

Which branches hold is found in columns. What follows from them is decided once for all copies for which the same do,
by the rules themselves, on one of these copies.
"""

from typing import NamedTuple

import numpy as np

from tidings.engine.batch.copies import NOBODY, SPECIAL, Copies, Ints, depends_on_sender, interned
from tidings.engine.batch.named import Bools
from tidings.engine.batch.regimes import Regime, message_of
from tidings.engine.batch.shapes import AS_PUBLISHED, Shapes, Shaping, shaping_of
from tidings.engine.deciding import Decision, blocking, conflicts, decide
from tidings.engine.message import PublicationMessage
from tidings.engine.ruled import Ruling
from tidings.engine.tables import Filed
from tidings.model.subscription import Subscription
from tidings.policy.situation import NeedsAnswer
from tidings.policy.statement import MessageType, Operation, Point, calls_in

BLOCKED = -1
_CLIENT, _NOWHERE = frozenset({Point.INGRESS, Point.EGRESS}), frozenset({Point.INGRESS})
_NOT_HERE = -2


class Verdicts(NamedTuple):
    """By copy its shape or `BLOCKED`; by event whether it has to be decided alone, and whether rules were asked."""

    shape: Ints
    special: Bools
    governed: Bools


class Branches(NamedTuple):
    """Of rules on copies: a number for each combination of branches; whether it is special; whether any may apply."""

    code: Ints
    special: Bools
    present: Bools


class Court:
    def __init__(self, copies: Copies, wanted: list[Filed[Subscription]], place: Ints, shapes: Shapes) -> None:
        """`place` says for each copy which of the wanted subscriptions it is for."""
        self._copies, self._wanted, self._place, self._shapes = copies, wanted, place, shapes
        count = copies.scene.publications.count
        self._special, self._governed = np.zeros(count, bool), np.zeros(count, bool)

    def judge(self, regime: Ints, regimes: list[Regime]) -> Verdicts:
        """`regime` is the number of each event's."""
        copies = self._copies
        common, by_sender = self._common(regime, regimes)
        own, own_by_sender = self._own()
        code = common * (int(own.max(initial=0)) + 1) + own
        senders = np.where(by_sender | own_by_sender, copies.scene.publications.publishers.codes[copies.event], 0)
        code, _ = interned(code)
        code, first = interned(code * (int(senders.max(initial=0)) + 1) + senders)
        shape = self._sentence(code, first, regime, regimes)
        self._hopeless(regime, regimes)
        return Verdicts(shape, self._special, self._governed)

    # Which branches hold

    def _common(self, regime: Ints, regimes: list[Regime]) -> tuple[Ints, Bools]:
        copies = self._copies
        found, by_sender = np.zeros(len(copies), np.int64), np.zeros(len(copies), bool)
        numbers = regime[copies.event]
        offset = 1
        for number, chosen in _split(numbers, len(regimes)):
            rulings = regimes[number].rulings
            if not rulings:
                continue
            those = copies.those(chosen)
            branches = _branches(those, rulings, _CLIENT)
            self._special[those.event[branches.special]] = True
            self._governed[those.event[branches.present]] = True
            found[chosen] = offset + branches.code
            offset += int(branches.code.max(initial=0)) + 1
            by_sender[chosen] = regimes[number].by_sender
        return found, by_sender

    def _own(self) -> tuple[Ints, Bools]:
        copies, place = self._copies, self._place
        examples, given = _profiles(self._wanted)
        found, by_sender = np.zeros(len(copies), np.int64), np.zeros(len(copies), bool)
        if not examples:
            return found, by_sender
        together = np.array([one.value.notify == "client" for one in self._wanted], bool)
        cut = np.array([one.cut is not None for one in self._wanted], bool)
        brokers = np.array([one.is_own for one in self._wanted], bool)
        offset = 1
        for number, chosen in _split(given[place], len(examples)):
            rulings, those = examples[number], copies.those(chosen)
            at = place[chosen]
            branches = _branches(those, rulings, _CLIENT)
            composed = together[at] & bool(rulings)  # with the rules of others
            self._special[those.event[branches.special | composed]] = True
            asked = brokers[at] | together[at] | (branches.present & ~cut[at])
            self._governed[those.event[asked]] = True
            found[chosen] = offset + branches.code
            offset += int(branches.code.max(initial=0)) + 1
            by_sender[chosen] = any(depends_on_sender(rule) for rule, _ in rulings)
        return found, by_sender

    # What follows

    def _sentence(self, code: Ints, first: Ints, regime: Ints, regimes: list[Regime]) -> Ints:
        """The shape of each copy, decided for the first copy of each code."""
        copies = self._copies
        templates: list[Shaping] = []
        verdicts, trims = np.zeros(len(first), np.int64), np.zeros(len(first), bool)
        for number, copy in enumerate(first.tolist()):
            template = AS_PUBLISHED
            row = int(copies.event[copy])
            if not self._special[row]:
                verdicts[number], template, trims[number] = self._decided(copy, regimes[regime[row]].rulings)
            else:
                verdicts[number] = _NOT_HERE
            templates.append(template)
        # The first copy may be of an event that is decided alone for another reason: then another one tells.
        for number in np.flatnonzero(verdicts == _NOT_HERE).tolist():
            others = np.flatnonzero((code == number) & ~self._special[copies.event])
            if len(others):
                row = int(copies.event[others[0]])
                found = self._decided(int(others[0]), regimes[regime[row]].rulings)
                verdicts[number], templates[number], trims[number] = found
        shape = verdicts[code]
        self._special[copies.event[shape == _NOT_HERE]] = True
        if trims.any():
            self._trim(code, trims, templates, shape)
        return shape

    def _decided(self, copy: int, rulings: tuple[Ruling, ...]) -> tuple[int, Shaping, bool]:
        """The shape for all copies like this one, and whether it is trimmed to each subscription's own names."""
        scene, row = self._copies.scene, int(self._copies.event[copy])
        scene.engine.at(int(scene.publications.now[row]))
        message = message_of(scene.engine, scene.publications.event(row), None)
        situation = message.situation.toward(self._copies.receivers[self._copies.receiver[copy]])
        filed = self._wanted[self._place[copy]]
        own: list[Decision] = []
        try:
            common = decide(rulings, situation, _CLIENT)
            if not blocking(common) and not filed.is_own:
                own = decide(filed.rulings(Operation.FORWARD, MessageType.PUBLICATION), situation, _CLIENT)
        except NeedsAnswer:
            return _NOT_HERE, AS_PUBLISHED, False
        if conflicts(common, []) or (own and conflicts(common, own)):
            return _NOT_HERE, AS_PUBLISHED, False
        decisions = [*common, *own]
        if blocking(decisions):
            return BLOCKED, AS_PUBLISHED, False
        template, trims = shaping_of(decisions, scene.engine.name)
        return self._shapes.number(template), template, trims

    def _trim(self, code: Ints, trims: Bools, templates: list[Shaping], shape: Ints) -> None:
        chosen = np.flatnonzero(trims[code] & (shape >= 0))
        sets: dict[frozenset[str], int] = {}
        names = np.zeros(len(self._wanted), np.int64)
        for place in np.flatnonzero(np.bincount(self._place[chosen])).tolist():
            names[place] = sets.setdefault(self._wanted[place].names, len(sets))
        kinds = list(sets)
        numbers, first = interned(code[chosen] * len(kinds) + names[self._place[chosen]])
        given = []
        for copy in chosen[first].tolist():
            template = templates[code[copy]].trimmed(kinds[names[self._place[copy]]])
            given.append(self._shapes.number(template))
        shape[chosen] = np.array(given, np.int64)[numbers]

    def _hopeless(self, regime: Ints, regimes: list[Regime]) -> None:
        """Events that concern nobody: their rules are applied once, without a receiver, for what they tell."""
        copies = self._copies
        wanted = np.zeros(len(regime), bool)
        wanted[copies.event] = True
        rows = np.flatnonzero(~wanted & (regime > 0))
        for number, chosen in _split(regime[rows], len(regimes)):
            rulings = regimes[number].rulings
            if not rulings:
                continue
            here = rows[chosen]
            those = Copies(copies.scene, here, np.full(len(here), NOBODY), copies.receivers)
            branches = _branches(those, rulings, _NOWHERE)
            self._special[here[branches.special]] = True
            _, first = interned(branches.code)
            for place in first.tolist():
                message = message_of(copies.scene.engine, copies.scene.publications.event(int(here[place])), None)
                if not branches.special[place] and self._clashes(rulings, message):
                    self._special[here[branches.code == branches.code[place]]] = True

    def _clashes(self, rulings: tuple[Ruling, ...], message: PublicationMessage) -> bool:
        try:
            return bool(conflicts(decide(rulings, message.situation.toward(None), _NOWHERE), []))
        except NeedsAnswer:
            return True


def _branches(copies: Copies, rulings: tuple[Ruling, ...], points: frozenset[Point]) -> Branches:
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
            code, _ = interned(code)
    code, _ = interned(code)
    return Branches(code, special, present)


def _split(numbers: Ints, count: int) -> list[tuple[int, Ints]]:
    """For each number the places that have it; those below zero are left out."""
    if count <= 1 or not len(numbers):
        chosen = np.flatnonzero(numbers == 0)
        return [(0, chosen)] if len(chosen) else []
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-2))
    parts = np.split(order, starts[1:])
    return [(int(ordered[at]), part) for at, part in zip(starts, parts, strict=True) if len(part) and ordered[at] >= 0]


def _profiles(wanted: list[Filed[Subscription]]) -> tuple[list[tuple[Ruling, ...]], Ints]:
    """The rules of subscriptions, alike ones once; and which of them each has, -1 if it is plain."""
    looks: dict[int, bool] = {}  # whether a rule's conditions depend on the filter
    numbers: dict[object, int] = {}
    examples: list[tuple[Ruling, ...]] = []
    given = []
    for one in wanted:
        if one.is_plain:
            given.append(-1)
            continue
        rulings = () if one.is_own else one.rulings(Operation.FORWARD, MessageType.PUBLICATION)
        first = id(rulings[0][0]) if len(rulings) == 1 else 0
        key = first if looks.get(first) is False else _key(rulings, looks)  # mostly the short way
        number = numbers.setdefault(key, len(examples))
        if number == len(examples):
            examples.append(rulings)
        given.append(number)
    return examples, np.array(given, np.int64)


def _key(rulings: tuple[Ruling, ...], looks: dict[int, bool]) -> object:
    """The same for rules that hold for the same copies."""
    key: list[object] = []
    for rule, source in rulings:
        name = id(rule)
        if name not in looks:
            calls = (call for part in rule.rule.branches for call in calls_in(part.condition))
            looks[name] = any(call.name == "StrictMatch" for call in calls)
        key.append((name, source.filter) if looks[name] else name)
    return key[0] if len(key) == 1 else tuple(key)
