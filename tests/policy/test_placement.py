"""Table 1, whole: which rules may be given with what, and which qualifiers go with them."""

import pytest

from tidings import Policy, PolicyError
from tidings.policy.ast import Attach, MessageType
from tidings.policy.placement import PolicyPlace, check_placement, is_associated, is_attached, may_be_placed

ADV, SUB, PUB = MessageType.ADVERTISEMENT, MessageType.SUBSCRIPTION, MessageType.PUBLICATION
UNADV, UNSUB = MessageType.UNADVERTISEMENT, MessageType.UNSUBSCRIPTION
ATTACHED = {
    ADV: PolicyPlace.ATTACHED_TO_ADVERTISEMENT,
    SUB: PolicyPlace.ATTACHED_TO_SUBSCRIPTION,
    PUB: PolicyPlace.ATTACHED_TO_PUBLICATION,
    UNADV: PolicyPlace.ATTACHED_TO_UNADVERTISEMENT,
    UNSUB: PolicyPlace.ATTACHED_TO_UNSUBSCRIPTION,
}
ASSOCIATED = {ADV: PolicyPlace.ASSOCIATED_WITH_ADVERTISEMENT, SUB: PolicyPlace.ASSOCIATED_WITH_SUBSCRIPTION}
BROKERS = {ADV: PolicyPlace.BROKER_ADVERTISEMENT, SUB: PolicyPlace.BROKER_SUBSCRIPTION}

# As printed: a row is the message that the rule is on, a column the message that it is given with.
COLUMNS = (ADV, SUB, PUB, UNADV, UNSUB)
TABLE_1 = {
    ADV: ("Attached", "x", "x", "x", "x"),
    SUB: ("On(*)", "Attached", "x", "x", "x"),
    PUB: ("On(*)", "On(*)", "Attached", "x", "x"),
    UNADV: ("On(*)", "x", "x", "Attached", "x"),
    UNSUB: ("x", "On(*)", "x", "x", "Attached"),
}
CELLS = [(on, given, cell) for on, row in TABLE_1.items() for given, cell in zip(COLUMNS, row, strict=True)]


def rule(on: MessageType, qualifiers: str = "", condition: str = "", action: str = "Log()") -> Policy:
    return Policy.parse(f"PolicyStatement {{ On({on}) {{ {qualifiers} If {{{condition}}} Then {{{action}}} }} }}")


def allowed(policy: Policy, where: PolicyPlace) -> bool:
    try:
        check_placement(policy, where)
    except PolicyError as error:
        assert error.rule == 1
        return False
    return True


@pytest.mark.parametrize(("on", "given", "cell"), CELLS)
def test_table_1(on: MessageType, given: MessageType, cell: str) -> None:
    # What is given with a message when it is issued is attached and, where the message is stored, associated.
    assert allowed(rule(on), ATTACHED[given]) is (cell != "x")
    assert may_be_placed(on, ATTACHED[given]) is (cell != "x")
    assert is_attached(on, ATTACHED[given]) is (cell == "Attached")
    assert is_associated(on, ATTACHED[given]) is (cell == "On(*)")
    if given in ASSOCIATED:
        assert allowed(rule(on), ASSOCIATED[given]) is (cell == "On(*)")
        assert allowed(rule(on), BROKERS[given]) is (cell != "x")


@pytest.mark.parametrize("on", MessageType)
@pytest.mark.parametrize("where", PolicyPlace)
def test_before_matching_is_for_attached_and_broker_level_rules(on: MessageType, where: PolicyPlace) -> None:
    expected = may_be_placed(on, where) and (is_attached(on, where) or where in BROKERS.values())
    assert allowed(rule(on, "@matching: Before"), where) is expected


@pytest.mark.parametrize("on", MessageType)
@pytest.mark.parametrize("where", PolicyPlace)
@pytest.mark.parametrize("attach", [one for one in Attach if one is not Attach.NEVER])
def test_attach_is_for_what_advertisements_hand_down(on: MessageType, where: PolicyPlace, attach: Attach) -> None:
    with_advertisement = {ATTACHED[ADV], ASSOCIATED[ADV], BROKERS[ADV]}
    assert allowed(rule(on, f"@attach: {attach}"), where) is (on in (PUB, SUB) and where in with_advertisement)


