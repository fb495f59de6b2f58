"""The filter of one client never fails the operation of another one: not on a hub, not in an overlay, simulated or
live, and not for one event or many at once."""

import json
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import tidings as td
from tests.broker.cases import connect, run, running
from tidings.matching.reference import Scope, truth
from tidings.model.limits import MAX_INTEGER, MAX_STRING_CHARACTERS, MAX_TEXT_BYTES, MAX_XML_BYTES, MIN_INTEGER
from tidings.simulation import World
from tidings.simulation.topologies import line


class Subject(StrEnum):
    """Applications keep their subjects in an enumeration."""

    NEWS = "/news/today"


class Said(NamedTuple):
    """What an innocent publisher publishes."""

    attributes: dict[str, Any] = {"n": 1}  # noqa: RUF012 - never changed
    payload: bytes | None = None
    subject: str | None = None


FILTERS = [
    *("$payload RLIKE 'a'", "NOT $payload RLIKE '^(a|b)*$'", "$payload RLIKE '(x+x+)+y'", "$payload LIKE '%a_a%'"),
    *("$payload LIKE 'a%'", "$payload LIKE '%a'", "$payload LIKE '%aa%'", "$payload = 'a'", "$payload >= 'a'"),
    *("$payload IS NULL", "$payload IN ('a', 'b')", "s LIKE '%" + "_" * 1_000 + "a%'", "s RLIKE '(a?){500}b'"),
    *("$subject LIKE '/news/%'", "$publisher RLIKE '^p'", "n / m > 0", "n % m = 0", "n * n > 0", "n - m < 0"),
    *("-n > 0", "n + m = m + n", "$payload + 1 > 0", "n LIKE '1%'", "n RLIKE '1'"),
]
PATHS = ["//a", "/a/b[last()]", "count(//b) > 2", "not(/a)", "string-length(/a) > 1", "sum(/a/b) = 0"]
EVENTS = [
    *(Said(payload=b"a" * size) for size in (1, MAX_STRING_CHARACTERS, MAX_STRING_CHARACTERS + 1)),
    *(Said(payload=b"a" * size) for size in (MAX_TEXT_BYTES, MAX_TEXT_BYTES + 1)),
    Said(payload="é".encode() * (MAX_TEXT_BYTES // 2)),
    *(Said(payload=one) for one in (b"\xff", b"\0a", b"<a><b/></a>", b"<a>" * 1_000, b"<a>&x;</a>")),
    Said(payload=b"<?xml version='1.0' encoding='no-such'?><a/>"),
    Said(payload=b"<!DOCTYPE a [<!ENTITY l 'ha'><!ENTITY m '&l;&l;'>]><a>&m;</a>"),
    Said(payload=b"<a>" + b"x" * MAX_XML_BYTES + b"</a>"),
    Said({"s": "a" * MAX_STRING_CHARACTERS, "n": MAX_INTEGER, "m": MIN_INTEGER}),
    *(Said({"n": n, "m": m}) for n, m in ((1, 0), (0.0, 0), (1.7e308, 1.7e308), (5e-324, MIN_INTEGER))),
    *(Said({"n": n, "m": m}) for n, m in ((MIN_INTEGER, -1), (True, "x"), ("a", 1))),
    Said(subject=Subject.NEWS),
]
_CONTENTS = [*map(td.Filter.parse, FILTERS), *(td.Filter.parse(path, format="xpath") for path in PATHS)]


def expected(said: Said) -> set[str]:
    """The subscriptions that the reference finds, by their ids."""
    scope = Scope(td.Attributes.of(said.attributes), {}, said.subject, said.payload, "publisher")
    return {f"s{i}" for i, one in enumerate(_CONTENTS) if truth(one.expression, scope) is True}


def on_a_hub() -> list[set[str]]:
    with td.Hub() as hub:
        held = [hub.client("reader").subscribe(one, id=f"s{i}") for i, one in enumerate(_CONTENTS)]
        publisher = hub.client("publisher")
        found = []
        for said in EVENTS:
            publisher.publish(said.attributes, payload=said.payload, subject=said.subject)
            found.append({one.id for one in held if one.take()})
        return found


def simulated() -> list[set[str]]:
    world = World(line(2))
    reader, publisher = world.client("reader", "b1"), world.client("publisher", "b2")
    publisher.advertise("")
    for i, one in enumerate(_CONTENTS):
        reader.subscribe(one, id=f"s{i}")
    world.settle()
    found = []
    for said in EVENTS:
        before = len(reader.notifications)
        publisher.publish(said.attributes, payload=said.payload, subject=said.subject)
        world.settle()
        found.append({one.subscription for one in reader.notifications[before:]})
    return found


def live() -> list[set[str]]:
    async def scenario() -> list[set[str]]:
        async with running() as broker, connect(broker, "reader") as reader, connect(broker, "publisher") as publisher:
            held = [await reader.subscribe(one, id=f"s{i}") for i, one in enumerate(_CONTENTS)]
            found = []
            for said in EVENTS:
                await publisher.publish(said.attributes, payload=said.payload, subject=said.subject)
                await reader.ask("status")  # the answer comes behind the notifications
                found.append({one.id for one in held if await one.take()})
            return found

    return run(scenario())


def together() -> list[set[str]]:
    """As a live broker matches what has come at once, and as Spark does."""
    index = td.Index()
    for i, one in enumerate(_CONTENTS):
        index.put(td.Subscription.of(one, id=f"s{i}", subscriber="reader"))
    table = pa.table(
        {
            "attributes": pa.array([json.dumps(said.attributes) for said in EVENTS], pa.string()),
            "$payload": pa.array([said.payload for said in EVENTS], pa.binary()),
            "$subject": pa.array([said.subject for said in EVENTS], pa.string()),
            "$publisher": ["publisher"] * len(EVENTS),
        }
    )
    found: list[set[str]] = [set() for _ in EVENTS]
    for row in index.match_batch(table).to_pylist():
        found[row["event"]].add(row["subscription"])
    return found


@pytest.mark.parametrize("published", [on_a_hub, simulated, live, together])
def test_no_filter_fails_a_publisher(published: Callable[[], list[set[str]]]) -> None:
    for said, found in zip(EVENTS, published(), strict=True):
        assert found == expected(said), str(said)[:200]
