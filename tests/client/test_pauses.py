"""A client does not make its program pause: the search for circles finds little of it, and comes seldom for it."""

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

import tidings as td
from tests.broker.cases import connect, run, running, until
from tidings.client.deduplication import NotificationDedup
from tidings.client.subscription import ClientSubscription
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.model.notification import Notification, Trace
from tidings.model.values import Attributes
from tidings.protocol import answers, requests
from tidings.protocol.events import to_wire
from tidings.protocol.notifications import notification_to_wire
from tidings.protocol.publications import WirePublication

MOST_OF_A_SUBSCRIPTION = 3  # objects that a search for circles looks at: it, its queue, and what calls its callback


def event(number: int) -> Event:
    return Event.of({"n": number}, id=uuid7(number * 1_000, bytes(10)), publisher="cam-1", timestamp=number)


def note(number: int, subscription: str = "s1") -> Notification:
    made = event(number)
    return Notification(event=made, subscription=subscription, subscriber="car-1", attributes=made.attributes)


@pytest.mark.parametrize(
    "value",
    [
        event(1),
        note(1),
        Trace("b1"),
        td.Receipt(event(1), 1),
        to_wire(event(1)),
        notification_to_wire(note(1)),
        WirePublication(1, bytes(16), 1, 0, Attributes.of({"n": 1})),
        answers.PublicationReceipts((answers.PublicationReceipt(1, 1, 1),)),
        requests.SubscribeRequest(1, "s1"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_there_is_much_of_is_not_searched(value: Any) -> None:
    assert not gc.is_tracked(value)


@pytest.fixture
def searched() -> Iterator[None]:
    """The collector looks through everything, also through what was frozen when the tests were collected."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("searched")
def test_a_subscription_to_which_nothing_comes_is_little_to_search() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            held = [await car.subscribe(f"n = {n}", callback=print) for n in range(10)]  # whatever is made once
            gc.freeze()  # the collector does not list what there is already
            held += [await car.subscribe(f"n = {n}", callback=print) for n in range(10, 110)]
            gc.collect()
            new = gc.get_objects()
            mine = [one for one in new if isinstance(one, ClientSubscription)]
            assert len(mine) == 100
            reached = {id(one) for one in mine}
            for one in mine:
                reached |= {id(part) for part in gc.get_referents(one)} & {id(part) for part in new}
            assert len(reached) <= MOST_OF_A_SUBSCRIPTION * 100
            assert not [one for one in new if isinstance(one, asyncio.Task)]
            assert len(held) == 110

    run(scenario())


def test_what_was_told_in_an_earlier_connection_is_not_told_again() -> None:
    told = NotificationDedup()
    assert told.is_new(note(1))
    assert told.is_new(note(1))  # in one connection a broker says what it means
    told.connected_again()
    assert not told.is_new(note(1))
    assert told.is_new(note(1, "s2"))
    assert told.is_new(note(2))
    told.connected_again()
    assert [told.is_new(note(n)) for n in (1, 2, 3)] == [False, False, True]
    assert not told.is_new(note(1, "s2"))


def test_only_so_much_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.client.deduplication.MAX_REMEMBERED_NOTIFICATIONS", 3)
    told = NotificationDedup()
    for n in range(5):
        assert told.is_new(note(n))
    told.connected_again()
    assert [told.is_new(note(n)) for n in range(5)] == [True, True, False, False, False]


def test_publishing_and_notifying_leave_nothing_to_search() -> None:
    """What has come and gone is gone at once, without any search: nothing of it was in a circle."""

    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car, connect(broker, "cam-1") as camera:
            seen: list[Any] = []
            await car.subscribe("", callback=lambda one: seen.append(one.attributes["n"]))

            async def round_of(count: int) -> None:
                seen.clear()
                await camera.publish_many(({"n": n} for n in range(count)), safe="accepted")
                await until(lambda: len(seen) == count)

            await round_of(100)
            gc.collect()
            gc.disable()
            try:
                await round_of(500)
                assert gc.collect() < 500  # not one object of each
            finally:
                gc.enable()

    run(scenario())
