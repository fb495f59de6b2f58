"""Warnings about a policy that are visible in its text: branches that never apply, actions that cancel each other.

The analysis is conservative: it reports only what it can prove from constants, so an empty result proves nothing.
"""

from collections.abc import Iterator

from tidings.model.expression import Constant
from tidings.policy import registry
from tidings.policy.ast import (
    TRUE,
    AllOf,
    AnyOf,
    Branch,
    Condition,
    ElementCall,
    ElementComparison,
    MessageType,
    Rule,
    RuleOperation,
    Values,
)
from tidings.policy.elements import ActionEffect
from tidings.policy.placement import Finding, Severity
from tidings.policy.policy import Policy
from tidings.policy.syntax.printer import format_call, format_condition


def findings(policy: Policy) -> list[Finding]:
    """Return warnings and notes about rules that probably are a mistake, in the order of the rules.

    An empty list does not mean that the policy has no mistakes.
    """
    rule_findings = [finding for number, rule in enumerate(policy.rules, 1) for finding in _rule_findings(number, rule)]
    return [*rule_findings, *_pair_findings(policy.rules)]


def _rule_findings(number: int, rule: Rule) -> Iterator[Finding]:
    """Yield the findings about one rule by itself."""
    if rule.operation is RuleOperation.INSERT and rule.message is MessageType.PUBLICATION:
        yield Finding(Severity.WARNING, number, "publications are never inserted, so the rule never fires")
    if not any(branch.actions for branch in rule.branches):
        yield Finding(Severity.WARNING, number, "no branch has an action, so the rule does nothing")
    yield from _branch_findings(number, rule.branches, 0)
    yield from _branch_findings(number, rule.on_exception, len(rule.branches))


def _branch_findings(number: int, branches: tuple[Branch, ...], branches_before: int) -> Iterator[Finding]:
    """Yield the findings about branches; `branches_before` is the number of branches before the first one."""
    for place, branch in enumerate(branches):
        here = branches_before + place + 1
        earlier = next((other for other in range(place) if implies(branch.condition, branches[other].condition)), None)
        clash = contradiction(branch.condition)
        if clash is not None:
            yield Finding(Severity.WARNING, number, f"never applies: {clash}", here)
        elif earlier is not None:
            before = branches[earlier].condition
            why = "is always true" if before == TRUE else f"{format_condition(before)} takes every such message"
            yield Finding(
                Severity.WARNING, number, f"never applies: branch {branches_before + earlier + 1} {why}", here
            )
        for severity, message in _action_findings(branch.actions):
            yield Finding(severity, number, message, here)


def _action_findings(actions: tuple[ElementCall, ...]) -> Iterator[tuple[Severity, str]]:
    """Yield the findings about the actions of one branch."""
    for place, action in enumerate(actions):
        if action in actions[:place]:
            yield Severity.WARNING, f"{format_call(action)} is there twice"
    kinds = [(action, registry.find(action.name)) for action in actions]
    distinct = {action.name: element for action, element in kinds if element is not None}
    blocking = next((name for name, element in distinct.items() if element.effect is ActionEffect.BLOCKS), None)
    idle = [
        name for name, element in distinct.items() if element.changes_message or element.effect is ActionEffect.ROUTES
    ]
    if blocking is not None and idle:
        yield Severity.WARNING, f"{blocking}() comes first, which leaves {', '.join(idle)} nothing to do"
    conversions = [name for name, element in distinct.items() if element.effect is ActionEffect.CONVERTS]
    if len(conversions) > 1:
        yield Severity.WARNING, f"{conversions[0]}() leaves {', '.join(conversions[1:])} nothing to convert"
    yield from _order_findings(actions)
    yield from _attribute_findings(actions)


def _order_findings(actions: tuple[ElementCall, ...]) -> Iterator[tuple[Severity, str]]:
    """Yield the actions that are carried out in another order than they are written."""
    order = list(ActionEffect)
    highest: tuple[int, str] | None = None
    for action in actions:
        element = registry.find(action.name)
        if element is None or element.effect is None or not element.changes_message:
            continue
        turn = order.index(element.effect)
        if highest is not None and turn < highest[0]:
            yield Severity.NOTE, f"{highest[1]}() stands before {action.name}() but is carried out after it"
        if highest is None or turn > highest[0]:
            highest = turn, action.name


