"""'Failures' of the semantics: a policy that cannot be evaluated never lets anything through."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.overlay import LINE, Overlay, on_publications, rule, statement
from tests.sizes import examples
from tidings.engine.effects import Effect
from tidings.engine.operations import Publish
from tidings.policy import registry

FAULTY = {"on": True}


@pytest.fixture(autouse=True, scope="module")
def _elements() -> Iterator[None]:
    """`Fails()` and `Breaks()` raise, and `Garbles()` is a conversion that does, unless faults are switched off."""

    def fault() -> None:
        if FAULTY["on"]:
            raise ZeroDivisionError("on purpose")

    @registry.policy_condition("Fails")
    def fails(rule_context: Any, then: bool = True) -> bool:
        fault()
        return then

    @registry.policy_condition("Lies")
    def lies(rule_context: Any) -> bool:
        return "not a boolean" if FAULTY["on"] else True  # type: ignore[return-value]

    @registry.policy_action("Breaks", effect="tells", operations=["Forward", "Insert"])
    def breaks(rule_context: Any) -> None:
        fault()

    @registry.policy_action("Garbles", effect="converts", messages=["Publication"])
    def garbles(rule_context: Any) -> None:
        def convert(shaped: Any) -> bytes:
            fault()
            return b"fine"

        rule_context.convert(convert)

    @registry.policy_action("Nonsense", effect="converts", messages=["Publication"])
    def nonsense(rule_context: Any) -> None:
        rule_context.convert(lambda shaped: "text" if FAULTY["on"] else b"fine")

    yield
    for name in ("Fails", "Lies", "Breaks", "Garbles", "Nonsense"):
        registry.unregister(name)


def hub_with(policy: str, **publication: Any) -> Overlay:
    hub = Overlay()
    hub.subscribe("b1", "sub", "n > 0", policy=policy)
    hub.subscribe("b1", "watch", "class = 'PolicyException'")
    hub.publish("b1", "pub", {"n": 1}, **publication)
    return hub


FAULTS = {
    "a condition": ("Fails()", ""),
    "a condition that gives no boolean": ("Lies()", ""),
    "an action": ("", "Breaks()"),
    "an action behind others": ("", "RemoveAttributes(n), Log(x), Breaks()"),
    "a conversion": ("", "Garbles()"),
    "a conversion that gives no bytes": ("", "Nonsense()"),
    "a store that is no name": ("", "Persist('../../etc/passwd')"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_raises_is_blocked_and_told_if_nothing_takes_care_of_it(fault: str) -> None:
    when, then = FAULTS[fault]
    hub = hub_with(on_publications(then, when=when))
    assert hub.received("sub") == []
    (told,) = hub.received("watch", meta=True)
    assert (told["class"], told["broker"]) == ("PolicyException", "b1")
    assert told["rule"] == "rule 1 of the subscription s-sub"
    assert told["cause"]


@pytest.mark.parametrize("fault", FAULTS)
def test_on_exception_mends(fault: str) -> None:
    when, then = FAULTS[fault]
    hub = hub_with(on_publications(then, when=when, on_exception="If {} Then {Log($Exception), ToJSON()}"))
    (note,) = hub.notifications("sub")
    assert note.payload is not None  # what OnException does is done
    assert len(hub.logs()) == 1
    assert hub.told() == []


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "on_exception",
    [
        "If {Fails()} Then {}",
        "If {} Then {Breaks()}",
        "If {} Then {Garbles()}",
        "If {BrokerLoadIndex() > 2} Then {}",
        "",
    ],
    ids=["its condition raises", "its action raises", "its conversion raises", "no branch holds", "no branch"],
)
def test_an_exception_in_on_exception_or_none_that_holds_blocks_and_is_told(fault: str, on_exception: str) -> None:
    when, then = FAULTS[fault]
    hub = hub_with(on_publications(then, when=when, on_exception=on_exception or None))
    assert hub.received("sub") == []
    assert hub.told_classes() == ["PolicyException"]


@pytest.mark.parametrize("fault", FAULTS)
def test_on_exception_may_block(fault: str) -> None:
    when, then = FAULTS[fault]
    hub = hub_with(on_publications(then, when=when, on_exception="If {} Then {BlockMessage()}"))
    assert (hub.received("sub"), hub.told()) == ([], [])


def test_what_on_exception_removes_is_removed_though_the_conversion_failed_late() -> None:
    hub = hub_with(on_publications("Garbles()", on_exception="If {} Then {RemoveAttributes(n)}"))
    assert hub.received("sub") == [{}]


@pytest.mark.parametrize("then", ["BlockMessage(), Breaks()", "Breaks(), BlockMessage()"])
def test_what_is_blocked_stays_blocked_whatever_on_exception_says(then: str) -> None:
    """Whatever the order of the actions, blocks come first; the failure of what only tells does not undo them."""
    hub = hub_with(on_publications(then, on_exception="If {} Then {Log(sorry)}"))
    assert (hub.received("sub"), hub.logs()) == ([], ["sorry"])


def test_what_is_kept_out_of_the_tables_stays_out() -> None:
    hub = Overlay()
    policy = statement(rule("Insert, Subscription", "Breaks(), UninsertMessage()", on_exception="If {} Then {}"))
    hub.subscribe("b1", "sub", policy=policy)
    assert len(hub.engines["b1"].state.filters.subscriptions) == 0


@pytest.mark.parametrize("kind", ["Subscription", "Advertisement"])
@pytest.mark.parametrize("operation", ["Insert", "Forward"])
def test_filters_whose_rules_fail_go_no_further(kind: str, operation: str) -> None:
    overlay = Overlay(LINE[:1])
    overlay.advertise("b2", "pub")
    policy = statement(rule(f"{operation}, {kind}", "Breaks()"))
    (overlay.subscribe if kind == "Subscription" else overlay.advertise)("b1", "one", policy=policy)
    passed = [one for one in overlay.passed.get(("b1", "b2"), []) if not isinstance(one, Publish)]
    assert passed == []
    assert "PolicyException" in overlay.told_classes("b1")
    table = (
        overlay.engines["b1"].state.filters.subscriptions
        if kind == "Subscription"
        else overlay.engines["b1"].state.filters.advertisements
    )
    assert (table.get("s-one") or table.get("a-one") or None) is None or operation == "Forward"


def test_a_failing_insert_rule_behind_one_that_keeps_it_out_lets_nothing_go_on() -> None:
    overlay = Overlay(LINE[:1])
    overlay.advertise("b2", "pub")
    rules = rule("Insert, Subscription", "UninsertMessage()"), rule("Insert, Subscription", "Breaks()")
    overlay.subscribe("b1", "sub", policy=statement(*rules))
    assert not any(isinstance(one, Publish) is False for one in overlay.passed.get(("b1", "b2"), []))


def test_every_filter_whose_rule_fails_is_told() -> None:
    """Equal texts are compiled once; they are two rules all the same."""
    hub = Overlay()
    for client in ("one", "two"):
        hub.subscribe("b1", client, "n > 0", policy=on_publications("Breaks()"))
    hub.publish("b1", "pub", {"n": 1})
    assert [one["rule"] for one in hub.told()] == [
        "rule 1 of the subscription s-one",
        "rule 1 of the subscription s-two",
    ]


def test_an_exception_in_one_copy_leaves_the_others_alone() -> None:
    overlay = Overlay(LINE[:1])
    overlay.advertise("b1", "pub")
    overlay.subscribe("b2", "one", "n > 0", policy=on_publications("Breaks()"))
    overlay.subscribe("b2", "two", "n > 0")
    overlay.publish("b1", "pub", {"n": 1})
    assert (overlay.received("one"), overlay.received("two")) == ([], [{"n": 1}])


def test_an_element_that_this_process_does_not_know_blocks() -> None:
    @registry.policy_condition("Forgotten")
    def forgotten(rule_context: Any) -> bool:
        return False

    try:
        overlay = Overlay(LINE[:1])
        overlay.advertise("b1", "pub", policy=on_publications("BlockMessage()", when="Forgotten()"))
        overlay.subscribe("b2", "sub")
    finally:
        registry.unregister("Forgotten")
    overlay.publish("b1", "pub", {}, policy=on_publications("", when="Forgotten()"))
    assert "there is no condition Forgotten" in overlay.rejected("b1")[0]
    assert overlay.received("sub") == []


# Faults in conditions and actions at random places: no copy ever passes that the same policies without faults would
# have blocked, and the engine never raises. (An OnException that lets pass does so because its author said so; here it
# blocks, raises, or has no branch that holds.)

_conditions = st.sampled_from(
    ["", "Fails()", "Fails(False)", "Lies()", "BrokerLoadIndex() < 0.5", "BrokerLoadIndex() > 0.5"]
)
_actions = st.sampled_from(
    [
        *("BlockMessage()", "Breaks()", "Garbles()", "Nonsense()", "RemoveAttributes(a)", "KeepOnlyAttributes(a, n)"),
        *("Log(line)", "Publish('[class,Seen]')", "ToJSON()", "AppendPrevHop()", "Persist('no store')"),
        "FloodMessage()",
    ]
)
_mending = st.sampled_from(
    [None, "If {} Then {BlockMessage()}", "If {Fails()} Then {}", "If {BrokerLoadIndex() > 2} Then {}"]
)
_points = st.sampled_from(["", "Ingress", "Routing", "Egress", "Ingress, Routing"])


@st.composite
def random_policies(draw: st.DrawFn, attach: bool = False) -> str:
    rules = []
    for _ in range(draw(st.integers(1, 3))):
        branches = " Elseif ".join(
            f"{{{draw(_conditions)}}} Then {{{', '.join(draw(st.lists(_actions, max_size=3)))}}}"
            for _ in range(draw(st.integers(1, 3)))
        )
        points, mending = draw(_points), draw(_mending)
        said = (f"@broker: {points} " if points else "") + (
            f"@attach: {draw(st.sampled_from(['Always', 'KeepExisting', 'IfYield', 'Never']))} " if attach else ""
        )
        end = "" if mending is None else f" OnException {{ {mending} }}"
        rules.append(f"On(Forward, Publication) {{ {said}If {branches}{end} }}")
    return statement(*rules)


def _play(drawn: dict[str, str | None], *, faulty: bool) -> Overlay:
    FAULTY["on"] = faulty
    try:
        overlay = Overlay(LINE[:2], govern=frozenset({"governor"}))
        overlay.advertise("b1", "pub", "n > 0", policy=drawn["advertisement"])
        overlay.advertise("b2", "governor", "n > 0", policy=drawn["governor"])
        overlay.subscribe("b2", "b2", "n > 0", policy=drawn["broker"])
        overlay.subscribe("b3", "one", "n > 0", policy=drawn["one"])
        overlay.subscribe("b3", "two", "n > 0", policy=drawn["two"], notify="client")
        overlay.subscribe("b1", "near", "n > 0", policy=drawn["near"])
        overlay.clear()
        overlay.publish("b1", "pub", {"n": 1, "a": 2}, policy=drawn["message"])
        return overlay
    finally:
        FAULTY["on"] = True


@examples(56, 2_000)
@given(
    st.fixed_dictionaries(
        {
            "advertisement": st.none() | random_policies(attach=True),
            "governor": st.none() | random_policies(attach=True),
            **{name: st.none() | random_policies() for name in ("broker", "one", "two", "near", "message")},
        }
    )
)
def test_faults_let_nothing_through_that_would_have_been_blocked(drawn: dict[str, str | None]) -> None:
    whole, broken = _play(drawn, faulty=False), _play(drawn, faulty=True)

    def passed(overlay: Overlay) -> set[str]:
        delivered = {name for name in ("one", "two", "near") if overlay.notifications(name)}
        return delivered | overlay.busy_links()

    flooded = "FloodMessage" in str(drawn)
    links = {"b1>b2", "b2>b3", "b2>b1"} if flooded else set()  # a flood that a fault kept back, or did not
    assert passed(broken) - links <= passed(whole)
    faults = ("Fails", "Lies", "Breaks", "Garbles", "Nonsense", "no store")
    effects: list[tuple[str, Effect]] = broken.effects
    if not any(name in str(drawn) for name in faults):
        assert effects == whole.effects


# The same for rules on filters, where what must not be let through is the filter.


@examples(100, 3000)
@given(
    st.lists(st.sampled_from(["UninsertMessage()", "Breaks()", "Log(line)"]), max_size=3),
    st.lists(st.sampled_from(["BlockMessage()", "Breaks()", "Log(line)", "RemoveAttributes(n)"]), max_size=3),
    _conditions,
    _conditions,
    _mending,
)
def test_faults_let_no_filter_through(
    insert: list[str], forward: list[str], when: str, whether: str, mending: str | None
) -> None:
    def play(faulty: bool) -> set[str]:
        FAULTY["on"] = faulty
        try:
            overlay = Overlay(LINE[:1], govern=frozenset({"pub"}))
            uninserting = (mending or "").replace("BlockMessage", "UninsertMessage") or None
            overlay.advertise(
                "b2",
                "pub",
                policy=statement(
                    rule("Insert, Subscription", ", ".join(insert), when=when, on_exception=uninserting),
                    rule("Forward, Subscription", ", ".join(forward), when=whether, on_exception=mending),
                ),
            )
            overlay.subscribe("b1", "sub", "n > 0")
            return {
                name
                for name, engine in overlay.engines.items()
                if engine.state.filters.subscriptions.get("s-sub") is not None
            }
        finally:
            FAULTY["on"] = True

    assert play(True) <= play(False)
