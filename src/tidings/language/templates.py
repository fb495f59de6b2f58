"""Parse tokens into templates: a filter without its literals, which is parsed once and filled in many times.

The subscriptions of an application mostly differ only in their literals. The grammar therefore does not build a tree
but a function from literals to the tree; `sql.parse` caches these functions by the shape of the text.
"""

import math
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from lark import Lark, Token, Transformer, UnexpectedToken
from lark.lexer import Lexer

from tidings.language.tokens import FUNCTIONS, TOO_DEEP, LiteralToken, scan, unquoted
from tidings.language.words import did_you_mean
from tidings.language.xpath import check_xpath
from tidings.model import patterns
from tidings.model.errors import FilterError
from tidings.model.expression import (
    ARITY,
    FALSE,
    NULL,
    SUBJECT,
    TRUE,
    Arithmetic,
    Attribute,
    Between,
    Call,
    Comparison,
    ComparisonOperator,
    Constant,
    In,
    IsNull,
    Like,
    Negative,
    Not,
    OwnContextValue,
    Rlike,
    Topic,
    XPath,
    all_of,
    any_of,
)
from tidings.model.limits import (
    MAX_CACHED_COMPARISONS,
    MAX_FILTER_NESTING,
    MAX_FILTER_PATTERNS,
    MAX_FILTER_PREDICATES,
    MAX_IN_VALUES,
    MAX_INTEGER,
    MIN_INTEGER,
)
from tidings.model.patterns import PatternError
from tidings.model.printer import KEYWORDS

Fill = Callable[[list[str]], Any]  # the literals as written -> a node of the tree
_SHORT = 64  # characters of a literal above which no other filter is expected to have the same


class LiteralRefusal(Exception):  # noqa: N818 - never leaves the language
    """A literal that is not valid in its place; `slot` is its number."""

    def __init__(self, slot: int, message: str) -> None:
        self.slot, self.message = slot, message


class _Refusal(Exception):  # noqa: N818 - never leaves this file
    """An error in the part of the text that all filters of a shape share."""

    def __init__(self, message: str, position: int | None) -> None:
        self.message, self.position = message, position or 0


class TemplatePart(NamedTuple):
    """A part of a template during parsing: a function that builds its node, and facts for the parts around it."""

    fill: Fill
    position: int
    value: bool = True  # may stand where a value is needed
    condition: bool = False  # may stand where a condition is needed
    depth: int = 1
    predicates: int = 0
    patterns: int = 0
    literal: LiteralToken | None = None  # set if the part is just a literal
    name: Attribute | OwnContextValue | None = None  # set if the part is just a name


def template(text: str, *, context: bool) -> Fill:
    """Parse a text; return the function that builds its tree, and that of every text of the same shape, from literals.

    Raises `FilterError` for a syntax error; the function raises `LiteralRefusal` for an invalid literal.
    """
    tokens = scan(text)
    if not tokens:
        return lambda _: TRUE
    try:
        return _condition(_grammar(context).parse(tokens)).fill  # type: ignore[arg-type]
    except UnexpectedToken as error:
        position = len(text) if error.token.type == "$END" else error.token.start_pos or 0
        raise FilterError(_unexpected(error), text, position) from None
    except _Refusal as refused:
        raise FilterError(refused.message, text, refused.position) from None


class _Tokens(Lexer):
    """A lexer for lark that passes on tokens that `scan` has made."""

    def __init__(self, _: Any) -> None: ...

    def lex(self, data: Any) -> Any:  # type: ignore[override] # lark passes what `parse` was given
        return iter(data)


@cache
def _grammar(context: bool) -> Lark:
    # The builder runs inside of the parser, which has a stack of its own: deep nesting cannot overflow Python's.
    grammar = (Path(__file__).parent / "sql.lark").read_text()
    return Lark(grammar, parser="lalr", lexer=_Tokens, maybe_placeholders=True, transformer=_Builder(context))


