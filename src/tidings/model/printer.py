"""Print a filter as canonical text of the native language, which parses back to an equal tree."""

from tidings.model.expression import (
    And,
    Arithmetic,
    Attribute,
    Between,
    Call,
    Comparison,
    Constant,
    Expression,
    In,
    IsNull,
    Like,
    Negative,
    Not,
    Or,
    OwnContextValue,
    Rlike,
    Topic,
    XPath,
)
from tidings.model.values import BARE_NAME

KEYWORDS = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "RLIKE", "IS", "NULL", "TRUE", "FALSE", "THIS"})

# Precedence, from low to high. An operand of lower precedence than its position requires gets parentheses.
_OR, _AND, _NOT, _TEST, _SUM, _PRODUCT, _UNARY, _PRIMARY = range(8)


def format_expression(node: Expression) -> str:
    """Return the canonical text of a tree."""
    return _format_node(node)[0]


def format_string(value: str) -> str:
    """Return a string literal with quotes."""
    return "'" + value.replace("'", "''") + "'"


def format_name(name: str) -> str:
    """Return a name as the parser reads it: bare if possible, otherwise in backquotes."""
    if name.startswith("$"):
        return name
    upper = name.upper()
    if BARE_NAME.fullmatch(name) and upper not in KEYWORDS and not upper.startswith("THIS."):
        return name
    return "`" + name.replace("`", "``") + "`"


def _format_node(node: Expression) -> tuple[str, int]:
    match node:
        case Constant(value):
            return _format_constant(value)
        case Attribute(name):
            return format_name(name), _PRIMARY
        case OwnContextValue(name):
            plain = BARE_NAME.fullmatch(name) is not None
            return "this." + (name if plain else "`" + name.replace("`", "``") + "`"), _PRIMARY
        case Negative(Constant(value)):  # without parentheses it would parse as a negative constant
            return f"-({_format_constant(value)[0]})", _UNARY
        case Negative(operand):
            return "-" + _parenthesized(operand, _PRIMARY), _UNARY
        case Arithmetic(left, operator, right):
            level = _SUM if operator in "+-" else _PRODUCT
            return f"{_parenthesized(left, level)} {operator} {_parenthesized(right, level + 1)}", level
        case Call(function, arguments):
            return f"{function}({', '.join(_parenthesized(argument, _SUM) for argument in arguments)})", _PRIMARY
        case Topic(pattern):
            return f"topic({format_string(pattern)})", _PRIMARY
        case XPath(path):
            return f"xpath({format_string(path)})", _PRIMARY
        case And(parts):
            return " AND ".join(_parenthesized(part, _NOT) for part in parts), _AND
        case Or(parts):
            return " OR ".join(_parenthesized(part, _AND) for part in parts), _OR
        case Not(Between() | In() | Like() | Rlike() | IsNull() as part):
            return _format_test(part, "NOT "), _TEST
        case Not(part):
            return "NOT " + _parenthesized(part, _NOT), _NOT
        case Comparison(left, operator, right):
            return f"{_parenthesized(left, _SUM)} {operator} {_parenthesized(right, _SUM)}", _TEST
        case _:
            return _format_test(node, ""), _TEST


def _format_test(node: Between | In | Like | Rlike | IsNull, negation: str) -> str:
    value = _parenthesized(node.value, _SUM)
    match node:
        case Between(_, low, high):
            return f"{value} {negation}BETWEEN {_parenthesized(low, _SUM)} AND {_parenthesized(high, _SUM)}"
        case In(_, options):
            return f"{value} {negation}IN ({', '.join(_parenthesized(option, _SUM) for option in options)})"
        case Like(_, pattern):
            return f"{value} {negation}LIKE {format_string(pattern)}"
        case Rlike(_, pattern):
            return f"{value} {negation}RLIKE {format_string(pattern)}"
        case IsNull():
            return f"{value} IS {negation}NULL"


def _parenthesized(node: Expression, level_min: int) -> str:
    text, level = _format_node(node)
    return text if level >= level_min else f"({text})"


def _format_constant(value: bool | int | float | str | None) -> tuple[str, int]:
    if value is None:
        return "NULL", _PRIMARY
    if isinstance(value, bool):
        return ("TRUE" if value else "FALSE"), _PRIMARY
    if isinstance(value, str):
        return format_string(value), _PRIMARY
    text = repr(value + 0.0 if isinstance(value, float) else value)  # -0.0 is 0.0
    return text, (_UNARY if text.startswith("-") else _PRIMARY)