def _attribute_findings(actions: tuple[ElementCall, ...]) -> Iterator[tuple[Severity, str]]:
    """Yield the findings about attributes that are both kept and removed."""
    removed = _attribute_names(actions, "RemoveAttributes")
    kept = [
        _attribute_names((action,), "KeepOnlyAttributes") for action in actions if action.name == "KeepOnlyAttributes"
    ]
    if not kept:
        return
    common = frozenset.intersection(*kept)
    both = sorted(removed & common)
    if both:
        yield Severity.WARNING, f"{', '.join(both)} is kept and removed; what is removed is gone"
    if not common:
        yield Severity.WARNING, "the lists of KeepOnlyAttributes have nothing in common, so nothing is left"
    elif not common - removed:
        yield Severity.WARNING, "everything that KeepOnlyAttributes keeps is removed, so nothing is left"
    elif removed - common:
        idle = ", ".join(sorted(removed - common))
        yield Severity.NOTE, f"KeepOnlyAttributes takes {idle} away already"


def _attribute_names(actions: tuple[ElementCall, ...], name: str) -> frozenset[str]:
    arguments = [argument for action in actions if action.name == name for argument in action.arguments]
    return frozenset(str(argument.value) for argument in arguments if isinstance(argument, Constant))


def _pair_findings(rules: tuple[Rule, ...]) -> Iterator[Finding]:
    """Yield the findings about rules that repeat or block another rule, or that lack a second rule to be effective."""
    for number, rule in enumerate(rules, 1):
        same = [other for other in range(number - 1) if rules[other] == rule]
        if same:
            yield Finding(Severity.WARNING, number, f"the same as rule {same[0] + 1}")
            continue
        stopped = next(
            (
                other_number
                for other_number, other in enumerate(rules, 1)
                if other_number != number and _always_blocks_before(other, rule)
            ),
            None,
        )
        if stopped is not None:
            yield Finding(Severity.WARNING, number, f"rule {stopped} blocks every such message")
        if _uninserts(rule) and not any(_blocks_same_messages(other, rule) for other in rules):
            message = (
                f"keeps the {rule.message.lower()} out of the tables, but no rule blocks it: it is still sent on; "
                f"add On(Forward, {rule.message}) with BlockMessage()"
            )
            yield Finding(Severity.NOTE, number, message)


def _always_blocks_before(blocking: Rule, rule: Rule) -> bool:
    """Return whether `blocking` blocks every message to which `rule` applies, and `rule` itself never blocks."""
    return (
        blocking.heading == rule.heading
        and blocking.matching == rule.matching
        and blocking.points >= rule.points
        and blocking.attach == rule.attach
        and blocking.branches[0].condition == TRUE
        and ElementCall("BlockMessage") in blocking.branches[0].actions
        and not any(ElementCall("BlockMessage") in branch.actions for branch in rule.branches)
    )


def _uninserts(rule: Rule) -> bool:
    return any(ElementCall("UninsertMessage") in branch.actions for branch in rule.branches)


def _blocks_same_messages(other: Rule, rule: Rule) -> bool:
    return (
        other.operation is RuleOperation.FORWARD
        and other.message is rule.message
        and bool(other.points & rule.points)
        and any(ElementCall("BlockMessage") in branch.actions for branch in other.branches)
    )


Plain = bool | int | float | str


def contradiction(condition: Condition) -> str | None:
    """Return why a condition can never hold, or None if that cannot be proved."""
    if isinstance(condition, AnyOf):
        clashes = [contradiction(part) for part in condition.parts]
        return clashes[0] if all(clashes) else None
    parts = condition.parts if isinstance(condition, AllOf) else (condition,)
    simple = [part for part in parts if isinstance(part, ElementCall | ElementComparison)]
    for place, part in enumerate(simple):
        test = _as_comparison(part)
        if isinstance(test.value, Values) and not test.value.items:
            return f"{format_condition(part)} has nothing to choose from"
        for other in simple[:place]:
            if test.call == _as_comparison(other).call and _are_disjoint(test, _as_comparison(other)):
                return f"{format_condition(other)} and {format_condition(part)} exclude each other"
    return next((clash for part in parts if isinstance(part, AnyOf) and (clash := contradiction(part))), None)


