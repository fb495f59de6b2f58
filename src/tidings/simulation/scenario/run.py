"""Running a scenario: its clients come, the workload and the faults take their course, all is made good and judged."""

from collections import Counter
from collections.abc import Callable

import msgspec

from tidings.simulation.chance import drawn_from
from tidings.simulation.checker import Checker
from tidings.simulation.clock import SECOND, microseconds
from tidings.simulation.counters import Counts
from tidings.simulation.faults import Fault, Heal, Restart
from tidings.simulation.scenario.outcome import Outcome, links_of, reasons_of, sizes_of, traffic_of
from tidings.simulation.scenario.scenario import Scenario
from tidings.simulation.scenario.schedule import Timed, schedule
from tidings.simulation.scenario.values import drawn_all
from tidings.simulation.steps import Moves, Publishes, SetsContext, Settles, Step, Waits
from tidings.simulation.world import World

Watch = Callable[[float], None]
# How often the checker may look at a client, and ask the reference: with more, judging would take much longer than
# the simulation itself.
_MOST_LOOKS, _MOST_QUESTIONS = 2_000_000, 200_000
_CLOSING_EVENTS = 20  # of each kind of publication


class Run:
    """One run of a scenario. `world` is there to be looked at afterwards."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        overlay, topology = scenario.overlay, scenario.topology
        self.world = World(
            topology,
            seed=scenario.seed,
            strategy=overlay.strategy,
            latency=overlay.latency,
            jitter=overlay.jitter,
            bandwidth=overlay.bandwidth,
            loss=overlay.loss,
            duplication=overlay.duplication,
            reordering=overlay.reordering,
            settings=overlay.settings(),
            count_bytes=overlay.count_bytes,
        )
        self._timed = schedule(scenario, topology)
        self._checker: Checker | None = None
        self._away = 0  # publications of clients whose broker was down
        self._longest = 0  # microseconds until the network had settled

    def finish(self, watch: Watch = lambda _: None) -> Outcome:
        """Runs it to its end; `watch` hears from time to time how many seconds of the workload have passed."""
        world = self.world
        self._set_up()
        world.settle()
        setup, ready = world.counters.counts(), world.now
        if self._can_check():
            self._checker = Checker(world, self.scenario.overlay.strategy)
        self._take_all(watch)
        self._heal()
        outcome = self._outcome(setup, ready)  # what follows is not part of the scenario
        if self._checker is None:
            return outcome
        closing = self._close()
        return msgspec.structs.replace(outcome, is_checked=True, closing=closing, violations=self._checker.violations)

    def _outcome(self, setup: Counts, ready: int) -> Outcome:
        world, published = self.world, _published(self.world)
        counts = world.counters.counts() - setup
        kinds = Counter(type(one.step) for one in self._timed)
        return Outcome(
            seed=self.scenario.seed,
            strategy=self.scenario.overlay.strategy,
            brokers=len(world.brokers),
            clients=len(world.clients),
            seconds=world.now / SECOND,
            trace=world.trace.digest(),
            published=published,
            refused=kinds[Publishes] - published,
            away=self._away,
            reasons=reasons_of(world),
            delivered=sum(len(one.notifications) for one in world.clients.values()),
            context_changes=kinds[SetsContext],
            moves=kinds[Moves],
            faults=sum(isinstance(one.step, Fault) for one in self._timed),
            setup=traffic_of(setup),
            workload=traffic_of(counts),
            links=links_of(world, counts),
            tables=sizes_of(world),
            setup_seconds=ready / SECOND,
            settle_seconds=self._longest / SECOND,
            dropped=sum(way.dropped for way in world.network.ways.values()),
        )

    def _set_up(self) -> None:
        """Contexts first, then offers, then wishes: as clients do that know what they need."""
        scenario, brokers = self.scenario, self.world.topology.brokers
        self.world.settle()
        placed = []
        for group in scenario.clients:
            chance = drawn_from(scenario.seed, f"clients {group.name}")
            for name, broker in zip(group.names(), group.homes(brokers, chance), strict=True):
                client = self.world.client(name, broker)
                if group.context:
                    client.set_context(drawn_all(group.context, chance))
                placed.append((group, client, chance))
        for group, client, _ in placed:
            for offered in group.advertisements:
                offered.advertise(client)
        for group, client, chance in placed:
            for wanted in group.subscriptions:
                wanted.subscribe(client, chance)

    def _can_check(self) -> bool:
        check = self.scenario.workload.check
        if check is not None:
            return check
        workload, clients = self.scenario.workload, self.world.clients.values()
        kinds = Counter(type(one.step) for one in self._timed)
        bursts = 1 if workload.settle_every is None else workload.seconds / workload.settle_every
        standings = 1 + (kinds[SetsContext] + kinds[Moves]) / bursts / max(len(clients), 1)
        subscriptions = sum(len(one.subscriptions()) for one in clients)
        questions = kinds[Publishes] * subscriptions * standings
        return len(self._timed) * len(clients) <= _MOST_LOOKS and questions <= _MOST_QUESTIONS

    # The workload

    def _take_all(self, watch: Watch) -> None:
        """Steps at their times. While the network settles, the workload's time stands still."""
        world, workload = self.world, self.scenario.workload
        every = workload.settle_every
        begin, next_rest = world.now, every
        for at, step in [*self._timed, Timed(workload.seconds, Settles())]:
            while every is not None and next_rest is not None and next_rest <= at:
                self._wait_until(begin + microseconds(next_rest))
                self._take(Settles())
                begin, next_rest = world.now - microseconds(next_rest), next_rest + every
            self._wait_until(begin + microseconds(at))
            watch(at)
            self._take(step)

    def _wait_until(self, time: int) -> None:
        if time > self.world.now:
            self._take(Waits((time - self.world.now) / SECOND))

    def _take(self, step: Step) -> None:
        begin = self.world.now
        if isinstance(step, Publishes):
            self._away += not self.world.clients[step.client].is_connected
        if self._checker is None:
            step.befall(self.world)
        else:
            self._checker.take(step)
        if isinstance(step, Settles):
            self._longest = max(self._longest, self.world.now - begin)

    def _heal(self) -> None:
        """What was not made good is made good."""
        if any(isinstance(one.step, Fault) for one in self._timed):
            for one, other, _ in self.world.topology.edges:
                self._take(Heal(0, one, other))
            for name in self.world.brokers:
                self._take(Restart(0, name))
            self._take(Settles())

    def _close(self) -> int:
        """Some more events of each kind, one at a time: all that are due must be told."""
        scenario, before = self.scenario, _published(self.world)
        groups = {one.name: one for one in scenario.clients}
        for number, one in enumerate(scenario.workload.publications):
            chance = drawn_from(scenario.seed, f"closing {number}")
            for name in groups[one.by].names()[:_CLOSING_EVENTS]:
                self._take(Publishes(name, drawn_all(one.attributes, chance), one.subscribers))
                self._take(Settles())
        return _published(self.world) - before


def _published(world: World) -> int:
    return sum(client.published for client in world.clients.values())
