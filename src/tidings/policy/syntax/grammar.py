"""Parse the policy language, `PolicyStatement { On(Forward, Publication) { ... } }`, into checked rules.

`tokens.scan` splits the text into tokens. Lark's LALR parser reads them by `grammar.lark` and calls one method of
`_Builder` for each reduced grammar rule. The builder checks every element as soon as it is parsed and remembers its
position, so that a `PolicyError` points to the offending word.
"""

from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from lark import Lark, Token, Transformer, UnexpectedToken
from lark.lexer import Lexer

from tidings.model.errors import PolicyError, did_you_mean
from tidings.model.expression import Constant
from tidings.model.limits import (
    MAX_POLICY_BRANCHES,
    MAX_POLICY_CHARACTERS,
    MAX_POLICY_ELEMENTS,
    MAX_POLICY_NESTING,
    MAX_POLICY_RULES,
)
from tidings.policy.ast import (
    ALL_POINTS,
    Argument,
    Attach,
    Branch,
    ElementCall,
    ElementComparison,
    Matching,
    MessageType,
    Point,
    Rule,
    RuleOperation,
    Values,
    Variable,
    all_of,
    any_of,
    elements_in,
    nesting,
    read_number,
)
from tidings.policy.call_checks import (
    CallRefusal,
    checked_boolean_call,
    checked_call,
    checked_comparison,
    placement_complaint,
)
from tidings.policy.elements import ElementRole
from tidings.policy.registry import KEYWORDS
from tidings.policy.syntax.printer import format_rules
from tidings.policy.syntax.tokens import scan, unexpected_token, unquote


def parse(text: Any) -> tuple[Rule, ...]:
    """Parse a policy text into rules; raise a `PolicyError` if it is invalid."""
    tokens = scan(_checked_text(text))
    try:
        rules: tuple[Rule, ...] = _grammar().parse(tokens)  # type: ignore[assignment]
    except UnexpectedToken as error:
        raise PolicyError(*unexpected_token(error, tokens, text)) from None
    except _Refusal as refused:
        raise PolicyError(refused.message, text, refused.position) from None
    if len(format_rules(rules)) > MAX_POLICY_CHARACTERS:
        limit = f"MAX_POLICY_CHARACTERS ({MAX_POLICY_CHARACTERS:,})"
        raise PolicyError(f"the policy's canonical text is longer than {limit}", text, len(text))
    return rules


def _checked_text(text: Any) -> str:
    if not isinstance(text, str):
        raise PolicyError(f"a policy is a text, not {type(text).__name__}")
    if len(text) > MAX_POLICY_CHARACTERS:
        limit = f"MAX_POLICY_CHARACTERS ({MAX_POLICY_CHARACTERS:,})"
        raise PolicyError(f"the policy is longer than {limit}", text, MAX_POLICY_CHARACTERS)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            shown = text.encode("utf-8", "replace").decode()
            raise PolicyError("half of a surrogate pair", shown, error.start) from None
    return text


class _Tokens(Lexer):
    """A Lark lexer that passes on the tokens that `tokens.scan` has made."""

    def __init__(self, _: Any) -> None: ...

    def lex(self, data: Any) -> Any:  # type: ignore[override] # lark passes what `parse` was given
        return iter(data)


@cache
def _grammar() -> Lark:
    # The builder runs inside the LALR parser, which has its own stack: nested text cannot exhaust Python's stack.
    grammar = (Path(__file__).parent / "grammar.lark").read_text()
    return Lark(grammar, parser="lalr", lexer=_Tokens, maybe_placeholders=True, transformer=_Builder())


class _Refusal(Exception):  # noqa: N818 - never leaves this file
    """An error at a position in the text; `parse` converts it into a `PolicyError`."""

    def __init__(self, message: str, position: int | None) -> None:
        self.message, self.position = message, position or 0


class _PositionedPart(NamedTuple):
    """A part of a rule with all its elements and their positions in the text."""

    node: Any
    elements: list[tuple[ElementCall | ElementComparison, int]]
    position: int = 0