def implies(first: Condition, second: Condition) -> bool:
    """Return whether `second` certainly holds whenever `first` holds. False means that this cannot be proved."""
    return _implies(first, second, {})


def _implies(first: Condition, second: Condition, memo: dict[tuple[int, int], bool]) -> bool:
    pair = id(first), id(second)  # memoised: without it, nested conditions take exponential time
    if pair not in memo:
        memo[pair] = _compute_implies(first, second, memo)
    return memo[pair]


def _compute_implies(first: Condition, second: Condition, memo: dict[tuple[int, int], bool]) -> bool:
    if second == TRUE or first == second:
        return True
    if isinstance(first, AnyOf):
        return all(_implies(part, second, memo) for part in first.parts)
    if isinstance(second, AllOf):
        return all(_implies(first, part, memo) for part in second.parts)
    if isinstance(second, AnyOf) and any(_implies(first, part, memo) for part in second.parts):
        return True
    if isinstance(first, AllOf):
        return any(_implies(part, second, memo) for part in first.parts)
    return not isinstance(second, AnyOf) and _is_within(_as_comparison(first), _as_comparison(second))


def _as_comparison(condition: ElementCall | ElementComparison) -> ElementComparison:
    """Return the condition as a comparison; a bare call is compared with True."""
    return ElementComparison(condition, "=", Constant(True)) if isinstance(condition, ElementCall) else condition


def _are_disjoint(one: ElementComparison, other: ElementComparison) -> bool:
    """Return whether no value passes both tests."""
    for first, second in ((one, other), (other, one)):
        options = _allowed_values(first)
        if options is not None:
            return all(_passes(value, second) is False for value in options)
    low, high = (one, other) if one.operator in (">", ">=") else (other, one)
    if low.operator not in (">", ">=") or high.operator not in ("<", "<="):
        return False
    bottom, top = _constant_value(low), _constant_value(high)
    if not _are_comparable(bottom, top):
        return False
    touching = low.operator == ">=" and high.operator == "<="
    return bottom > top or (bottom == top and not touching)  # type: ignore[operator]


def _is_within(first: ElementComparison, second: ElementComparison) -> bool:
    """Return whether every value that passes `first` also passes `second`."""
    if first.call != second.call:
        return False
    options = _allowed_values(first)
    if options is not None:
        return all(_passes(value, second) is True for value in options)
    limit, other = _constant_value(first), _constant_value(second)
    same_side = first.operator[0] == second.operator[0] and first.operator[0] in "<>"
    if not same_side or not _are_comparable(limit, other):
        return False
    if limit == other:
        return first.operator == second.operator or second.operator in ("<=", ">=")
    return limit > other if first.operator[0] == ">" else limit < other  # type: ignore[operator]


def _allowed_values(test: ElementComparison) -> list[Plain] | None:
    """Return the values that an `=` or an `in` allows; None for other operators or if one is a variable."""
    if test.operator not in ("=", "in"):
        return None
    items = test.value.items if isinstance(test.value, Values) else (test.value,)
    values = [item.value for item in items if isinstance(item, Constant) and item.value is not None]
    return values if len(values) == len(items) else None


def _passes(value: Plain, test: ElementComparison) -> bool | None:
    """Return whether the value passes the test; None if that depends on a variable or on different kinds of values."""
    options = _allowed_values(test)
    if options is not None:
        return any(_are_equal(value, option) for option in options)
    limit = _constant_value(test)
    if limit is None:
        return None
    if test.operator == "!=":
        return not _are_equal(value, limit)
    if not _are_comparable(value, limit):
        return None
    below, above = value < limit, value > limit  # type: ignore[operator]
    return {"<": below, "<=": not above, ">": above, ">=": not below}.get(test.operator)


def _constant_value(test: ElementComparison) -> Plain | None:
    return test.value.value if isinstance(test.value, Constant) else None


def _are_equal(one: Plain, other: Plain) -> bool:
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def _are_comparable(one: Plain | None, other: Plain | None) -> bool:
    """Return whether two values can be ordered: two numbers or two strings."""
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str)
    return one is not None and other is not None and not isinstance(one, bool) and not isinstance(other, bool)
