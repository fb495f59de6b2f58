"""`tidings demo`: the story so far, played on this machine. Every line that it prints has just been computed."""

import math
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from tidings.cli.terminal import err, out, print_json, progress
from tidings.filters import ContextFilter, Filter, merge
from tidings.matching.reference import Scope, due, truth
from tidings.model.errors import FilterError, TidingsError
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.model.schema import AttributeFilter, Schema
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes, Context, Value


class Scene(NamedTuple):
    title: str
    lines: list[str]
    facts: dict[str, Any]  # the same for machines


def play(*, spark: bool, as_json: bool) -> None:
    begin = time.perf_counter()
    scenes: list[Callable[[], Scene]] = [languages, mistakes, cars_and_cameras, covering, traffic_loops]
    if spark:
        scenes.append(spark_agrees)
    facts: dict[str, Any] = {}
    for scene in _watched(scenes):
        facts |= scene.facts
        if not as_json:
            out.print(f"\n[bold]{scene.title}[/bold]")
            for line in scene.lines:
                out.print(f"  {line}", markup=False, soft_wrap=True)
    seconds = time.perf_counter() - begin
    if as_json:
        print_json({**facts, "seconds": round(seconds, 1)})
    else:
        out.print(f"\n{len(scenes)} scenes in {seconds:.1f} s. Where to go on: docs/tutorial.md\n")


def _watched(scenes: list[Callable[[], Scene]]) -> Iterator[Scene]:
    with progress() as bar:
        task = bar.add_task("playing", total=len(scenes))
        for scene in scenes:
            bar.update(task, description=scene.__name__.replace("_", " "))
            yield scene()
            bar.advance(task)


def languages() -> Scene:
    """Six notations, one filter."""
    written = [
        ("sql", "class = 'report' and d1 > 10"),
        ("topic", "/Sports/*"),
        ("tags", "Sports=NBA,Team=*"),
        ("regex", "goal.*(Beckham|Zidane)"),
        ("xpath", "/order/item[@price>10]"),
        ("padres", "[class,eq,'stock'],[price,>,10]"),
    ]
    parsed = {notation: str(Filter.parse(text, notation)) for notation, text in written}
    lines = [f"{notation:<7} {text:<34} ->  {parsed[notation]}" for notation, text in written]
    return Scene("Six notations become one filter", lines, {"filters": parsed})


def mistakes() -> Scene:
    """A mistake says where it is, and what was probably meant."""
    try:
        Filter.parse("price betwen 10 and 20")
    except FilterError as error:
        return Scene("A mistake says where it is", str(error).splitlines(), {"mistake": error.message})
    raise TidingsError("the demo's mistake was accepted")


def cars_and_cameras() -> Scene:
    """Cars drive past a camera; each hears of accidents within 20 km of wherever it is by then."""
    near = ContextFilter.parse("distance(x, y, this.x, this.y) <= 20")
    content = Filter.parse("msg = 'accident' and severity >= 2")
    cars = [Subscription(id=f"s{i}", subscriber=f"car-{i}", content=content, publishers=near) for i in range(5)]
    for_drivers = ContextFilter.parse("role = 'driver' and battery > 0.1")
    lines, heard = [], 0
    for hour in range(5):
        contexts = [Context.of(_car(i, hour)) for i in range(len(cars))]
        event = Event.of(
            {"msg": "accident", "severity": 3},
            id=uuid7(hour * 3_600_000_000, bytes(10)),
            publisher="cam-1",
            timestamp=hour * 3_600_000_000,
            sequence=hour,
            context={"x": 0.0, "y": 0.0},
            subscribers=for_drivers,
        )
        told = [car.subscriber for car, context in zip(cars, contexts, strict=True) if due(car, event, context)]
        heard += len(told)
        places = "  ".join(f"{math.hypot(float(c['x']), float(c['y'])):4.0f} km" for c in contexts)
        lines.append(f"hour {hour}: cars at {places}   told: {', '.join(told) or 'nobody'}")
    lines.append(
        "Nobody subscribed again: only contexts changed. In car-1 sits a passenger; the camera asks for drivers."
    )
    return Scene("Contexts move, subscriptions stay", lines, {"accidents": 5, "notifications": heard})


