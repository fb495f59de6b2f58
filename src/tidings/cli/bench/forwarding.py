"""Events forwarded over paper 004's network by spcf, gsf and asf: its Figs. 3 and 4, in events and in packets.

All brokers run in one process, so an event costs the processor time of the whole network. The strategies take turns
with the same publications, and have to tell the same clients of the same events.
"""

from collections import Counter
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import NamedTuple

from tidings.cli.bench import Measurement, drawing, processor_seconds, steps
from tidings.cli.bench.network_workload import STRATEGIES, Interests, Size, publications, publish, take_told, worlds
from tidings.simulation import World

_SHARE = 0.1  # of the clients, by everything that is asked for, or by content alone


class Where(StrEnum):
    """Whose the context filters are."""

    SUBSCRIPTIONS = "subscriptions"
    PUBLICATIONS = "publications"


class Scenario(StrEnum):
    """What stays the same while the share of the contexts that a context filter selects grows."""

    OVERALL = "overall 10 %"
    CONTENT = "content 10 %"


_THE_PAPER = {
    Where.SUBSCRIPTIONS: "Fig. 3: SPCF has a much better throughput than ASF and GSF in all scenarios; the differences "
    "decrease as context filters select more, around 80 %",
    Where.PUBLICATIONS: "Fig. 4: SPCF always performs better, and its advantage decreases as context filters select "
    "more",
}


class Case(NamedTuple):
    """A point of a figure."""

    is_local: bool
    scenario: Scenario
    percent: int  # of the contexts, that a context filter selects

    @property
    def panel(self) -> str:
        return f"{self.scenario}, {'local' if self.is_local else 'spread'}"

    def __str__(self) -> str:
        return f"{self.panel}, contexts {self.percent} %"

    def interests(self, where: Where, *, is_varied: bool = False) -> Interests:
        """Content selects what is missing to the share that stays; everything, where contexts alone select less."""
        content = min(1.0, _SHARE * 100 / self.percent) if self.scenario is Scenario.OVERALL else _SHARE
        return Interests(content, self._share if where is Where.SUBSCRIPTIONS else None, self.is_local, is_varied)

    def subscribers(self, where: Where) -> float | None:
        return self._share if where is Where.PUBLICATIONS else None

    @property
    def _share(self) -> float:
        return self.percent / 100


class Forwarded(NamedTuple):
    """What an event took under each strategy."""

    seconds: dict[str, float]
    packets: dict[str, float]
    told: float  # the share of the clients that were told of it


def measure(
    where: Where,
    percents: list[int],
    size: Size,
    events: int,
    rounds: int,
    plot: Path | None = None,
    *,
    is_varied: bool = False,
) -> list[Measurement]:
    """Both scenarios, without locality and with it; cases that differ in publications alone share their worlds."""
    cases: dict[Interests, list[Case]] = {}
    for case in map(Case._make, product((False, True), Scenario, sorted(percents))):
        cases.setdefault(case.interests(where, is_varied=is_varied), []).append(case)
    found: dict[Case, Forwarded] = {}
    with steps(len(cases)) as step:
        for interests, alike in cases.items():
            step(f"{alike[0].panel}, contexts {', '.join(f'{case.percent} %' for case in alike)}")
            made = worlds(size, interests)
            for case in alike:
                found[case] = forwarded(made, size, case.subscribers(where), events, rounds)
    if plot is not None:
        _draw(found, where, plot)
    return [*(one for case, forwarded in found.items() for one in _told(case, forwarded)), *_least(found, where)]


def forwarded(made: dict[str, World], size: Size, subscribers: float | None, events: int, rounds: int) -> Forwarded:
    """The best of the rounds, each with other publications; packets are the mean of all."""
    seconds: dict[str, list[float]] = {strategy: [] for strategy in made}
    packets: Counter[str] = Counter()
    concerned = 0
    for number in range(rounds):
        given = publications(size, events, subscribers, number)
        told = {}
        for strategy, world in made.items():
            before = world.counters.counts()
            seconds[strategy].append(processor_seconds(lambda: publish(world, given)) / events)  # noqa: B023
            packets[strategy] += (world.counters.counts() - before).messages
            told[strategy] = take_told(world)
        expected = told[STRATEGIES[0]]
        if any(one != expected for one in told.values()):
            raise RuntimeError("the strategies told clients of different events")
        concerned += len({(subscriber, publisher, sequence) for subscriber, _, publisher, sequence in expected})
    total = events * rounds
    return Forwarded(
        {strategy: min(each) for strategy, each in seconds.items()},
        {strategy: packets[strategy] / total for strategy in made},
        concerned / total / size.clients,
    )


def _told(case: Case, found: Forwarded) -> list[Measurement]:
    rows = []
    for strategy, seconds in found.seconds.items():
        ratio = "" if strategy == "spcf" else f"; spcf {seconds / found.seconds['spcf']:.2f}x"
        share = f"; {found.told:.1%} of the clients told" if strategy == "spcf" else ""
        beside = f"{found.packets[strategy]:.3g} packets an event{ratio}{share}"
        rows.append(Measurement(f"{case}: {strategy}", 1 / seconds, "events/s", "", beside))
    return rows


def _least(found: dict[Case, Forwarded], where: Where) -> list[Measurement]:
    """By how much spcf is ahead where it is least so."""
    rows = []
    for other in STRATEGIES[1:]:
        ratios = {case: one.seconds[other] / one.seconds["spcf"] for case, one in found.items()}
        case = min(ratios, key=lambda case: ratios[case])
        what = f"spcf / {other}, least ({case})"
        rows.append(Measurement(what, ratios[case], "times", "1", _THE_PAPER[where]))
    return rows


def _draw(found: dict[Case, Forwarded], where: Where, plot: Path) -> None:
    panels: dict[str, dict[str, dict[float, float]]] = {}
    for case, one in found.items():
        lines = panels.setdefault(case.panel, {strategy: {} for strategy in one.seconds})
        for strategy, seconds in one.seconds.items():
            lines[strategy][case.percent] = 1 / seconds
    across = f"% of the contexts that a context filter in {where} selects"
    drawing.panels(panels, across, "events a second of processor time", f"The paper, {_THE_PAPER[where]}.", plot)
