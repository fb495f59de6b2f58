"""Cars and cameras on real brokers: processes on this machine, linked, with journals; and the same on a hub.

Each step has settled everywhere before the next is taken: so the overlay, the hub and Spark must agree on all of it.
"""

import asyncio
import json
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tidings.cli.demo.scene import Scene, good, quiet
from tidings.cli.overlay import LocalOverlay
from tidings.cli.overlay.files import JOURNAL
from tidings.client import Client, Subscription, connect
from tidings.hub import Hub
from tidings.model.errors import TidingsError
from tidings.model.notification import Notification
from tidings.policy import policies
from tidings.simulation.topologies import star

NEAR = "x between this.x - 40 and this.x + 40 and y between this.y - 40 and this.y + 40"
_BROKERS, _CARS, _CAMERAS, _ROUNDS = 4, 16, 6, 5
Place = dict[str, float]
Note = tuple[str, int, str, str]  # publisher, its number, subscription, attributes


class Round(NamedTuple):
    """Where cars go, and what cameras then see."""

    moves: dict[str, Place]
    seen: dict[str, dict[str, Any]]


class Journey(NamedTuple):
    """Where everybody is at first, and what happens then."""

    cars: dict[str, Place]
    cameras: dict[str, Place]
    rounds: list[Round]


class Played(NamedTuple):
    notes: set[Note]
    moving: int  # messages between brokers, for moves
    resubscribing: int  # the same, where subscriptions had to say where their owners are
    moved: int  # how many moves that was, each time


