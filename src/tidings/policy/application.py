"""Applying a rule: its conditions evaluated, the actions of the first branch that holds executed.

A rule is compiled once into closures. `apply` never raises what an element raises: that is an exception of the rule,
and an exception that `OnException` does not take care of is an outcome that blocks.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from tidings.policy.actions import executed
from tidings.policy.arguments import resolved
from tidings.policy.conditions import evaluated
from tidings.policy.policy import Policy
from tidings.policy.situation import Glance, NeedsAnswer, Outcome, Situation
from tidings.policy.statement import Argument, Branch, Call, Matching, MessageType, Operation, Rule, calls_in

Condition: TypeAlias = Callable[[Situation], bool]
Action: TypeAlias = Callable[[Situation], None]
_BLOCKING = {"BlockMessage", "UninsertMessage"}
_COMMON = {"BrokerLoadIndex", "MessageSizeIndex", "StrictMatch"}
_BLOCK = (Call("BlockMessage"),)
_Branches: TypeAlias = tuple[tuple[int, Condition | None, tuple[Action, ...]], ...]


class CompiledRule(msgspec.Struct, frozen=True, eq=False):
    """A rule that is ready to be applied; `number` is its place in the policy, from 1."""

    rule: Rule
    number: int
    branches: _Branches
    on_exception: _Branches
    is_common: bool  # its conditions are the same for every receiver, and cannot fail
    only_blocks: bool  # and all that it ever does is to block
    goes_by_load: bool  # its conditions look at nothing but the broker's load
    sender_groups: tuple[Argument, ...]  # what it may ask of a sender

    def may_apply(self, situation: Situation | Glance) -> bool:
        """False only if no branch holds, whoever the receiver is."""
        if not self.is_common:
            return True
        for _, condition, _ in self.branches:  # noqa: SIM110 - a generator would cost more than most conditions
            if condition is None or condition(situation):  # type: ignore[arg-type]  # a glance is enough
                return True
        return False

    def ask_sender(self, situation: Situation) -> None:
        """Raises `NeedsAnswer` if the rule may want to know of the sender what nobody knows yet."""
        for group in self.sender_groups:
            situation.is_member(situation.sender, str(resolved(group, situation)))

    def apply(self, situation: Situation) -> Outcome | None:
        """What the rule wants done; None if no branch holds. Raises `NeedsAnswer`, and nothing else."""
        before = situation.outcome
        try:
            return _first(self.branches, situation)
        except NeedsAnswer:
            raise
        except Exception as error:  # whatever an element raises
            begun = situation.outcome
            mended = self._mend(situation, _shown(error))
            if begun is not before:  # what was blocked before something failed stays blocked
                mended.blocks |= begun.blocks
                mended.uninserts |= begun.uninserts
            return mended

    def _mend(self, situation: Situation, error: str) -> Outcome:
        situation.exception = error
        try:
            outcome = _first(self.on_exception, situation)
        except NeedsAnswer:
            raise
        except Exception as second:  # whatever an element raises
            error, outcome = f"{error}; then in OnException: {_shown(second)}", None
        finally:
            situation.exception = ""
        if outcome is None:
            outcome = Outcome(0)
            outcome.blocks, outcome.failure = True, error
        else:
            outcome.mended = error
        return outcome

    def failed(self, situation: Situation, error: Exception, begun: Outcome) -> Outcome:
        """The same for what shows later, when a conversion is carried out; what OnException does may fail only once."""
        if begun.mended is None:
            return self._mend(situation, _shown(error))
        outcome = Outcome(0)
        outcome.blocks, outcome.failure = True, f"{begun.mended}; then in OnException: {_shown(error)}"
        return outcome


class CompiledPolicy(msgspec.Struct, frozen=True, eq=False):
    """The rules of a policy by what they are for."""

    policy: Policy
    rules: dict[tuple[Operation, MessageType, Matching], tuple[CompiledRule, ...]]

    def of(
        self, operation: Operation, message: MessageType, matching: Matching = Matching.AFTER
    ) -> tuple[CompiledRule, ...]:
        return self.rules.get((operation, message, matching), ())


def compiled(policy: Policy) -> CompiledPolicy:
    rules: dict[tuple[Operation, MessageType, Matching], tuple[CompiledRule, ...]] = {}
    for number, rule in enumerate(policy.rules, 1):
        key = rule.operation, rule.message, rule.matching
        rules[key] = (*rules.get(key, ()), compiled_rule(rule, number))
    return CompiledPolicy(policy, rules)


def compiled_rule(rule: Rule, number: int) -> CompiledRule:
    branches = _compiled(rule.branches, number, 1)
    on_exception = _compiled(rule.on_exception, number, 1 + len(branches))
    is_common = all(call.name in _COMMON for branch in rule.branches for call in calls_in(branch.condition))
    only_blocks = is_common and all(branch.actions == _BLOCK for branch in rule.branches)
    asked = {call.name for branch in rule.branches for call in calls_in(branch.condition)}
    senders = [
        call.arguments[0]
        for branch in (*rule.branches, *rule.on_exception)
        for call in calls_in(branch.condition)
        if call.name == "AuthenticateSender"
    ]
    return CompiledRule(
        rule,
        number,
        branches,
        on_exception,
        is_common,
        only_blocks,
        goes_by_load=asked == {"BrokerLoadIndex"},
        sender_groups=tuple(senders),
    )


def _compiled(branches: tuple[Branch, ...], rule: int, first: int) -> _Branches:
    return tuple(
        (
            first + place,
            evaluated(branch.condition),
            _actions(branch.actions, (rule, first + place)),
        )
        for place, branch in enumerate(branches)
    )


def _actions(calls: tuple[Call, ...], place: tuple[int, int]) -> tuple[Action, ...]:
    """Whatever their order, blocks come first: what fails after them cannot undo them."""
    made = [(call.name not in _BLOCKING, executed(call, (*place, turn))) for turn, call in enumerate(calls)]
    return tuple(action for _, action in sorted(made, key=lambda one: one[0]))


def _first(branches: _Branches, situation: Situation) -> Outcome | None:
    for number, condition, actions in branches:
        if condition is None or condition(situation):
            outcome = situation.outcome = Outcome(number)
            outcome.allows = not actions
            for action in actions:
                action(situation)
            return outcome
    return None


def _shown(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= 500 else text[:497] + "..."
