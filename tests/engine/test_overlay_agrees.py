"""Four brokers and the reference agree on who gets what, once operations have settled: the last broker decides
exactly, and the others before it never lose what is due."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.overlay import LINE, Overlay
from tests.sizes import examples
from tidings import ContextFilter, Filter
from tidings.engine.operations import Publish, Subscribe
from tidings.matching.reference import due
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.policy import policies

RING = (*LINE, ("b4", "b1"))
STAR = (("b1", "b2"), ("b2", "b3"), ("b2", "b4"))
HOME = {"ann": "b1", "bob": "b2", "cyd": "b3", "dan": "b4", "eve": "b4"}
ASKED: dict[str, tuple[str, ...]] = {"ann": ("x",), "bob": (), "cyd": (), "dan": ("x",), "eve": ()}  # of subscribers
CONTENTS = ("true", "a > 1", "a < 3 and b > 0", "b is null", "a = 2 or b = 1")
PUBLISHERS = (None, None, "x > 0", "x = this.x", "x is null")
SUBSCRIBERS = (None, None, "x > 0", "x = this.x", "x is null", "x between this.x - 1 and this.x + 1")
POLICIES = (None, None, policies.trim(), policies.remove("a"), policies.keep_only("b"), policies.prev_hop())

_clients, _numbers = st.sampled_from(sorted(HOME)), st.integers(0, 3)
_ids = st.integers(0, 2)
_context = st.fixed_dictionaries({}, optional={"x": _numbers})
OPERATIONS = st.one_of(
    st.tuples(st.just("subscribe"), _clients, _ids, *map(st.sampled_from, (CONTENTS, PUBLISHERS, POLICIES))),
    st.tuples(st.just("unsubscribe"), _clients, _ids),
    st.tuples(st.just("context"), _clients, _context),
    st.tuples(st.just("disconnect"), _clients),
    st.tuples(st.just("advertise"), _clients, st.sampled_from(CONTENTS)),
    st.tuples(st.just("unadvertise"), _clients),
    st.tuples(
        st.just("publish"),
        _clients,
        st.fixed_dictionaries({"a": _numbers}, optional={"b": _numbers}),
        st.sampled_from(SUBSCRIBERS),
    ),
    st.tuples(
        st.just("publish"), _clients, st.fixed_dictionaries({"a": _numbers}, optional={"b": _numbers}), st.just(None)
    ),
)


def play(links: Any, operations: list[tuple[Any, ...]], **settings: Any) -> None:
    overlay = Overlay(links, **settings)
    contexts: dict[str, dict[str, Any]] = {}
    wanted: dict[str, Subscription] = {}
    advertised: set[str] = set()
    for operation in operations:
        kind, client = operation[:2]
        broker = HOME[client]
        match kind:
            case "subscribe":
                _, _, number, content, publishers, policy = operation
                made = Subscription.of(
                    Filter.parse(content),
                    id=f"{client}{number}",
                    subscriber=client,
                    publishers=None if publishers is None else ContextFilter.parse(publishers),
                    policy=None if policy is None else str(policy),
                )
                overlay.do(broker, Subscribe(made))
                wanted[made.id] = made
            case "unsubscribe":
                overlay.unsubscribe(broker, client, f"{client}{operation[2]}")
                wanted.pop(f"{client}{operation[2]}", None)
            case "context":
                overlay.set_context(broker, client, **operation[2])
                contexts[client] = operation[2]
            case "disconnect":
                overlay.disconnect(broker, client)
                wanted = {name: one for name, one in wanted.items() if one.subscriber != client}
                advertised.discard(client)
                contexts.pop(client, None)
            case "advertise":
                overlay.advertise(broker, client, "true", publisher_context=["x"], subscriber_context=ASKED[client])
                advertised.add(client)
            case "unadvertise":
                overlay.unadvertise(broker, client)
                advertised.discard(client)
            case "publish":
                if client not in advertised:
                    overlay.advertise(broker, client, "true", publisher_context=["x"], subscriber_context=ASKED[client])
                    advertised.add(client)
                overlay.clear()
                event = overlay.event(client, operation[2], subscribers=operation[3], context=contexts.get(client, {}))
                overlay.do(broker, Publish(event))
                got = sorted(note.subscription for name in HOME for note in overlay.notifications(name))
                expected = sorted(
                    name
                    for name, one in wanted.items()
                    if due(one, event, Context.of(contexts.get(one.subscriber, {})))
                )
                assert got == expected, operation


@pytest.mark.parametrize("strategy", ["advertisement", "asf", "gsf", "spcf"])
@examples(35, 1_700)
@given(st.sampled_from([LINE, STAR, RING]), st.lists(OPERATIONS, min_size=5, max_size=25))
def test_an_overlay_and_the_reference_agree(strategy: str, links: Any, operations: list[tuple[Any, ...]]) -> None:
    play(links, operations, strategy=strategy)


def test_a_client_that_comes_back_without_its_context_is_known_to_have_none() -> None:
    line = Overlay(LINE)
    line.advertise("b1", "pub")
    line.set_context("b4", "sub", role="clerk")
    line.subscribe("b4", "sub", "n > 0")
    line.disconnect("b4", "sub")
    line.subscribe("b4", "sub", "n > 0")
    line.publish("b1", "pub", {"n": 1}, subscribers="role is null")
    line.publish("b1", "pub", {"n": 2}, subscribers="role = 'clerk'")
    assert line.received("sub") == [{"n": 1}]
