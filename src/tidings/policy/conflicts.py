"""What can be seen in a policy when it is set: branches that never apply, and actions that undo each other."""

from collections.abc import Iterator

from tidings.model.expression import Constant
from tidings.policy import registry
from tidings.policy.elements import Effect
from tidings.policy.finding import Finding, Severity
from tidings.policy.intervals import contradiction, implies
from tidings.policy.policy import Policy
from tidings.policy.statement import TRUE, Branch, Call, MessageType, Operation, Rule
from tidings.policy.text import written_call, written_condition


def findings(policy: Policy) -> list[Finding]:
    """Everything that probably is not meant, in the order of the rules. An empty list promises nothing."""
    found = [one for number, rule in enumerate(policy.rules, 1) for one in _of_rule(number, rule)]
    return [*found, *_between(policy.rules)]


def _of_rule(number: int, rule: Rule) -> Iterator[Finding]:
    if rule.operation is Operation.INSERT and rule.message is MessageType.PUBLICATION:
        yield Finding(Severity.WARNING, number, "publications are never inserted, so the rule never fires")
    if not any(branch.actions for branch in rule.branches):
        yield Finding(Severity.WARNING, number, "no branch has an action, so the rule does nothing")
    yield from _of_branches(number, rule.branches, 0)
    yield from _of_branches(number, rule.on_exception, len(rule.branches))


def _of_branches(number: int, branches: tuple[Branch, ...], counted: int) -> Iterator[Finding]:
    for place, branch in enumerate(branches):
        here = counted + place + 1
        earlier = next((one for one in range(place) if implies(branch.condition, branches[one].condition)), None)
        clash = contradiction(branch.condition)
        if clash is not None:
            yield Finding(Severity.WARNING, number, f"never applies: {clash}", here)
        elif earlier is not None:
            before = branches[earlier].condition
            why = "is always true" if before == TRUE else f"{written_condition(before)} takes every such message"
            yield Finding(Severity.WARNING, number, f"never applies: branch {counted + earlier + 1} {why}", here)
        for severity, message in _of_chain(branch.actions):
            yield Finding(severity, number, message, here)


def _of_chain(actions: tuple[Call, ...]) -> Iterator[tuple[Severity, str]]:
    for place, action in enumerate(actions):
        if action in actions[:place]:
            yield Severity.WARNING, f"{written_call(action)} is there twice"
    kinds = [(action, registry.find(action.name)) for action in actions]
    distinct = {action.name: element for action, element in kinds if element is not None}
    blocking = next((name for name, one in distinct.items() if one.effect is Effect.BLOCKS), None)
    idle = [name for name, one in distinct.items() if one.changes_message or one.effect is Effect.ROUTES]
    if blocking is not None and idle:
        yield Severity.WARNING, f"{blocking}() comes first, which leaves {', '.join(idle)} nothing to do"
    conversions = [name for name, one in distinct.items() if one.effect is Effect.CONVERTS]
    if len(conversions) > 1:
        yield Severity.WARNING, f"{conversions[0]}() leaves {', '.join(conversions[1:])} nothing to convert"
    yield from _out_of_order(actions)
    yield from _of_attributes(actions)


def _out_of_order(actions: tuple[Call, ...]) -> Iterator[tuple[Severity, str]]:
    order = list(Effect)
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


def _of_attributes(actions: tuple[Call, ...]) -> Iterator[tuple[Severity, str]]:
    removed = _names(actions, "RemoveAttributes")
    kept = [_names((action,), "KeepOnlyAttributes") for action in actions if action.name == "KeepOnlyAttributes"]
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


def _names(actions: tuple[Call, ...], name: str) -> frozenset[str]:
    given = [one for action in actions if action.name == name for one in action.arguments]
    return frozenset(str(one.value) for one in given if isinstance(one, Constant))


def _between(rules: tuple[Rule, ...]) -> Iterator[Finding]:
    for number, rule in enumerate(rules, 1):
        same = [other for other in range(number - 1) if rules[other] == rule]
        if same:
            yield Finding(Severity.WARNING, number, f"the same as rule {same[0] + 1}")
            continue
        stopped = next((other for other, one in enumerate(rules, 1) if other != number and _stops(one, rule)), None)
        if stopped is not None:
            yield Finding(Severity.WARNING, number, f"rule {stopped} blocks every such message")
        if _uninserts(rule) and not any(_blocks_with(other, rule) for other in rules):
            message = (
                f"keeps the {rule.message.lower()} out of the tables, but no rule blocks it: it is still sent on; "
                f"add On(Forward, {rule.message}) with BlockMessage()"
            )
            yield Finding(Severity.NOTE, number, message)


def _stops(blocking: Rule, rule: Rule) -> bool:
    """Whether one rule blocks, always, all that another one is about; one that also blocks has its own reason."""
    return (
        blocking.heading == rule.heading
        and blocking.matching == rule.matching
        and blocking.points >= rule.points
        and blocking.attach == rule.attach
        and blocking.branches[0].condition == TRUE
        and Call("BlockMessage") in blocking.branches[0].actions
        and not any(Call("BlockMessage") in branch.actions for branch in rule.branches)
    )


def _uninserts(rule: Rule) -> bool:
    return any(Call("UninsertMessage") in branch.actions for branch in rule.branches)


def _blocks_with(other: Rule, rule: Rule) -> bool:
    return (
        other.operation is Operation.FORWARD
        and other.message is rule.message
        and bool(other.points & rule.points)
        and any(Call("BlockMessage") in branch.actions for branch in other.branches)
    )
