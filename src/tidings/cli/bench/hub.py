"""What a hub adds to matching: publications in memory, and how fast they are safe on a disk."""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tidings.cli.bench import Measurement, median, steps, timed, workload
from tidings.hub import Hub
from tidings.hub.client import Client
from tidings.index import Index

_EVENTS = 1_000  # or as many as there are subscriptions, if those are few
_ROUNDS = 7
_CLIENTS = 1_000
_THREADS = 16
_JOURNALED = 200  # of them


def measure(count: int) -> list[Measurement]:
    """Index and hub are told the same, and timed in turns."""
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
            "context": lambda: _drive(mover, len(events)),
        }
        us = {what: seconds / len(events) * 1e6 for what, seconds in _in_turns(works).items()}
        step("on disk")
        with Hub(folder) as durable:
            durable.client("reader").subscribe("a0 = 0", durable="all")
            rates = _safe(durable, events)
    return [
        Measurement("Index.match", us["match"], "us an event"),
        Measurement("Hub.publish", us["hub"], "us an event", "3 x match", f"{us['hub'] / us['match']:.2f} x match"),
        Measurement("set_context, of a client with a subscription", us["context"], "us"),
        Measurement("Hub(folder).publish, accepted", rates["accepted"], "events/s"),
        Measurement("journaled, one thread", rates["journaled"], "events/s", "", "an fsync each"),
        Measurement(f"journaled, {_THREADS} threads", rates["threads"], "events/s", "", "an fsync for all who wait"),
    ]


def _drive(client: Client, changes: int) -> None:
    for number in range(changes):
        client.set_context(x=float(number))


def _safe(hub: Hub, events: list[dict[str, float]]) -> dict[str, float]:
    """Events a second, as safe as they can be asked to be."""
    clients = [hub.client(f"p{number}") for number in range(_THREADS)]
    few = events[:_JOURNALED]

    def journaled(client: Client) -> None:
        for event in few:
            client.publish(event)

    def all_threads() -> None:
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(journaled, clients))

    return {
        "accepted": len(events) / timed(lambda: [clients[0].publish(event, safe="accepted") for event in events]),
        "journaled": len(few) / timed(lambda: journaled(clients[0])),
        "threads": len(few) * _THREADS / timed(all_threads),
    }


def _in_turns(works: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Seconds of each, in the middle of some rounds."""
    found: dict[str, list[float]] = {what: [] for what in works}
    for _ in range(_ROUNDS):
        for what, work in works.items():
            found[what].append(timed(work))
    return {what: median(seconds) for what, seconds in found.items()}
