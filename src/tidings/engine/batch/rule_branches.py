"""Evaluate the conditions of policy rules for many copies at once: which branch of a rule holds for each copy.

What columns cannot express is `SPECIAL`: user-defined conditions and actions, actions that emit or store something, and
trust questions without an answer. Events with such copies are processed alone by the engine's own steps.
"""

import operator as op
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import numpy.typing as npt

from tidings.engine.batch.publication_columns import PublicationColumns
from tidings.model.expression import Constant
from tidings.model.limits import MAX_PAYLOAD_BYTES
from tidings.policy import registry
from tidings.policy.ast import AllOf, AnyOf, Branch, Condition, ElementCall, ElementComparison, Values
from tidings.policy.evaluation.compiled import CompiledRule
from tidings.policy.evaluation.evaluation import RuleSource

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

Ints = npt.NDArray[np.int64]
Truths = npt.NDArray[np.int8]
NO, YES, UNKNOWN = 0, 1, 2
SPECIAL = -1
NOBODY = -1  # as a receiver: the copy has no next hop
_COMPARISONS = {"=": op.eq, "!=": op.ne, "<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge}
_CONVERSIONS = frozenset({"ToXML", "ToJSON"})
_SAME_FOR_ALL = _CONVERSIONS | {
    *("TrimAttributes", "RemoveAttributes", "KeepOnlyAttributes", "BlockMessage", "FloodMessage"),
    *("AugmentBrokerHostInfo", "AugmentBrokerLoadIndex", "AugmentProcessingTime"),
}
_BY_SENDER = "AppendPrevHop"
_MAX_CONVERSION_FACTOR = 16  # how many times larger than the event its conversion may be


class GovernInput:
    """What all copies of a span share: the engine, the publications, and values that conditions read."""

    def __init__(self, engine: "Engine", publications: PublicationColumns) -> None:
        self.engine, self.publications = engine, publications

    @cached_property
    def bytes(self) -> Ints:
        """The approximate bytes of each event."""
        return self.publications.sizes

    @cached_property
    def sizes(self) -> npt.NDArray[np.float64]:
        """The MessageSizeIndex of each event."""
        return np.minimum(1.0, self.bytes / self.engine.settings.large_message_bytes)

    @cached_property
    def counts(self) -> Ints:
        """The number of attributes of each event."""
        return self.publications.attributes.counts


class EventCopies:
    """Copies of events: `event` is the row of each copy's event, `receiver` a position in `receivers` or `NOBODY`."""

    def __init__(self, govern_input: GovernInput, event: Ints, receiver: Ints, receivers: list[str]) -> None:
        self.govern_input, self.event, self.receiver, self.receivers = govern_input, event, receiver, receivers

    def __len__(self) -> int:
        return len(self.event)

    def select(self, positions: Any) -> "EventCopies":
        """Return the copies at these positions."""
        return EventCopies(self.govern_input, self.event[positions], self.receiver[positions], self.receivers)

    def branches(self, rule: CompiledRule, source: RuleSource) -> Ints:
        """Return for each copy which branch of the rule holds: its number from 1, 0 if none does, or `SPECIAL`."""
        branch_numbers = np.zeros(len(self), np.int64)
        is_undecided = np.ones(len(self), bool)
        for number, branch in enumerate(rule.rule.branches, 1):
            truth = self._truth(branch.condition, source)
            branch_numbers[is_undecided & (truth == UNKNOWN)] = SPECIAL
            holds = is_undecided & (truth == YES)
            branch_numbers[holds] = number if is_expressible(branch) else SPECIAL
            if holds.any() and any(call.name in _CONVERSIONS for call in branch.actions):
                branch_numbers[
                    holds & (self.govern_input.bytes[self.event] > MAX_PAYLOAD_BYTES // _MAX_CONVERSION_FACTOR)
                ] = SPECIAL
            is_undecided &= truth == NO
            if not is_undecided.any():
                break
        return branch_numbers

    def _truth(self, condition: Condition, source: RuleSource) -> Truths:
        """Return the truth of a condition for each copy: `YES`, `NO` or `UNKNOWN`. AllOf and AnyOf short-circuit."""
        match condition:
            case AllOf(parts) | AnyOf(parts):
                neutral = YES if isinstance(condition, AllOf) else NO
                truth = self._all(neutral)
                for part in parts:
                    is_open = truth == neutral
                    if not is_open.any():
                        break
                    truth = np.where(is_open, self._truth(part, source), truth)
                return truth
            case ElementComparison(call, operator, value):
                return self._compared(call, source, operator, value)
            case ElementCall():
                value = self._value(condition, source)
                return self._all(UNKNOWN) if value is None or value.dtype.kind == "f" else value

    def _compared(self, call: ElementCall, source: RuleSource, operator: str, value: Any) -> Truths:
        operands = value.items if isinstance(value, Values) else (value,)
        values = self._value(call, source)
        if values is None:
            return self._all(UNKNOWN)
        is_truth = values.dtype.kind != "f"
        constants = [
            float(constant.value)
            for constant in operands
            if isinstance(constant, Constant) and _fits(constant.value, is_truth)
        ]
        if len(constants) < len(operands):
            return self._all(UNKNOWN)
        if isinstance(value, Values):
            holds = np.isin(values, np.array(constants))
        else:
            holds = _COMPARISONS[operator](values, constants[0])
        truth = holds.astype(np.int8)
        return np.where(values == UNKNOWN, np.int8(UNKNOWN), truth) if is_truth else truth

    def _value(self, call: ElementCall, source: RuleSource) -> Any:
        """Return the value of a policy element for each copy: a truth, or a float. None: columns cannot express it."""
        element = registry.find(call.name)
        if element is None or element.function is not None:
            return None
        match call.name:
            case "BrokerLoadIndex":
                return np.full(len(self), self.govern_input.engine.load)
            case "MessageSizeIndex":
                return self.govern_input.sizes[self.event]
            case "StrictMatch":
                return self._strictly(source)
            case name if name not in ("AuthenticateReceiver", "AuthenticateSender"):
                return None
        group = call.arguments[0]
        if not isinstance(group, Constant):
            return None
        senders = self.govern_input.publications.publishers
        if call.name == "AuthenticateSender":
            return self._members(senders.texts, senders.codes[self.event], str(group.value))
        is_member = self._members(self.receivers, self.receiver, str(group.value))
        return np.where(self.receiver == NOBODY, np.int8(NO), is_member)

    def _strictly(self, source: RuleSource) -> Truths:
        """Return the truth of StrictMatch: the event, which the filter matches, has exactly the filter's attributes."""
        if source.filter is None:
            return self._all(NO)
        attributes = self.govern_input.publications.attributes
        is_strict = self.govern_input.counts[self.event] == len(source.filter.names)
        for name in source.filter.names:
            if not is_strict.any():
                break
            is_strict &= attributes.present(name)[self.event]
        return np.asarray(is_strict, np.int8)

    def _members(self, parties: list[str], codes: Ints, group: str) -> Truths:
        """Return whether each copy's party is in the trust group at the event's time; `UNKNOWN` without an answer."""
        trust, nobody = self.govern_input.engine.trust, (False, -1)
        answers = [trust.get((party, group), nobody) for party in parties] or [nobody]
        member = np.array([is_member for is_member, _ in answers], np.int8)
        until = np.array([until for _, until in answers], np.int64)
        in_time = until[codes] > self.govern_input.publications.now[self.event]
        return np.where(in_time, member[codes], np.int8(UNKNOWN))

    def _all(self, truth: int) -> Truths:
        return np.full(len(self), truth, np.int8)


def _fits(value: Any, is_truth: bool) -> TypeGuard[float]:
    """Return whether a condition of this kind can be compared with the value."""
    return isinstance(value, bool) if is_truth else type(value) in (int, float)


def is_expressible(branch: Branch) -> bool:
    """Return whether the branch's actions do the same to all events, or to all events of one sender."""
    return all(
        call.name == _BY_SENDER or (call.name in _SAME_FOR_ALL and registry.find(call.name) is not None)
        for call in branch.actions
    )


def depends_on_sender(rule: CompiledRule) -> bool:
    """Return whether an action of the rule depends on the sender."""
    return any(call.name == _BY_SENDER for branch in rule.rule.branches for call in branch.actions)


def renumber(codes: Ints) -> tuple[Ints, Ints]:
    """Renumber codes as 0, 1, ...; return the new codes, and the first position of each."""
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
