"""Whatever policies are about, the engine does not raise, comes to rest, and can be saved: random histories with random
policies of all built-in elements, at three brokers."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.engine.overlay import LINE, Overlay
from tests.policy.strategies import branches
from tests.sizes import examples
from tidings import Policy
from tidings.engine import Engine
from tidings.policy.ast import Attach, Matching, MessageType, Point, Rule, RuleOperation

CLIENTS = {"ann": "b1", "bob": "b2", "cyd": "b3"}
A, S, P = MessageType.ADVERTISEMENT, MessageType.SUBSCRIPTION, MessageType.PUBLICATION
UA, US = MessageType.UNADVERTISEMENT, MessageType.UNSUBSCRIPTION


@st.composite
def rules(draw: st.DrawFn, messages: tuple[MessageType, ...], inherits: bool) -> Rule:
    operation, message = draw(st.sampled_from(RuleOperation)), draw(st.sampled_from(messages))
    matching = draw(st.sampled_from([Matching.AFTER, Matching.AFTER, Matching.BEFORE]))
    return Rule(
        operation=operation,
        message=message,
        matching=matching,
        branches=tuple(draw(st.lists(branches(operation, message, matching, False), min_size=1, max_size=2))),
        on_exception=tuple(draw(st.lists(branches(operation, message, matching, True), max_size=1))),
        points=draw(st.frozensets(st.sampled_from(Point), min_size=1)),
        attach=draw(st.sampled_from(Attach)) if inherits and message in (S, P) else Attach.NEVER,
    )


def given_with(*messages: MessageType, inherits: bool = False) -> st.SearchStrategy[Policy | None]:
    return st.none() | st.lists(rules(messages, inherits), min_size=1, max_size=2).map(tuple).map(Policy)


_texts = st.sampled_from(["true", "a > 1", "a < 3 and b > 0", "class = 'A'"])
_numbers = st.integers(0, 3)
_who, _number = st.sampled_from([*CLIENTS, "broker"]), st.integers(0, 1)
_operations = st.one_of(
    st.tuples(st.just("advertise"), _who, _number, _texts, given_with(A, S, P, UA, inherits=True)),
    st.tuples(
        st.just("subscribe"), _who, _number, _texts, given_with(S, P, US), st.sampled_from(["client", "subscription"])
    ),
    st.tuples(st.just("publish"), _who, st.dictionaries(st.sampled_from("abc"), _numbers), given_with(P)),
    st.tuples(st.just("publish"), _who, st.dictionaries(st.sampled_from("abc"), _numbers), st.none()),
    st.tuples(st.just("set_policy"), _who, _number, st.sampled_from("as"), given_with(P, S)),
    st.tuples(st.just("unsubscribe"), _who, _number, given_with(US)),
    st.tuples(st.just("unadvertise"), _who, _number, given_with(UA)),
    st.tuples(st.just("disconnect"), st.sampled_from(sorted(CLIENTS))),
    st.tuples(st.just("link"), st.booleans()),
    st.tuples(st.just("load"), st.floats(0, 1)),
)


def play(operations: list[tuple[Any, ...]], *, hold: bool, expiry: int) -> None:
    overlay = Overlay(LINE[:2], hold_answers=hold, expiry=expiry)
    for kind, *rest in operations:
        match kind:
            case "link":
                (overlay.join if rest[0] else overlay.leave)("b2", "b3")
                continue
            case "load":
                overlay.load("b2", rest[0])
                continue
        broker = CLIENTS.get(rest[0], "b2")
        who = rest[0] if rest[0] in CLIENTS else "b2"
        match kind:
            case "advertise":
                overlay.advertise(broker, who, rest[2], id=f"a{who}{rest[1]}", policy=rest[3])
            case "subscribe":
                overlay.subscribe(broker, who, rest[2], id=f"s{who}{rest[1]}", policy=rest[3], notify=rest[4])
            case "publish":
                overlay.publish(broker, who, rest[1], policy=rest[2])
            case "set_policy":
                overlay.set_policy(broker, who, f"{rest[2]}{who}{rest[1]}", rest[3])
            case "unsubscribe":
                overlay.unsubscribe(broker, who, f"s{who}{rest[1]}", policy=rest[2])
            case "unadvertise":
                overlay.unadvertise(broker, who, f"a{who}{rest[1]}", policy=rest[2])
            case "disconnect":
                overlay.disconnect(broker, who)
    while overlay.questions and hold:
        overlay.answer(*overlay.questions.pop(0), member=len(overlay.questions) % 2 == 0)
        overlay.run()
    for engine in overlay.engines.values():
        assert not engine.deferred
        saved = engine.save()
        assert Engine.restore(engine.state.settings, saved).save() == saved


@examples(38, 1_400)
@given(st.lists(_operations, min_size=3, max_size=12), st.booleans(), st.sampled_from([0, 1 << 60]))
def test_the_engine_never_raises_and_comes_to_rest(operations: list[tuple[Any, ...]], hold: bool, expiry: int) -> None:
    play(operations, hold=hold, expiry=expiry)
