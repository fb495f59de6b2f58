"""A hub that is killed, closed and opened again at any moment is like one that was never touched."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import tidings as td
from tests.journal.cases import UnsyncedDisk
from tests.sizes import examples
from tidings.hub import Hub, HubSubscription
from tidings.model.receipt import NO_JOURNAL_IN_HUB
from tidings.testing import VirtualClock

CLIENTS = ["a", "b", "c"]
ZONE = (
    "PolicyStatement { On(Insert, Subscription) { If { AuthenticateSender(zone) } Then {} "
    'Elseif {} Then { UninsertMessage(), Publish("[class,UnauthorizedSubscribe]") } } }'
)
RULES = [
    None,
    "PolicyStatement { On(Forward, Publication) { If {} Then { RemoveAttributes([m]) } } }",
    "PolicyStatement { On(Forward, Publication) { If { BrokerLoadIndex() > 0.5 } Then { BlockMessage() } } }",
    ZONE,
    "PolicyStatement { On(Forward, Publication) { If { AuthenticateReceiver(zone) } Then { ToJSON() } } }",
]
FILTERS = ["n > 2", "n <= 2", "TRUE", "m = 1", "class = 'UnauthorizedSubscribe'"]

clients, numbers, filters = st.sampled_from(CLIENTS), st.integers(0, 5), st.sampled_from(FILTERS)
rules = st.sampled_from(RULES)
steps = st.one_of(
    st.tuples(st.just("publish"), clients, numbers),
    st.tuples(st.just("publish"), clients, numbers),
    st.tuples(st.just("subscribe"), clients, filters, numbers, rules, st.sampled_from([None, "x > this.x"])),
    st.tuples(st.just("unsubscribe"), clients, numbers),
    st.tuples(st.just("context"), clients, numbers),
    st.tuples(st.just("entrust"), clients, clients),
    st.tuples(st.just("advertise"), clients, numbers, filters, rules),
    st.tuples(st.just("policy"), clients, numbers, rules),
    st.tuples(st.just("load"), numbers),
    st.tuples(st.just("leave"), clients),
    st.tuples(st.just("take"), clients, numbers, st.booleans()),
    st.tuples(st.just("again"), st.sampled_from(["closed", "killed", "snapshot", "full"])),
)


class Pair:
    """One hub in memory, and one in a folder that is opened again and again; both hear the same."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, VirtualClock()
        self.trusted = True
        self.touched = self.opened()
        self.untouched = Hub(clock=VirtualClock(), trust=self.trust)

    def opened(self) -> Hub:
        return Hub(self.folder, clock=self.clock, trust=self.trust, disk=UnsyncedDisk())

    def trust(self, party: str, group: str) -> bool:
        return self.trusted and party != "c"

    def do(self, step: tuple[Any, ...]) -> None:
        if step[0] == "again":
            self.again(step[1])
            return
        answers = [answer(hub, step) for hub in (self.untouched, self.touched)]
        assert answers[0] == answers[1]
        self.check()

    def again(self, how: str) -> None:
        journal_store = self.touched.processor.journal_store
        assert journal_store is not None
        if how == "snapshot":
            self.touched.snapshot()
        elif how == "full":  # as after an operation for which there was no room
            processor = self.touched.processor
            processor.engine = journal_store.rebuild_engine()
        if how == "closed":
            self.touched.close()
        elif how == "killed":
            journal_store.journal.release_lock()
        if how in ("closed", "killed"):
            self.trusted = False  # nobody is asked anew
            self.touched = self.opened()
            self.trusted = True
            for client in CLIENTS:  # in memory nobody has noticed
                for held in self.touched.processor.registry.subscriptions_of(client):
                    other = self.untouched.processor.registry.subscriptions[held.id]
                    if held.durable is None:
                        other.take()
                    else:
                        other.redeliver()
        self.check()

    def check(self) -> None:
        assert self.touched.tables() == self.untouched.tables()
        waiting = [
            {held.id: held.waiting for held in hub.processor.registry.subscriptions.values()}
            for hub in (self.untouched, self.touched)
        ]
        assert waiting[0] == waiting[1]


def answer(hub: Hub, step: tuple[Any, ...]) -> object:
    try:
        return _answer(hub, step)
    except td.RefusedError as refused:
        return refused.step, refused.reason
    except td.ClosedError as closed:  # a durable subscription whose client has left
        return str(closed)


def _answer(hub: Hub, step: tuple[Any, ...]) -> object:
    name = step[1]
    client = None if step[0] == "load" else hub.client(name)
    if client is None:
        hub.set_load(name / 5)
        return None
    match step:
        case "publish", _, n:
            return client.publish({"n": n, "m": 1}).event.sequence
        case "subscribe", _, content, n, policy, publishers:
            durable = f"d{n}" if n % 2 else None
            was_there = any(one.id == f"{name}{n}" for one in client.subscriptions())
            held = client.subscribe(content, publishers, policy, durable, id=f"{name}{n}", limit=100)
            # Only the one in memory says that it has no journal; what they say of a new policy is the same. A hub that
            # is opened again does not repeat what it has said of a policy that was there.
            return was_there or [one for one in held.findings if one != NO_JOURNAL_IN_HUB]
        case "unsubscribe", _, n:
            client.unsubscribe(f"{name}{n}")
        case "context", _, n:
            client.set_context(x=n)
        case "entrust", _, other:
            client.let_set_context(other)
            hub.client(other).set_context(of=name, x=7)
        case "advertise", _, n, content, policy:
            return client.advertise(content, policy=policy, id=f"ad{name}{n}").findings
        case "policy", _, n, policy:
            return client.set_policy(f"{name}{n}", policy)
        case "leave", _:
            client.close()
        case "take", _, n, acknowledged:
            return [_taken(held, n or None, acknowledged) for held in client.subscriptions()]
    return None


def _taken(held: HubSubscription, limit: int | None, acknowledged: bool) -> object:
    notes = held.take(limit)
    if acknowledged and held.durable:
        held.acknowledge(*notes[::2])
    return [(note.attributes, note.payload, note.event.sequence, note.event.publisher) for note in notes]


@examples(60, 3_000)
@given(st.lists(steps, max_size=25))
def test_a_hub_that_is_opened_again_is_as_if_it_never_was_closed(history: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(Path(folder))
        for step in history:
            pair.do(step)
        pair.again("killed")
        for client in CLIENTS:
            pair.do(("take", client, 0, True))
        pair.touched.close()
