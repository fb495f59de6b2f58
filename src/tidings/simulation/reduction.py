"""Reduces a history with a violation to a smaller one with the same symptom: fewer steps, clients, brokers and
links. `report` shows its violations with a step file that reproduces them."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from tidings.simulation.checking.history import History
from tidings.simulation.checking.steps import Moves, Settles, Step, Waits
from tidings.simulation.faults import Crash, Cut, Heal, Lossy, Pause, Restart, Resume, Slow
from tidings.simulation.step_file import StepFile, write
from tidings.simulation.topologies import Edge, Topology

_ATTEMPTS = 1_000


def reduce_history(history: History, attempts: int = _ATTEMPTS) -> History:
    """Return a smaller history whose first violation has the same symptom.

    Removes steps, then simplifies the rest, until neither helps or `attempts` histories were run. A history
    without violations is returned unchanged.
    """
    violations = history.violations()
    if not violations:
        return history
    shows = _Trial(violations[0].symptom, attempts)
    before = None
    while history != before and shows.attempts:
        before = history
        small = replace(history, steps=shrink_steps(history.steps, _shows_with_steps(history, shows), shows.attempts))
        history = _simplify(small, shows)
    return history


class _Trial:
    """Runs histories and says whether they show the symptom. Says no when the attempts are used up."""

    def __init__(self, symptom: str, attempts: int) -> None:
        self._symptom, self.attempts = symptom, attempts

    def __call__(self, history: History) -> bool:
        if not self.attempts:
            return False
        self.attempts -= 1
        violations = history.violations()
        return bool(violations) and violations[0].symptom == self._symptom


def _shows_with_steps(history: History, shows: _Trial) -> Callable[[tuple[Step, ...]], bool]:
    return lambda steps: shows(replace(history, steps=steps))


def _simplify(history: History, shows: _Trial) -> History:
    """Apply simplifications as long as one of them shows the symptom."""
    while (simpler := next(filter(shows, _simpler(history)), None)) is not None:
        history = simpler
    return history


def _simpler(history: History) -> Iterator[History]:
    """Yield histories that are simpler in one respect."""
    if history.network:
        yield replace(history, network={})
    for client in history.homes:
        yield _without_client(history, client)
    for one, other, _ in history.topology.edges:
        yield _merge_brokers(history, one, other)
        yield _merge_brokers(history, other, one)
    for edge in history.topology.edges:
        if (without := _without_link(history, edge)) is not None:
            yield without
        if edge.cost != 1:
            yield replace(history, topology=_with_cost_1(history.topology, edge))
    for position, step in enumerate(history.steps):
        for simpler_step in _simpler_steps(step):
            yield replace(history, steps=(*history.steps[:position], simpler_step, *history.steps[position + 1 :]))


def _without_client(history: History, client: str) -> History:
    homes = {name: broker for name, broker in history.homes.items() if name != client}
    steps = tuple(step for step in history.steps if getattr(step, "client", None) != client)
    return replace(history, homes=homes, steps=steps)


def _merge_brokers(history: History, broker: str, into: str) -> History:
    """Return the history without `broker`: its links and clients belong to `into`."""

    def rename(name: str) -> str:
        return into if name == broker else name

    edges: dict[frozenset[str], Edge] = {}
    for one, other, cost in history.topology.edges:
        edge = Edge(rename(one), rename(other), cost)
        if edge.one != edge.other:
            edges.setdefault(frozenset(edge[:2]), edge)
    brokers = tuple(name for name in history.topology.brokers if name != broker)
    return replace(
        history,
        topology=Topology(brokers, tuple(edges.values())),
        homes={client: rename(home) for client, home in history.homes.items()},
        steps=tuple(step for one in history.steps for step in _merge_broker_steps(one, broker, rename)),
    )


def _merge_broker_steps(step: Step, broker: str, rename: Callable[[str], str]) -> Iterator[Step]:
    if isinstance(step, Crash | Restart | Pause | Resume):
        if step.broker != broker:
            yield step
    elif isinstance(step, Cut | Heal | Slow | Lossy):
        if rename(step.one) != rename(step.other):
            yield replace(step, one=rename(step.one), other=rename(step.other))
    elif isinstance(step, Moves):
        yield replace(step, broker=rename(step.broker))
    else:
        yield step


def _without_link(history: History, link: Edge) -> History | None:
    """Return the history without a link, or None if some broker could then never be reached."""
    topology = Topology(history.topology.brokers, tuple(edge for edge in history.topology.edges if edge != link))
    if not _is_connected(topology):
        return None
    pair = {link.one, link.other}
    steps = (
        step
        for step in history.steps
        if not (isinstance(step, Cut | Heal | Slow | Lossy) and {step.one, step.other} == pair)
    )
    return replace(history, topology=topology, steps=tuple(steps))


def _is_connected(topology: Topology) -> bool:
    reached, frontier = {topology.brokers[0]}, [topology.brokers[0]]
    while frontier:
        unreached = [name for name in topology.neighbours(frontier.pop()) if name not in reached]
        reached.update(unreached)
        frontier += unreached
    return len(reached) == len(topology.brokers)


def _with_cost_1(topology: Topology, link: Edge) -> Topology:
    return replace(topology, edges=tuple(edge._replace(cost=1) if edge == link else edge for edge in topology.edges))


def _simpler_steps(step: Step) -> Iterator[Step]:
    """Yield the step without one of its options; or a wait replaced by settling, in case time does not matter."""
    if isinstance(step, Waits):
        yield Settles()
    for field in msgspec.structs.fields(step):
        if not field.required and getattr(step, field.name) != (default := _default(field)):
            yield replace(step, **{field.name: default})


def _default(field: msgspec.structs.FieldInfo) -> object:
    factory = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()


Item = TypeVar("Item")


def shrink_steps(
    steps: Sequence[Item], fails: Callable[[tuple[Item, ...]], bool], attempts: int = 500
) -> tuple[Item, ...]:
    """Remove steps that are not needed to fail, in large pieces first (delta debugging).

    No single step of the result can be removed, unless the attempts are used up.
    """
    remaining, size = tuple(steps), max(1, len(steps) // 2)
    while attempts and remaining:
        start, was_reduced = 0, False
        while start < len(remaining) and attempts:
            attempts -= 1
            candidate = remaining[:start] + remaining[start + size :]
            if fails(candidate):
                remaining, was_reduced = candidate, True
            else:
                start += size
        if size == 1 and not was_reduced:
            break
        size = max(1, size // 2)
    return remaining


_SHOWN = 5  # violations of a report


def report(history: History) -> str | None:
    """Return the violations of a history and a reduced step file that shows the first one again, or None if there
    are none."""
    violations = history.violations()
    if not violations:
        return None
    small = reduce_history(history)
    shown = [str(violation) for violation in small.violations()[:_SHOWN]]
    return "\n".join(
        [
            *map(str, violations[:_SHOWN]),
            "with fewer steps, as a file FILE.steps for `tidings simulate FILE.steps`:",
            write(StepFile(small, violations[0].kind), shown),
        ]
    )
