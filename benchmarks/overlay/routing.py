"""Measure the packets that a new client's `subscribe` and `setContext` cause on paper 004's network: its Fig. 5.

The baselines gsf and asf write the contexts of subscribers into their subscriptions. So under them a context causes no
packets if its client has no subscriptions yet, or if its filters do not use it (`this.`).
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from benchmarks import drawing
from benchmarks.workloads.network_workload import STRATEGIES, Interests, NetworkSize, content, selecting, worlds
from tidings.cli.measurement import Measurement, steps
from tidings.simulation import World
from tidings.simulation.counters import Counts
from tidings.simulation.rng import Random, seeded_random

FREE = "no filter asks for it"
_SHARE = 0.1  # share of the events that a client's subscriptions match by content
_SUBSCRIBE = (
    "Fig. 5(a): lower where context filters are very selective; approaches ASF and GSF, which require 20 packets to "
    "flood the entire network"
)
_SET_CONTEXT = (
    "Fig. 5(b): low where few subscriptions match the new context, then increases up to a certain point, and decreases "
    "again; if filters match all contexts SPCF is as ASF and GSF apart from routing context information (20 packets)"
)


class PacketCost(NamedTuple):
    """Packets by type, the mean of all trials."""

    set_context: dict[str, float]
    subscribe: dict[str, float]

    @property
    def attracted(self) -> float:
        """The subscriptions that the new client's context attracts."""
        return self.set_context.get("Subscribe", 0.0)


def measure(percents: list[int], size: NetworkSize, trials: int, plot: Path | None) -> list[Measurement]:
    """Measure for each share of the contexts that the filters of present and new clients select.

    Args:
        percents: The shares of the contexts, in percent.
        size: The size of the network.
        trials: The number of new clients, one after the other.
        plot: The file to draw the figure into; None: no figure.
    """
    costs_by_percent: dict[int, dict[str, PacketCost]] = {}
    with steps(len(percents)) as step:
        for percent in sorted(percents):
            step(f"contexts {percent} %")
            strategy_worlds = worlds(size, Interests(_SHARE, percent / 100))
            costs_by_percent[percent] = {
                strategy: _cost(world, percent / 100, trials) for strategy, world in strategy_worlds.items()
            }
    if plot is not None:
        _draw(costs_by_percent, plot)
    return [
        measurement
        for percent, costs in costs_by_percent.items()
        for measurement in _measurements(percent, costs, first=percent == min(costs_by_percent))
    ]


def _cost(world: World, share: float, trials: int) -> PacketCost:
    """Return the mean cost of the trials. Each is a new client at the next broker, which disconnects afterwards.

    All strategies get the same clients.
    """
    chance = seeded_random(world.seed, "newcomers")
    brokers = list(world.brokers)
    setting: Counter[str] = Counter()
    subscribing: Counter[str] = Counter()
    for number in range(trials):
        in_trial = _trial(world, brokers[number % len(brokers)], share, chance)
        setting.update(in_trial[0].by_kind())
        subscribing.update(in_trial[1].by_kind())
    return PacketCost(
        *({kind: count / trials for kind, count in sorted(each.items())} for each in (setting, subscribing))
    )


def _trial(world: World, broker: str, share: float, chance: Random) -> tuple[Counts, Counts]:
    """Return the messages for the new client's context, and the messages for its subscription."""
    context, content_filter, publishers = chance.random(), content(0, _SHARE, chance), selecting(share, chance)
    client = world.client(f"new{len(world.clients)}", broker)
    world.settle()
    connected = world.counters.counts()
    client.set_context(x=context)
    world.settle()
    context_set = world.counters.counts()
    client.subscribe(content_filter, publishers=publishers)
    world.settle()
    subscribed = world.counters.counts()
    client.disconnect()
    world.settle()
    return context_set - connected, subscribed - context_set


def _measurements(percent: int, costs: dict[str, PacketCost], *, first: bool) -> list[Measurement]:
    """Return the measurements at one share; the first ones also cite the paper."""
    rows = []
    for name, paper in (("subscribe", _SUBSCRIBE), ("setContext", _SET_CONTEXT)):
        for strategy, cost in costs.items():
            packets = cost.subscribe if name == "subscribe" else cost.set_context
            by_type = ", ".join(f"{kind} {count:.3g}" for kind, count in packets.items()) or FREE
            comparison = f"{by_type}; {paper}" if first and strategy == "spcf" else by_type
            what = f"contexts {percent} %: {strategy}, {name}"
            rows.append(Measurement(what, sum(packets.values()), "packets", "", comparison))
    return rows


def _draw(costs_by_percent: dict[int, dict[str, PacketCost]], plot: Path) -> None:
    subscribe: dict[str, dict[float, float]] = {
        strategy: {percent: sum(costs[strategy].subscribe.values()) for percent, costs in costs_by_percent.items()}
        for strategy in STRATEGIES
    }
    set_context: dict[str, dict[float, float]] = {
        strategy: {percent: sum(costs[strategy].set_context.values()) for percent, costs in costs_by_percent.items()}
        for strategy in STRATEGIES
    }
    set_context["spcf, subscriptions attracted"] = {
        percent: strategy_costs["spcf"].attracted for percent, strategy_costs in costs_by_percent.items()
    }
    across = "% of the contexts that a context filter selects"
    caption = f"The paper, {_SUBSCRIBE}. {_SET_CONTEXT}."
    drawing.panels({"subscribe": subscribe, "setContext": set_context}, across, "packets", caption, plot)
