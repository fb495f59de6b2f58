"""Measure the bytes of a notification when a policy removes attributes: the paper's Fig. 5."""

from pathlib import Path

import msgspec

from benchmarks import drawing
from tidings.cli.measurement import Measurement, steps
from tidings.engine import Engine
from tidings.engine.effects import Deliver
from tidings.engine.operations import Publish, Subscribe
from tidings.filters import Filter
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.policy import policies

_SIZES = (10, 20, 30)
_PUBLICATIONS = 100


def measure(plot: Path | None) -> list[Measurement]:
    """Measure the mean of a hundred publications of 10, 20 and 30 attributes, with none to all attributes removed."""
    bytes_of = {}
    with steps(len(_SIZES)) as step:
        for size in _SIZES:
            step(f"publications of {size} attributes")
            bytes_of[size] = [_mean(size, removed) for removed in range(size + 1)]
    measurements = []
    for size, means in bytes_of.items():
        measurements.append(
            Measurement(f"{size} attributes", means[0], "bytes", "", "a notification as it was published")
        )
        for removed in (size // 2, size):
            share = f"{1 - means[removed] / means[0]:.0%} less"
            measurements.append(
                Measurement(f"{size} attributes, {removed} removed", means[removed], "bytes", "", share)
            )
    if plot is not None:
        lines = {f"{size} attributes": dict(enumerate(means)) for size, means in bytes_of.items()}
        drawing.lines(lines, "attributes removed by the policy", "bytes a notification", plot)
    return measurements


def _mean(size: int, removed: int) -> float:
    engine = Engine()
    policy = str(policies.remove(*(_name(place) for place in range(removed)))) if removed else None
    subscription = Subscription.of(Filter.parse("a00 IS NOT NULL"), id="s1", subscriber="alice", policy=policy)
    engine.handle(Subscribe(subscription), 0)
    notifications = [
        effect.notification
        for number in range(_PUBLICATIONS)
        for effect in engine.handle(Publish(_event(size, number)), number)
        if isinstance(effect, Deliver)
    ]
    return sum(map(_bytes, notifications)) / len(notifications)


def _event(size: int, number: int) -> Event:
    """Return an event in which every third attribute is a string and the others are numbers."""
    values = {
        _name(place): f"value {place * number % 97:>6}" if place % 3 == 0 else place * number / 7.0
        for place in range(size)
    }
    identity = uuid7(number * 1000, bytes(10))
    return Event.of(values, id=identity, publisher="bob", timestamp=number, sequence=number)


def _name(place: int) -> str:
    return f"a{place:02}"


def _bytes(note: Notification) -> int:
    """Return the size of a notification as a client needs it: origin, subscription, attributes and payload."""
    event = note.event
    head = (event.id.bytes, event.publisher, event.timestamp, event.sequence, note.subscription)
    return len(msgspec.msgpack.encode((*head, dict(note.attributes), note.payload)))
