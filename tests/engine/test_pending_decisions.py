"""What waits for a receiver's proof is told to the driver, and decided once: whatever becomes of the connection."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.messages import advertise, event, publish, subscribe
from tests.sizes import examples
from tidings.engine import Engine, Settings
from tidings.engine.effects import AskTrust, DecisionMade, DecisionPending, Deliver, Effect
from tidings.engine.headers import RuleSnapshot
from tidings.engine.operations import Connect, Disconnect, Operation, Publish, Redecide, Republish, Trust
from tidings.engine.steps.match import HISTORY

NOW = 1_000
FIRST = event({"n": 1}, "p")


def rule(condition: str) -> str:
    return (
        "PolicyStatement { On(Forward,Publication) { @broker: Egress "
        f"If {{{condition}}} Then {{}} Elseif {{}} Then {{BlockMessage()}} }} }}"
    )


def engine(condition: str) -> Engine:
    """A broker with that rule on all that it hands out, and a client with a durable subscription."""
    made = Engine(Settings(name="b1", advertisements_required=False))
    made.handle(subscribe("own", "n > 0", "b1", policy=rule(condition)), NOW)
    made.handle(subscribe("all", "n > 0", "c", durable="all"), NOW)
    made.handle(subscribe("some", "n > 0", "c"), NOW)
    return made


class Driver:
    """Keeps what it is told that it owes, and answers no for who is not there."""

    def __init__(self) -> None:
        self.engine = engine("AuthenticateReceiver(G)")
        self.is_there = True
        self.asks = False
        self.owed: dict[UUID, Redecide] = {}
        self.told: list[int] = []
        self._now = NOW

    def do(self, operation: Operation) -> None:
        self._now += 1
        effects: list[Effect] = self.engine.handle(operation, self._now)
        for effect in effects:  # grows while there are questions
            match effect:
                case AskTrust("b1", group):
                    effects += self.engine.handle(Trust("b1", group, True), self._now)
                case AskTrust(party, group) if not self.is_there:
                    effects += self.engine.handle(Trust(party, group, False), self._now)
                case AskTrust():
                    self.asks = True
                case DecisionPending(judge):
                    self.owed.setdefault(judge.event.id, judge)
                case DecisionMade(decided, "c"):
                    del self.owed[decided]
                case Deliver(note) if note.subscription == "all":
                    self.told.append(int(note.attributes["n"]))
                case _:
                    pass


@examples(100, 3_000)
@given(st.lists(st.sampled_from(["publish", "member", "stranger", "leave", "come"]), max_size=25))
def test_every_event_is_decided_once_by_the_answer_that_comes_in_the_end(steps: list[str]) -> None:
    driver, number = Driver(), 0
    waiting: list[int] = []
    expected: list[int] = []
    for step in steps:
        if step == "publish":
            number += 1
            driver.do(publish({"n": number}, "p", number))
            if driver.is_there:
                waiting.append(number)
        elif step in ("member", "stranger") and driver.asks:
            driver.asks = False
            driver.do(Trust("c", "G", step == "member"))
            decided = waiting.pop(0)
            expected += [decided] if step == "member" else []
        elif step == "leave" and driver.is_there:
            driver.is_there = driver.asks = False
            driver.do(Disconnect("c"))
        elif step == "come" and not driver.is_there:
            driver.is_there = True
            driver.do(Connect("c"))
            for judge in list(driver.owed.values()):
                driver.do(judge)
        assert driver.told == expected
        assert [judge.event.attributes["n"] for judge in driver.owed.values()] == waiting
        assert driver.asks == (driver.is_there and bool(waiting))


def told(effects: list[Effect]) -> list[str]:
    return [one.notification.subscription for one in effects if isinstance(one, Deliver)]


def test_nothing_is_accepted_before_its_sender_has_answered_what_rules_may_ask() -> None:
    """Also where they ask the receiver first, and would ask the sender of nothing if that says no."""
    made = engine("AuthenticateReceiver(G) && AuthenticateSender(H)")
    made.handle(Trust("b1", "G", True, NOW + 10**9), NOW)
    made.handle(Trust("b1", "H", True, NOW + 10**9), NOW)
    assert made.handle(Publish(FIRST), NOW + 1) == [AskTrust("p", "H")]
    effects = made.handle(Trust("p", "H", True), NOW + 2)
    (owed,) = (one.judge for one in effects if isinstance(one, DecisionPending))
    assert (owed.client, owed.subscriptions, owed.answers) == ("c", ("all",), (("H", True),))
    assert AskTrust("c", "G") in effects
    made.handle(Disconnect("c"), NOW + 3)
    assert made.handle(owed, NOW + 4) == [DecisionPending(owed), AskTrust("c", "G")]  # its sender is not asked again
    effects = made.handle(Trust("c", "G", True), NOW + 5)
    assert told(effects) == ["all"]
    assert effects[-1] == DecisionMade(owed.event.id, "c")


@pytest.mark.parametrize("member", [True, False])
def test_the_rules_that_count_are_those_of_when_it_came(member: bool) -> None:
    """Its publisher has left since, and took its advertisement along; another one has set another rule."""
    made = Engine(Settings(name="b1", advertisements_required=False))
    made.handle(subscribe("all", "n > 0", "c", durable="all"), NOW)
    made.handle(advertise("ad", "n > 0", "p", rule("AuthenticateReceiver(G)")), NOW)
    (owed,) = (one.judge for one in made.handle(publish({"n": 1}, "p"), NOW + 1) if isinstance(one, DecisionPending))
    for client in ("c", "p"):
        made.handle(Disconnect(client), NOW + 2)
    made.handle(subscribe("own", "n > 0", "b1", policy=rule("AuthenticateReceiver(H)")), NOW)
    assert made.handle(owed, NOW + 3) == [DecisionPending(owed), AskTrust("c", "G")]
    effects = made.handle(Trust("c", "G", member), NOW + 4)
    assert told(effects) == (["all"] if member else [])
    assert DecisionMade(owed.event.id, "c") in effects


def test_what_rules_are_made_of_must_be_known_or_nobody_gets_it() -> None:
    made = engine("AuthenticateReceiver(G)")
    odd = RuleSnapshot(rule("NobodyKnows()"), 1, "broker", "own", "b1", "n > 0", governs=True)
    effects = made.handle(Redecide(FIRST, "c", ("all",), rules=(odd,)), NOW)
    assert told(effects) == []
    assert effects[-1] == DecisionMade(FIRST.id, "c")


def test_a_subscription_that_has_ended_is_owed_nothing() -> None:
    made = engine("AuthenticateReceiver(G)")
    gone = Redecide(FIRST, "c", ("another",))
    assert made.handle(gone, NOW) == [DecisionMade(FIRST.id, "c")]
    others = Redecide(FIRST, "d", ("all",))
    assert made.handle(others, NOW) == [DecisionMade(FIRST.id, "d")]


@pytest.mark.parametrize("whose", [(), ("c",)])
def test_a_brokers_own_rules_are_for_what_is_sent_again_too(whose: tuple[str, ...]) -> None:
    made = engine("AuthenticateReceiver(G)")
    for party, member in (("b1", True), ("c", False)):
        made.handle(Trust(party, "G", member, NOW + 10 * HISTORY), NOW)
    again = Republish(FIRST, NOW + 2 * HISTORY, ("b1",), whose)
    assert "all" not in told(made.handle(again, NOW + 2 * HISTORY))
    made.handle(Trust("c", "G", True, NOW + 10 * HISTORY), NOW)
    assert "all" in told(
        made.handle(Republish(event({"n": 2}, "p", 2), NOW + 2 * HISTORY, ("b1",), whose), NOW + 2 * HISTORY)
    )
