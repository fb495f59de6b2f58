"""'@attach' of the semantics, sentence by sentence."""

import pytest

from tests.engine.overlay import LINE, Overlay, on_publications, rule, statement
from tidings import Policy
from tidings.engine.operations import Publish

HANDED, OWN = "Log(handed)", "Log(own)"


def logs_of(attach: str, own: str | None) -> list[str]:
    """What is logged at the ingress broker of a publication whose advertisement hands a rule down."""
    hub = Overlay()
    hub.advertise("b1", "pub", policy=on_publications(HANDED, attach=attach))
    hub.subscribe("b1", "sub")
    hub.publish("b1", "pub", {}, policy=own)
    assert hub.rejected() == []
    return hub.logs()


# The whole table: @attach x whether the message has a rule with the same On() x whether that one yields.


@pytest.mark.parametrize(
    ("attach", "existing", "applied"),
    [
        # Never: the rule is applied where it is associated, beside whatever the message has.
        ("Never", "none", ["handed"]),
        ("Never", "yields", ["own", "handed"]),
        ("Never", "stays", ["own", "handed"]),
        # Always: attach, replacing the existing one.
        ("Always", "none", ["handed"]),
        ("Always", "yields", ["handed"]),
        ("Always", "stays", ["handed"]),
        # KeepExisting: attach if there is none.
        ("KeepExisting", "none", ["handed"]),
        ("KeepExisting", "yields", ["own"]),
        ("KeepExisting", "stays", ["own"]),
        # IfYield: attach if there is none or the existing one has @yield_attach: True.
        ("IfYield", "none", ["handed"]),
        ("IfYield", "yields", ["handed"]),
        ("IfYield", "stays", ["own"]),
    ],
)
def test_attach_and_yield_attach(attach: str, existing: str, applied: list[str]) -> None:
    own = None if existing == "none" else on_publications(OWN, yields=existing == "yields")
    assert logs_of(attach, own) == applied


@pytest.mark.parametrize(
    ("attach", "existing", "applied"),
    [
        ("Never", "stays", ["own", "handed"]),
        ("Always", "stays", ["handed"]),
        ("KeepExisting", "stays", ["own"]),
        ("KeepExisting", "none", ["handed"]),
        ("IfYield", "stays", ["own"]),
        ("IfYield", "yields", ["handed"]),
        ("IfYield", "none", ["handed"]),
    ],
)
def test_subscriptions_inherit_as_publications_do(attach: str, existing: str, applied: list[str]) -> None:
    hub = Overlay()
    hub.advertise("b1", "pub", policy=statement(rule("Forward, Subscription", HANDED, attach=attach)))
    own = statement(rule("Forward, Subscription", OWN, yields=existing == "yields"))
    hub.subscribe("b1", "sub", policy=None if existing == "none" else own)
    assert hub.logs() == applied


def test_existing_is_a_rule_with_the_same_on() -> None:
    """A rule on insertion is none with the same On() as one on forwarding."""
    hub = Overlay()
    hub.advertise("b1", "pub", policy=statement(rule("Forward, Subscription", HANDED, attach="KeepExisting")))
    hub.subscribe("b1", "sub", policy=statement(rule("Insert, Subscription", OWN)))
    assert hub.logs() == ["own", "handed"]


def test_if_yield_needs_all_existing_ones_to_yield() -> None:
    own = statement(rule(then="Log(one)", yields=True), rule(then="Log(two)"))
    assert logs_of("IfYield", own) == ["one", "two"]


# Otherwise only the attached rule applies.


@pytest.mark.parametrize("attach", ["Always", "KeepExisting", "IfYield"])
def test_otherwise_only_the_attached_rule_applies(attach: str) -> None:
    assert logs_of(attach, None) == ["handed"]  # once: not where it is associated as well
    overlay = Overlay(LINE[:2])
    overlay.advertise("b1", "pub", "class = 'x'", policy=on_publications(HANDED, attach=attach))
    overlay.subscribe("b3", "sub", "class = 'x'")
    overlay.publish("b1", "pub", {"class": "x"})
    assert [overlay.logs(name) for name in overlay.engines] == [["handed"]] * 3


