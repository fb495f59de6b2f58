"""Text -> rules: `PolicyStatement { On(Forward, Publication) { ... } }`, read with every element checked."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from lark import Lark, Token, Transformer, UnexpectedToken
from lark.lexer import Lexer

from tidings.model.errors import PolicyError
from tidings.model.expression import Constant
from tidings.model.limits import (
    MAX_POLICY_BRANCHES,
    MAX_POLICY_CHARACTERS,
    MAX_POLICY_ELEMENTS,
    MAX_POLICY_NESTING,
    MAX_POLICY_RULES,
)
from tidings.policy.calls import CallRefused, checked_alone, checked_call, checked_comparison, misplaced
from tidings.policy.complaints import unexpected
from tidings.policy.elements import Role
from tidings.policy.numbers import read_number
from tidings.policy.qualifiers import QualifierRefused, Qualifiers, word_of
from tidings.policy.statement import (
    Argument,
    Branch,
    Call,
    Comparison,
    MessageType,
    Operation,
    Rule,
    Values,
    Variable,
    all_of,
    any_of,
    elements_in,
    nesting,
)
from tidings.policy.text import written
from tidings.policy.tokens import scan, unquoted


def parse(text: Any) -> tuple[Rule, ...]:
    """The rules that a text states, or a `PolicyError`."""
    tokens = scan(_checked(text))
    try:
        rules: tuple[Rule, ...] = _grammar().parse(tokens)  # type: ignore[assignment]
    except UnexpectedToken as error:
        raise PolicyError(*unexpected(error, tokens, text)) from None
    except _Refused as refused:
        raise PolicyError(refused.message, text, refused.position) from None
    if len(written(rules)) > MAX_POLICY_CHARACTERS:
        limit = f"MAX_POLICY_CHARACTERS ({MAX_POLICY_CHARACTERS:,})"
        raise PolicyError(f"the policy's canonical text is longer than {limit}", text, len(text))
    return rules


def _checked(text: Any) -> str:
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
    """The tokens are made already."""

    def __init__(self, _: Any) -> None: ...

    def lex(self, data: Any) -> Any:  # type: ignore[override] # lark passes what `parse` was given
        return iter(data)


@cache
def _grammar() -> Lark:
    # The builder runs inside of the parser, which keeps its own stack: no text is nested too deeply for it.
    grammar = (Path(__file__).parent / "grammar.lark").read_text()
    return Lark(grammar, parser="lalr", lexer=_Tokens, maybe_placeholders=True, transformer=_Builder())


class _Refused(Exception):  # noqa: N818 - never leaves this file
    def __init__(self, message: str, position: int | None) -> None:
        self.message, self.position = message, position or 0


class _Placed(NamedTuple):
    """A piece of a rule with the elements in it and where each of them stands."""

    node: Any
    elements: list[tuple[Call | Comparison, int]]
    position: int = 0


class _Written(NamedTuple):
    """An argument and where it stands; the offset is 1 where a quote comes before what it says."""

    value: Argument
    position: int
    offset: int = 0


class _Builder(Transformer[Token, Any]):
    """One method a rule of grammar.lark."""

    def __init__(self) -> None:
        super().__init__(visit_tokens=False)

    def start(self, statements: list[list[tuple[Rule, int]]]) -> tuple[Rule, ...]:
        rules = [placed for statement in statements for placed in statement]
        if len(rules) > MAX_POLICY_RULES:
            raise _Refused(f"more than MAX_POLICY_RULES ({MAX_POLICY_RULES}) rules", rules[MAX_POLICY_RULES][1])
        elements = 0  # counted again: a rule with points in parentheses has become two
        for rule, position in rules:
            elements += elements_in(rule)
            if elements > MAX_POLICY_ELEMENTS:
                limit = f"MAX_POLICY_ELEMENTS ({MAX_POLICY_ELEMENTS:,})"
                raise _Refused(f"more than {limit} conditions and actions", position)
        return tuple(rule for rule, _ in rules)

    def statement(self, rules: list[list[tuple[Rule, int]]]) -> list[tuple[Rule, int]]:
        return [placed for rule in rules for placed in rule]

    def rule(self, children: list[Any]) -> list[tuple[Rule, int]]:
        on, (operation, message), *qualifiers, branches, exception = children
        try:
            given = Qualifiers.of(qualifiers)
        except QualifierRefused as refused:
            raise _Refused(refused.message, refused.position) from None
        in_exception = exception.elements if exception else []
        for elements, exceptional in ((branches.elements, False), (in_exception, True)):
            for node, position in elements:
                complaint = misplaced(node, operation, message, given.matching, exception=exceptional)
                if complaint is not None:
                    raise _Refused(complaint, position)
        rules = given.rules(operation, message, branches.node, exception.node if exception else ())
        return [(rule, on.start_pos) for rule in rules]

    def kind(self, words: list[Token | None]) -> tuple[Operation, MessageType]:
        first, second = words
        try:
            if second is None:  # the paper writes On(Publication) for On(Forward, Publication)
                return Operation.FORWARD, word_of(MessageType, first, "message")
            return word_of(Operation, first, "operation"), word_of(MessageType, second, "message")
        except QualifierRefused as refused:
            raise _Refused(refused.message, refused.position) from None

    def qualifier(self, children: list[Any]) -> tuple[Token, list[Token], list[Token]]:
        name, words, in_parentheses = children
        return name, words or [], in_parentheses or []

    def words(self, words: list[Token]) -> list[Token]:
        return words

    def branches(self, branches: list[_Placed]) -> _Placed:
        if len(branches) > MAX_POLICY_BRANCHES:
            excess = branches[MAX_POLICY_BRANCHES]
            raise _Refused(f"more than MAX_POLICY_BRANCHES ({MAX_POLICY_BRANCHES}) branches", excess.position)
        return _Placed(tuple(one.node for one in branches), _gathered(branches))

    def branch(self, children: list[Any]) -> _Placed:
        word, condition, actions = children
        elements = condition.elements + actions.elements
        return _Placed(Branch(condition.node, actions.node), elements, word.start_pos)

    first = branch

    def unconditional(self, children: list[Any]) -> _Placed:
        (actions,) = children
        return _Placed(Branch(actions=actions.node), actions.elements)

    def exception(self, children: list[_Placed]) -> _Placed:
        return children[0]

    # Conditions

    def conditions(self, parts: list[Any]) -> _Placed:
        joined = self.conjunction([part for part in parts if part is not None])
        if nesting(joined.node) + 2 > MAX_POLICY_NESTING:  # an element and a list in it nest as well
            limit = f"MAX_POLICY_NESTING ({MAX_POLICY_NESTING})"
            raise _Refused(f"nested deeper than {limit}", joined.elements[0][1])
        return joined

    def conjunction(self, parts: list[_Placed]) -> _Placed:
        return _Placed(all_of([part.node for part in parts]), _gathered(parts))

    def disjunction(self, parts: list[_Placed]) -> _Placed:
        return _Placed(any_of([part.node for part in parts]), _gathered(parts))

    def alone(self, children: list[Any]) -> _Placed:
        call, position = self._call(children[0], Role.CONDITION)
        try:
            return _Placed(checked_alone(call), [(call, position)])
        except CallRefused as refused:
            raise _Refused(refused.message, position) from None

    def comparison(self, children: list[Any]) -> _Placed:
        called, sign, value = children
        call, position = self._call(called, Role.CONDITION)
        operator: Any = {"==": "=", "<>": "!="}.get(str(sign), str(sign).lower())
        try:
            node = checked_comparison(call, operator, value.value)
        except CallRefused as refused:
            raise _Refused(refused.message, value.position) from None
        return _Placed(node, [(node, position)])

    # Actions

    def actions(self, calls: list[Any]) -> _Placed:
        elements: list[Any] = [self._call(one, Role.ACTION) for one in calls if one is not None]
        return _Placed(tuple(call for call, _ in elements), elements)

    # Elements and their arguments

    def call(self, children: list[Any]) -> tuple[Token, list[_Written]]:
        name, *arguments = children
        return name, [one for one in arguments if one is not None]

    def word(self, tokens: list[Token]) -> _Written:
        word = str(tokens[0])
        truth = {"true": True, "false": False}.get(word.lower())
        return _Written(Constant(word if truth is None else truth), tokens[0].start_pos or 0)

    def string(self, tokens: list[Token]) -> _Written:
        return _Written(Constant(unquoted(tokens[0])), tokens[0].start_pos or 0, 1)

    def number(self, tokens: list[Token]) -> _Written:
        try:
            return _Written(Constant(read_number(tokens[0])), tokens[0].start_pos or 0)
        except ValueError as error:
            raise _Refused(str(error), tokens[0].start_pos) from None

    def variable(self, tokens: list[Token]) -> _Written:
        return _Written(Variable(str(tokens[0][1:])), tokens[0].start_pos or 0)

    def values(self, values: list[Any]) -> _Written:
        items = [one for one in values if one is not None]
        nested = next((one for one in items if isinstance(one.value, Values)), None)
        if nested is not None:
            raise _Refused("a list holds single values, not lists", nested.position)
        return _Written(Values(tuple(one.value for one in items)), items[0].position if items else 0)

    def _call(self, called: tuple[Token, list[_Written]], role: Role) -> tuple[Call, int]:
        name, arguments = called
        position = name.start_pos or 0
        try:
            return checked_call(str(name), tuple(one.value for one in arguments), role), position
        except CallRefused as refused:
            if refused.argument is None or refused.argument >= len(arguments):
                raise _Refused(refused.message, position) from None
            at = arguments[refused.argument]
            inside = at.offset + refused.offset if refused.offset else 0
            raise _Refused(refused.message, at.position + inside) from None


def _gathered(parts: Iterable[_Placed]) -> list[tuple[Call | Comparison, int]]:
    return [element for part in parts for element in part.elements]