class _PositionedArgument(NamedTuple):
    """An argument with its position in the text; `offset` is 1 if an opening quote precedes its content."""

    value: Argument
    position: int
    offset: int = 0


class _Builder(Transformer[Token, Any]):
    """Build the syntax tree: one method for each rule of grammar.lark."""

    def __init__(self) -> None:
        super().__init__(visit_tokens=False)

    def start(self, statements: list[list[tuple[Rule, int]]]) -> tuple[Rule, ...]:
        rules = [placed for statement in statements for placed in statement]
        if len(rules) > MAX_POLICY_RULES:
            raise _Refusal(f"more than MAX_POLICY_RULES ({MAX_POLICY_RULES}) rules", rules[MAX_POLICY_RULES][1])
        elements = 0  # counted again after the scanner: a rule with points in parentheses has become two rules
        for rule, position in rules:
            elements += elements_in(rule)
            if elements > MAX_POLICY_ELEMENTS:
                limit = f"MAX_POLICY_ELEMENTS ({MAX_POLICY_ELEMENTS:,})"
                raise _Refusal(f"more than {limit} conditions and actions", position)
        return tuple(rule for rule, _ in rules)

    def statement(self, rules: list[list[tuple[Rule, int]]]) -> list[tuple[Rule, int]]:
        return [placed for rule in rules for placed in rule]

    def rule(self, children: list[Any]) -> list[tuple[Rule, int]]:
        on, (operation, message), *qualifiers, branches, exception = children
        try:
            checked_qualifiers = Qualifiers.of(qualifiers)
        except QualifierRefusal as refused:
            raise _Refusal(refused.message, refused.position) from None
        in_exception = exception.elements if exception else []
        for elements, exceptional in ((branches.elements, False), (in_exception, True)):
            for node, position in elements:
                complaint = placement_complaint(
                    node, operation, message, checked_qualifiers.matching, exception=exceptional
                )
                if complaint is not None:
                    raise _Refusal(complaint, position)
        rules = checked_qualifiers.rules(operation, message, branches.node, exception.node if exception else ())
        return [(rule, on.start_pos) for rule in rules]

    def kind(self, words: list[Token | None]) -> tuple[RuleOperation, MessageType]:
        first, second = words
        try:
            if second is None:  # the paper writes On(Publication) for On(Forward, Publication)
                return RuleOperation.FORWARD, parse_word(MessageType, first, "message")
            return parse_word(RuleOperation, first, "operation"), parse_word(MessageType, second, "message")
        except QualifierRefusal as refused:
            raise _Refusal(refused.message, refused.position) from None

    def qualifier(self, children: list[Any]) -> tuple[Token, list[Token], list[Token]]:
        name, words, in_parentheses = children
        return name, words or [], in_parentheses or []

    def words(self, words: list[Token]) -> list[Token]:
        return words

    def branches(self, branches: list[_PositionedPart]) -> _PositionedPart:
        if len(branches) > MAX_POLICY_BRANCHES:
            excess = branches[MAX_POLICY_BRANCHES]
            raise _Refusal(f"more than MAX_POLICY_BRANCHES ({MAX_POLICY_BRANCHES}) branches", excess.position)
        return _PositionedPart(tuple(branch.node for branch in branches), _all_elements(branches))

    def branch(self, children: list[Any]) -> _PositionedPart:
        word, condition, actions = children
        elements = condition.elements + actions.elements
        return _PositionedPart(Branch(condition.node, actions.node), elements, word.start_pos)

    first = branch

    def unconditional(self, children: list[Any]) -> _PositionedPart:
        (actions,) = children
        return _PositionedPart(Branch(actions=actions.node), actions.elements)

    def exception(self, children: list[_PositionedPart]) -> _PositionedPart:
        return children[0]

    # Conditions

    def conditions(self, parts: list[Any]) -> _PositionedPart:
        joined = self.conjunction([part for part in parts if part is not None])
        if nesting(joined.node) + 2 > MAX_POLICY_NESTING:  # the parentheses of an element and a list in it count, too
            limit = f"MAX_POLICY_NESTING ({MAX_POLICY_NESTING})"
            raise _Refusal(f"nested deeper than {limit}", joined.elements[0][1])
        return joined

    def conjunction(self, parts: list[_PositionedPart]) -> _PositionedPart:
        return _PositionedPart(all_of([part.node for part in parts]), _all_elements(parts))

    def disjunction(self, parts: list[_PositionedPart]) -> _PositionedPart:
        return _PositionedPart(any_of([part.node for part in parts]), _all_elements(parts))

    def alone(self, children: list[Any]) -> _PositionedPart:
        call, position = self._call(children[0], ElementRole.CONDITION)
        try:
            return _PositionedPart(checked_boolean_call(call), [(call, position)])
        except CallRefusal as refused:
            raise _Refusal(refused.message, position) from None

    def comparison(self, children: list[Any]) -> _PositionedPart:
        called, sign, value = children
        call, position = self._call(called, ElementRole.CONDITION)
        operator: Any = {"==": "=", "<>": "!="}.get(str(sign), str(sign).lower())
        try:
            node = checked_comparison(call, operator, value.value)
        except CallRefusal as refused:
            raise _Refusal(refused.message, value.position) from None
        return _PositionedPart(node, [(node, position)])

    # Actions

    def actions(self, calls: list[Any]) -> _PositionedPart:
        elements: list[Any] = [self._call(call, ElementRole.ACTION) for call in calls if call is not None]
        return _PositionedPart(tuple(call for call, _ in elements), elements)

    # Elements and their arguments

    def call(self, children: list[Any]) -> tuple[Token, list[_PositionedArgument]]:
        name, *arguments = children
        return name, [argument for argument in arguments if argument is not None]

    def word(self, tokens: list[Token]) -> _PositionedArgument:
        word = str(tokens[0])
        truth = {"true": True, "false": False}.get(word.lower())
        return _PositionedArgument(Constant(word if truth is None else truth), tokens[0].start_pos or 0)

    def string(self, tokens: list[Token]) -> _PositionedArgument:
        return _PositionedArgument(Constant(unquote(tokens[0])), tokens[0].start_pos or 0, 1)

    def number(self, tokens: list[Token]) -> _PositionedArgument:
        try:
            return _PositionedArgument(Constant(read_number(tokens[0])), tokens[0].start_pos or 0)
        except ValueError as error:
            raise _Refusal(str(error), tokens[0].start_pos) from None

    def variable(self, tokens: list[Token]) -> _PositionedArgument:
        return _PositionedArgument(Variable(str(tokens[0][1:])), tokens[0].start_pos or 0)

    def values(self, values: list[Any]) -> _PositionedArgument:
        items = [value for value in values if value is not None]
        nested = next((item for item in items if isinstance(item.value, Values)), None)
        if nested is not None:
            raise _Refusal("a list holds single values, not lists", nested.position)
        return _PositionedArgument(Values(tuple(item.value for item in items)), items[0].position if items else 0)

    def _call(self, called: tuple[Token, list[_PositionedArgument]], role: ElementRole) -> tuple[ElementCall, int]:
        name, arguments = called
        position = name.start_pos or 0
        try:
            return checked_call(str(name), tuple(argument.value for argument in arguments), role), position
        except CallRefusal as refused:
            if refused.argument is None or refused.argument >= len(arguments):
                raise _Refusal(refused.message, position) from None
            at = arguments[refused.argument]
            inside = at.offset + refused.offset if refused.offset else 0
            raise _Refusal(refused.message, at.position + inside) from None