@pytest.mark.parametrize("on", MessageType)
@pytest.mark.parametrize("where", PolicyPlace)
def test_yielding_is_for_what_messages_carry(on: MessageType, where: PolicyPlace) -> None:
    handed_down = where in {ATTACHED[ADV], ASSOCIATED[ADV], BROKERS[ADV]}
    expected = on in (PUB, SUB) and may_be_placed(on, where) and (is_attached(on, where) or handed_down)
    assert allowed(rule(on, "@yield_attach: True"), where) is expected


@pytest.mark.parametrize(
    ("policy", "where", "message"),
    [
        (
            rule(ADV),
            PolicyPlace.ASSOCIATED_WITH_ADVERTISEMENT,
            (
                "rule 1, On(Forward, Advertisement): cannot be associated with an advertisement; they are "
                "attached to an "
                "advertisement"
            ),
        ),
        (
            rule(UNSUB),
            PolicyPlace.ATTACHED_TO_PUBLICATION,
            (
                "rule 1, On(Forward, Unsubscription): cannot be attached to a publication; rules on "
                "unsubscriptions are "
                "attached to a subscription, attached to an unsubscription or associated with a subscription"
            ),
        ),
        (
            rule(PUB, "@matching: Before"),
            PolicyPlace.ASSOCIATED_WITH_SUBSCRIPTION,
            (
                "rule 1, On(Forward, Publication): @matching: Before cannot be associated with a subscription, "
                "since it is "
                "matching that finds the filter; attach the rule to the publication itself, or say @matching: After"
            ),
        ),
        (
            rule(PUB, "@attach: Always"),
            PolicyPlace.ATTACHED_TO_PUBLICATION,
            (
                "rule 1, On(Forward, Publication): @attach: Always is for rules on publications and "
                "subscriptions that an "
                "advertisement hands down, and this policy is attached to a publication; leave @attach out"
            ),
        ),
        (
            rule(UNSUB, "@yield_attach: True"),
            PolicyPlace.ATTACHED_TO_UNSUBSCRIPTION,
            (
                "rule 1, On(Forward, Unsubscription): @yield_attach is for rules that a publication or a subscription "
                "carries, and this policy is attached to an unsubscription; leave @yield_attach out"
            ),
        ),
    ],
)
def test_the_error_says_what_to_change(policy: Policy, where: PolicyPlace, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        check_placement(policy, where)
    assert str(caught.value) == message


def test_it_is_the_first_bad_rule_that_is_named() -> None:
    policy = Policy(rule(PUB).rules + rule(SUB).rules)
    with pytest.raises(PolicyError, match=r"rule 2, On\(Forward, Subscription\)") as caught:
        check_placement(policy, PolicyPlace.ATTACHED_TO_PUBLICATION)
    assert caught.value.rule == 2


def test_what_is_idle_there() -> None:
    def said(policy: Policy, where: PolicyPlace, *, hub: bool = False) -> list[str]:
        return [str(finding) for finding in check_placement(policy, where, hub=hub)]

    routing = rule(PUB, "@broker: Routing")
    assert said(routing, PolicyPlace.ATTACHED_TO_PUBLICATION) == []
    assert said(routing, PolicyPlace.ATTACHED_TO_PUBLICATION, hub=True) == [
        "warning: rule 1: @broker: Routing alone never fires in a hub, where nothing goes from broker to broker"
    ]
    assert said(rule(PUB, "@broker: Routing, Ingress"), PolicyPlace.ATTACHED_TO_PUBLICATION, hub=True) == []
    trim = rule(PUB, action="TrimAttributes()")
    assert said(trim, PolicyPlace.ATTACHED_TO_SUBSCRIPTION) == []
    assert said(trim, PolicyPlace.ASSOCIATED_WITH_ADVERTISEMENT) == [
        "warning: rule 1: TrimAttributes() goes by a subscription, and this policy is associated with an advertisement"
    ]
    strict = rule(SUB, condition="StrictMatch()")
    assert said(strict, PolicyPlace.ASSOCIATED_WITH_ADVERTISEMENT) == []
    assert said(strict, PolicyPlace.ATTACHED_TO_SUBSCRIPTION) == [
        (
            "warning: rule 1: StrictMatch() goes by the policy's filter, and a rule that is attached to a "
            "subscription has "
            "none"
        )
    ]