def _car(number: int, hour: int) -> dict[str, Value]:
    distance = abs(60.0 - 20.0 * hour + 10.0 * number)
    role = "passenger" if number == 1 else "driver"
    return {"x": distance * 0.6, "y": distance * 0.8, "role": role, "battery": 0.9 - 0.1 * hour}


def covering() -> Scene:
    """Who needs whose events anyway, and how few filters say the same as many."""
    pairs = [
        ("price > 10", "price between 20 and 30 and class = 'stock'"),
        ("name like 'tid%'", "name like '%ings'"),
        ("n > 9007199254740992", "n < 9007199254740993"),
        ("class = 'a' or class = 'b'", "class in ('b', 'a')"),
    ]
    facts = {f"{one} / {other}": Filter.parse(one).relation(Filter.parse(other)).value for one, other in pairs}
    lines = [f"{one:<28} {facts[f'{one} / {other}']:<9} {other}" for one, other in pairs]
    squares = [
        Filter.parse(f"x >= {i} and x < {i + 1} and y >= {j} and y < {j + 1}") for i in range(10) for j in range(10)
    ]
    merged = merge(squares)
    lines.append(f"{len(squares)} squares of a map merge into {len(merged)}: {merged[0]}")
    return Scene("Covering and merging", lines, {"relations": facts, "merged": [len(squares), len(merged)]})


def traffic_loops() -> Scene:
    """Structure alone decides who hears which sensor; a new attribute disturbs nobody."""
    loop = Schema("Loop", {"li": int, "ts": int, "lo": str, "vc": str})
    newer = loop.extend({"cf": float})
    monitor, collector = AttributeFilter(loop, {"li", "ts"}), AttributeFilter(loop, {"ts", "lo", "vc"})
    sensors: dict[str, dict[str, Value]] = {
        "first loop of a lane": {"li": 3, "ts": 100, "lo": "Main Street", "vc": "car"},
        "second loop": {"li": 3, "ts": 101},
        "new loop, version 2": {"li": 3, "ts": 102, "lo": "Main Street", "vc": "car", "cf": 0.9},
    }
    lines, facts = [], {}
    for sensor, attributes in sensors.items():
        bits = newer.bits_of(attributes)
        told = [
            name
            for name, wanted in (("velocity monitor", monitor), ("statistics", collector))
            if wanted.passes_bits(bits)
        ]
        facts[sensor] = told
        lines.append(f"{sensor:<21} vector {bits:05b}  ->  {', '.join(told)}")
    return Scene("Structure as bits", lines, {"loops": facts})


def spark_agrees() -> Scene:
    """The canonical text is Spark SQL too: the same events, asked of Spark."""
    from tidings.spark import session

    random = Random(7)  # noqa: S311 - a workload, not a secret
    events = [_reading(random) for _ in range(20_000)]
    wanted = Filter.parse("class in ('a', 'b') and (n > 500 or note like '%x%') and not d between 0.25 and 0.5")
    ours = sum(truth(wanted.expression, Scope(Attributes.of(event))) is True for event in events)
    err.print("starting Spark ...", style="dim")
    spark = session("tidings demo", master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    try:
        rows = [tuple(event.get(name) for name in ("class", "n", "d", "note")) for event in events]
        frame = spark.createDataFrame(rows, "class string, n bigint, d double, note string")
        theirs = frame.filter(str(wanted)).count()
    finally:
        spark.stop()
    if ours != theirs:
        raise TidingsError(f"Tidings finds {ours} events and Spark {theirs}: please report this")
    lines = [str(wanted), f"of {len(events):,} events, Tidings finds {ours:,} and Spark SQL finds {theirs:,}"]
    return Scene("Spark SQL reads the same filter", lines, {"events": len(events), "tidings": ours, "spark": theirs})


def _reading(random: Random) -> dict[str, Value]:
    everything: dict[str, Value] = {
        "class": random.choice("abc"),
        "n": random.randrange(1000),
        "d": random.random(),
        "note": "".join(random.choices("wxyz", k=3)),
    }
    return {name: value for name, value in everything.items() if random.random() < 0.9}
