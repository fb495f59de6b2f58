"""Scenes on an overlay of broker processes: cars and cameras, compared with a hub and with a replay on Spark.

Each step waits until the overlay has settled. So no operations are concurrent, and the overlay, the hub and Spark must
give exactly the same notifications.
"""

import asyncio
import json
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tidings.cli.demo.stories import Scene, dim, green
from tidings.cli.overlay import LocalOverlay
from tidings.cli.overlay.local import JOURNAL
from tidings.client import Client, ClientSubscription, connect
from tidings.hub import Hub
from tidings.model.errors import TidingsError
from tidings.model.notification import Notification
from tidings.policy import policies
from tidings.simulation.topologies import star

NEAR = "x between this.x - 40 and this.x + 40 and y between this.y - 40 and this.y + 40"
_BROKERS, _CARS, _CAMERAS, _ROUNDS = 4, 16, 6, 5
Place = dict[str, float]
Note = tuple[str, int, str, str]  # publisher, sequence, subscription, attributes as JSON


class Round(NamedTuple):
    """The moves of cars in one round, and the events that cameras publish after them."""

    moves: dict[str, Place]
    events: dict[str, dict[str, Any]]


class DemoJourney(NamedTuple):
    """The workload: the first positions of cars and cameras, and the rounds that follow."""

    cars: dict[str, Place]
    cameras: dict[str, Place]
    rounds: list[Round]


class DemoResult(NamedTuple):
    """The notifications from the overlay, and the messages between brokers that the moves took."""

    notifications: set[Note]
    move_messages: int  # messages between brokers for moves by context changes
    resubscribe_messages: int  # messages between brokers for the same moves by re-subscribing
    move_count: int  # number of moves


class Story:
    """Two scenes on the same workload; the overlay's journals stay in `folder` from the first scene to the second."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._notes: set[Note] = set()

    def brokers_and_a_hub(self) -> Scene:
        """Run the workload on an overlay and on a hub. Raises TidingsError if their notifications differ."""
        journey = draw_journey()
        begin = time.perf_counter()
        with LocalOverlay(star(_BROKERS), self._folder / "overlay") as overlay:
            started = time.perf_counter() - begin
            result = asyncio.run(_play(overlay, journey))
            brokers = len(overlay.statuses())
        with Hub(self._folder / "hub", name="hub") as hub:
            hub_notifications = _on_hub(hub, journey)
        self._notes = result.notifications
        if result.notifications != hub_notifications:
            differing = len(result.notifications ^ hub_notifications)
            raise TidingsError(f"the overlay and the hub differ in {differing} notifications: please report this")
        return _scene(journey, result, hub_notifications, brokers, started)

    def brokers_and_spark(self) -> Scene:
        """Replay the journals of all brokers together on Spark. Raises TidingsError if the notifications differ."""
        from tidings.cli.demo.on_spark import local_session
        from tidings.spark import history, retrace
        from tidings.spark.replay import merged_journals

        folders = sorted(str(path) for path in (self._folder / "overlay").glob(f"*{JOURNAL}"))
        journal = merged_journals.read(local_session(), folders).cache()
        publications = {row["id"]: (row["publisher"], row["sequence"]) for row in history.events(journal).collect()}
        rows = retrace(journal).notifications.collect()
        notifications = {
            (*publications[row["event_id"]], name, json.dumps(json.loads(row["attributes"]), sort_keys=True))
            for row in rows
            for name in row["subscriptions"]
        }
        if notifications != self._notes:
            differing = len(notifications ^ self._notes)
            raise TidingsError(f"the overlay and Spark differ in {differing} notifications: please report this")
        count = green(len(notifications))
        line = f"Spark reads the journals of all {len(folders)} brokers as one, and gives {count} notifications"
        lines = [f"{line}: those that cars were told by their brokers"]
        return Scene("The overlay's journals on Spark", lines, {"live_on_spark": len(notifications)})


def _scene(
    journey: DemoJourney, result: DemoResult, hub_notifications: set[Note], brokers: int, started: float
) -> Scene:
    events = _CAMERAS * len(journey.rounds)
    ratio = result.resubscribe_messages / max(1, result.move_messages)
    agreement = (
        f"{events} accidents seen, each settled: {green(len(result.notifications))} notifications from the overlay, "
        f"{green(len(hub_notifications))} from a hub that was told the same: the same to the last attribute"
    )
    saving = (
        f"{result.move_count} moves by changes of context: {green(result.move_messages)} messages between brokers; "
        f"by re-subscribing: {result.resubscribe_messages}, {ratio:.1f} times as many"
    )
    lines = [
        f"{_BROKERS} broker processes, {_CARS} cars and {_CAMERAS} cameras; up and linked in {started:.1f} s",
        agreement,
        saving,
        dim(f"each car subscribed once: msg = 'accident', from publishers where {NEAR}"),
    ]
    facts = {
        "brokers": brokers,
        "overlay": len(result.notifications),
        "hub": len(hub_notifications),
        "messages_moving": result.move_messages,
        "messages_resubscribing": result.resubscribe_messages,
    }
    return Scene("Cars and cameras on an overlay of broker processes", lines, {"live": facts})


def draw_journey() -> DemoJourney:
    """Draw the workload at random, with a fixed seed."""
    random = Random(11)  # noqa: S311 - a workload, not a secret

    def place() -> Place:
        return {"x": random.random() * 200, "y": random.random() * 200}

    cars = {f"car-{number}": place() for number in range(_CARS)}
    cameras = {f"cam-{number}": place() for number in range(_CAMERAS)}
    rounds = [
        Round(
            {name: place() for name in random.sample(sorted(cars), _CARS // 2)},
            {
                name: {"msg": "accident", "severity": random.randrange(4), "plate": f"ATX {n}"}
                for n, name in enumerate(cameras)
            },
        )
        for _ in range(_ROUNDS)
    ]
    return DemoJourney(cars, cameras, rounds)


def _shape(number: int) -> str | None:
    """Return the policy of a car's subscription: none, trim, or remove the plate."""
    return [None, str(policies.trim()), str(policies.remove("plate"))][number % 3]