class _Builder(Transformer[Token, TemplatePart]):
    """Builds template parts: the parser calls the method of each rule of sql.lark with the parts of the rule."""

    def __init__(self, context: bool) -> None:
        super().__init__(visit_tokens=False)
        self._context = context

    # Conditions

    def disjunction(self, parts: list[TemplatePart]) -> TemplatePart:
        fills = [_condition(part).fill for part in parts]
        return _joined(lambda v: any_of([fill(v) for fill in fills]), parts)

    def conjunction(self, parts: list[TemplatePart]) -> TemplatePart:
        fills = [_condition(part).fill for part in parts]
        return _joined(lambda v: all_of([fill(v) for fill in fills]), parts)

    def negation(self, children: list[Any]) -> TemplatePart:
        word, part = children
        fill = _condition(part).fill
        return _joined(lambda v: Not(fill(v)), [part], word)

    def comparison(self, children: list[Any]) -> TemplatePart:
        left, operator, right = children
        first, second = _value(left).fill, _value(right).fill
        symbol: Any = "!=" if operator == "<>" else str(operator)
        if left.name is not None and right.literal is not None:
            return _test(_comparing(left.name, symbol, right.literal.slot, second), [left, right])
        return _test(lambda v: Comparison(first(v), symbol, second(v)), [left, right])

    def between(self, children: list[Any]) -> TemplatePart:
        value, negated, low, high = children
        fill, first, last = _value(value).fill, _value(low).fill, _value(high).fill
        return _test(lambda v: Between(fill(v), first(v), last(v)), [value, low, high], negated)

    def membership(self, children: list[Any]) -> TemplatePart:
        value, negated, *options = children
        if len(options) > MAX_IN_VALUES:
            raise _Refusal(f"IN has more than MAX_IN_VALUES ({MAX_IN_VALUES:,}) values", value.position)
        fill, fills = _value(value).fill, [_value(option).fill for option in options]
        return _test(
            lambda v: In(fill(v), tuple([option_fill(v) for option_fill in fills])), [value, *options], negated
        )

    def pattern(self, children: list[Any]) -> TemplatePart:
        value, negated, word, literal = children
        fill, slot = _value(value).fill, literal.slot
        if word.type == "LIKE":
            return _test(lambda v: Like(fill(v), _checked_text(v, slot, patterns.parse_like)), [value], negated, 1)
        return _test(lambda v: Rlike(fill(v), _checked_text(v, slot, patterns.compile_regex)), [value], negated, 1)

    def is_null(self, children: list[Any]) -> TemplatePart:
        value, negated, _ = children
        fill = _value(value).fill
        return _test(lambda v: IsNull(fill(v)), [value], negated)

    # Values

    def arithmetic(self, children: list[Any]) -> TemplatePart:
        left, operator, right = children
        first, second = _value(left).fill, _value(right).fill
        symbol: Any = str(operator)
        return _combined(lambda v: Arithmetic(first(v), symbol, second(v)), [left, right])

    def negative(self, children: list[Any]) -> TemplatePart:
        sign, part = children
        if part.literal is not None and part.literal.type == "NUMBER":
            slot = part.literal.slot
            return TemplatePart(lambda v: _number(v, slot, "-"), sign.start_pos)
        fill = _value(part).fill
        return _combined(lambda v: Negative(fill(v)), [part], sign)

    def positive(self, children: list[Any]) -> TemplatePart:
        sign, part = children
        if part.literal is None or part.literal.type != "NUMBER":
            raise _Refusal("+ stands before numbers", sign.start_pos)
        return part._replace(position=sign.start_pos, literal=None)  # type: ignore[no-any-return]

    def literal(self, children: list[LiteralToken]) -> TemplatePart:
        (token,) = children
        slot, position = token.slot, token.start_pos or 0
        if token.type == "STRING":
            return TemplatePart(lambda v: Constant(_string(v[slot])), position, literal=token)
        return TemplatePart(lambda v: _number(v, slot, ""), position, literal=token)

    def true(self, children: list[Token]) -> TemplatePart:
        return TemplatePart(lambda _: TRUE, children[0].start_pos or 0, condition=True)

    def false(self, children: list[Token]) -> TemplatePart:
        return TemplatePart(lambda _: FALSE, children[0].start_pos or 0, condition=True)

    def null(self, children: list[Token]) -> TemplatePart:
        return TemplatePart(lambda _: NULL, children[0].start_pos or 0, condition=True)

    def name(self, children: list[Token]) -> TemplatePart:
        (token,) = children
        if self._context and token.startswith("$"):
            raise _Refusal(f"{token} belongs to the event; a context filter speaks of contexts", token.start_pos)
        return _named(Attribute(unquoted(token)), token)

    def own(self, children: list[Token]) -> TemplatePart:
        (token,) = children
        if not self._context:
            raise _Refusal(
                "this. is one's own context and stands only in context filters (publishers=, subscribers=); "
                "an attribute of that name is written in backquotes",
                token.start_pos,
            )
        return _named(OwnContextValue(unquoted(token[len("this.") :])), token)

    def call(self, children: list[Any]) -> TemplatePart:
        token, *parts = children
        function: Any = token.lower()
        arguments = [part for part in parts if part is not None]
        if function in ("topic", "xpath"):
            return self._event_call(function, token, arguments)
        if function not in ARITY:
            raise _Refusal(f"there is no function {str(token)[:40]}{did_you_mean(token, FUNCTIONS)}", token.start_pos)
        if not self._context:
            raise _Refusal(f"{function} stands only in context filters (publishers=, subscribers=)", token.start_pos)
        if len(arguments) != ARITY[function]:
            raise _Refusal(f"{function} takes {ARITY[function]} values, not {len(arguments)}", token.start_pos)
        fills = [_value(part).fill for part in arguments]
        return _combined(
            lambda v: Call(function, tuple([argument_fill(v) for argument_fill in fills])), arguments, token
        )

    def _event_call(self, function: str, token: Token, arguments: list[TemplatePart]) -> TemplatePart:
        if self._context:
            raise _Refusal(f"{function} looks at the event; a context filter speaks of contexts", token.start_pos)
        literal = arguments[0].literal if len(arguments) == 1 else None
        if literal is None or literal.type != "STRING":
            raise _Refusal(f"{function} takes one quoted string", token.start_pos)
        slot = literal.slot
        if function == "topic":
            return _test(lambda v: topic_condition(_checked_text(v, slot, _check_topic)), arguments, patterns=1)
        return _test(lambda v: XPath(_checked_text(v, slot, check_xpath)), arguments, patterns=1)

    def group(self, children: list[Any]) -> TemplatePart:
        parenthesis, part = children
        return part._replace(position=parenthesis.start_pos, literal=None)  # type: ignore[no-any-return]


