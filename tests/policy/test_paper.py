"""Every policy that the paper prints, and the tree that it is."""

from typing import Any

import pytest

from tests.policy.paper import FIGURES, FRAGMENTS
from tidings import Policy
from tidings.model.expression import Constant
from tidings.policy.ast import (
    TRUE,
    AllOf,
    Attach,
    Branch,
    Condition,
    ElementCall,
    ElementComparison,
    MessageType,
    Point,
    PublishTemplate,
    Rule,
    RuleOperation,
    Variable,
)
from tidings.policy.lint import findings
from tidings.policy.placement import PolicyPlace, check_placement

FORWARD, INSERT = RuleOperation.FORWARD, RuleOperation.INSERT
ADVERTISEMENT, SUBSCRIPTION = MessageType.ADVERTISEMENT, MessageType.SUBSCRIPTION
PUBLICATION = MessageType.PUBLICATION
INGRESS, EGRESS, ROUTING = Point.INGRESS, Point.EGRESS, Point.ROUTING
BLOCK = ElementCall("BlockMessage")


def call(name: str, *arguments: str) -> ElementCall:
    return ElementCall(name, tuple(map(Constant, arguments)))


def branch(condition: Condition, *actions: ElementCall) -> Branch:
    return Branch(condition, actions)


def rule(operation: RuleOperation, message: MessageType, points: set[Point], *branches: Branch, **more: Any) -> Rule:
    return Rule(operation=operation, message=message, points=frozenset(points), branches=branches, **more)


def event(**attributes: str) -> ElementCall:
    said = [*((name, Constant(value)) for name, value in attributes.items()), ("message", Variable("Message"))]
    return ElementCall("Publish", (PublishTemplate(tuple(said)),))  # type: ignore[arg-type]


HEAVY = AllOf(
    (
        ElementComparison(ElementCall("MessageSizeIndex"), ">", Constant(0.8)),
        ElementComparison(ElementCall("BrokerLoadIndex"), ">", Constant(0.75)),
    )
)
ZONES = (
    branch(call("AuthenticateReceiver", "Restricted")),
    branch(call("AuthenticateReceiver", "Controlled"), call("RemoveAttributes", "a", "m", "n")),
    branch(TRUE, BLOCK),
)
TREES: dict[int, tuple[Rule, ...]] = {
    4: (rule(FORWARD, PUBLICATION, {EGRESS}, branch(TRUE, ElementCall("TrimAttributes"))),),
    6: (
        rule(
            FORWARD,
            PUBLICATION,
            {INGRESS, EGRESS, ROUTING},
            branch(
                TRUE, *map(ElementCall, ("AugmentBrokerHostInfo", "AugmentBrokerLoadIndex", "AugmentProcessingTime"))
            ),
        ),
    ),
    7: (
        rule(
            INSERT,
            SUBSCRIPTION,
            {INGRESS},
            branch(
                HEAVY,
                ElementCall("UninsertMessage"),
                event(**{"class": "DropMessage", "cause": "Broker load"}),
            ),
        ),
        rule(FORWARD, SUBSCRIPTION, {INGRESS}, branch(HEAVY, BLOCK)),
    ),
    8: (
        rule(FORWARD, ADVERTISEMENT, {INGRESS, ROUTING}, branch(TRUE, BLOCK)),
        rule(FORWARD, SUBSCRIPTION, {INGRESS, ROUTING}, branch(TRUE, ElementCall("FloodMessage"))),
    ),
    13: (
        rule(
            FORWARD,
            ADVERTISEMENT,
            {INGRESS, ROUTING},
            branch(call("AuthenticateReceiver", "TrustGroup1")),
            branch(call("AuthenticateReceiver", "TrustGroup2")),
            branch(TRUE, BLOCK),
        ),
    ),
    16: (
        rule(FORWARD, ADVERTISEMENT, {INGRESS, ROUTING}, *ZONES),
        rule(
            FORWARD,
            SUBSCRIPTION,
            {INGRESS},
            branch(call("AuthenticateSender", "AuthorizedSubscribers")),
            branch(TRUE, event(**{"class": "UnauthorizedSubscribe"})),
        ),
        rule(FORWARD, PUBLICATION, {ROUTING}, *ZONES, attach=Attach.ALWAYS),
        rule(FORWARD, PUBLICATION, {INGRESS}, *ZONES),
    ),
    22: (rule(FORWARD, PUBLICATION, {ROUTING}, branch(ElementCall("StrictMatch"), BLOCK)),),
}


@pytest.mark.parametrize("figure", FIGURES)
def test_the_figure_is_this_tree(figure: int) -> None:
    policy = Policy.parse(FIGURES[figure])
    assert policy.rules == TREES[figure]
    assert Policy.parse(str(policy)) == policy
    assert Policy.from_xml(policy.to_xml()) == policy


@pytest.mark.parametrize("figure", FIGURES)
def test_there_is_nothing_to_find_in_it(figure: int) -> None:
    assert findings(Policy.parse(FIGURES[figure])) == []


GIVEN_WITH = {
    4: PolicyPlace.ASSOCIATED_WITH_SUBSCRIPTION,
    6: PolicyPlace.ATTACHED_TO_PUBLICATION,
    7: PolicyPlace.ASSOCIATED_WITH_ADVERTISEMENT,
    8: PolicyPlace.ATTACHED_TO_ADVERTISEMENT,
    13: PolicyPlace.ATTACHED_TO_ADVERTISEMENT,
    16: PolicyPlace.ATTACHED_TO_ADVERTISEMENT,
    22: PolicyPlace.ATTACHED_TO_SUBSCRIPTION,
}


@pytest.mark.parametrize("figure", FIGURES)
def test_it_may_stand_where_the_paper_puts_it(figure: int) -> None:
    assert check_placement(Policy.parse(FIGURES[figure]), GIVEN_WITH[figure]) == []


FRAGMENT_TREES: dict[str, tuple[Branch, ...]] = {
    "stacked": (branch(TRUE, ElementCall("TrimAttributes"), ElementCall("ToXML")),),
    "without If": (branch(TRUE, ElementCall("TrimAttributes"), ElementCall("ToXML")),),
    "proxy": (
        branch(call("AuthenticateReceiver", "Domain1"), ElementCall("ToFormat1")),
        branch(call("AuthenticateReceiver", "Domain2"), ElementCall("ToFormat2")),
    ),
    "both groups": (
        branch(AllOf((call("AuthenticateReceiver", "TrustGroup1"), call("AuthenticateReceiver", "TrustGroup2")))),
    ),
    "the first of Sec. 3.3": (branch(TRUE, ElementCall("AppendPrevHop")),),
    "the second of Sec. 3.3": (branch(TRUE, call("RemoveAttributes", "d2", "d3", "dn")),),
}


@pytest.mark.parametrize("name", FRAGMENTS)
def test_the_fragment_is_this_tree(name: str) -> None:
    policy = Policy.parse(f"PolicyStatement {{ On(Publication) {{ {FRAGMENTS[name]} }} }}")
    assert policy.rules == (Rule(operation=FORWARD, message=PUBLICATION, branches=FRAGMENT_TREES[name]),)
