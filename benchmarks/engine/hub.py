"""Measure what a hub adds to matching in memory, and how fast it makes events durable."""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.workloads import workload
from tidings.cli.measurement import Measurement, median, steps, time_once
from tidings.hub import Hub
from tidings.hub.client import HubClient
from tidings.text_index import Index

_EVENTS = 1_000  # at most the number of subscriptions
_ROUNDS = 7
_CLIENTS = 1_000
_THREADS = 16
_JOURNALED = 200  # events per thread that waits for the journal


def measure(count: int) -> list[Measurement]:
    """Measure an index and a hub with the same `count` subscriptions, in turns."""
    texts = workload.texts(*workload.subscriptions(count))
    events = workload.dicts(workload.events(min(_EVENTS, count)))
    with steps(3) as step, tempfile.TemporaryDirectory() as folder, Hub() as hub:
        step("subscribing")
        index = Index()
        for number, text in enumerate(texts):
            index.add(f"s{number}", text)
            hub.client(f"c{number % _CLIENTS}").subscribe(text, id=f"s{number}")
        publisher, mover = hub.client("publisher"), hub.client("mover")
        mover.subscribe("a0 = -1", publishers="x > this.x")
        step("in memory")
        works: dict[str, Callable[[], Any]] = {
            "match": lambda: [index.match(event) for event in events],
            "hub": lambda: [publisher.publish(event) for event in events],
            "context": lambda: _change_context(mover, len(events)),
        }
        us = {name: seconds / len(events) * 1e6 for name, seconds in _time_in_turns(works).items()}
        step("on disk")
        with Hub(folder) as durable:
            durable.client("reader").subscribe("a0 = 0", durable="all")
            rates = _durable_rates(durable, events)
    return [
        Measurement("Index.match", us["match"], "us an event"),
        Measurement("Hub.publish", us["hub"], "us an event", "3 x match", f"{us['hub'] / us['match']:.2f} x match"),
        Measurement("set_context, of a client with a subscription", us["context"], "us"),
        Measurement("Hub(folder).publish, accepted", rates["accepted"], "events/s"),
        Measurement("journaled, one thread", rates["journaled"], "events/s", "", "an fsync each"),
        Measurement(f"journaled, {_THREADS} threads", rates["threads"], "events/s", "", "an fsync for all who wait"),
    ]


def _change_context(client: HubClient, changes: int) -> None:
    """Change the client's context `changes` times."""
    for number in range(changes):
        client.set_context(x=float(number))


def _durable_rates(hub: Hub, events: list[dict[str, float]]) -> dict[str, float]:
    """Return the events per second that are accepted, journaled by one thread, and journaled by many threads."""
    clients = [hub.client(f"p{number}") for number in range(_THREADS)]
    few = events[:_JOURNALED]

    def publish_journaled(client: HubClient) -> None:
        for event in few:
            client.publish(event)

    def all_threads() -> None:
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(publish_journaled, clients))

    return {
        "accepted": len(events) / time_once(lambda: [clients[0].publish(event, safe="accepted") for event in events]),
        "journaled": len(few) / time_once(lambda: publish_journaled(clients[0])),
        "threads": len(few) * _THREADS / time_once(all_threads),
    }


def _time_in_turns(works: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Run all works in turns, and return the median seconds of each."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(_ROUNDS):
        for name, work in works.items():
            times[name].append(time_once(work))
    return {name: median(seconds) for name, seconds in times.items()}
