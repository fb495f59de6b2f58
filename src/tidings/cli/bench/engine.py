"""What the engine adds to matching: publications one by one and in batches, without policies and with."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

from tidings.cli.bench import Measurement, median, steps, timed, workload
from tidings.engine import Engine
from tidings.engine.operations import Advertise, Operation, Publish, SetPolicy, Subscribe
from tidings.filters import Filter
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.model.subscription import Subscription
from tidings.policy import factory

_BATCH = 10_000
_ONE_BY_ONE = 1_000
_ROUNDS = 5
_CLIENTS = 1_000
_FIREWALLS = 100
_SHARE = 0.8  # of the publications that the firewalls block
_BUSY = "PolicyStatement { On(Forward, Publication) { If { BrokerLoadIndex() > 0.75 } Then { BlockMessage() } } }"


class Traffic(NamedTuple):
    """The same publications as events, as operations and as a table."""

    events: list[Event]
    operations: list[Operation]
    table: pa.Table


def measure(count: int) -> list[Measurement]:
    """Each is timed in turns with the engine that knows of no policy, so that what else the machine does hits both."""
    traffic = _traffic()
    with steps(6) as step:
        step("subscribing")
        plain, ruled, trimming = (_subscribed(count) for _ in range(3))
        ruled.handle(Advertise(_advertisement(_BUSY)), 0)
        trim = str(factory.trim())
        for number in range(count):
            trimming.handle(SetPolicy(_client(number), _name(number), trim), 0)
        firewalls, merged = _subscribed(count), _subscribed(count)
        blocked = sorted(event.attributes["a6"] for event in traffic.events if "a6" in event.attributes)
        for number in range(_FIREWALLS):
            _firewall(firewalls, blocked, number, number + 1)
        _firewall(merged, blocked, 0, _FIREWALLS)
        few, open_ = traffic.operations[:_ONE_BY_ONE], [one for one in traffic.events if "a6" in one.attributes]
        walled: list[Operation] = [Publish(one) for one in open_[:_ONE_BY_ONE]]
        step("one by one")
        works: dict[str, Callable[[], Any]] = {
            "match": lambda: [plain.matcher.concerned(one) for one in traffic.events[:_ONE_BY_ONE]],
            "handle": lambda: _handle(plain, few),
            "ruled": lambda: _handle(ruled, few),
            "trimming": lambda: _handle(trimming, few),
            "open": lambda: _handle(plain, walled),
            "firewalls": lambda: _handle(firewalls, walled),
            "merged": lambda: _handle(merged, walled),
        }
        us = {what: seconds / _ONE_BY_ONE * 1e6 for what, seconds in _in_turns(works).items()}
        step("in batches")
        batches: dict[str, Callable[[], Any]] = {
            "match_batch": lambda: plain.matcher.match_batch(traffic.table),  # type: ignore[attr-defined]
            "batch": lambda: plain.batch(traffic.table).matches,
            "trimming batch": lambda: trimming.batch(traffic.table).matches,
            "firewalls batch": lambda: firewalls.batch(traffic.table).matches,
            "notifications": lambda: plain.batch(traffic.table).notifications(),
        }
        us |= {what: seconds / _BATCH * 1e6 for what, seconds in _in_turns(batches).items()}
        step("one by one again, after the batches have put the index in order")
        us |= {f"{what}, settled": one / _ONE_BY_ONE * 1e6 for what, one in _in_turns(_some(works, 4)).items()}
        step("")
    return _told(us)


def _told(us: dict[str, float]) -> list[Measurement]:
    def ratio(one: str, other: str) -> str:
        return f"{us[one] / us[other]:.2f} x {other}"

    def row(what: str, name: str, beside: str = "", goal: str = "") -> Measurement:
        return Measurement(what, us[name], "us an event", goal, beside)

    def times(what: str, one: str, other: str, goal: str) -> Measurement:
        return Measurement(what, us[one] / us[other], "times", goal)

    return [
        row("Index.match alone", "match"),
        row("handle, no policy", "handle", ratio("handle", "match"), "3 x match"),
        row("handle, an advertisement's rule that is false", "ruled", f"{us['ruled'] - us['handle']:+.1f} us", "+2 us"),
        row("handle, all subscriptions trim", "trimming", ratio("trimming", "handle"), "1.15 x handle"),
        # The hub has a row of its own here: a publication through it, beside Index.match.
        times(f"{_FIREWALLS} firewall subscriptions that block {_SHARE:.0%}", "firewalls", "open", "1.1"),
        times("one merged firewall subscription", "merged", "open", "1"),
        row("Index.match_batch alone", "match_batch", ratio("match", "match_batch")),
        row("batch, no policy", "batch", ratio("batch", "match_batch")),
        row("batch, all subscriptions trim", "trimming batch", ratio("trimming batch", "batch")),
        row(f"batch, {_FIREWALLS} firewall subscriptions", "firewalls batch", ratio("firewalls batch", "batch")),
        row("batch with all notifications made", "notifications", ratio("notifications", "batch")),
        times("handle / batch, no policy", "handle", "batch", "10"),
        times("handle / batch, no policy, the index in order for both", "handle, settled", "batch", ""),
        times("handle / batch, all subscriptions trim", "trimming", "trimming batch", ""),
    ]


def _in_turns(works: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Seconds of each, in the middle of some rounds."""
    found: dict[str, list[float]] = {what: [] for what in works}
    for _ in range(_ROUNDS):
        for what, work in works.items():
            found[what].append(timed(work))
    return {what: median(seconds) for what, seconds in found.items()}


def _some(works: dict[str, Callable[[], Any]], count: int) -> dict[str, Callable[[], Any]]:
    return dict(list(works.items())[:count])


def _handle(engine: Engine, operations: list[Operation]) -> None:
    for now, operation in enumerate(operations):
        engine.handle(operation, now)


def _traffic() -> Traffic:
    rows = workload.events(_BATCH)
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


def _advertisement(policy: str) -> Advertisement:
    """Of an operator who may govern: it matches every event, whoever publishes it."""
    return Advertisement.of(Filter.parse("a0 >= 0"), id="busy", publisher="hub", policy=policy)


def _firewall(engine: Engine, values: list[Any], first: int, last: int) -> None:
    """A subscription of the broker's own that blocks its share of the events, from the lowest values on."""
    share = len(values) * _SHARE / _FIREWALLS
    low, high = values[int(first * share)], values[int(last * share)]
    content = Filter.parse(f"a6 >= {low!r} and a6 < {high!r}")
    policy = str(factory.firewall(strict=False))
    engine.handle(Subscribe(Subscription.of(content, id=f"f{first}", subscriber=engine.name, policy=policy)), 0)
