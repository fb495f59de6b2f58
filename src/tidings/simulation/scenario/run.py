"""Runs a scenario: sets up its clients, plays workload and faults, repairs all faults, and checks the notifications."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from tidings.simulation.checking.checker import Checker
from tidings.simulation.checking.steps import Moves, Publishes, SetsContext, Settles, Step, Waits
from tidings.simulation.client import SimulatedClient
from tidings.simulation.clock import SECOND, microseconds
from tidings.simulation.counters import Counts
from tidings.simulation.faults import Fault, Heal, Restart
from tidings.simulation.rng import Random, seeded_random
from tidings.simulation.scenario.clients import ClientGroup
from tidings.simulation.scenario.outcome import ScenarioOutcome, links_of, reasons_of, sizes_of, traffic_of
from tidings.simulation.scenario.scenario import PublicationsSpec, Scenario
from tidings.simulation.scenario.values import draw_values
from tidings.simulation.topologies import Topology
from tidings.simulation.world import World

Watch = Callable[[float], None]
# How often the checker may observe a client, and ask the reference: with more, checking would take much longer than
# the simulation itself.
_MAX_OBSERVATIONS, _MAX_MATCHES = 2_000_000, 200_000
_CLOSING_EVENTS = 20  # events of each publications table that are published after the scenario


class Run:
    """One run of a scenario. After `finish`, `world` can be inspected."""

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
        self._away = 0  # the number of publications by clients whose broker was down
        self._longest_settle = 0  # the longest time, in microseconds, until the network had settled

    def finish(self, watch: Watch = lambda _: None) -> ScenarioOutcome:
        """Run the scenario to its end and return the outcome. `watch` is called with the seconds of the workload
        that have passed."""
        world = self.world
        self._set_up()
        world.settle()
        setup, ready = world.counters.counts(), world.now
        if self._can_check():
            self._checker = Checker(world, self.scenario.overlay.strategy, lambda step: step.apply(world))
        self._run_workload(watch)
        self._heal()
        outcome = self._outcome(setup, ready)  # the closing events below are not part of the scenario
        if self._checker is None:
            return outcome
        closing = self._close()
        return msgspec.structs.replace(outcome, is_checked=True, closing=closing, violations=self._checker.violations)

    def _outcome(self, setup: Counts, ready: int) -> ScenarioOutcome:
        world, published = self.world, _published(self.world.clients.values())
        counts = world.counters.counts() - setup
        kinds = Counter(type(timed.step) for timed in self._timed)
        return ScenarioOutcome(
            seed=self.scenario.seed,
            strategy=self.scenario.overlay.strategy,
            brokers=len(world.brokers),
            clients=len(world.clients),
            seconds=world.now / SECOND,
            trace=world.trace.digest(),
            published=published,
            refused=kinds[Publishes] - published,
            away=self._away,
            reasons=reasons_of(world.brokers.values()),
            delivered=sum(len(client.notifications) for client in world.clients.values()),
            context_changes=kinds[SetsContext],
            moves=kinds[Moves],
            faults=sum(isinstance(timed.step, Fault) for timed in self._timed),
            setup=traffic_of(setup),
            workload=traffic_of(counts),
            links=links_of(world.topology.edges, counts),
            tables=sizes_of(world.brokers),
            setup_seconds=ready / SECOND,
            settle_seconds=self._longest_settle / SECOND,
            dropped=sum(path.dropped for path in world.network.paths.values()),
        )

    def _set_up(self) -> None:
        """Connect all clients: first their contexts, then their advertisements, then their subscriptions."""
        scenario, brokers = self.scenario, self.world.topology.brokers
        self.world.settle()
        placed = []
        for group in scenario.clients:
            rng = seeded_random(scenario.seed, f"clients {group.name}")
            for name, broker in zip(group.names(), group.homes(brokers, rng), strict=True):
                client = self.world.client(name, broker)
                if group.context:
                    client.set_context(draw_values(group.context, rng))
                placed.append((group, client, rng))
        for group, client, _ in placed:
            for advertisement in group.advertisements:
                advertisement.advertise(client)
        for group, client, rng in placed:
            for subscription in group.subscriptions:
                subscription.subscribe(client, rng)

    def _can_check(self) -> bool:
        """Return whether to check notifications: as the scenario says, or if the estimated cost is low enough."""
        check = self.scenario.workload.check
        if check is not None:
            return check
        workload, clients = self.scenario.workload, self.world.clients.values()
        kinds = Counter(type(timed.step) for timed in self._timed)
        bursts = 1 if workload.settle_every is None else workload.seconds / workload.settle_every
        states_per_client = 1 + (kinds[SetsContext] + kinds[Moves]) / bursts / max(len(clients), 1)
        subscriptions = sum(len(client.subscriptions()) for client in clients)
        questions = kinds[Publishes] * subscriptions * states_per_client
        return len(self._timed) * len(clients) <= _MAX_OBSERVATIONS and questions <= _MAX_MATCHES

    # The workload

    def _run_workload(self, watch: Watch) -> None:
        """Take the steps at their times. While the network settles, the time of the workload stands still."""
        world, workload = self.world, self.scenario.workload
        every = workload.settle_every
        begin, next_rest = world.now, every
        for at, step in [*self._timed, TimedStep(workload.seconds, Settles())]:
            while every is not None and next_rest is not None and next_rest <= at:
                self._wait_until(begin + microseconds(next_rest))
                self._run_step(Settles())
                begin, next_rest = world.now - microseconds(next_rest), next_rest + every
            self._wait_until(begin + microseconds(at))
            watch(at)
            self._run_step(step)

    def _wait_until(self, time: int) -> None:
        if time > self.world.now:
            self._run_step(Waits((time - self.world.now) / SECOND))

    def _run_step(self, step: Step) -> None:
        begin = self.world.now
        if isinstance(step, Publishes):
            self._away += not self.world.clients[step.client].is_connected
        if self._checker is None:
            step.apply(self.world)
        else:
            self._checker.take(step)
        if isinstance(step, Settles):
            self._longest_settle = max(self._longest_settle, self.world.now - begin)

    def _heal(self) -> None:
        """Repair all faults."""
        if any(isinstance(timed.step, Fault) for timed in self._timed):
            for one, other, _ in self.world.topology.edges:
                self._run_step(Heal(0, one, other))
            for name in self.world.brokers:
                self._run_step(Restart(0, name))
            self._run_step(Settles())

    def _close(self) -> int:
        """Publish some more events of each kind, one at a time, to check that all that are due are notified."""
        scenario, before = self.scenario, _published(self.world.clients.values())
        groups = {group.name: group for group in scenario.clients}
        for number, publications in enumerate(scenario.workload.publications):
            rng = seeded_random(scenario.seed, f"closing {number}")
            for name in groups[publications.by].names()[:_CLOSING_EVENTS]:
                self._run_step(Publishes(name, draw_values(publications.attributes, rng), publications.subscribers))
                self._run_step(Settles())
        return _published(self.world.clients.values()) - before


def _published(clients: Iterable[SimulatedClient]) -> int:
    return sum(client.published for client in clients)


class TimedStep(NamedTuple):
    """A step, and when it is taken."""

    at: float  # seconds from the start of the workload
    step: Step


def schedule(scenario: Scenario, topology: Topology) -> list[TimedStep]:
    """Return the steps of the workload and the faults, in the order of time."""
    seconds, seed = scenario.workload.seconds, scenario.seed
    groups = {group.name: group for group in scenario.clients}
    steps: list[TimedStep] = []
    for number, publications in enumerate(scenario.workload.publications):
        steps += _publications(
            publications, groups[publications.by], seconds, seeded_random(seed, f"publications {number}")
        )
    for group in scenario.clients:
        steps += _context_changes(group, seconds, seeded_random(seed, f"contexts {group.name}"))
        steps += _moves(group, topology, seconds, seeded_random(seed, f"moves {group.name}"))
    for number, spec in enumerate(scenario.faults):
        steps += (TimedStep(fault.at, fault) for fault in spec.made(topology, seed + number, seconds))
    return sorted((step for step in steps if step.at <= seconds), key=lambda step: step.at)


def _publications(
    publications: PublicationsSpec, group: ClientGroup, seconds: float, rng: Random
) -> Iterator[TimedStep]:
    names = group.names()
    for at in _times(publications.per_second, seconds, rng):
        yield TimedStep(
            at, Publishes(rng.choice(names), draw_values(publications.attributes, rng), publications.subscribers)
        )


def _context_changes(group: ClientGroup, seconds: float, rng: Random) -> Iterator[TimedStep]:
    names = group.names()
    for at in _times(group.context_changes, seconds, rng):
        yield TimedStep(at, SetsContext(rng.choice(names), draw_values(group.context, rng)))


def _moves(group: ClientGroup, topology: Topology, seconds: float, rng: Random) -> Iterator[TimedStep]:
    names, places = group.names(), group.places(topology.brokers)
    for at in _times(group.moves, seconds, rng):
        yield TimedStep(at, Moves(rng.choice(names), rng.choice(places)))


def _times(per_second: float, seconds: float, rng: Random) -> list[float]:
    return [rng.uniform(0, seconds) for _ in range(round(per_second * seconds))]