# It acts at the message's ingress broker, before evaluation.


def test_it_acts_at_the_ingress_broker_before_evaluation() -> None:
    overlay = Overlay(LINE[:2])
    overlay.advertise("b1", "pub", "class = 'x'", policy=on_publications(HANDED, attach="Always"))
    overlay.subscribe("b3", "sub", "class = 'x'")
    overlay.publish("b1", "pub", {"class": "x"}, policy=on_publications("BlockMessage()"))
    assert overlay.received("sub") == [{"class": "x"}]  # the message's own rule was replaced before it could block
    (sent,) = overlay.on("b1", "b2", Publish)
    assert sent.journey.policy is not None
    assert Policy.parse(sent.journey.policy) == Policy.parse(
        on_publications(HANDED)
    )  # attached, it is handed no further


def test_elsewhere_than_at_ingress_nothing_is_inherited() -> None:
    overlay = Overlay(LINE[:2])
    overlay.advertise("b1", "pub", "class = 'x'")
    overlay.subscribe("b3", "sub", "class = 'x'")
    overlay.advertise("b2", "b2", "class = 'x'", policy=on_publications(HANDED, attach="Always"))
    overlay.engines["b1"].state.filters.advertisements["a-b2"].govern(None)  # as if b1 had not heard of it
    overlay.engines["b1"].state.rules.update(overlay.engines["b1"].state.filters.advertisements["a-b2"])
    overlay.publish("b1", "pub", {"class": "x"})
    assert overlay.logs() == []


def test_an_inherited_rule_travels_where_the_advertisement_is_not_known() -> None:
    """An advertisement that is kept from other brokers still has its rule applied there (as in Fig. 16)."""
    overlay = Overlay(LINE[:1])
    overlay.advertise(
        "b1",
        "pub",
        "class = 'x'",
        policy=statement(rule("Forward, Advertisement", "BlockMessage()"), rule(then=HANDED, attach="Always")),
    )
    overlay.publish("b1", "pub", {"class": "x"}, policy=None)
    overlay.advertise("b1", "other", "class = 'x'")
    overlay.subscribe("b2", "sub", "class = 'x'")
    overlay.clear()
    overlay.publish("b1", "pub", {"class": "x"})
    assert overlay.logs("b2") == ["handed"]


# Rules inherited from several advertisements accumulate, equal ones once.


def test_rules_inherited_from_several_advertisements_accumulate_equal_ones_once() -> None:
    hub = Overlay()
    for place, said in (("a1", "one"), ("a2", "two"), ("a3", "one")):
        hub.advertise("b1", "pub", id=place, policy=on_publications(f"Log({said})", attach="Always"))
    hub.subscribe("b1", "sub")
    hub.publish("b1", "pub", {}, policy=on_publications(OWN))
    assert hub.logs() == ["one", "two"]


def test_what_two_hand_down_is_judged_by_what_the_message_brought_itself() -> None:
    """The first to be attached is no 'existing' one for the second."""
    hub = Overlay()
    hub.advertise("b1", "pub", id="a1", policy=on_publications("Log(one)", attach="KeepExisting"))
    hub.advertise("b1", "pub", id="a2", policy=on_publications("Log(two)", attach="KeepExisting"))
    hub.subscribe("b1", "sub")
    hub.publish("b1", "pub", {})
    assert hub.logs() == ["one", "two"]


def test_an_advertisement_that_does_not_match_hands_nothing_down() -> None:
    hub = Overlay()
    hub.advertise("b1", "pub", "a > 0", policy=on_publications(HANDED, attach="Always"))
    hub.subscribe("b1", "sub")
    hub.publish("b1", "pub", {"a": 0})
    assert hub.logs() == []


def test_too_many_rules_are_refused_and_not_let_through() -> None:
    hub = Overlay()
    for place in range(3):
        rules = [rule(then=f"Log({place}, {n})", attach="Always") for n in range(30)]
        hub.advertise("b1", "pub", id=f"a{place}", policy=statement(*rules))
    hub.subscribe("b1", "sub")
    hub.publish("b1", "pub", {})
    assert "MAX_POLICY_RULES" in hub.rejected()[0]
    assert hub.received("sub") == []
