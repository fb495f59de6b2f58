"""What the engine adds to matching: publications one by one and in batches, without policies and with."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from tidings.cli.bench import Measurement, median, steps, timed, workload
from tidings.engine import Engine
from tidings.engine.operations import Advertise, Publish, SetPolicy, Subscribe
from tidings.filters import Filter
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.model.subscription import Subscription
from tidings.policy import factory

_BATCH = 10_000  # publications, or four times as many as there are subscriptions, if those are few
_ONE_BY_ONE = 1_000  # publications, or as many as there are subscriptions
_ROUNDS = 5
_CLIENTS = 1_000
_FIREWALLS = 100
_SHARE = 0.8  # of the publications that the firewalls block
_BUSY = "PolicyStatement { On(Forward, Publication) { If { BrokerLoadIndex() > 0.75 } Then { BlockMessage() } } }"


class Traffic(NamedTuple):
    """The same publications as events, as operations and as a table."""

    events: list[Event]
    operations: list[Publish]
    table: pa.Table


def measure(count: int) -> list[Measurement]:
    """All are timed in turns and compared round by round: what else the machine does hits them alike."""
    traffic, one_by_one = _traffic(min(_BATCH, 4 * count)), min(_ONE_BY_ONE, count)
    with steps(4) as step:
        step("subscribing")
        plain, trimming, walls, wall = (_subscribed(count) for _ in range(4))
        plain.handle(Advertise(_advertisement()), 0)
        trim = str(factory.trim())
        for number in range(count):
            trimming.handle(SetPolicy(_client(number), _name(number), trim), 0)
        values = sorted(event.attributes["a6"] for event in traffic.events if "a6" in event.attributes)
        for number in range(_FIREWALLS):
            _firewall(walls, values, number, number + 1)
        _firewall(wall, values, 0, _FIREWALLS)
        few = traffic.operations[:one_by_one]
        walled = [one for one in traffic.operations if "a6" in one.event.attributes][:one_by_one]
        handled: dict[str, Callable[[], Any]] = {
            "match": lambda: [plain.matcher.concerned(one) for one in traffic.events[:one_by_one]],
            "handle": lambda: _handle(plain, few),
            "ruled": lambda: _handle_ruled(plain, few),
            "trimming": lambda: _handle(trimming, few),
            "open": lambda: _handle(plain, walled),
            "walls": lambda: _handle(walls, walled),
            "wall": lambda: _handle(wall, walled),
        }
        batches: dict[str, Callable[[], Any]] = {
            "match_batch": lambda: plain.matcher.match_batch(traffic.table),  # type: ignore[attr-defined]
            "batch": lambda: plain.batch(traffic.table).matches,
            "trimming batch": lambda: trimming.batch(traffic.table).matches,
            "walls batch": lambda: walls.batch(traffic.table).matches,
            "notifications": lambda: plain.batch(traffic.table).notifications(),
        }
        step("one by one, as the subscriptions have come")
        unordered = _in_turns(((one_by_one, {"handle": handled["handle"]}),), 2)["handle"]
        step("one by one and in batches; these put the index in order for both")
        for engine in (plain, trimming, walls, wall):
            engine.batch(traffic.table)
        us = _in_turns(((one_by_one, handled), (len(traffic.events), batches)), _ROUNDS)
        step("")
    return _told(us, median(unordered))


def _told(us: dict[str, list[float]], unordered: float) -> list[Measurement]:
    def over(one: str, other: str) -> float:
        return median(mine / others for mine, others in zip(us[one], us[other], strict=True))

    def row(what: str, name: str, other: str = "", goal: str = "") -> Measurement:
        beside = f"{over(name, other):.2f} x {other}" if other else ""
        return Measurement(what, median(us[name]), "us an event", goal, beside)

    def times(what: str, one: str, other: str, goal: str = "") -> Measurement:
        return Measurement(what, over(one, other), "times", goal)

    more = median(ruled - plain for ruled, plain in zip(us["ruled"], us["handle"], strict=True))
    return [
        row("Index.match alone", "match"),
        row("handle, no policy", "handle", "match", "3 x match"),
        row("handle, an advertisement's rule that is false", "ruled", "handle")._replace(
            goal="+2 us", beside=f"{more:+.1f} us"
        ),
        row("handle, all subscriptions trim", "trimming", "handle", "1.15 x handle"),
        times(f"{_FIREWALLS} firewall subscriptions that block {_SHARE:.0%}, grown by", "walls", "open", "1.1"),
        times("one merged firewall subscription, grown by", "wall", "open", "1"),
        row("Index.match_batch alone", "match_batch", "match"),
        row("batch, no policy", "batch", "match_batch"),
        row("batch, all subscriptions trim", "trimming batch", "batch"),
        row(f"batch, {_FIREWALLS} firewall subscriptions", "walls batch", "batch"),
        row("batch, all notifications made", "notifications", "batch"),
        times("handle / batch, no policy", "handle", "batch", "10"),
        times("handle / batch, all subscriptions trim", "trimming", "trimming batch"),
        Measurement("handle before / batch, no policy", unordered / median(us["batch"]), "times"),
    ]


def _in_turns(works: Sequence[tuple[int, dict[str, Callable[[], Any]]]], rounds: int) -> dict[str, list[float]]:
    """Microseconds an event of each, round by round; each kind of work comes with its number of events."""
    found: dict[str, list[float]] = {what: [] for _, named in works for what in named}
    for _ in range(rounds):
        for events, named in works:
            for what, work in named.items():
                found[what].append(timed(work) / events * 1e6)
    return found


def _handle(engine: Engine, operations: list[Publish]) -> None:
    for now, operation in enumerate(operations):
        engine.handle(operation, now)


def _traffic(count: int) -> Traffic:
    rows = workload.events(count)
    events = [
        Event.of(said, id=uuid7(now, bytes(10)), publisher=f"p{now % 100}", timestamp=now, sequence=now)
        for now, said in enumerate(workload.dicts(rows))
    ]
    table = workload.table(rows)
    for name, column in (
        ("id", [str(one.id) for one in events]),
        ("timestamp", [one.timestamp for one in events]),
        ("sequence", [one.sequence for one in events]),
        ("publisher", [one.publisher for one in events]),
    ):
        table = table.append_column(name, pa.array(column))
    return Traffic(events, [Publish(one) for one in events], table)


def _subscribed(count: int) -> Engine:
    engine = Engine()
    for number, text in enumerate(workload.texts(*workload.subscriptions(count))):
        content = Filter.parse(text)
        subscription = Subscription.of(content, id=_name(number), subscriber=_client(number))
        engine.handle(Subscribe(subscription), 0)
    return engine


def _name(number: int) -> str:
    return f"s{number}"


def _client(number: int) -> str:
    return f"c{number % _CLIENTS}"


def _handle_ruled(engine: Engine, operations: list[Publish]) -> None:
    """The same on the same engine, with a policy set on the advertisement meanwhile."""
    engine.handle(SetPolicy("hub", "busy", _BUSY), 0)
    _handle(engine, operations)
    engine.handle(SetPolicy("hub", "busy", None), 0)


def _advertisement() -> Advertisement:
    """Of an operator who may govern: it matches every event, whoever publishes it."""
    return Advertisement.of(Filter.parse("a0 >= 0"), id="busy", publisher="hub")


def _firewall(engine: Engine, values: list[Any], first: int, last: int) -> None:
    """A subscription of the broker's own that blocks its share of the events, from the lowest values on."""
    share = len(values) * _SHARE / _FIREWALLS
    low, high = values[int(first * share)], values[int(last * share)]
    content = Filter.parse(f"a6 >= {low!r} and a6 < {high!r}")
    policy = str(factory.firewall(strict=False))
    engine.handle(Subscribe(Subscription.of(content, id=f"f{first}", subscriber=engine.name, policy=policy)), 0)
