"""The whole of Fig. 2, what is also accepted, and what the canonical text makes of it."""

import pickle
from typing import Any

import msgspec
import pytest

from tidings import Policy, PolicyError
from tidings.policy.ast import (
    ALL_POINTS,
    Attach,
    Branch,
    ElementCall,
    Matching,
    MessageType,
    Point,
    RuleOperation,
)


def body(text: str, on: str = "Forward, Publication") -> Policy:
    return Policy.parse(f"PolicyStatement {{ On({on}) {{ {text} }} }}")


def condition(text: str) -> str:
    """How the condition of an `If` is written back."""
    line = next(line for line in str(body(f"If {{{text}}} Then {{}}")).splitlines() if "If {" in line)
    return line.split("If {", 1)[1].rsplit("} Then", 1)[0]


@pytest.mark.parametrize("operation", RuleOperation)
@pytest.mark.parametrize("message", MessageType)
def test_every_rule_type(operation: RuleOperation, message: MessageType) -> None:
    (rule,) = body("If {} Then {Log()}", f"{operation},{message}").rules
    assert (rule.operation, rule.message) == (operation, message)


def test_the_defaults() -> None:
    (rule,) = body("If {} Then {}").rules
    assert rule.matching is Matching.AFTER
    assert rule.points == ALL_POINTS
    assert rule.attach is Attach.NEVER
    assert rule.yield_attach is False
    assert rule.on_exception == ()


@pytest.mark.parametrize("matching", Matching)
@pytest.mark.parametrize("word", ["matching", "match", "MATCHING"])
def test_matching(matching: Matching, word: str) -> None:
    assert body(f"@{word}: {matching} If {{}} Then {{}}").rules[0].matching is matching


@pytest.mark.parametrize("attach", Attach)
@pytest.mark.parametrize("yields", [False, True])
def test_attach(attach: Attach, yields: bool) -> None:
    (rule,) = body(f"@yield_attach: {yields} @attach: {attach} If {{}} Then {{}}").rules
    assert (rule.attach, rule.yield_attach) == (attach, yields)


@pytest.mark.parametrize(
    ("written", "points"),
    [
        ("Ingress", {Point.INGRESS}),
        ("Ingress, Egress", {Point.INGRESS, Point.EGRESS}),
        ("Ingress Routing", {Point.INGRESS, Point.ROUTING}),
        ("ingress,EGRESS , Routing", ALL_POINTS),
        ("Routing, Routing", {Point.ROUTING}),
        ("", ALL_POINTS),
    ],
)
def test_points(written: str, points: set[Point]) -> None:
    assert body(f"@broker: {written}\nIf {{}} Then {{}}").rules[0].points == points


def test_qualifiers_may_be_empty() -> None:
    """Fig. 2 marks their values with ? and *."""
    text = "@matching:\n@broker:\n@attach:\n@yield_attach:\nIf {} Then {BlockMessage()}"
    assert body(text) == body("If {} Then {BlockMessage()}")


def test_points_in_parentheses_are_a_second_rule_without_attach() -> None:
    first, second = body(
        "@broker: Routing, Egress (Ingress)\n@attach: IfYield // both\nIf {} Then {BlockMessage()}"
    ).rules
    assert first.points == {Point.ROUTING, Point.EGRESS}
    assert second.points == {Point.INGRESS}
    assert (first.attach, second.attach) == (Attach.IF_YIELD, Attach.NEVER)
    assert first.branches == second.branches


def test_on_with_one_word_is_forward() -> None:
    assert body("If {} Then {}", "Subscription") == body("If {} Then {}", "Forward, Subscription")


def test_exceptions_have_branches() -> None:
    (rule,) = body(
        "If {} Then {RemoveAttributes(a)} OnException { If {BrokerLoadIndex() > 0.9} Then {} "
        "Elseif {} Then {Log($Exception), BlockMessage()} }"
    ).rules
    assert [branch.actions for branch in rule.on_exception] == [
        (),
        (ElementCall("Log", rule.on_exception[1].actions[0].arguments), ElementCall("BlockMessage")),
    ]


def test_keywords_in_any_case_and_as_arguments() -> None:
    text = "policystatement { ON(forward, PUBLICATION) { IF {AuthenticateSender(Then)} THEN {} ELSEIF {} then {} } }"
    other = "PolicyStatement { On(Forward, Publication) { If {AuthenticateSender('Then')} Then {} Elseif {} Then {} } }"
    assert Policy.parse(text) == Policy.parse(other)


def test_braces_may_be_left_out_as_in_fig_2() -> None:
    short = body(
        "If StrictMatch() && AuthenticateSender(A) Then BlockMessage(), Log(x) Elseif StrictMatch() Then Log()"
    )
    long = body(
        "If {StrictMatch() && AuthenticateSender(A)} Then {BlockMessage(), Log(x)} Elseif {StrictMatch()} Then {Log()}"
    )
    assert short == long


def test_several_statements_are_one_policy() -> None:
    one, other = "On(Publication) { Then {Log(1)} }", "On(Subscription) { Then {Log(2)} }"
    both = Policy.parse(f"PolicyStatement {{ {one} {other} }}")
    assert Policy.parse(f"PolicyStatement {{ {one} }}\nPolicyStatement {{ {other} }}") == both


