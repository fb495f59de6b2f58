"""'Purity' of the semantics: the same operations give the same effects, and what must wait waits in order."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.engine.overlay import FOREVER, LINE, Overlay, on_publications, rule, statement
from tidings.engine.operations import Publish, SetLoad, Subscribe, Trust
from tidings.policy import policies

GUARDED = on_publications("BlockMessage()", when="AuthenticateReceiver(Enemies)", broker="Ingress")


# Broker load is an operation that the driver feeds in.


def test_broker_load_is_an_operation() -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub", policy=policies.trace(host=False, time=False))
    hub.publish("b1", "pub", {"n": 1})
    assert hub.do("b1", SetLoad(0.75)) == []
    hub.publish("b1", "pub", {"n": 2})
    assert [one.trace[0].load for one in hub.notifications("sub")] == [0.0, 0.75]


def test_processing_time_is_filled_in_by_the_driver() -> None:
    hub = Overlay()
    hub.subscribe("b1", "sub", policy=policies.trace())
    hub.publish("b1", "pub", {"n": 1})
    (note,) = hub.notifications("sub")
    assert note.trace[0].microseconds == 0


# Authentication is an effect answered by an operation, the link held in order meanwhile.


@pytest.fixture
def held() -> Overlay:
    overlay = Overlay(LINE[:1], hold_answers=True)
    overlay.advertise("b1", "pub", "class = 'x'", policy=GUARDED)
    overlay.advertise("b1", "free", "class = 'y'")
    overlay.subscribe("b2", "far", "class in ('x', 'y')")
    overlay.clear()
    return overlay


def numbers(overlay: Overlay) -> list[Any]:
    return [one["n"] for one in overlay.attributes_on("b1", "b2")]


def test_the_link_is_held_in_order_until_the_answer_comes(held: Overlay) -> None:
    held.publish("b1", "free", {"class": "y", "n": 0})
    held.publish("b1", "pub", {"class": "x", "n": 1})
    held.publish("b1", "free", {"class": "y", "n": 2})  # no rule on it, and yet it waits behind
    held.publish("b1", "pub", {"class": "x", "n": 3})
    assert held.questions == [("b1", "b2", "Enemies")]  # asked once
    assert numbers(held) == [0]
    held.answer("b1", "b2", "Enemies", member=False)
    held.run()
    assert numbers(held) == [0, 1, 2, 3]


def test_a_no_blocks_what_waited_and_not_what_waited_behind_it(held: Overlay) -> None:
    for n, (client, said) in enumerate([("pub", "x"), ("free", "y"), ("pub", "x")]):
        held.publish("b1", client, {"class": said, "n": n})
    held.answer("b1", "b2", "Enemies", member=True)
    held.run()
    assert numbers(held) == [1]


def test_other_links_do_not_wait(held: Overlay) -> None:
    held.subscribe("b1", "near", "class = 'y'")
    held.publish("b1", "pub", {"class": "x", "n": 1})
    held.publish("b1", "free", {"class": "y", "n": 2})
    assert held.received("near") == [{"class": "y", "n": 2}]
    assert numbers(held) == []


def test_subscriptions_and_removals_wait_in_the_order_of_their_link(held: Overlay) -> None:
    held.advertise("b2", "back", "class = 'z'")
    held.publish("b1", "pub", {"class": "x", "n": 1})
    held.clear()
    held.subscribe("b1", "one", "class = 'z'")
    held.subscribe("b1", "two", "class = 'z'")
    held.unsubscribe("b1", "one")
    assert held.passed == {}
    held.answer("b1", "b2", "Enemies", member=False)
    held.run()
    assert held.ids("b1", "b2", Subscribe) == ["s-two"]  # the first one was taken back meanwhile
    assert {one.id for one in held.engines["b2"].state.filters.subscriptions} == {"s-two", "s-far"}


def test_each_copy_in_turn_may_have_a_question_of_its_own(held: Overlay) -> None:
    when = "AuthenticateReceiver(A) || AuthenticateReceiver(B)"
    two = on_publications("BlockMessage()", when=when, broker="Ingress")
    held.publish("b1", "free", {"class": "y", "n": 1}, policy=two)
    held.publish("b1", "free", {"class": "y", "n": 2})
    asked = []
    while held.questions:
        broker, party, group = held.questions.pop()
        asked.append(group)
        held.answer(broker, party, group, member=False, expiry=0)
        held.run()
    assert (asked, numbers(held)) == (["A", "B"], [1, 2])


# Results cached (an expiry of 0 is allowed).


@pytest.mark.parametrize(("expiry", "asked"), [(FOREVER, 1), (0, 3), (2500, 2)])
def test_answers_are_remembered_until_they_expire(expiry: int, asked: int) -> None:
    overlay = Overlay(LINE[:1], trust={}, expiry=expiry)
    overlay.advertise("b1", "pub", "class = 'x'", policy=GUARDED)
    overlay.subscribe("b2", "far", "class = 'x'")
    questions = 0
    for n in range(3):
        overlay.publish("b1", "pub", {"class": "x", "n": n})
        questions += len(overlay.asked)
    assert (questions, numbers(overlay)) == (asked, [0, 1, 2])


def test_several_groups_without_any_memory_are_asked_once_a_message_each() -> None:
    """The paper's Fig. 14: five groups, nothing cached, on a rule that holds the sender."""
    groups = [f"G{n}" for n in range(5)]
    hub = Overlay(trust={group: {"sub"} for group in groups}, expiry=0)
    when = " && ".join(f"AuthenticateSender({group})" for group in groups)
    hub.advertise("b1", "pub", policy=statement(rule("Insert, Subscription", "Log(welcome)", when=when)))
    hub.subscribe("b1", "sub")
    assert hub.asked == [("b1", "sub", group) for group in groups]
    assert hub.logs() == ["welcome"]


