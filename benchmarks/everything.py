"""Run all benchmarks that need no other product, Spark or broker process."""

from collections.abc import Callable

from benchmarks import start
from benchmarks.engine import engine, hub, trimming
from benchmarks.matching import add, contexts, covering, grid, growth, language, match, moving, ranges, strings
from benchmarks.overlay import forwarding, resubscribing, roaming, routing, simulation
from benchmarks.security import sealing
from benchmarks.workloads import network_workload
from tidings.cli.measurement import Measurement

_CONTEXTS = [10]  # percent of the contexts that a context filter selects, in the overlay benchmarks


def measure(count: int) -> list[Measurement]:
    """Run all benchmarks with at most `count` subscriptions each; prefix each measurement with its command's name."""
    network = network_workload.NetworkSize(subscriptions=min(10, 1 + count // 100))
    overlay = resubscribing.OverlaySize(subscriptions=min(10, 1 + count // 500))
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
        "forwarding": lambda: forwarding.measure(forwarding.Side.SUBSCRIPTIONS, _CONTEXTS, network, 500, 3),
        "routing": lambda: routing.measure(_CONTEXTS, network, 20, None),
        "resubscribing": lambda: resubscribing.measure(overlay, 200, 3),
        "roaming": lambda: roaming.measure(roaming.RoamingSize(), 200, None),
        "simulation": lambda: simulation.measure(simulation.WorldSize(100, min(count, 1_000)), 1_000, 5),
        "sealing": lambda: sealing.measure([1_024], min(count, 512)),
    }
    return [
        measurement._replace(name=f"{name}: {measurement.name}")
        for name, measure in benches.items()
        for measurement in measure()
    ]
