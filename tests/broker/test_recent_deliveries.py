"""An event that comes by several ways is given to a durable subscription once."""

import asyncio
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from tidings.broker.broker import Broker
from tidings.broker.config import BrokerConfiguration
from tidings.broker.journal_extension import RecentDeliveries
from tidings.client import connect
from tidings.engine.operations import TransferBacklog
from tidings.engine.state.seen_events import SeenStatus
from tidings.hub import Hub
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.model.values import Attributes
from tidings.runtime.durable_inbox import DurableInbox

_FIRST, _SECOND = (UUID(int=(7 << 76) + (2 << 62) + number) for number in (1, 2))


def _note(event: UUID) -> Notification:
    made = Event(id=event, publisher="p", timestamp=1, sequence=1, attributes=Attributes({"n": 1}))
    return Notification(event=made, subscription="s", subscriber="c", attributes=made.attributes, payload=None)


def test_a_subscription_is_given_an_event_once_also_after_its_state_was_saved_and_another_one_too() -> None:
    with Hub() as hub:
        client = hub.client("c")
        one, other = client.subscribe("n > 0", durable="one"), client.subscribe("n > 0", durable="other")
        given, later = RecentDeliveries(), RecentDeliveries()
        assert given.record(one, _FIRST)
        assert not given.record(one, _FIRST)
        assert given.record(one, _SECOND)
        assert given.record(other, _FIRST)
        later.restore(given.state([one]), {held.id: held for held in (one, other)})
        assert not later.record(one, _FIRST)
        assert later.record(other, _FIRST)


def test_what_has_come_twice_into_a_backlog_keeps_its_place_and_is_acknowledged_once() -> None:
    backlog = DurableInbox(10, None)
    for offset, event in enumerate((_FIRST, _SECOND, _FIRST)):
        backlog.expect(offset)
        backlog.put(_note(event), offset)
    assert [note.event.id for note in backlog.take()] == [_FIRST, _SECOND]
    backlog.redeliver()
    assert [note.event.id for note in backlog.take()] == [_FIRST, _SECOND]
    done = backlog.acknowledgement([_FIRST, _SECOND])
    assert done is not None
    backlog.acknowledge(done)
    assert backlog.state()[3] == backlog.waiting == 0


@pytest.mark.parametrize("restarts", [False, True])
def test_what_follows_a_client_and_was_given_before_is_not_given_again(tmp_path: Path, restarts: bool) -> None:
    asyncio.run(_followed(tmp_path, restarts))


async def _followed(folder: Path, restarts: bool) -> None:
    tables = {"broker": {"name": "b1", "listen": "127.0.0.1:0"}, "journal": {"folder": str(folder)}}
    broker = Broker(BrokerConfiguration.from_values(tables))
    address = f"tidings://{await broker.start()}"
    async with connect(address, "c") as client, client.subscribe("n > 0", durable="all") as subscription:
        await client.publish({"n": 1})
        (note,) = await subscription.take(timeout=60)
        await subscription.acknowledge(note)
        await client.topics()  # an answer comes after all that was said before
    if restarts:
        await broker.stop()
        broker = Broker(BrokerConfiguration.from_values(tables))
        await broker.start()
    new = _note(_SECOND)
    new = msgspec.structs.replace(new, subscription=note.subscription, subscriber="c")
    broker.node.drive(TransferBacklog("b2", "b1", 1, ((note, "all"), (new, "all"))))
    broker.parts.scheduler.flush()
    held = broker.node.registry.subscriptions[note.subscription]
    assert held.waiting == 1
    await broker.stop()


def test_what_has_followed_one_client_still_comes_to_the_others_after_a_restart(tmp_path: Path) -> None:
    """It was never sent to them: a broker that took it for delivered here would leave them out."""
    asyncio.run(_followed_by_others(tmp_path))


async def _followed_by_others(folder: Path) -> None:
    tables = {"broker": {"name": "b1", "listen": "127.0.0.1:0"}, "journal": {"folder": str(folder)}}
    broker = Broker(BrokerConfiguration.from_values(tables))
    address = f"tidings://{await broker.start()}"
    async with connect(address, "c") as client, client.subscribe("n > 0", durable="all") as subscription:
        carried = msgspec.structs.replace(_note(_FIRST), subscription=subscription.id, subscriber="c")
        broker.node.drive(TransferBacklog("b2", "b1", 1, ((carried, "all"),)))
        broker.parts.scheduler.flush()
        assert [note.event.id for note in await subscription.take(timeout=60)] == [_FIRST]
    await broker.stop()
    broker = Broker(BrokerConfiguration.from_values(tables))
    await broker.start()
    assert broker.node.engine.state.seen_events.note(_FIRST, 1, flood=False, round=1) is SeenStatus.FIRST
    await broker.stop()
