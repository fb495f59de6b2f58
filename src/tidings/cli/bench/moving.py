"""Clients that move while events come, in the order of time: one shard of very many, in batches and one by one."""

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from tidings.cli.bench import Measurement, median, moving_workload, steps, timed
from tidings.engine import Engine
from tidings.engine.records import operation
from tidings.journal import Operation
from tidings.model.identity import uuid7

_ROUNDS = 3
_ONE_BY_ONE = 2_000  # operations
_AT_A_TIME = 65_536  # rows, as a task of Spark takes them


def measure(count: int, changes: int, events: int) -> list[Measurement]:
    """So many subscriptions, of a client each; changes and events are shared among the rounds.

    All are timed in turns and compared round by round: what else the machine does hits them alike.
    """
    seconds: dict[str, list[float]] = {"structs": [], "texts": [], "handle": []}  # a row
    with steps(_ROUNDS + 2) as step:
        step("subscribing")
        engine, subscribing = _subscribed(count)
        step("subscribing one by one")
        single = _handled(Engine(), _subscriptions(min(count, _ONE_BY_ONE), seed=2))
        for number in range(1, _ROUNDS + 1):
            step(f"round {number}")
            structs = traffic(count, max(1, changes // _ROUNDS), max(1, events // _ROUNDS), number)
            texts = with_texts(structs)
            seconds["structs"].append(timed(lambda: _batches(engine, structs)) / structs.num_rows)  # noqa: B023
            seconds["texts"].append(timed(lambda: _batches(engine, texts)) / texts.num_rows)  # noqa: B023
            seconds["handle"].append(_handled(engine, texts.slice(0, _ONE_BY_ONE)))
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
    """Rows of a journal in the order of time, changes and events well mixed: contexts are structs, for both."""
    published, moves = moving_workload.events(events, seed), moving_workload.moves(changes, clients, seed)
    draw = np.random.default_rng([seed, 12])
    time = draw.permutation(changes + events) + 1
    whence = [moves.column(name).combine_chunks() for name in ("x", "y")]
    said = pa.table(
        {
            "id": [str(uuid7(one, bytes(10))) for one in time[:events].tolist()],
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
    moved = pa.table(
        {
            "client": moves["client"],
            "kind": pa.repeat("set_context", changes),
            "context": pa.StructArray.from_arrays(whence, ["x", "y"]),
            "timestamp": time[events:],
        }
    )
    return pa.concat_tables([said, moved], promote_options="default").sort_by("timestamp").combine_chunks()


def with_texts(table: pa.Table) -> pa.Table:
    """The same with the contexts that are set as JSON, as a journal has them."""
    rows = zip(table["kind"].to_pylist(), table["context"].to_pylist(), strict=True)
    bodies = [f'{{"x":{one["x"]!r},"y":{one["y"]!r}}}' if kind == "set_context" else None for kind, one in rows]
    return table.set_column(table.column_names.index("body"), "body", pa.array(bodies, pa.string()))


def _subscribed(count: int) -> tuple[Engine, float]:
    """Everyone has a place and a subscription; the seconds that a subscription took."""
    engine = Engine()
    subscribe = _subscriptions(count)
    seconds = timed(lambda: engine.batch(subscribe)) / count
    places, time = moving_workload.everyone(count), np.zeros(count, np.int64)
    contexts = pa.StructArray.from_arrays([places[name].combine_chunks() for name in ("x", "y")], ["x", "y"])
    kinds = pa.repeat("set_context", count)
    everyone: dict[str, Any] = {"kind": kinds, "client": places["client"], "context": contexts, "timestamp": time}
    engine.batch(pa.table({**everyone, "body": pa.nulls(count, pa.string())}))
    return engine, seconds


def _subscriptions(count: int, seed: int = 1) -> pa.Table:
    """Rows of a journal that make everyone subscribe to what is near."""
    given = moving_workload.subscriptions(count, moving_workload.BOX, seed=seed)
    bodies = [msgspec.json.encode(one).decode() for one in given.select(["content", "publishers"]).to_pylist()]
    return pa.table(
        {
            "kind": pa.repeat("subscribe", count),
            "id": given["id"],
            "client": given["subscriber"],
            "body": bodies,
            "timestamp": np.zeros(count, np.int64),
        }
    )


def _batches(engine: Engine, table: pa.Table) -> None:
    for first in range(0, table.num_rows, _AT_A_TIME):
        _ = engine.batch(table.slice(first, _AT_A_TIME)).matches


def _handled(engine: Engine, table: pa.Table) -> float:
    """Seconds a row, reading it included."""
    rows = _operations(table)
    return timed(lambda: [engine.handle(operation(one), now) for now, one in enumerate(rows, 1)]) / len(rows)


def _operations(table: pa.Table) -> list[Operation]:
    """The rows one by one, as a journal reads them."""
    rows = []
    for row in table.to_pylist():
        fields = {name: row[name] for name in ("kind", "id", "client", "publisher", "body") if name in row}
        if row["kind"] == "publish":
            said = {name: msgspec.json.encode(row[name]).decode() for name in ("attributes", "context")}
            fields = {**fields, **said, "published": row["timestamp"]}
        rows.append(Operation(**fields))
    return rows
