"""How a filter is written: the canonical text, in the native language, that parses back to an equal tree."""

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
    Own,
    Rlike,
    Topic,
    XPath,
)
from tidings.model.values import BARE_NAME

KEYWORDS = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "RLIKE", "IS", "NULL", "TRUE", "FALSE", "THIS"})

# How tightly each form binds; an operand that binds less tightly than its place asks for gets parentheses.
_OR, _AND, _NOT, _TEST, _SUM, _PRODUCT, _UNARY, _PRIMARY = range(8)


def written(node: Expression) -> str:
    return _text(node)[0]


def written_string(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def written_name(name: str) -> str:
    """Bare where the language reads it as a name, in backquotes elsewhere."""
    if name.startswith("$"):
        return name
    upper = name.upper()
    if BARE_NAME.fullmatch(name) and upper not in KEYWORDS and not upper.startswith("THIS."):
        return name
    return "`" + name.replace("`", "``") + "`"


def _text(node: Expression) -> tuple[str, int]:
    match node:
        case Constant(value):
            return _constant(value)
        case Attribute(name):
            return written_name(name), _PRIMARY
        case Own(name):
            plain = BARE_NAME.fullmatch(name) is not None
            return "this." + (name if plain else "`" + name.replace("`", "``") + "`"), _PRIMARY
        case Negative(Constant(value)):  # without parentheses it would be read as a negative constant
            return f"-({_constant(value)[0]})", _UNARY
        case Negative(operand):
            return "-" + _inside(operand, _PRIMARY), _UNARY
        case Arithmetic(left, operator, right):
            level = _SUM if operator in "+-" else _PRODUCT
            return f"{_inside(left, level)} {operator} {_inside(right, level + 1)}", level
        case Call(function, arguments):
            return f"{function}({', '.join(_inside(one, _SUM) for one in arguments)})", _PRIMARY
        case Topic(pattern):
            return f"topic({written_string(pattern)})", _PRIMARY
        case XPath(path):
            return f"xpath({written_string(path)})", _PRIMARY
        case And(parts):
            return " AND ".join(_inside(part, _NOT) for part in parts), _AND
        case Or(parts):
            return " OR ".join(_inside(part, _AND) for part in parts), _OR
        case Not(Between() | In() | Like() | Rlike() | IsNull() as part):
            return _test(part, "NOT "), _TEST
        case Not(part):
            return "NOT " + _inside(part, _NOT), _NOT
        case Comparison(left, operator, right):
            return f"{_inside(left, _SUM)} {operator} {_inside(right, _SUM)}", _TEST
        case _:
            return _test(node, ""), _TEST


def _test(node: Between | In | Like | Rlike | IsNull, negation: str) -> str:
    value = _inside(node.value, _SUM)
    match node:
        case Between(_, low, high):
            return f"{value} {negation}BETWEEN {_inside(low, _SUM)} AND {_inside(high, _SUM)}"
        case In(_, options):
            return f"{value} {negation}IN ({', '.join(_inside(one, _SUM) for one in options)})"
        case Like(_, pattern):
            return f"{value} {negation}LIKE {written_string(pattern)}"
        case Rlike(_, pattern):
            return f"{value} {negation}RLIKE {written_string(pattern)}"
        case IsNull():
            return f"{value} IS {negation}NULL"


def _inside(node: Expression, least: int) -> str:
    text, level = _text(node)
    return text if level >= least else f"({text})"


def _constant(value: bool | int | float | str | None) -> tuple[str, int]:
    if value is None:
        return "NULL", _PRIMARY
    if isinstance(value, bool):
        return ("TRUE" if value else "FALSE"), _PRIMARY
    if isinstance(value, str):
        return written_string(value), _PRIMARY
    text = repr(value + 0.0 if isinstance(value, float) else value)  # -0.0 is 0.0
    return text, (_UNARY if text.startswith("-") else _PRIMARY)
