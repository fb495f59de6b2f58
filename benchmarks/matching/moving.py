"""Measure an engine whose clients move while events arrive, in time order: one Spark shard, in batches and one by
one."""

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.workloads import moving_workload
from tidings.cli.measurement import Measurement, median, steps, time_once
from tidings.engine import Engine
from tidings.engine.journal_codec import operation
from tidings.journal import Operation
from tidings.model.identity import uuid7

_ROUNDS = 3
_ONE_BY_ONE = 2_000  # operations handled one by one
_AT_A_TIME = 65_536  # rows of a batch, as in a task of Spark


def measure(count: int, changes: int, events: int) -> list[Measurement]:
    """Measure with `count` subscriptions of one client each; `changes` and `events` are divided among the rounds.

    All variants run in turns and are compared round by round, so that other load on the machine affects them alike.
    """
    seconds: dict[str, list[float]] = {"structs": [], "texts": [], "handle": []}  # seconds per row
    with steps(_ROUNDS + 2) as step:
        step("subscribing")
        engine, subscribing = _engine_with_subscriptions(count)
        step("subscribing one by one")
        single = _handle_seconds(Engine(), _subscriptions(min(count, _ONE_BY_ONE), seed=2))
        for number in range(1, _ROUNDS + 1):
            step(f"round {number}")
            structs = traffic(count, max(1, changes // _ROUNDS), max(1, events // _ROUNDS), number)
            texts = with_texts(structs)
            seconds["structs"].append(time_once(lambda: _run_batches(engine, structs)) / structs.num_rows)  # noqa: B023
            seconds["texts"].append(time_once(lambda: _run_batches(engine, texts)) / texts.num_rows)  # noqa: B023
            seconds["handle"].append(_handle_seconds(engine, texts.slice(0, _ONE_BY_ONE)))
    times = median(one / other for one, other in zip(seconds["handle"], seconds["structs"], strict=True))
    return [
        Measurement(
            f"batch, {count:,} subscriptions, {changes / events:.3g} changes an event",
            1 / median(seconds["structs"]),
            "rows/s",
        ),
        Measurement("the same, contexts as JSON", 1 / median(seconds["texts"]), "rows/s"),
        Measurement("handle, the same operations", 1 / median(seconds["handle"]), "rows/s"),
        Measurement("handle / batch", times, "times"),
        Measurement("batch of new subscriptions", 1 / subscribing, "rows/s"),
        Measurement("handle / batch", single / subscribing, "times"),
    ]


def traffic(clients: int, changes: int, events: int, seed: int = 1) -> pa.Table:
    """Return journal rows in time order, context changes and events well mixed. Contexts are struct columns in both.

    Args:
        clients: The number of clients.
        changes: The number of context changes.
        events: The number of events.
        seed: The seed of the random numbers.
    """
    published, moves = moving_workload.events(events, seed), moving_workload.moves(changes, clients, seed)
    draw = np.random.default_rng([seed, 12])
    time = draw.permutation(changes + events) + 1
    positions = [moves.column(name).combine_chunks() for name in ("x", "y")]
    publications = pa.table(
        {
            "id": [str(uuid7(time_, bytes(10))) for time_ in time[:events].tolist()],
            "publisher": pa.repeat("somebody", events),
            "kind": pa.repeat("publish", events),
            "attributes": pa.StructArray.from_arrays(
                [published[name].combine_chunks() for name in ("kind", "level")], ["kind", "level"]
            ),
            "context": published["context"],
            "body": pa.nulls(events, pa.string()),
            "timestamp": time[:events],
        }
    )
    changes_table = pa.table(
        {
            "client": moves["client"],
            "kind": pa.repeat("set_context", changes),
            "context": pa.StructArray.from_arrays(positions, ["x", "y"]),
            "timestamp": time[events:],
        }
    )
    return (
        pa.concat_tables([publications, changes_table], promote_options="default").sort_by("timestamp").combine_chunks()
    )


def with_texts(table: pa.Table) -> pa.Table:
    """Return the same rows with the changed contexts as JSON texts, as a journal stores them."""
    rows = zip(table["kind"].to_pylist(), table["context"].to_pylist(), strict=True)
    bodies = [
        f'{{"x":{context["x"]!r},"y":{context["y"]!r}}}' if kind == "set_context" else None for kind, context in rows
    ]
    return table.set_column(table.column_names.index("body"), "body", pa.array(bodies, pa.string()))


def _engine_with_subscriptions(count: int) -> tuple[Engine, float]:
    """Return an engine in which each client has a context and a subscription, and the seconds per subscription."""
    engine = Engine()
    subscribe = _subscriptions(count)
    seconds = time_once(lambda: engine.batch(subscribe)) / count
    places, time = moving_workload.everyone(count), np.zeros(count, np.int64)
    contexts = pa.StructArray.from_arrays([places[name].combine_chunks() for name in ("x", "y")], ["x", "y"])
    kinds = pa.repeat("set_context", count)
    everyone: dict[str, Any] = {"kind": kinds, "client": places["client"], "context": contexts, "timestamp": time}
    engine.batch(pa.table({**everyone, "body": pa.nulls(count, pa.string())}))
    return engine, seconds


def _subscriptions(count: int, seed: int = 1) -> pa.Table:
    """Return journal rows in which each client subscribes to events from near its position."""
    table = moving_workload.subscriptions(count, moving_workload.BOX, seed=seed)
    bodies = [msgspec.json.encode(row).decode() for row in table.select(["content", "publishers"]).to_pylist()]
    return pa.table(
        {
            "kind": pa.repeat("subscribe", count),
            "id": table["id"],
            "client": table["subscriber"],
            "body": bodies,
            "timestamp": np.zeros(count, np.int64),
        }
    )


def _run_batches(engine: Engine, table: pa.Table) -> None:
    for first in range(0, table.num_rows, _AT_A_TIME):
        _ = engine.batch(table.slice(first, _AT_A_TIME)).matches


def _handle_seconds(engine: Engine, table: pa.Table) -> float:
    """Return the seconds per row that `handle` takes, including the decoding of the row into an operation."""
    rows = _decode_rows(table)
    return time_once(lambda: [engine.handle(operation(row), now) for now, row in enumerate(rows, 1)]) / len(rows)


def _decode_rows(table: pa.Table) -> list[Operation]:
    """Return the rows as the operations that a journal stores, one by one."""
    rows = []
    for row in table.to_pylist():
        fields = {name: row[name] for name in ("kind", "id", "client", "publisher", "body") if name in row}
        if row["kind"] == "publish":
            texts = {name: msgspec.json.encode(row[name]).decode() for name in ("attributes", "context")}
            fields = {**fields, **texts, "published": row["timestamp"]}
        rows.append(Operation(**fields))
    return rows
