"""The elements that there are, and those that an application adds."""

from collections.abc import Iterator
from typing import Any

import pytest

import tidings as td
from tidings.model.expression import Constant
from tidings.policy import registry
from tidings.policy.ast import ElementCall, Matching, MessageType, PublishTemplate, RuleOperation
from tidings.policy.elements import BUILT_IN, ActionEffect, ArgumentKind, Element, ElementRole
from tidings.policy.evaluation.actions import compile_action
from tidings.policy.evaluation.conditions import compile_condition
from tidings.policy.evaluation.evaluation import MessageFacts, RuleContext, RuleOutcome

CONDITIONS = {"AuthenticateReceiver", "AuthenticateSender", "MessageSizeIndex", "BrokerLoadIndex", "StrictMatch"}
ACTIONS = {
    *("TrimAttributes", "RemoveAttributes", "KeepOnlyAttributes", "AppendPrevHop", "ToXML", "ToJSON"),
    *("AugmentBrokerHostInfo", "AugmentBrokerLoadIndex", "AugmentProcessingTime"),
    *("BlockMessage", "UninsertMessage", "FloodMessage", "ForwardTo", "Publish", "Log", "Persist"),
}


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    before = set(registry.names())
    yield
    for name in set(registry.names()) - before:
        registry.unregister(name)


def test_what_is_built_in() -> None:
    assert {one.name for one in BUILT_IN if one.role is ElementRole.CONDITION} == CONDITIONS
    assert {one.name for one in BUILT_IN if one.role is ElementRole.ACTION} == ACTIONS
    for one in BUILT_IN:
        assert (one.gives is None) is (one.role is ElementRole.ACTION)
        assert (one.effect is None) is (one.role is ElementRole.CONDITION)
        assert one.summary
        assert not any(parameter.many for parameter in one.parameters[:-1])


def parse(actions: str = "", condition: str = "") -> td.Policy:
    return td.Policy.parse(f"PolicyStatement {{ On(Publication) {{ If {{{condition}}} Then {{{actions}}} }} }}")


def test_a_condition_of_ones_own() -> None:
    with pytest.raises(td.PolicyError, match="there is no condition IsWeekend"):
        parse(condition="IsWeekend()")

    @td.policy_condition
    def is_weekend(rule_context: Any, zone: str = "UTC") -> bool:
        """Saturday or Sunday in that zone.

        More about it.
        """
        return zone == "UTC"

    element = registry.find("IsWeekend")
    assert element is not None
    assert element.signature == "IsWeekend([zone])"
    assert element.summary == "Saturday or Sunday in that zone."
    assert element.gives is ArgumentKind.BOOLEAN
    assert element.function is is_weekend
    assert [(one.name, one.default) for one in element.parameters] == [("zone", Constant("UTC"))]
    parse(condition="IsWeekend() && IsWeekend(CET)")
    with pytest.raises(td.PolicyError, match="takes a word or a string here"):
        parse(condition="IsWeekend(5)")
    assert is_weekend(None)


def test_an_action_of_ones_own() -> None:
    @td.policy_action("Stamp", effect="adds", messages=["Publication"])
    def stamp(rule_context: Any, name: str, *values: float) -> None: ...

    element = registry.find("Stamp")
    assert element is not None
    assert element.signature == "Stamp(name, [values...])"
    assert element.effect is ActionEffect.ADDS
    assert element.messages == {MessageType.PUBLICATION}
    assert element.operations == {RuleOperation.FORWARD}
    assert element.changes_message
    assert [(one.name, one.many) for one in element.parameters] == [("name", False), ("values", True)]
    parse("Stamp(a), Stamp(a, 1), Stamp(a, 1, 2.5)")
    with pytest.raises(td.PolicyError, match="takes a number here"):
        parse("Stamp(a, 1, b)")
    with pytest.raises(td.PolicyError, match="Stamp needs an argument"):
        parse("Stamp()")


def test_a_condition_that_needs_a_receiver_stands_in_forward_rules() -> None:
    @td.policy_condition(needs_receiver=True)
    def near_receiver(rule_context: Any) -> bool:
        return True

    element = registry.find("NearReceiver")
    assert element is not None
    assert element.operations == {RuleOperation.FORWARD}
    assert element.matching == {Matching.AFTER}


def test_names_as_they_are() -> None:
    @td.policy_condition
    def HTTPReachable(rule_context: Any) -> bool:  # noqa: N802 - the element's name
        return True

    @td.policy_condition
    def alarmed(rule_context: Any) -> bool:
        return True

    assert {"HTTPReachable", "Alarmed"} <= set(registry.names())
    assert {"HttpReachable", "alarmed"}.isdisjoint(registry.names())
    assert "HTTPReachable() && Alarmed()" in str(parse(condition="HTTPReachable() && Alarmed()"))


def first(rule_context: Any) -> bool:
    return True


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("BlockMessage", "BlockMessage is registered already and built in; choose another name"),
        ("blockmessage", "BlockMessage is registered already and built in; choose another name"),
        ("ZoneName", "ZoneName is registered already; choose another name"),
        ("If", "If is a word of the language; choose another name"),
        ("elseif", "elseif is a word of the language; choose another name"),
        ("Two Words", "'Two Words' is no name for an element; it takes letters, digits and _"),
        ("", "'' is no name for an element; it takes letters, digits and _"),
        ("x" * 300, "is no name for an element"),
    ],
)
def test_names_that_are_refused(name: str, message: str) -> None:
    with pytest.raises(td.PolicyError) as caught:
        td.policy_condition(name)(first)
    assert message in caught.value.message


def test_functions_that_are_refused() -> None:
    def nothing() -> bool:
        return True

    def named(rule_context: Any, *, zone: str) -> bool:
        return True

    def odd(rule_context: Any, zone: dict[str, str]) -> bool:
        return True

    for function, message in (
        (nothing, "nothing needs a first parameter: what the rule is applied to"),
        (named, "named: zone cannot be given in a policy, where arguments have no names"),
        (odd, "odd: zone is str, bool, int, float or list, not dict"),
    ):
        with pytest.raises(td.PolicyError) as caught:
            td.policy_condition(function)
        assert message in caught.value.message
    with pytest.raises(td.PolicyError, match="'bends' is none of blocks, removes"):
        td.policy_action("Bend", effect="bends")(first)
    with pytest.raises(td.PolicyError, match="the name of an element is a string, not int"):
        td.policy_condition(5)  # type: ignore[call-overload]


def test_what_is_built_in_stays() -> None:
    with pytest.raises(td.PolicyError, match="BlockMessage is built in and stays"):
        registry.unregister("BlockMessage")


@pytest.mark.parametrize("element", BUILT_IN, ids=lambda element: element.name)
def test_every_element_has_a_meaning(element: Element) -> None:
    """What has none would fail its rule, and block, with a LookupError."""
    given = {ArgumentKind.PUBLICATION: PublishTemplate((("class", Constant("X")),))}
    arguments = tuple(
        given.get(one.kind, Constant(one.choices[0] if one.choices else "a")) for one in element.parameters
    )
    facts = MessageFacts(MessageType.PUBLICATION, "b", "", 0.5, "a", str, lambda: 0.5, lambda *_: True)
    rule_context = RuleContext(facts, "c")
    call = ElementCall(element.name, arguments)
    if element.role is ElementRole.ACTION:
        rule_context.outcome = RuleOutcome(1)
        compile_action(call, 0)(rule_context)
    else:
        condition = compile_condition(call)
        assert condition is not None
        assert condition(rule_context) in (True, False, 0.5)