def _all_elements(parts: Iterable[_PositionedPart]) -> list[tuple[ElementCall | ElementComparison, int]]:
    return [element for part in parts for element in part.elements]


_NAMES = ("matching", "match", "broker", "attach", "yield_attach")
ParsedQualifier = tuple[Token, list[Token], list[Token]]  # the name, the words, and the words in parentheses


class _Truth(StrEnum):
    FALSE = "False"
    TRUE = "True"


class QualifierRefusal(Exception):  # noqa: N818 - never leaves the package
    """A qualifier, or a word in a fixed set of words, is invalid; `position` is its place in the text."""

    def __init__(self, message: str, token: Token) -> None:
        self.message, self.position = message, token.start_pos or 0


class Qualifiers(NamedTuple):
    """The qualifiers of a rule. `also` has the points in parentheses, as in `Routing (Ingress)`."""

    matching: Matching = Matching.AFTER
    points: frozenset[Point] = ALL_POINTS
    also: frozenset[Point] = frozenset()
    attach: Attach = Attach.NEVER
    yield_attach: bool = False

    @classmethod
    def of(cls, parsed: list[ParsedQualifier]) -> "Qualifiers":
        """Return the checked qualifiers of a rule, with defaults; raise `QualifierRefusal` if one is invalid."""
        qualifiers, seen = cls(), set()
        for token, words, in_parentheses in parsed:
            name = token[1:].lower()
            if name not in _NAMES:
                hint = did_you_mean(name, _NAMES).replace("mean ", "mean @")
                raise QualifierRefusal(f"there is no qualifier @{name[:40]}{hint or _THERE_ARE}", token)
            name = "matching" if name == "match" else name  # the paper uses both spellings
            if name in seen:
                raise QualifierRefusal(f"@{name} is given twice", token)
            seen.add(name)
            if in_parentheses and name != "broker":
                raise QualifierRefusal(f"@{name} takes no parentheses", in_parentheses[0])
            if name == "broker":
                points, also = _parse_points(words), _parse_points(in_parentheses)
                if also and not points:
                    raise QualifierRefusal("a point is missing before the parenthesis", in_parentheses[0])
                qualifiers = qualifiers._replace(points=points or ALL_POINTS, also=also)
            elif name == "matching":
                qualifiers = qualifiers._replace(matching=_parse_single(Matching, words, name, qualifiers.matching))
            elif name == "attach":
                qualifiers = qualifiers._replace(attach=_parse_single(Attach, words, name, qualifiers.attach))
            else:
                qualifiers = qualifiers._replace(
                    yield_attach=_parse_single(_Truth, words, name, _Truth.FALSE) is _Truth.TRUE
                )
        return qualifiers

    def rules(
        self,
        operation: RuleOperation,
        message: MessageType,
        branches: tuple[Branch, ...],
        on_exception: tuple[Branch, ...],
    ) -> list[Rule]:
        """Return the rule; with points in parentheses, two rules, of which only the first keeps `@attach`.

        Args:
            operation: The operation of the rule.
            message: The message type of the rule.
            branches: The `If` and `Elseif` branches.
            on_exception: The branches of `OnException`.
        """
        rules = [
            Rule(
                operation=operation,
                message=message,
                branches=branches,
                on_exception=on_exception,
                matching=self.matching,
                points=points,
                attach=attach,
                yield_attach=self.yield_attach,
            )
            for points, attach in ((self.points, self.attach), (self.also, Attach.NEVER))
        ]
        return rules if self.also else rules[:1]


_THERE_ARE = "; there are @matching, @broker, @attach and @yield_attach"
Word = TypeVar("Word", bound=StrEnum)


def parse_word(words: type[Word], token: Token | None, what: str) -> Word:
    """Return the member of an enumeration that a token names, ignoring case.

    Raises `QualifierRefusal` if there is none; `what` describes the enumeration in the error message.
    """
    text = str(token or "")
    for word in words:
        if word.lower() == text.lower():
            return word
    hint = did_you_mean(text, (*words, *KEYWORDS)) or f"; there are {', '.join(words)}"
    raise QualifierRefusal(f"{text[:40]} is no {what}{hint}", token or Token("WORD", ""))


def _parse_single(words: type[Word], tokens: list[Token], name: str, default: Word) -> Word:
    if not tokens:
        return default
    word = parse_word(words, tokens[0], f"value of @{name}")
    if len(tokens) > 1:
        hint = did_you_mean(tokens[1], KEYWORDS)
        raise QualifierRefusal(f"@{name} takes one value{hint}", tokens[1])
    return word


def _parse_points(tokens: list[Token]) -> frozenset[Point]:
    return frozenset(parse_word(Point, token, "point of @broker") for token in tokens)