def test_an_operation_whose_first_step_waits_holds_its_sender_and_nobody_else() -> None:
    hub = Overlay(hold_answers=True, govern=frozenset({"pub"}))
    hub.advertise(
        "b1", "pub", policy=statement(rule("Insert, Subscription", "UninsertMessage()", when="AuthenticateSender(Bad)"))
    )
    hub.subscribe("b1", "one", id="s1")
    hub.publish("b1", "one", {"n": 1})  # behind its own subscription
    hub.subscribe("b1", "two", id="s2")
    hub.publish("b1", "pub", {"n": 2})
    assert (hub.received("one"), hub.received("two")) == ([], [])
    hub.answer("b1", "two", "Bad", member=True)
    hub.answer("b1", "one", "Bad", member=False)
    assert hub.received("one") == [{"n": 1}]
    assert [one.id for one in hub.engines["b1"].state.filters.subscriptions] == ["s1"]


# Never answered: bounded.


def test_what_is_never_answered_is_bounded_and_never_let_through(
    held: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidings.engine.overlay.deferred.MAX_DEFERRED_MESSAGES", 5)
    for n in range(8):
        held.publish("b1", "pub", {"class": "x", "n": n})
    assert len(held.rejected("b1")) == 3
    assert "MAX_DEFERRED_MESSAGES" in held.rejected("b1")[0]
    assert numbers(held) == []
    held.answer("b1", "b2", "Enemies", member=False)
    held.run()
    assert numbers(held) == [0, 1, 2, 3, 4]


def test_who_leaves_waits_for_nothing_and_can_be_asked_about_again(held: Overlay) -> None:
    held.publish("b1", "pub", {"class": "x", "n": 1})
    held.leave("b1", "b2")
    broker = held.engines["b1"]
    assert not broker.state.links.neighbours
    assert not broker.deferred
    held.join("b1", "b2")
    held.publish("b1", "pub", {"class": "x", "n": 2})
    assert held.questions == [("b1", "b2", "Enemies")] * 2  # the first was never answered
    held.answer("b1", "b2", "Enemies", member=False)
    held.run()
    assert numbers(held) == [2]


def test_a_client_that_disconnects_while_it_waits_leaves_nothing_behind() -> None:
    hub = Overlay(hold_answers=True)
    hub.subscribe("b1", "one", id="s1")
    guarded = statement(rule("Insert, Subscription", "UninsertMessage()", when="AuthenticateSender(Bad)"))
    hub.advertise("b1", "pub", policy=guarded)
    hub.subscribe("b1", "one", id="s2")  # waits
    hub.disconnect("b1", "one")
    assert len(hub.engines["b1"].state.filters.subscriptions) == 0
    hub.answer("b1", "one", "Bad", member=False)
    assert len(hub.engines["b1"].state.filters.subscriptions) == 0


def test_an_answer_that_nobody_asked_for_is_remembered_and_harms_nobody() -> None:
    hub = Overlay()
    assert hub.do("b1", Trust("x", "G", True, hub.now + 10_000_000)) == []


def test_what_is_remembered_of_trust_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.engine.state.broker_state.MAX_KNOWN_TRUST", 10)
    hub = Overlay(trust={})
    hub.subscribe("b1", "sub", policy=on_publications("BlockMessage()", when="AuthenticateReceiver($Message)"))
    for n in range(50):
        hub.publish("b1", "pub", {"n": n})
    assert len(hub.received("sub")) == 50
    assert len(hub.engines["b1"].state.trust) == 10


# The same operations give the same effects, to the byte.


def play() -> bytes:
    """A long history with everything that could be drawn from a clock, from chance or from the order of a set."""
    overlay = Overlay(LINE, trust={"Restricted": {"b2"}, "Controlled": {"b3"}}, host="h", govern=frozenset({"warden"}))
    zones = policies.security_zones(
        restricted="Restricted", controlled="Controlled", hidden=["a", "b", "c"], subscribers="Subscribers"
    )
    overlay.advertise("b1", "pub", "class = 'x'", policy=zones)
    overlay.advertise("b1", "other", "class = 'x'", policy=policies.trace(attributes=True, attach="Always"))
    overlay.subscribe("b4", "warden", "class = 'x' and n = 3", policy=policies.firewall(strict=False))
    for n in range(6):
        kept = policies.keep_only("class", *(f"k{m}" for m in range(n)))
        overlay.subscribe("b4", f"sub{n}", "class = 'x'", policy=kept, notify="client" if n % 2 else "subscription")
        overlay.subscribe("b3", f"all{n}", policy=policies.remove(*(f"r{m}" for m in range(9))))
    overlay.subscribe("b2", "broken", policy=on_publications("Persist('no store')"))
    for n in range(8):
        overlay.load("b2", n / 8)
        attributes = {"class": "x", "n": n, **dict.fromkeys("abcde", n), **{f"r{m}": m for m in range(9)}}
        overlay.publish("b1", "pub" if n % 2 else "other", attributes, payload=b"p")
    overlay.leave("b3", "b4")
    overlay.disconnect("b1", "pub")
    return msgspec.msgpack.Encoder(order="deterministic").encode(overlay.effects)


def test_the_same_operations_give_the_same_effects_byte_by_byte() -> None:
    one = play()
    assert len(one) > 10_000
    assert one == play()


@pytest.mark.process
@pytest.mark.parametrize("seed", ["1", "2"])
def test_whatever_the_process_draws_for_its_hashes(seed: str) -> None:
    root = Path(__file__).parents[2]
    script = "import hashlib; from tests.engine.test_purity import play; print(hashlib.sha256(play()).hexdigest())"
    path = os.pathsep.join([str(root), str(root / "src")])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == hashlib.sha256(play()).hexdigest()


def test_what_was_published_is_not_changed_by_any_policy() -> None:
    """Policies change what is delivered, never what has been journaled."""
    hub = Overlay()
    hub.subscribe("b1", "sub", policy=statement(rule(then="RemoveAttributes(a), ToJSON(), AppendPrevHop()")))
    event = hub.event("pub", {"a": 1, "b": 2}, payload=b"p")
    before = msgspec.msgpack.encode(event)
    hub.do("b1", Publish(event))
    assert hub.received("sub") == [{"b": 2, "PrevHop": "pub"}]
    assert msgspec.msgpack.encode(event) == before


def test_a_question_that_several_links_have_is_asked_once_and_answers_all_of_them() -> None:
    overlay = Overlay([("b1", "b2"), ("b1", "b3")], hold_answers=True)
    overlay.advertise("b1", "pub", policy=on_publications("Log()", when="AuthenticateSender(G)", broker="Ingress"))
    for broker, client in (("b1", "near"), ("b2", "second"), ("b3", "third")):
        overlay.subscribe(broker, client, "n > 0")
    overlay.publish("b1", "pub", {"n": 1})
    assert overlay.questions == [("b1", "pub", "G")]
    overlay.answer("b1", "pub", "G", member=True, expiry=0)
    overlay.run()
    assert [len(overlay.received(name)) for name in ("near", "second", "third")] == [1, 1, 1]
    assert overlay.logs() == ["[n,1]"]