def _check_topic(pattern: str) -> None:
    """Raise `PatternError` for an invalid topic.

    Journals of earlier versions may contain `topic('/+/#')` as canonical text, so words of MQTT beside a wildcard are
    accepted. Without a wildcard the canonical text is a comparison, so a person has written `topic`, and they are
    refused.
    """
    patterns.parse_topic(pattern)
    if isinstance(topic_condition(pattern), Comparison):
        patterns.check_mqtt_words(pattern)


def topic_condition(pattern: str) -> Comparison | Topic:
    """Return the condition for a topic; without a wildcard it is a comparison with the subject."""
    wild = any(level in ("*", "#") for level in pattern.split("/"))
    return Topic(pattern) if wild else Comparison(Attribute(SUBJECT), "=", Constant(pattern))


def _condition(part: TemplatePart) -> TemplatePart:
    """Return the part as a condition: a bare name is a boolean attribute. Raises `_Refusal` for another value."""
    if part.condition:
        return part
    if part.name is not None and part.name.name.startswith("$"):
        raise _Refusal(f"{part.name.name} is a string and needs a comparison", part.position)
    if part.name is not None:
        truth = Comparison(part.name, "=", TRUE)  # a bare name is a boolean
        return part._replace(fill=lambda _: truth, value=False, condition=True, predicates=1)
    raise _Refusal("a condition is needed here, such as a comparison; this is a value", part.position)


def _value(part: TemplatePart) -> TemplatePart:
    """Return the part if it is a value; else raise `_Refusal`."""
    if part.value:
        return part
    raise _Refusal("a value is needed here; this is a condition", part.position)


def _named(node: Attribute | OwnContextValue, token: Token) -> TemplatePart:
    if not node.name or (node.name.startswith("$") and not token.startswith("$")):
        raise _Refusal("a name is not empty, and only the system's start with $", token.start_pos)
    return TemplatePart(lambda _: node, token.start_pos or 0, name=node)


def _test(fill: Fill, parts: list[TemplatePart], negated: Token | None = None, patterns: int = 0) -> TemplatePart:
    """Return a predicate over some parts, negated if there is a `negated` token."""
    test = _combined((lambda v: Not(fill(v))) if negated else fill, parts, predicates=1)
    return test._replace(value=False, condition=True, patterns=patterns)


