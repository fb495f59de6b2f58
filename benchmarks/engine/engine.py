"""Measure what the engine adds to matching: publications one by one and in batches, with and without policies."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from benchmarks.workloads import workload
from tidings.cli.measurement import Measurement, median, steps, time_once
from tidings.engine import Engine
from tidings.engine.operations import Advertise, Publish, SetPolicy, Subscribe
from tidings.filters import Filter
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.model.subscription import Subscription
from tidings.policy import presets

_BATCH = 10_000  # publications in a batch, at most four times the number of subscriptions
_ONE_BY_ONE = 1_000  # publications handled one by one, at most the number of subscriptions
_ROUNDS = 5
_CLIENTS = 1_000
_FIREWALLS = 100
_SHARE = 0.8  # share of the publications that the firewalls block
_BUSY = "PolicyStatement { On(Forward, Publication) { If { BrokerLoadIndex() > 0.75 } Then { BlockMessage() } } }"


class EngineTraffic(NamedTuple):
    """The same publications as events, as operations and as a table."""

    events: list[Event]
    operations: list[Publish]
    table: pa.Table


def measure(count: int) -> list[Measurement]:
    """Measure with `count` subscriptions.

    All variants run in turns and are compared round by round, so that other load on the machine affects them alike.
    """
    traffic, one_by_one = _traffic(min(_BATCH, 4 * count)), min(_ONE_BY_ONE, count)
    with steps(4) as step:
        step("subscribing")
        plain, trimming, firewalls, merged_firewall = (_engine_with_subscriptions(count) for _ in range(4))
        plain.handle(Advertise(_advertisement()), 0)
        trim = str(presets.trim())
        for number in range(count):
            trimming.handle(SetPolicy(_client(number), _name(number), trim), 0)
        values = sorted(event.attributes["a6"] for event in traffic.events if "a6" in event.attributes)
        for number in range(_FIREWALLS):
            _firewall(firewalls, values, number, number + 1)
        _firewall(merged_firewall, values, 0, _FIREWALLS)
        few = traffic.operations[:one_by_one]
        checked = [operation for operation in traffic.operations if "a6" in operation.event.attributes][:one_by_one]
        single_works: dict[str, Callable[[], Any]] = {
            "match": lambda: [plain.state.filters.matcher.match_event(event) for event in traffic.events[:one_by_one]],
            "handle": lambda: _handle(plain, few),
            "ruled": lambda: _handle_with_rule(plain, few),
            "trimming": lambda: _handle(trimming, few),
            "open": lambda: _handle(plain, checked),
            "walls": lambda: _handle(firewalls, checked),
            "wall": lambda: _handle(merged_firewall, checked),
        }
        batch_works: dict[str, Callable[[], Any]] = {
            "match_batch": lambda: plain.state.filters.matcher.match_batch(traffic.table),  # type: ignore[attr-defined]
            "batch": lambda: plain.batch(traffic.table).matches,
            "trimming batch": lambda: trimming.batch(traffic.table).matches,
            "walls batch": lambda: firewalls.batch(traffic.table).matches,
            "notifications": lambda: plain.batch(traffic.table).notifications(),
        }
        step("one by one, as the subscriptions have come")
        unordered = _time_in_turns(((one_by_one, {"handle": single_works["handle"]}),), 2)["handle"]
        step("one by one and in batches; these put the index in order for both")
        for engine in (plain, trimming, firewalls, merged_firewall):
            engine.batch(traffic.table)
        us = _time_in_turns(((one_by_one, single_works), (len(traffic.events), batch_works)), _ROUNDS)
        step("")
    return _measurements(us, median(unordered))


def _measurements(us: dict[str, list[float]], unordered: float) -> list[Measurement]:
    """Return the measurements and their ratios from the times per round."""

    def over(name: str, other: str) -> float:
        return median(times / other_times for times, other_times in zip(us[name], us[other], strict=True))

    def row(what: str, name: str, other: str = "", goal: str = "") -> Measurement:
        comparison = f"{over(name, other):.2f} x {other}" if other else ""
        return Measurement(what, median(us[name]), "us an event", goal, comparison)

    def times(what: str, name: str, other: str, goal: str = "") -> Measurement:
        return Measurement(what, over(name, other), "times", goal)

    more = median(ruled - plain for ruled, plain in zip(us["ruled"], us["handle"], strict=True))
    return [
        row("Index.match alone", "match"),
        row("handle, no policy", "handle", "match", "3 x match"),
        row("handle, an advertisement's rule that is false", "ruled", "handle")._replace(
            goal="+2 us", comparison=f"{more:+.1f} us"
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


def _time_in_turns(works: Sequence[tuple[int, dict[str, Callable[[], Any]]]], rounds: int) -> dict[str, list[float]]:
    """Run all works in turns, and return the microseconds per event of each, round by round.

    A group of works comes with its number of events.
    """
    times: dict[str, list[float]] = {name: [] for _, named in works for name in named}
    for _ in range(rounds):
        for events, named in works:
            for name, work in named.items():
                times[name].append(time_once(work) / events * 1e6)
    return times


def _handle(engine: Engine, operations: list[Publish]) -> None:
    for now, operation in enumerate(operations):
        engine.handle(operation, now)


def _traffic(count: int) -> EngineTraffic:
    rows = workload.events(count)
    events = [
        Event.of(attributes, id=uuid7(now, bytes(10)), publisher=f"p{now % 100}", timestamp=now, sequence=now)
        for now, attributes in enumerate(workload.dicts(rows))
    ]
    table = workload.table(rows)
    for name, column in (
        ("id", [str(event.id) for event in events]),
        ("timestamp", [event.timestamp for event in events]),
        ("sequence", [event.sequence for event in events]),
        ("publisher", [event.publisher for event in events]),
    ):
        table = table.append_column(name, pa.array(column))
    return EngineTraffic(events, [Publish(event) for event in events], table)


def _engine_with_subscriptions(count: int) -> Engine:
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


def _handle_with_rule(engine: Engine, operations: list[Publish]) -> None:
    """Handle the operations while a policy is set on the advertisement."""
    engine.handle(SetPolicy("hub", "busy", _BUSY), 0)
    _handle(engine, operations)
    engine.handle(SetPolicy("hub", "busy", None), 0)


def _advertisement() -> Advertisement:
    """Return an advertisement of the broker itself, which may govern: its rules act on every event of any publisher."""
    return Advertisement.of(Filter.parse("a0 >= 0"), id="busy", publisher="hub")


def _firewall(engine: Engine, values: list[Any], first: int, last: int) -> None:
    """Subscribe as the broker itself, with a policy that blocks events whose value is between two positions of
    `values`."""
    share = len(values) * _SHARE / _FIREWALLS
    low, high = values[int(first * share)], values[int(last * share)]
    content = Filter.parse(f"a6 >= {low!r} and a6 < {high!r}")
    policy = str(presets.firewall(strict=False))
    engine.handle(Subscribe(Subscription.of(content, id=f"f{first}", subscriber=engine.state.name, policy=policy)), 0)
