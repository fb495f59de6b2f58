"""Comparisons of one element's value, seen as the numbers or values that they leave: when two cannot both hold.

Cautious: it answers only what is certain from the text, and calls nothing.
"""

from tidings.model.expression import Constant
from tidings.policy.statement import TRUE, And, Call, Comparison, Condition, Or, Values
from tidings.policy.text import written_condition

Plain = bool | int | float | str


def contradiction(condition: Condition) -> str | None:
    """Why a condition can never hold, or None."""
    if isinstance(condition, Or):
        clashes = [contradiction(part) for part in condition.parts]
        return clashes[0] if all(clashes) else None
    parts = condition.parts if isinstance(condition, And) else (condition,)
    simple = [part for part in parts if isinstance(part, Call | Comparison)]
    for place, part in enumerate(simple):
        test = _test(part)
        if isinstance(test.value, Values) and not test.value.items:
            return f"{written_condition(part)} has nothing to choose from"
        for other in simple[:place]:
            if test.call == _test(other).call and _disjoint(test, _test(other)):
                return f"{written_condition(other)} and {written_condition(part)} exclude each other"
    return next((clash for part in parts if isinstance(part, Or) and (clash := contradiction(part))), None)


def implies(first: Condition, second: Condition) -> bool:
    """Where the first holds, the second certainly does."""
    return _implies(first, second, {})


def _implies(first: Condition, second: Condition, known: dict[tuple[int, int], bool]) -> bool:
    pair = id(first), id(second)  # each pair of parts is looked at once, however deeply they are nested
    if pair not in known:
        known[pair] = _implied(first, second, known)
    return known[pair]


def _implied(first: Condition, second: Condition, known: dict[tuple[int, int], bool]) -> bool:
    if second == TRUE or first == second:
        return True
    if isinstance(first, Or):
        return all(_implies(part, second, known) for part in first.parts)
    if isinstance(second, And):
        return all(_implies(first, part, known) for part in second.parts)
    if isinstance(second, Or) and any(_implies(first, part, known) for part in second.parts):
        return True
    if isinstance(first, And):
        return any(_implies(part, second, known) for part in first.parts)
    return not isinstance(second, Or) and _within(_test(first), _test(second))


def _test(condition: Call | Comparison) -> Comparison:
    """A condition that stands alone is compared with true."""
    return Comparison(condition, "=", Constant(True)) if isinstance(condition, Call) else condition


def _disjoint(one: Comparison, other: Comparison) -> bool:
    for first, second in ((one, other), (other, one)):
        options = _options(first)
        if options is not None:
            return all(_holds(value, second) is False for value in options)
    low, high = (one, other) if one.operator in (">", ">=") else (other, one)
    if low.operator not in (">", ">=") or high.operator not in ("<", "<="):
        return False
    bottom, top = _plain(low), _plain(high)
    if not _ordered(bottom, top):
        return False
    touching = low.operator == ">=" and high.operator == "<="
    return bottom > top or (bottom == top and not touching)  # type: ignore[operator]


def _within(first: Comparison, second: Comparison) -> bool:
    """Every value that the first leaves, the second leaves too."""
    if first.call != second.call:
        return False
    options = _options(first)
    if options is not None:
        return all(_holds(value, second) is True for value in options)
    mine, other = _plain(first), _plain(second)
    same_side = first.operator[0] == second.operator[0] and first.operator[0] in "<>"
    if not same_side or not _ordered(mine, other):
        return False
    if mine == other:
        return first.operator == second.operator or second.operator in ("<=", ">=")
    return mine > other if first.operator[0] == ">" else mine < other  # type: ignore[operator]


def _options(test: Comparison) -> list[Plain] | None:
    """The values that an `=` or an `in` names, if all of them are known."""
    if test.operator not in ("=", "in"):
        return None
    items = test.value.items if isinstance(test.value, Values) else (test.value,)
    known = [one.value for one in items if isinstance(one, Constant) and one.value is not None]
    return known if len(known) == len(items) else None


def _holds(value: Plain, test: Comparison) -> bool | None:
    """Whether the value passes the test; None where that is not known from the text."""
    options = _options(test)
    if options is not None:
        return any(_same(value, option) for option in options)
    limit = _plain(test)
    if limit is None:
        return None
    if test.operator == "!=":
        return not _same(value, limit)
    if not _ordered(value, limit):
        return None
    below, above = value < limit, value > limit  # type: ignore[operator]
    return {"<": below, "<=": not above, ">": above, ">=": not below}.get(test.operator)


def _plain(test: Comparison) -> Plain | None:
    return test.value.value if isinstance(test.value, Constant) else None


def _same(one: Plain, other: Plain) -> bool:
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def _ordered(one: Plain | None, other: Plain | None) -> bool:
    """Whether two values can be put in order: two numbers or two strings."""
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str)
    return one is not None and other is not None and not isinstance(one, bool) and not isinstance(other, bool)
