"""All measurements in one list, each with the name of its own command before it."""

from collections.abc import Callable

from tidings.cli.bench import (
    Measurement,
    add,
    contexts,
    covering,
    engine,
    forwarding,
    grid,
    growth,
    hub,
    language,
    match,
    moving,
    network_workload,
    ranges,
    resubscribing,
    roaming,
    routing,
    sealing,
    simulation,
    start,
    strings,
    trimming,
)

_CONTEXTS = [10]  # percent that a context filter selects, where an overlay is measured


def measure(count: int) -> list[Measurement]:
    """With at most `count` subscriptions each."""
    network = network_workload.Size(subscriptions=min(10, 1 + count // 100))
    overlay = resubscribing.Size(subscriptions=min(10, 1 + count // 500))
    benches: dict[str, Callable[[], list[Measurement]]] = {
        "start": lambda: start.measure(5),
        "language": lambda: language.measure(count),
        "covering": lambda: covering.measure(min(count, 300)),
        "match": lambda: match.measure(count, None),
        "ranges": lambda: ranges.measure(count),
        "strings": lambda: strings.measure(count),
        "contexts": lambda: contexts.measure(count, None),
        "grid": lambda: grid.measure(min(count, 80_000), None),
        "moving": lambda: moving.measure(min(count, 50_000), 10 * min(count, 50_000), 4 * min(count, 50_000)),
        "growth": lambda: growth.measure(count, None),
        "add": lambda: add.measure(count),
        "engine": lambda: engine.measure(min(count, 10_000)),
        "hub": lambda: hub.measure(min(count, 10_000)),
        "trimming": lambda: trimming.measure(None),
        "forwarding": lambda: forwarding.measure(forwarding.Where.SUBSCRIPTIONS, _CONTEXTS, network, 500, 3),
        "routing": lambda: routing.measure(_CONTEXTS, network, 20, None),
        "resubscribing": lambda: resubscribing.measure(overlay, 200, 3),
        "roaming": lambda: roaming.measure(roaming.Size(), 200, None),
        "simulation": lambda: simulation.measure(simulation.Size(100, min(count, 1_000)), 1_000, 5),
        "sealing": lambda: sealing.measure([1_024], min(count, 512)),
    }
    return [one._replace(what=f"{name}: {one.what}") for name, measure in benches.items() for one in measure()]
