"""Reduces a history that goes wrong: fewer steps, clients, brokers and links that still show the same symptom."""

from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from tidings.simulation.faults import Crash, Cut, Heal, Lossy, Pause, Restart, Resume, Slow
from tidings.simulation.history import History
from tidings.simulation.shrinking import shrunk
from tidings.simulation.steps import Moves, Settles, Step, Waits
from tidings.simulation.topologies import Edge, Topology

_ATTEMPTS = 1_000


def reduced(history: History, attempts: int = _ATTEMPTS) -> History:
    """A smaller history whose first violation has the same symptom, found by running at most so many others.

    First steps are left out, then the rest is made simpler, until neither helps. A history in which nothing goes wrong
    is returned as it is.
    """
    violations = history.violations()
    if not violations:
        return history
    shows = _Trial(violations[0].symptom, attempts)
    before = None
    while history != before and shows.attempts:
        before = history
        small = replace(history, steps=shrunk(history.steps, _of_steps(history, shows), shows.attempts))
        history = _simplified(small, shows)
    return history


class _Trial:
    """Runs a history and says whether it shows the symptom. When the attempts are used up, the answer is no."""

    def __init__(self, symptom: str, attempts: int) -> None:
        self._symptom, self.attempts = symptom, attempts

    def __call__(self, history: History) -> bool:
        if not self.attempts:
            return False
        self.attempts -= 1
        violations = history.violations()
        return bool(violations) and violations[0].symptom == self._symptom


def _of_steps(history: History, shows: _Trial) -> Callable[[tuple[Step, ...]], bool]:
    return lambda steps: shows(replace(history, steps=steps))


def _simplified(history: History, shows: _Trial) -> History:
    while (simpler := next(filter(shows, _simpler(history)), None)) is not None:
        history = simpler
    return history


def _simpler(history: History) -> Iterator[History]:
    """Histories that differ in one thing, which is simpler."""
    if history.network:
        yield replace(history, network={})
    for client in history.homes:
        yield _without_client(history, client)
    for one, other, _ in history.topology.edges:
        yield _merged(history, one, other)
        yield _merged(history, other, one)
    for edge in history.topology.edges:
        if (without := _without_link(history, edge)) is not None:
            yield without
        if edge.cost != 1:
            yield replace(history, topology=_with_cost_1(history.topology, edge))
    for place, step in enumerate(history.steps):
        for plain in _plainer(step):
            yield replace(history, steps=(*history.steps[:place], plain, *history.steps[place + 1 :]))


def _without_client(history: History, client: str) -> History:
    homes = {name: broker for name, broker in history.homes.items() if name != client}
    steps = tuple(step for step in history.steps if getattr(step, "client", None) != client)
    return replace(history, homes=homes, steps=steps)


def _merged(history: History, broker: str, into: str) -> History:
    """Without the broker: its links and its clients are another's."""

    def renamed(name: str) -> str:
        return into if name == broker else name

    edges: dict[frozenset[str], Edge] = {}
    for one, other, cost in history.topology.edges:
        edge = Edge(renamed(one), renamed(other), cost)
        if edge.one != edge.other:
            edges.setdefault(frozenset(edge[:2]), edge)
    brokers = tuple(name for name in history.topology.brokers if name != broker)
    return replace(
        history,
        topology=Topology(brokers, tuple(edges.values())),
        homes={client: renamed(home) for client, home in history.homes.items()},
        steps=tuple(step for one in history.steps for step in _merged_steps(one, broker, renamed)),
    )


def _merged_steps(step: Step, broker: str, renamed: Callable[[str], str]) -> Iterator[Step]:
    if isinstance(step, Crash | Restart | Pause | Resume):
        if step.broker != broker:
            yield step
    elif isinstance(step, Cut | Heal | Slow | Lossy):
        if renamed(step.one) != renamed(step.other):
            yield replace(step, one=renamed(step.one), other=renamed(step.other))
    elif isinstance(step, Moves):
        yield replace(step, broker=renamed(step.broker))
    else:
        yield step


def _without_link(history: History, link: Edge) -> History | None:
    """None if brokers would be cut off for good."""
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
        found = [name for name in topology.neighbours(frontier.pop()) if name not in reached]
        reached.update(found)
        frontier += found
    return len(reached) == len(topology.brokers)


def _with_cost_1(topology: Topology, link: Edge) -> Topology:
    return replace(topology, edges=tuple(edge._replace(cost=1) if edge == link else edge for edge in topology.edges))


def _plainer(step: Step) -> Iterator[Step]:
    """The step without one of its options; or a wait until everything has settled, where time does not matter."""
    if isinstance(step, Waits):
        yield Settles()
    for field in msgspec.structs.fields(step):
        if not field.required and getattr(step, field.name) != (default := _default(field)):
            yield replace(step, **{field.name: default})


def _default(field: msgspec.structs.FieldInfo) -> object:
    factory = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()
