"""Packets that a new client's `subscribe` and `setContext` cause on paper 004's network: its Fig. 5.

Baselines have the contexts of subscribers in their subscriptions. A client that has none yet, or whose filters do not
ask for it (`this.`), therefore sets its context for nothing under gsf and asf.
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tidings.cli.bench import Measurement, drawing, steps
from tidings.cli.bench.network_workload import STRATEGIES, Interests, Size, content, selecting, worlds
from tidings.simulation import World
from tidings.simulation.chance import Random, drawn_from
from tidings.simulation.counters import Counts

FREE = "no filter asks for it"
_SHARE = 0.1  # of the events that concern a client by their content
_SUBSCRIBE = (
    "Fig. 5(a): lower where context filters are very selective; approaches ASF and GSF, which require 20 packets to "
    "flood the entire network"
)
_SET_CONTEXT = (
    "Fig. 5(b): low where few subscriptions match the new context, then increases up to a certain point, and decreases "
    "again; if filters match all contexts SPCF is as ASF and GSF apart from routing context information (20 packets)"
)


class Cost(NamedTuple):
    """Packets by type, the mean of all trials."""

    set_context: dict[str, float]
    subscribe: dict[str, float]

    @property
    def attracted(self) -> float:
        return self.set_context.get("Subscribe", 0.0)


def measure(percents: list[int], size: Size, trials: int, plot: Path | None) -> list[Measurement]:
    """At each share of the contexts that all filters select, the old ones as the new ones."""
    found: dict[int, dict[str, Cost]] = {}
    with steps(len(percents)) as step:
        for percent in sorted(percents):
            step(f"contexts {percent} %")
            made = worlds(size, Interests(_SHARE, percent / 100))
            found[percent] = {strategy: _cost(world, percent / 100, trials) for strategy, world in made.items()}
    if plot is not None:
        _draw(found, plot)
    return [one for percent, costs in found.items() for one in _told(percent, costs, first=percent == min(found))]


def _cost(world: World, share: float, trials: int) -> Cost:
    """Each trial is a client at the next broker, who leaves again; under every strategy the same ones."""
    chance = drawn_from(world.seed, "newcomers")
    brokers = list(world.brokers)
    setting: Counter[str] = Counter()
    subscribing: Counter[str] = Counter()
    for number in range(trials):
        in_trial = _trial(world, brokers[number % len(brokers)], share, chance)
        setting.update(in_trial[0].by_kind())
        subscribing.update(in_trial[1].by_kind())
    return Cost(*({kind: count / trials for kind, count in sorted(each.items())} for each in (setting, subscribing)))


def _trial(world: World, broker: str, share: float, chance: Random) -> tuple[Counts, Counts]:
    """What the new client's context cost, and then its subscription."""
    context, wanted, asked = chance.random(), content(0, _SHARE, chance), selecting(share, chance)
    client = world.client(f"new{len(world.clients)}", broker)
    world.settle()
    connected = world.counters.counts()
    client.set_context(x=context)
    world.settle()
    situated = world.counters.counts()
    client.subscribe(wanted, publishers=asked)
    world.settle()
    subscribed = world.counters.counts()
    client.disconnect()
    world.settle()
    return situated - connected, subscribed - situated


def _told(percent: int, costs: dict[str, Cost], *, first: bool) -> list[Measurement]:
    """What the paper says stands in the first rows of each."""
    rows = []
    for name, paper in (("subscribe", _SUBSCRIBE), ("setContext", _SET_CONTEXT)):
        for strategy, cost in costs.items():
            packets = cost.subscribe if name == "subscribe" else cost.set_context
            by_type = ", ".join(f"{kind} {count:.3g}" for kind, count in packets.items()) or FREE
            beside = f"{by_type}; {paper}" if first and strategy == "spcf" else by_type
            what = f"contexts {percent} %: {strategy}, {name}"
            rows.append(Measurement(what, sum(packets.values()), "packets", "", beside))
    return rows


def _draw(found: dict[int, dict[str, Cost]], plot: Path) -> None:
    subscribe: dict[str, dict[float, float]] = {
        strategy: {percent: sum(costs[strategy].subscribe.values()) for percent, costs in found.items()}
        for strategy in STRATEGIES
    }
    set_context: dict[str, dict[float, float]] = {
        strategy: {percent: sum(costs[strategy].set_context.values()) for percent, costs in found.items()}
        for strategy in STRATEGIES
    }
    set_context["spcf, subscriptions attracted"] = {percent: one["spcf"].attracted for percent, one in found.items()}
    across = "% of the contexts that a context filter selects"
    caption = f"The paper, {_SUBSCRIBE}. {_SET_CONTEXT}."
    drawing.panels({"subscribe": subscribe, "setContext": set_context}, across, "packets", caption, plot)