def _joined(fill: Fill, parts: list[TemplatePart], first: Token | None = None) -> TemplatePart:
    """Return a condition over other conditions; raise `_Refusal` if they have too many predicates or patterns."""
    predicates = sum([part.predicates or 1 for part in parts])
    if predicates > MAX_FILTER_PREDICATES:
        raise _Refusal(f"more than MAX_FILTER_PREDICATES ({MAX_FILTER_PREDICATES:,}) conditions", parts[0].position)
    pattern_count = sum([part.patterns for part in parts])
    if pattern_count > MAX_FILTER_PATTERNS:
        raise _Refusal(f"more than MAX_FILTER_PATTERNS ({MAX_FILTER_PATTERNS}) patterns and paths", parts[0].position)
    return _combined(fill, parts, first, predicates)._replace(value=False, condition=True, patterns=pattern_count)


def _combined(fill: Fill, parts: list[TemplatePart], first: Token | None = None, predicates: int = 0) -> TemplatePart:
    """Return a node over some parts; raise `_Refusal` if it is nested too deeply."""
    position = parts[0].position if first is None else first.start_pos or 0
    depth = 1 + max([part.depth for part in parts])
    if depth > MAX_FILTER_NESTING:
        raise _Refusal(TOO_DEEP, position)
    return TemplatePart(fill, position, depth=depth, predicates=predicates)


def _comparing(name: Attribute | OwnContextValue, operator: ComparisonOperator, slot: int, value: Fill) -> Fill:
    """Return the function that builds a comparison of a name with a literal."""

    def fill(literals: list[str]) -> Comparison:
        if len(literals[slot]) > _SHORT:
            return Comparison(name, operator, value(literals))
        try:
            return _compared(name, operator, literals[slot])
        except LiteralRefusal as refused:
            raise LiteralRefusal(slot, refused.message) from None

    return fill


@lru_cache(MAX_CACHED_COMPARISONS)
def _compared(name: Attribute | OwnContextValue, operator: ComparisonOperator, written: str) -> Comparison:
    """Build a comparison; filters with equal comparisons share one object, since there are very many of them."""
    value = Constant(_string(written)) if written.startswith("'") else _number([written], 0, "")
    return Comparison(name, operator, value)


def _string(written: str) -> str:
    return written[1:-1].replace("''", "'")


def _number(literals: list[str], slot: int, sign: str) -> Constant:
    written = literals[slot]
    if written.isdigit():
        number = int(sign + written) if len(written) < 25 else MAX_INTEGER + 1
        if MIN_INTEGER <= number <= MAX_INTEGER:
            return Constant(number)
        raise LiteralRefusal(slot, "the integer does not fit into 64 bits; with a decimal point it is a float")
    value = float(sign + written)
    if math.isfinite(value):
        return Constant(value + 0.0)  # -0.0 becomes 0.0: equal numbers have one text
    raise LiteralRefusal(slot, "the number is too large for a float")


def _checked_text(literals: list[str], slot: int, check: Callable[[str], Any]) -> str:
    """Return the string literal in a slot; raise `LiteralRefusal` if `check` raises `PatternError` for it."""
    text = _string(literals[slot])
    try:
        check(text)
    except PatternError as error:
        raise LiteralRefusal(slot, str(error)) from None
    return text


def _unexpected(error: UnexpectedToken) -> str:
    """Return the message for a syntax error at a token."""
    token, expected = error.token, error.accepts or error.expected
    needs_value = "NAME" in expected
    if token.type == "$END":
        return "the filter ends too early" + (
            "; a value or a condition is missing"
            if needs_value
            else "; a closing parenthesis is missing"
            if "_RPAR" in expected
            else ""
        )
    if expected == {"STRING"}:
        return "LIKE and RLIKE take a pattern in single quotes"
    if token.type == "COMPARE" and "_AND" in expected:
        return "comparisons do not chain; write a < b AND b < c"
    if token.type == "NAME" and not needs_value:
        return f"{str(token)[:40]} is not expected here{did_you_mean(token, KEYWORDS) or '; AND or OR may be missing'}"
    if token.type == "FUNCTION" and not needs_value:
        return f"{str(token)[:40]} is not expected here{did_you_mean(token, KEYWORDS)}"
    if needs_value:
        return f"a value is missing before {str(token)[:40]}"
    return f"{str(token)[:40]} is not expected here"
