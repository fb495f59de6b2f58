"""What a broker holds of a subscription, and what it gives back of what it has needed for a moment."""

import asyncio
import gc
import tracemalloc
from uuid import UUID

import pytest

from tidings import Filter
from tidings.broker.broker import Broker
from tidings.broker.config import BrokerConfiguration
from tidings.broker.ops.heartbeat import MallocTrim
from tidings.broker.sessions.inboxes import SessionInbox, SessionSubscription
from tidings.engine.operations import Disconnect, Subscribe
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes

_CLIENTS, _COUNT = 50, 3_000
_MOST = 1_000  # bytes of a subscription


class _Connection:
    """Takes note of what it is to send."""

    def __init__(self) -> None:
        self.notes: list[Notification] = []

    def notify(self, note: Notification) -> None:
        self.notes.append(note)


def _note() -> Notification:
    made = Event(id=UUID(int=7 << 76), publisher="p", timestamp=1, sequence=1, attributes=Attributes({"n": 1}))
    return Notification(event=made, subscription="s", subscriber="c", attributes=made.attributes, payload=None)


def _subscribe(broker: Broker, inbox: SessionInbox, client: str, number: int) -> None:
    text = f"kind = 'k{number % 100}' and level >= {number // 100}.5 and level < {number // 100 + 1}.25"
    given = Subscription.of(Filter.parse(text), id=f"{client}.1.{number}", subscriber=client)
    assert broker.node.operate(Subscribe(given), sync=False).refused is None
    held = broker.node.registry.subscriptions[given.id]
    assert isinstance(held, SessionSubscription)
    held.inbox = inbox


def test_a_subscription_takes_less_than_a_kilobyte_in_a_broker() -> None:
    async def scenario() -> int:
        broker = Broker(BrokerConfiguration.from_values({"broker": {"name": "b1", "listen": "127.0.0.1:0"}}))
        await broker.start()
        try:
            inbox = SessionInbox(_Connection())
            for number in range(200):  # some of everything
                _subscribe(broker, inbox, "early", number)
            broker.node.operate(Disconnect("early"), sync=False)
            broker.parts.scheduler.flush()
            tracemalloc.start()
            for number in range(_COUNT):
                _subscribe(broker, inbox, f"c{number % _CLIENTS}", number)
                broker.parts.scheduler.flush()
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
            await broker.stop()

    assert asyncio.run(scenario()) / _COUNT < _MOST


def test_one_that_has_ended_gets_nothing_more_and_the_others_of_its_client_do() -> None:
    async def scenario() -> None:
        broker = Broker(BrokerConfiguration.from_values({"broker": {"name": "b1", "listen": "127.0.0.1:0"}}))
        await broker.start()
        try:
            connection = _Connection()
            inbox = SessionInbox(connection)
            for number in range(2):
                _subscribe(broker, inbox, "c", number)
            one, other = broker.node.registry.subscriptions_of("c")
            note = _note()
            one.inbox.put(note, 0)
            one.end()
            one.inbox.put(note, 1)
            other.inbox.put(note, 2)
            assert connection.notes == [note, note]
            assert one.inbox.closed
            assert not other.inbox.closed
        finally:
            await broker.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("counts", "due"),
    [
        ([0, 999], [False, False]),
        ([1_000, 1_500, 2_000], [True, False, True]),
        ([80_000, 81_000, 90_000], [True, False, True]),  # a share of all, where there are many
        ([5_000, 100], [True, True]),  # also when they go
        ([80_000, 81_000, 81_000, 81_000], [True, False, True, False]),  # and for the last of them, when no more do
        ([80_000, 80_099, 80_099], [True, False, False]),
    ],
)
def test_memory_is_given_back_after_many_subscriptions_have_come_or_gone(counts: list[int], due: list[bool]) -> None:
    spare = MallocTrim()
    assert [spare.is_due(count) for count in counts] == due
    spare.trim()
