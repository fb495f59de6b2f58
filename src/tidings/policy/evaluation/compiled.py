"""Compiled rules: evaluate the conditions of a rule and execute the actions of the first branch that holds.

A rule is compiled once into closures. `CompiledRule.apply` does not raise the exceptions of conditions and actions: it
runs the rule's `OnException` branches instead, and if these do not handle the exception, it returns an outcome that
blocks the message.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from tidings.policy.ast import Argument, Branch, ElementCall, Matching, MessageType, Rule, RuleOperation, calls_in
from tidings.policy.evaluation.actions import compile_action
from tidings.policy.evaluation.conditions import compile_condition
from tidings.policy.evaluation.evaluation import (
    RuleContext,
    RuleOutcome,
    SharedFacts,
    TrustAnswerNeeded,
    argument_value,
)
from tidings.policy.policy import Policy

Condition: TypeAlias = Callable[[RuleContext], bool]
Action: TypeAlias = Callable[[RuleContext], None]
_BLOCKING = {"BlockMessage", "UninsertMessage"}
_COMMON = {"BrokerLoadIndex", "MessageSizeIndex", "StrictMatch"}
_BLOCK = (ElementCall("BlockMessage"),)
_Branches: TypeAlias = tuple[tuple[int, Condition | None, tuple[Action, ...]], ...]


class CompiledRule(msgspec.Struct, frozen=True, eq=False):
    """A rule compiled to closures; `number` is its position in the policy, counted from 1."""

    rule: Rule
    number: int
    branches: _Branches
    on_exception: _Branches
    is_common: bool  # the conditions do not depend on the receiver and cannot fail
    only_blocks: bool  # as `is_common`, and every branch only blocks
    goes_by_load: bool  # the conditions depend on nothing but the broker's load
    sender_groups: tuple[Argument, ...]  # trust groups in conditions on the sender

    def may_apply(self, rule_context: RuleContext | SharedFacts) -> bool:
        """Return False only if no branch holds for any receiver. Cheaper than `apply`."""
        if not self.is_common:
            return True
        for _, condition, _ in self.branches:  # noqa: SIM110 - a generator would cost more than most conditions
            if condition is None or condition(rule_context):  # type: ignore[arg-type]  # SharedFacts is enough
                return True
        return False

    def ask_sender(self, rule_context: RuleContext) -> None:
        """Raise `TrustAnswerNeeded` if a condition may need an unknown answer about the sender's trust groups."""
        for group in self.sender_groups:
            rule_context.is_member(rule_context.facts.sender, str(argument_value(group, rule_context)))

    def apply(self, rule_context: RuleContext) -> RuleOutcome | None:
        """Return the outcome of the rule, or None if no branch holds.

        Raises `TrustAnswerNeeded` if an answer of the trust provider is missing, and no other exception. If a condition
        or action fails, the outcome is that of `OnException`; what the rule had blocked before stays blocked.
        """
        before = rule_context.outcome
        try:
            return _apply_first_branch(self.branches, rule_context)
        except TrustAnswerNeeded:
            raise
        except Exception as error:  # whatever an element raises
            failed_outcome = rule_context.outcome
            outcome = self._handle_exception(rule_context, _error_text(error))
            if failed_outcome is not before:  # what was blocked before the failure stays blocked
                outcome.blocks |= failed_outcome.blocks
                outcome.uninserts |= failed_outcome.uninserts
            return outcome

    def _handle_exception(self, rule_context: RuleContext, error: str) -> RuleOutcome:
        """Return the outcome of `OnException` after an error, or one that blocks if it fails or does not apply."""
        rule_context.exception = error
        try:
            outcome = _apply_first_branch(self.on_exception, rule_context)
        except TrustAnswerNeeded:
            raise
        except Exception as second:  # whatever an element raises
            error, outcome = f"{error}; then in OnException: {_error_text(second)}", None
        finally:
            rule_context.exception = ""
        if outcome is None:
            outcome = RuleOutcome(0)
            outcome.blocks, outcome.failure = True, error
        else:
            outcome.handled_error = error
        return outcome

    def handle_conversion_error(
        self, rule_context: RuleContext, error: Exception, handled_error: str | None
    ) -> RuleOutcome:
        """Return the outcome of the rule after one of its conversions failed with `error`.

        `handled_error` is the error that `OnException` had handled when it asked for the conversion: the new outcome
        then blocks the message. If it is None, `OnException` runs.
        """
        if handled_error is None:
            return self._handle_exception(rule_context, _error_text(error))
        outcome = RuleOutcome(0)
        outcome.blocks = True
        outcome.failure = f"{handled_error}; then in OnException: {_error_text(error)}"
        return outcome


class CompiledPolicy(msgspec.Struct, frozen=True, eq=False):
    """A policy with its compiled rules by operation, message type and matching."""

    policy: Policy
    rules: dict[tuple[RuleOperation, MessageType, Matching], tuple[CompiledRule, ...]]

    def of(
        self, operation: RuleOperation, message: MessageType, matching: Matching = Matching.AFTER
    ) -> tuple[CompiledRule, ...]:
        """Return the compiled rules for this operation, message type and matching, in the order of the policy."""
        return self.rules.get((operation, message, matching), ())


def compile_policy(policy: Policy) -> CompiledPolicy:
    """Compile all rules of a policy."""
    rules: dict[tuple[RuleOperation, MessageType, Matching], tuple[CompiledRule, ...]] = {}
    for number, rule in enumerate(policy.rules, 1):
        key = rule.operation, rule.message, rule.matching
        rules[key] = (*rules.get(key, ()), compile_rule(rule, number))
    return CompiledPolicy(policy, rules)


def compile_rule(rule: Rule, number: int) -> CompiledRule:
    """Compile one rule; `number` is its position in the policy, counted from 1."""
    branches = _compile_branches(rule.branches, number, 1)
    on_exception = _compile_branches(rule.on_exception, number, 1 + len(branches))
    is_common = all(call.name in _COMMON for branch in rule.branches for call in calls_in(branch.condition))
    only_blocks = is_common and all(branch.actions == _BLOCK for branch in rule.branches)
    condition_names = {call.name for branch in rule.branches for call in calls_in(branch.condition)}
    sender_groups = [
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
        goes_by_load=condition_names == {"BrokerLoadIndex"},
        sender_groups=tuple(sender_groups),
    )


def _compile_branches(branches: tuple[Branch, ...], rule: int, first: int) -> _Branches:
    return tuple(
        (
            first + place,
            compile_condition(branch.condition),
            _compile_actions(branch.actions, (rule, first + place)),
        )
        for place, branch in enumerate(branches)
    )


def _compile_actions(calls: tuple[ElementCall, ...], place: tuple[int, int]) -> tuple[Action, ...]:
    """Compile the actions of a branch, blocking actions first, so that an action that fails cannot undo a block."""
    actions = [(call.name not in _BLOCKING, compile_action(call, (*place, turn))) for turn, call in enumerate(calls)]
    return tuple(action for _, action in sorted(actions, key=lambda entry: entry[0]))


def _apply_first_branch(branches: _Branches, rule_context: RuleContext) -> RuleOutcome | None:
    """Execute the actions of the first branch whose condition holds; return its outcome, or None."""
    for number, condition, actions in branches:
        if condition is None or condition(rule_context):
            outcome = rule_context.outcome = RuleOutcome(number)
            outcome.allows = not actions
            for action in actions:
                action(rule_context)
            return outcome
    return None


def _error_text(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= 500 else text[:497] + "..."