def _content(number: int) -> str:
    return f"msg = 'accident' and severity >= {number % 3}"


# The workload on the overlay


async def _play(overlay: LocalOverlay, journey: DemoJourney) -> DemoResult:
    """Run the workload on the overlay, and count the messages that moves take with context changes and by
    re-subscribing."""
    async with AsyncExitStack() as stack:
        clients: dict[str, Client] = {}
        for number, name in enumerate([*journey.cameras, *journey.cars]):
            address = list(overlay.addresses.values())[number % _BROKERS]
            clients[name] = await stack.enter_async_context(connect(address, name=name))
        subscriptions: dict[str, ClientSubscription] = {}
        for name, place in journey.cameras.items():
            await clients[name].set_context(place)
            await clients[name].advertise("msg = 'accident'", publisher_context=["x", "y"], subscriber_context=["x"])
        for number, (name, place) in enumerate(journey.cars.items()):
            await clients[name].set_context(place)
            subscriptions[name] = await clients[name].subscribe(
                _content(number), publishers=NEAR, policy=_shape(number), id=f"s{number}"
            )
        notifications: set[Note] = set()
        move_messages = 0
        for round_ in journey.rounds:
            await asyncio.to_thread(overlay.settle)
            before = await asyncio.to_thread(overlay.messages)
            for name, place in round_.moves.items():
                await clients[name].set_context(place)
            await asyncio.to_thread(overlay.settle)
            move_messages += await asyncio.to_thread(overlay.messages) - before
            for name, attributes in round_.events.items():
                await clients[name].publish(attributes, subscribers="x < 180", safe="settled")
        for client in clients.values():
            await client.ask("status")  # the answer comes after all notifications sent before it
        for subscription in subscriptions.values():
            notifications |= {_note(note) for note in await subscription.take()}
        resubscribe_messages = await _resubscribe(overlay, clients, subscriptions, journey)
    return DemoResult(
        notifications, move_messages, resubscribe_messages, sum(len(round_.moves) for round_ in journey.rounds)
    )


async def _resubscribe(
    overlay: LocalOverlay,
    clients: dict[str, Client],
    subscriptions: dict[str, ClientSubscription],
    journey: DemoJourney,
) -> int:
    """Repeat the moves without contexts, by re-subscribing with the position in the filter; return the messages it
    took."""
    await asyncio.to_thread(overlay.settle)
    before = await asyncio.to_thread(overlay.messages)
    for round_ in journey.rounds:
        for name, place in round_.moves.items():
            client, subscription = clients[name], subscriptions[name]
            await client.unsubscribe(subscription)
            x, y = place["x"], place["y"]
            near = f"x between {x - 40} and {x + 40} and y between {y - 40} and {y + 40}"
            subscriptions[name] = await client.subscribe(
                subscription.wanted.content, publishers=near, policy=subscription.wanted.policy
            )
    await asyncio.to_thread(overlay.settle)
    after = await asyncio.to_thread(overlay.messages)
    return after - before


# The workload on a hub


def _on_hub(hub: Hub, journey: DemoJourney) -> set[Note]:
    """Run the workload on a hub, and return its notifications."""
    for name, place in journey.cameras.items():
        hub.client(name).set_context(place)
        hub.client(name).advertise("msg = 'accident'", publisher_context=["x", "y"], subscriber_context=["x"])
    inboxes = []
    for number, (name, place) in enumerate(journey.cars.items()):
        hub.client(name).set_context(place)
        inboxes.append(
            hub.client(name).subscribe(_content(number), publishers=NEAR, policy=_shape(number), id=f"s{number}")
        )
    for round_ in journey.rounds:
        for name, place in round_.moves.items():
            hub.client(name).set_context(place)
        for name, attributes in round_.events.items():
            hub.client(name).publish(attributes, subscribers="x < 180")
    return {_note(note) for inbox in inboxes for note in inbox.take()}


def _note(note: Notification) -> Note:
    return note.event.publisher, note.event.sequence, note.subscription, json.dumps(note.attributes, sort_keys=True)