class Story:
    """Played on brokers, whose journals stay in the folder for Spark to read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._notes: set[Note] = set()

    def brokers_and_a_hub(self) -> Scene:
        journey = drawn()
        begin = time.perf_counter()
        with LocalOverlay(star(_BROKERS), self._folder / "overlay") as overlay:
            started = time.perf_counter() - begin
            played = asyncio.run(_played(overlay, journey))
            brokers = len(overlay.statuses())
        with Hub(self._folder / "hub", name="hub") as hub:
            told = _on_hub(hub, journey)
        self._notes = played.notes
        if played.notes != told:
            differing = len(played.notes ^ told)
            raise TidingsError(f"the overlay and the hub differ in {differing} notifications: please report this")
        return _scene(journey, played, told, brokers, started)

    def brokers_and_spark(self) -> Scene:
        """The journals of all brokers, read together: the same again."""
        from tidings.cli.demo.on_spark import local_session
        from tidings.spark import history, overlay, retrace

        folders = sorted(str(one) for one in (self._folder / "overlay").glob(f"*{JOURNAL}"))
        journal = overlay.read(local_session(), folders).cache()
        known = {row["id"]: (row["publisher"], row["sequence"]) for row in history.events(journal).collect()}
        found = retrace(journal).notifications.collect()
        notes = {
            (*known[row["event_id"]], name, json.dumps(json.loads(row["attributes"]), sort_keys=True))
            for row in found
            for name in row["subscriptions"]
        }
        if notes != self._notes:
            differing = len(notes ^ self._notes)
            raise TidingsError(f"the overlay and Spark differ in {differing} notifications: please report this")
        line = (
            f"Spark reads the journals of all {len(folders)} brokers as one, and gives {good(len(notes))} notifications"
        )
        lines = [f"{line}: those that cars were told by their brokers"]
        return Scene("The overlay's journals on Spark", lines, {"live_on_spark": len(notes)})


def _scene(journey: Journey, played: Played, told: set[Note], brokers: int, started: float) -> Scene:
    events = _CAMERAS * len(journey.rounds)
    ratio = played.resubscribing / max(1, played.moving)
    told_alike = (
        f"{events} accidents seen, each settled: {good(len(played.notes))} notifications from the overlay, "
        f"{good(len(told))} from a hub that was told the same: the same to the last attribute"
    )
    saved = (
        f"{played.moved} moves by changes of context: {good(played.moving)} messages between brokers; "
        f"by re-subscribing: {played.resubscribing}, {ratio:.1f} times as many"
    )
    lines = [
        f"{_BROKERS} broker processes, {_CARS} cars and {_CAMERAS} cameras; up and linked in {started:.1f} s",
        told_alike,
        saved,
        quiet(f"each car subscribed once: msg = 'accident', from publishers where {NEAR}"),
    ]
    facts = {
        "brokers": brokers,
        "overlay": len(played.notes),
        "hub": len(told),
        "messages_moving": played.moving,
        "messages_resubscribing": played.resubscribing,
    }
    return Scene("Cars and cameras on an overlay of broker processes", lines, {"live": facts})


def drawn() -> Journey:
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
    return Journey(cars, cameras, rounds)


def _shape(number: int) -> str | None:
    return [None, str(policies.trim()), str(policies.remove("plate"))][number % 3]


def _content(number: int) -> str:
    return f"msg = 'accident' and severity >= {number % 3}"


# On the overlay


async def _played(overlay: LocalOverlay, journey: Journey) -> Played:
    async with AsyncExitStack() as stack:
        clients: dict[str, Client] = {}
        for number, name in enumerate([*journey.cameras, *journey.cars]):
            address = list(overlay.addresses.values())[number % _BROKERS]
            clients[name] = await stack.enter_async_context(connect(address, name=name))
        subscriptions: dict[str, Subscription] = {}
        for name, place in journey.cameras.items():
            await clients[name].set_context(place)
            await clients[name].advertise("msg = 'accident'", publisher_context=["x", "y"], subscriber_context=["x"])
        for number, (name, place) in enumerate(journey.cars.items()):
            await clients[name].set_context(place)
            subscriptions[name] = await clients[name].subscribe(
                _content(number), publishers=NEAR, policy=_shape(number), id=f"s{number}"
            )
        notes: set[Note] = set()
        moving = 0
        for one in journey.rounds:
            await asyncio.to_thread(overlay.settle)
            before = await asyncio.to_thread(overlay.messages)
            for name, place in one.moves.items():
                await clients[name].set_context(place)
            await asyncio.to_thread(overlay.settle)
            moving += await asyncio.to_thread(overlay.messages) - before
            for name, seen in one.seen.items():
                await clients[name].publish(seen, subscribers="x < 180", safe="settled")
        for client in clients.values():
            await client.ask("status")  # behind everything that it was told before
        for held in subscriptions.values():
            notes |= {_note(note) for note in await held.take()}
        resubscribing = await _resubscribed(overlay, clients, subscriptions, journey)
    return Played(notes, moving, resubscribing, sum(len(one.moves) for one in journey.rounds))


async def _resubscribed(
    overlay: LocalOverlay, clients: dict[str, Client], subscriptions: dict[str, Subscription], journey: Journey
) -> int:
    """The same moves, as they would be without contexts: a filter with the place written into it, each time anew."""
    await asyncio.to_thread(overlay.settle)
    before = await asyncio.to_thread(overlay.messages)
    for one in journey.rounds:
        for name, place in one.moves.items():
            client, held = clients[name], subscriptions[name]
            await client.unsubscribe(held)
            x, y = place["x"], place["y"]
            near = f"x between {x - 40} and {x + 40} and y between {y - 40} and {y + 40}"
            subscriptions[name] = await client.subscribe(
                held.wanted.content, publishers=near, policy=held.wanted.policy
            )
    await asyncio.to_thread(overlay.settle)
    after = await asyncio.to_thread(overlay.messages)
    return after - before


# On a hub


def _on_hub(hub: Hub, journey: Journey) -> set[Note]:
    for name, place in journey.cameras.items():
        hub.client(name).set_context(place)
        hub.client(name).advertise("msg = 'accident'", publisher_context=["x", "y"], subscriber_context=["x"])
    inboxes = []
    for number, (name, place) in enumerate(journey.cars.items()):
        hub.client(name).set_context(place)
        inboxes.append(
            hub.client(name).subscribe(_content(number), publishers=NEAR, policy=_shape(number), id=f"s{number}")
        )
    for one in journey.rounds:
        for name, place in one.moves.items():
            hub.client(name).set_context(place)
        for name, seen in one.seen.items():
            hub.client(name).publish(seen, subscribers="x < 180")
    return {_note(note) for inbox in inboxes for note in inbox.take()}


def _note(note: Notification) -> Note:
    return note.event.publisher, note.event.sequence, note.subscription, json.dumps(note.attributes, sort_keys=True)
