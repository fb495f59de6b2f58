"""Copies of many events at once, and which branch of a rule holds for each of them.

What cannot be said in columns is `SPECIAL`: conditions and actions of one's own, what is told, and questions that
nobody has answered yet. Such copies are decided one by one, as the engine does it.
"""

import operator as op
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import numpy.typing as npt

from tidings.engine.batch.publications import Publications
from tidings.model.expression import Constant
from tidings.model.limits import MAX_PAYLOAD_BYTES
from tidings.policy import registry
from tidings.policy.application import CompiledRule
from tidings.policy.situation import Source
from tidings.policy.statement import And, Branch, Call, Comparison, Condition, Or, Values

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

Ints = npt.NDArray[np.int64]
Truths = npt.NDArray[np.int8]
NO, YES, UNKNOWN = 0, 1, 2
SPECIAL = -1
NOBODY = -1  # a receiver: there is no next hop
_COMPARISONS = {"=": op.eq, "!=": op.ne, "<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge}
_CONVERSIONS = frozenset({"ToXML", "ToJSON"})
_SAME_FOR_ALL = _CONVERSIONS | {
    *("TrimAttributes", "RemoveAttributes", "KeepOnlyAttributes", "BlockMessage", "FloodMessage"),
    *("AugmentBrokerHostInfo", "AugmentBrokerLoadIndex", "AugmentProcessingTime"),
}
_BY_SENDER = "AppendPrevHop"
_LONGEST = 16  # how many times larger than the event a conversion of it may be


class Scene:
    """What all copies have in common: the engine as it is now, and the events."""

    def __init__(self, engine: "Engine", publications: Publications) -> None:
        self.engine, self.publications = engine, publications

    @cached_property
    def bytes(self) -> Ints:
        return self.publications.sizes

    @cached_property
    def sizes(self) -> npt.NDArray[np.float64]:
        """MessageSizeIndex of each event."""
        return np.minimum(1.0, self.bytes / self.engine.settings.large_message_bytes)

    @cached_property
    def counts(self) -> Ints:
        return self.publications.attributes.counts


class Copies:
    """`event` is the row of each copy's event, `receiver` a place in `receivers` or `NOBODY`."""

    def __init__(self, scene: Scene, event: Ints, receiver: Ints, receivers: list[str]) -> None:
        self.scene, self.event, self.receiver, self.receivers = scene, event, receiver, receivers

    def __len__(self) -> int:
        return len(self.event)

    def those(self, chosen: Any) -> "Copies":
        return Copies(self.scene, self.event[chosen], self.receiver[chosen], self.receivers)

    def branches(self, rule: CompiledRule, source: Source) -> Ints:
        """The number of the branch that holds for each copy, from 1; 0: none does."""
        found = np.zeros(len(self), np.int64)
        open_ = np.ones(len(self), bool)
        for number, branch in enumerate(rule.rule.branches, 1):
            truth = self._truth(branch.condition, source)
            found[open_ & (truth == UNKNOWN)] = SPECIAL
            here = open_ & (truth == YES)
            found[here] = number if is_sayable(branch) else SPECIAL
            if here.any() and any(call.name in _CONVERSIONS for call in branch.actions):
                found[here & (self.scene.bytes[self.event] > MAX_PAYLOAD_BYTES // _LONGEST)] = SPECIAL
            open_ &= truth == NO
            if not open_.any():
                break
        return found

    def _truth(self, condition: Condition, source: Source) -> Truths:
        match condition:
            case And(parts) | Or(parts):
                goes_on = YES if isinstance(condition, And) else NO
                found = self._all(goes_on)
                for part in parts:
                    asked = found == goes_on
                    if not asked.any():
                        break
                    found = np.where(asked, self._truth(part, source), found)
                return found
            case Comparison(call, operator, value):
                return self._compared(call, source, operator, value)
            case Call():
                value = self._value(condition, source)
                return self._all(UNKNOWN) if value is None or value.dtype.kind == "f" else value

    def _compared(self, call: Call, source: Source, operator: str, value: Any) -> Truths:
        given = value.items if isinstance(value, Values) else (value,)
        measured = self._value(call, source)
        if measured is None:
            return self._all(UNKNOWN)
        is_truth = measured.dtype.kind != "f"
        wanted = [float(one.value) for one in given if isinstance(one, Constant) and _fits(one.value, is_truth)]
        if len(wanted) < len(given):
            return self._all(UNKNOWN)
        if isinstance(value, Values):
            found = np.isin(measured, np.array(wanted))
        else:
            found = _COMPARISONS[operator](measured, wanted[0])
        truth = found.astype(np.int8)
        return np.where(measured == UNKNOWN, np.int8(UNKNOWN), truth) if is_truth else truth

    def _value(self, call: Call, source: Source) -> Any:
        """Of each copy: a truth, or a number as a float. None: that cannot be said here."""
        element = registry.find(call.name)
        if element is None or element.function is not None:
            return None
        match call.name:
            case "BrokerLoadIndex":
                return np.full(len(self), self.scene.engine.load)
            case "MessageSizeIndex":
                return self.scene.sizes[self.event]
            case "StrictMatch":
                return self._strictly(source)
        group = call.arguments[0]
        if not isinstance(group, Constant):
            return None
        senders = self.scene.publications.publishers
        if call.name == "AuthenticateSender":
            return self._members(senders.texts, senders.codes[self.event], str(group.value))
        found = self._members(self.receivers, self.receiver, str(group.value))
        return np.where(self.receiver == NOBODY, np.int8(NO), found)

    def _strictly(self, source: Source) -> Truths:
        """Exactly the attributes of the filter, which matches already."""
        if source.filter is None:
            return self._all(NO)
        attributes = self.scene.publications.attributes
        found = self.scene.counts[self.event] == len(source.filter.names)
        for name in source.filter.names:
            if not found.any():
                break
            found &= attributes.present(name)[self.event]
        return np.asarray(found, np.int8)

    def _members(self, parties: list[str], codes: Ints, group: str) -> Truths:
        """Whether each belongs to the group, as far as that is known at the time of its event."""
        trust, nobody = self.scene.engine.trust, (False, -1)
        known = [trust.get((party, group), nobody) for party in parties] or [nobody]
        member = np.array([one for one, _ in known], np.int8)
        until = np.array([until for _, until in known], np.int64)
        in_time = until[codes] > self.scene.publications.now[self.event]
        return np.where(in_time, member[codes], np.int8(UNKNOWN))

    def _all(self, truth: int) -> Truths:
        return np.full(len(self), truth, np.int8)


def _fits(value: Any, is_truth: bool) -> TypeGuard[float]:
    """Whether a condition of that kind is compared with such a value."""
    return isinstance(value, bool) if is_truth else type(value) in (int, float)


def is_sayable(branch: Branch) -> bool:
    """Whether what the branch does is the same for all events, or for all of a sender."""
    return all(
        call.name == _BY_SENDER or (call.name in _SAME_FOR_ALL and registry.find(call.name) is not None)
        for call in branch.actions
    )


def depends_on_sender(rule: CompiledRule) -> bool:
    return any(call.name == _BY_SENDER for branch in rule.rule.branches for call in branch.actions)


def interned(codes: Ints) -> tuple[Ints, Ints]:
    """The codes as small numbers, and for each number the first place that has it."""
    if not len(codes):
        return codes, codes
    if codes.max() < 4 * len(codes) + 1024:
        used = np.bincount(codes) > 0
        inverse = (np.cumsum(used) - 1)[codes]
        first = np.empty(int(used.sum()), np.int64)
        first[inverse[::-1]] = np.arange(len(codes))[::-1]
        return inverse, first
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return inverse, first
