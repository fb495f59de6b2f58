"""Random policies, as the parser could have made them: every element that fits its rule, with arguments that fit it."""

from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests.strategies import floats, integers
from tidings.model.expression import Constant
from tidings.policy import registry
from tidings.policy.ast import (
    TRUE,
    Attach,
    Branch,
    Condition,
    ElementCall,
    ElementComparison,
    Matching,
    MessageType,
    Point,
    PublishTemplate,
    Rule,
    RuleOperation,
    Values,
    Variable,
    all_of,
    any_of,
)
from tidings.policy.call_checks import VARIABLES
from tidings.policy.elements import ArgumentKind, Element, ElementRole, Parameter
from tidings.policy.policy import Policy

_characters = st.characters(exclude_categories=["Cs", "Cc", "Cn"], include_characters="\t\n\r")
strings = st.one_of(
    st.sampled_from(
        ["", "a", "TrustGroup1", "Broker load", "it's", 'say "no"', "true", "False", "If", "in", "$Message", "a.b"]
    ),
    st.sampled_from(["`", "[a,b]", "//", "1", "-1.5", "{}", "<a>&amp;", "\r\n", " ", "größe", "\U0001f600", "'", '"']),
    st.text(_characters, max_size=8),
)
names = strings.filter(lambda name: name != "" and not name.startswith("$"))


_numbers = st.one_of(integers, floats.map(lambda one: one + 0.0))
_plain = st.one_of(st.booleans(), _numbers, strings).map(Constant)


@cache
def arguments(kind: ArgumentKind, exception: bool) -> st.SearchStrategy[Any]:
    known = [name for name in VARIABLES if exception or name != "Exception"]
    variables = st.builds(Variable, st.sampled_from(known))
    scalars = st.one_of(_plain, variables)
    made: dict[ArgumentKind, st.SearchStrategy[Any]] = {
        ArgumentKind.BOOLEAN: st.booleans().map(Constant),
        ArgumentKind.NUMBER: _numbers.map(Constant),
        ArgumentKind.STRING: st.one_of(strings.map(Constant), variables),
        ArgumentKind.NAME: names.map(Constant),
        ArgumentKind.VALUE: scalars,
        ArgumentKind.LIST: st.lists(scalars, max_size=3).map(lambda items: Values(tuple(items))),
        ArgumentKind.PUBLICATION: st.dictionaries(names, scalars, min_size=1, max_size=3).map(
            lambda said: PublishTemplate(tuple(said.items()))
        ),
    }
    return made[kind]


def argument(parameter: Parameter, exception: bool) -> st.SearchStrategy[Any]:
    if parameter.choices:
        return st.sampled_from(parameter.choices).map(Constant)
    return arguments(parameter.kind, exception)


def calls_of(element: Element, exception: bool) -> st.SearchStrategy[ElementCall]:
    """Calls with all arguments that the element needs, and each number of those that it may have."""
    required = [one for one in element.parameters if not one.optional and not one.many]
    some = [argument(one, exception) for one in required]
    shapes = [st.tuples(*some)] if not any(one.many for one in element.parameters) else []
    for one in element.parameters[len(required) :]:
        if one.many:
            rest = st.lists(argument(one, exception), min_size=0 if one.optional else 1, max_size=3)
            shapes.append(st.tuples(st.tuples(*some), rest).map(lambda given: (*given[0], *given[1])))
        else:
            some = [*some, argument(one, exception)]
            shapes.append(st.tuples(*some))
    return st.one_of(shapes).map(lambda given: ElementCall(element.name, given))


def tests_of(element: Element, exception: bool) -> st.SearchStrategy[Condition]:
    call, kind = calls_of(element, exception), element.gives or ArgumentKind.VALUE
    value = arguments(kind, exception)
    if kind is ArgumentKind.BOOLEAN:
        return st.one_of(call, st.builds(ElementComparison, call, st.sampled_from(["=", "!="]), value))
    values = st.lists(value, max_size=3).map(lambda items: Values(tuple(items)))
    return st.one_of(
        st.builds(ElementComparison, call, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), value),
        st.builds(ElementComparison, call, st.just("in"), values),
    )


@cache
def branches(
    operation: RuleOperation, message: MessageType, matching: Matching, exception: bool
) -> st.SearchStrategy[Branch]:
    known = [registry.find(name) for name in registry.names()]
    fitting = [
        one
        for one in known
        if one and operation in one.operations and message in one.messages and matching in one.matching
    ]
    tests = st.one_of([tests_of(one, exception) for one in fitting if one.role is ElementRole.CONDITION])
    actions = st.one_of([calls_of(one, exception) for one in fitting if one.role is ElementRole.ACTION])
    nested = st.recursive(
        tests,
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(all_of), st.lists(inner, min_size=2, max_size=3).map(any_of)
        ),
        max_leaves=5,
    )
    return st.builds(Branch, st.one_of(st.just(TRUE), nested), st.lists(actions, max_size=3).map(tuple))


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    kind = draw(st.sampled_from(RuleOperation)), draw(st.sampled_from(MessageType)), draw(st.sampled_from(Matching))
    return Rule(
        operation=kind[0],
        message=kind[1],
        matching=kind[2],
        branches=tuple(draw(st.lists(branches(*kind, False), min_size=1, max_size=3))),
        on_exception=tuple(draw(st.lists(branches(*kind, True), max_size=2))),
        points=draw(_points),
        attach=draw(st.sampled_from(Attach)),
        yield_attach=draw(st.booleans()),
    )


_points = st.frozensets(st.sampled_from(Point), min_size=1)
policies = st.lists(rules(), min_size=1, max_size=3).map(tuple).map(Policy)