def test_comments_end_with_the_line() -> None:
    text = "// first\nPolicyStatement { // {\n On(Publication) { If {} // Then\n Then {Log('//')} } }//"
    assert Policy.parse(text) == body("If {} Then {Log('//')}")


S, A = "StrictMatch()", "AuthenticateSender(A)"


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("", ""),
        (f"{S}&&{A}", f"{S} && {A}"),
        (f"{S},{A}", f"{S} && {A}"),
        (f"{S}||{A}&&{S}", f"{S} || {A} && {S}"),
        (f"({S}||{A})&&{S}", f"({S} || {A}) && {S}"),
        (f"{S}||{A}, {S}", f"({S} || {A}) && {S}"),
        (f"(({S}))", S),
        (f"{S} && ({A} && {S})", f"{S} && {A} && {S}"),
        ("BrokerLoadIndex()>=1", "BrokerLoadIndex() >= 1"),
        ("BrokerLoadIndex() == .5", "BrokerLoadIndex() = 0.5"),
        ("BrokerLoadIndex() <> -1e3", "BrokerLoadIndex() != -1000.0"),
        ("BrokerLoadIndex() In [1, 2.0]", "BrokerLoadIndex() in [1, 2.0]"),
        ("StrictMatch() = false", "StrictMatch() = False"),
        ("ZoneName() = north", "ZoneName() = north"),
        ("ZoneName() = If", "ZoneName() = If"),
        ("ZoneName() in ['a b', $Broker, in]", 'ZoneName() in ["a b", $Broker, in]'),
        ("Setting('x') > 3 && Setting(x) = True", "Setting(x) > 3 && Setting(x) = True"),
        ("AnyOfZones([a, b], True)", "AnyOfZones([a, b], True)"),
        ("AnyOfZones([])", "AnyOfZones([])"),
        ("HourBetween(8)", "HourBetween(8)"),
        ("AuthenticateSender(`a ``b`)", 'AuthenticateSender("a `b")'),
        ("AuthenticateSender('it''s \"x\"')", 'AuthenticateSender("it\'s ""x""")'),
    ],
)
def test_conditions(written: str, canonical: str) -> None:
    assert condition(written) == canonical


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("RemoveAttributes([a, 'b c'])", 'RemoveAttributes(a, "b c")'),
        ("RemoveAttributes(engine.temp, true)", None),
        ("KeepOnlyAttributes(a)", "KeepOnlyAttributes(a)"),
        ("Log()", "Log()"),
        ("Log(dropped, $Message, 3, True)", "Log(dropped, $Message, 3, True)"),
        ("Persist(), Persist(archive)", "Persist(), Persist(archive)"),
        ("Publish('[class , X ] , [n, -1.50],[b,TRUE]')", 'Publish("[class,X],[n,-1.5],[b,true]")'),
        ("Publish(\"[a b,'it''s'],[`c`,c d]\")", "Publish(\"['a b','it''s'],[c,'c d']\")"),
        ("Publish(\"[a,'1'],[b,'true'],[c,'']\")", "Publish(\"[a,'1'],[b,'true'],[c,'']\")"),
    ],
)
def test_actions(written: str, canonical: str | None) -> None:
    if canonical is None:
        with pytest.raises(ValueError, match="takes the name of an attribute"):
            body(f"Then {{{written}}}")
    else:
        assert f"Then {{{canonical}}}" in str(body(f"Then {{{written}}}"))


def test_the_canonical_text() -> None:
    policy = body(
        "@attach:Always @match:Before @broker:Routing,Ingress @yield_attach:true If{BrokerLoadIndex()>0.5}Then{}"
        "Elseif{}Then{BlockMessage(),Log(x)} OnException{If{}Then{Log()}}"
    )
    assert str(policy) == (
        """PolicyStatement {
  On(Forward, Publication) {
    @matching: Before
    @broker: Ingress, Routing
    @attach: Always
    @yield_attach: True
    If {BrokerLoadIndex() > 0.5} Then {}
    Elseif {} Then {BlockMessage(), Log(x)}
    OnException {
      If {} Then {Log()}
    }
  }
}"""
    )


def test_policies_can_be_encoded() -> None:
    policy = body(
        "If {ZoneName() in [a, $Broker]} Then {Publish('[a,1],[b,$Message]')} OnException {Then Log($Exception)}"
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(policy), type=Policy) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy  # noqa: S301


def test_a_policy_has_rules() -> None:
    wrong: list[Any] = [(), [], "x", body("Then {}").rules * 65]
    for rules in wrong:
        with pytest.raises(PolicyError):
            Policy(rules)


def test_policies_are_values() -> None:
    one, other = body("If {} Then {Log(1)}"), body("Then Log(1)")
    assert one == other
    assert hash(one) == hash(other)
    assert one != body("If {} Then {Log(1.0)}")
    assert one != body("If {} Then {Log(True)}")
    assert one.rules[0].branches == (Branch(actions=one.rules[0].branches[0].actions),)
