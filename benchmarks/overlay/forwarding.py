"""Measure events forwarded over paper 004's network by spcf, gsf and asf: its Figs. 3 and 4, in events and in packets.

All brokers run in one process, so the processor time of an event is that of the whole network. The strategies take
turns with the same publications, and must give the same notifications.
"""

from collections import Counter
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import NamedTuple

from benchmarks import drawing
from benchmarks.workloads.network_workload import (
    STRATEGIES,
    Interests,
    NetworkSize,
    publications,
    publish,
    take_notifications,
    worlds,
)
from tidings.cli.measurement import Measurement, processor_seconds, steps
from tidings.simulation import World

_SHARE = 0.1  # share of the clients that an event matches, overall or by content alone


class Side(StrEnum):
    """Whether context filters are in subscriptions or in publications."""

    SUBSCRIPTIONS = "subscriptions"
    PUBLICATIONS = "publications"


class ForwardingScenario(StrEnum):
    """What stays constant while a context filter selects a growing share of the contexts."""

    OVERALL = "overall 10 %"
    CONTENT = "content 10 %"


_THE_PAPER = {
    Side.SUBSCRIPTIONS: "Fig. 3: SPCF has a much better throughput than ASF and GSF in all scenarios; the differences "
    "decrease as context filters select more, around 80 %",
    Side.PUBLICATIONS: "Fig. 4: SPCF always performs better, and its advantage decreases as context filters select "
    "more",
}


class Case(NamedTuple):
    """One point of a figure."""

    is_local: bool
    scenario: ForwardingScenario
    percent: int  # share of the contexts that a context filter selects

    @property
    def panel(self) -> str:
        """The title of the figure's panel."""
        return f"{self.scenario}, {'local' if self.is_local else 'spread'}"

    def __str__(self) -> str:
        return f"{self.panel}, contexts {self.percent} %"

    def interests(self, where: Side, *, is_varied: bool = False) -> Interests:
        """Return the interests of the clients in this case.

        In the scenario OVERALL, content and contexts together select a constant share. The content selects everything
        where the contexts alone select less than that.
        """
        content = min(1.0, _SHARE * 100 / self.percent) if self.scenario is ForwardingScenario.OVERALL else _SHARE
        return Interests(content, self._share if where is Side.SUBSCRIPTIONS else None, self.is_local, is_varied)

    def subscribers(self, where: Side) -> float | None:
        """Return the share of the contexts that a publication is for; None if the filters are in subscriptions."""
        return self._share if where is Side.PUBLICATIONS else None

    @property
    def _share(self) -> float:
        return self.percent / 100


class ForwardingCost(NamedTuple):
    """The cost of an event under each strategy: processor seconds and packets."""

    seconds: dict[str, float]
    packets: dict[str, float]
    notified_share: float  # share of the clients that were notified of an event


def measure(
    where: Side,
    percents: list[int],
    size: NetworkSize,
    events: int,
    rounds: int,
    plot: Path | None = None,
    *,
    is_varied: bool = False,
) -> list[Measurement]:
    """Measure both scenarios, with and without locality. Cases that differ in publications alone share their worlds.

    Args:
        where: Whether context filters are in subscriptions or in publications.
        percents: The shares of the contexts that a context filter selects.
        size: The size of the network.
        events: The number of events in a round.
        rounds: The number of rounds.
        plot: The file to draw the figure into; None: no figure.
        is_varied: Each subscription has its own context filter, instead of each client.
    """
    cases: dict[Interests, list[Case]] = {}
    for case in map(Case._make, product((False, True), ForwardingScenario, sorted(percents))):
        cases.setdefault(case.interests(where, is_varied=is_varied), []).append(case)
    costs: dict[Case, ForwardingCost] = {}
    with steps(len(cases)) as step:
        for interests, same_interests in cases.items():
            step(f"{same_interests[0].panel}, contexts {', '.join(f'{case.percent} %' for case in same_interests)}")
            strategy_worlds = worlds(size, interests)
            for case in same_interests:
                costs[case] = measure_forwarding(strategy_worlds, size, case.subscribers(where), events, rounds)
    if plot is not None:
        _draw(costs, where, plot)
    return [
        *(measurement for case, cost in costs.items() for measurement in _measurements(case, cost)),
        *_smallest_lead(costs, where),
    ]


def measure_forwarding(
    strategy_worlds: dict[str, World], size: NetworkSize, subscribers: float | None, events: int, rounds: int
) -> ForwardingCost:
    """Measure the cost of events in the worlds: the best processor time of all rounds, and the mean number of packets.

    Raises RuntimeError if the strategies give different notifications.

    Args:
        strategy_worlds: The world of each strategy.
        size: The size of the network.
        subscribers: The share of the contexts that an event is for; None: all, without a filter.
        events: The number of events in a round, different in each.
        rounds: The number of rounds.
    """
    seconds: dict[str, list[float]] = {strategy: [] for strategy in strategy_worlds}
    packets: Counter[str] = Counter()
    notified = 0
    for number in range(rounds):
        events_of_round = publications(size, events, subscribers, number)
        notifications = {}
        for strategy, world in strategy_worlds.items():
            before = world.counters.counts()
            seconds[strategy].append(processor_seconds(lambda: publish(world, events_of_round)) / events)  # noqa: B023
            packets[strategy] += (world.counters.counts() - before).messages
            notifications[strategy] = take_notifications(world)
        expected = notifications[STRATEGIES[0]]
        if any(counts != expected for counts in notifications.values()):
            raise RuntimeError("the strategies told clients of different events")
        notified += len({(subscriber, publisher, sequence) for subscriber, _, publisher, sequence in expected})
    total = events * rounds
    return ForwardingCost(
        {strategy: min(times) for strategy, times in seconds.items()},
        {strategy: packets[strategy] / total for strategy in strategy_worlds},
        notified / total / size.clients,
    )


def _measurements(case: Case, cost: ForwardingCost) -> list[Measurement]:
    rows = []
    for strategy, seconds in cost.seconds.items():
        ratio = "" if strategy == "spcf" else f"; spcf {seconds / cost.seconds['spcf']:.2f}x"
        share = f"; {cost.notified_share:.1%} of the clients told" if strategy == "spcf" else ""
        comparison = f"{cost.packets[strategy]:.3g} packets an event{ratio}{share}"
        rows.append(Measurement(f"{case}: {strategy}", 1 / seconds, "events/s", "", comparison))
    return rows


def _smallest_lead(costs: dict[Case, ForwardingCost], where: Side) -> list[Measurement]:
    """Return for gsf and asf the case in which the lead of spcf is smallest."""
    rows = []
    for other in STRATEGIES[1:]:
        ratios = {case: cost.seconds[other] / cost.seconds["spcf"] for case, cost in costs.items()}
        case = min(ratios, key=lambda case: ratios[case])
        what = f"spcf / {other}, least ({case})"
        rows.append(Measurement(what, ratios[case], "times", "1", _THE_PAPER[where]))
    return rows


def _draw(costs: dict[Case, ForwardingCost], where: Side, plot: Path) -> None:
    panels: dict[str, dict[str, dict[float, float]]] = {}
    for case, cost in costs.items():
        lines = panels.setdefault(case.panel, {strategy: {} for strategy in cost.seconds})
        for strategy, seconds in cost.seconds.items():
            lines[strategy][case.percent] = 1 / seconds
    across = f"% of the contexts that a context filter in {where} selects"
    drawing.panels(panels, across, "events a second of processor time", f"The paper, {_THE_PAPER[where]}.", plot)
