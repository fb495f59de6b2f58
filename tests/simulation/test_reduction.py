"""A reduced history shows the same symptom with less: fewer steps, clients, brokers and links."""

import pytest

from tidings.simulation.checking.checker import Violation
from tidings.simulation.checking.history import History
from tidings.simulation.checking.steps import (
    Advertises,
    Leaves,
    Moves,
    Publishes,
    SetsContext,
    Settles,
    Step,
    Subscribes,
    Waits,
)
from tidings.simulation.faults import Crash, Cut, Heal, Restart
from tidings.simulation.reduction import reduce_history
from tidings.simulation.topologies import Edge, Topology

RING = Topology(("b1", "b2", "b3", "b4"), (Edge("b1", "b2", 3), Edge("b2", "b3"), Edge("b3", "b4"), Edge("b4", "b1")))
STEPS: tuple[Step, ...] = (
    SetsContext("other", {"x": 1}),
    Advertises("pub", "ad", "", ("x",)),
    Subscribes("sub", "s", "n > 1", publishers="x > 0", durable="d"),
    Waits(0.7),
    Cut(0, "b3", "b4"),
    Crash(0, "b4"),
    Moves("other", "b4"),
    Restart(0, "b4"),
    Heal(0, "b3", "b4"),
    Publishes("pub", {"n": 2}, "x > 0"),
    Leaves("other"),
)


class Judged(History, frozen=True, kw_only=True):
    """A history that goes wrong whenever `sub` subscribes with a durable name and `pub` publishes after that."""

    def violations(self) -> list[Violation]:
        kinds = [type(step) for step in self.steps if getattr(step, "durable", "d") == "d"]
        is_wrong = {Subscribes, Publishes} <= set(kinds) and kinds.index(Subscribes) < kinds.index(Publishes)
        if is_wrong and len(self.topology.brokers) > 1:
            return [Violation("lost", f"sub was not told of event {len(self.steps)}")]
        return [Violation("lost", "pub was not told")] if len(self.steps) < 2 else []


def judged(steps: tuple[Step, ...] = STEPS) -> Judged:
    homes = {"pub": "b1", "sub": "b3", "other": "b2"}
    return Judged(topology=RING, homes=homes, steps=steps, network={"loss": 0.1}, strategy="gsf", seed=7)


def test_only_what_is_needed_for_the_symptom_is_left() -> None:
    small = reduce_history(judged())
    assert small.steps == (Subscribes("sub", "s", durable="d"), Publishes("pub"))
    assert len(small.topology.brokers) == 2
    assert [edge.cost for edge in small.topology.edges] == [1]
    assert (small.network, small.strategy, small.seed) == ({}, "gsf", 7)
    assert small.homes.keys() <= {"pub", "sub"}
    assert type(small) is Judged


def test_steps_refer_to_brokers_and_clients_that_are_left() -> None:
    """Each history that is tried can be run: the simulator itself finds nothing unknown in it."""
    tried: list[History] = []

    class Watched(Judged, frozen=True, kw_only=True):
        def violations(self) -> list[Violation]:
            tried.append(self)
            return super().violations()

    history = judged()
    fields = {name: getattr(history, name) for name in History.__struct_fields__}
    reduce_history(Watched(**fields))
    assert len(tried) > 20
    for one in tried:
        found = History.violations(one)
        assert not [violation for violation in found if violation.kind == "error"], found


def test_attempts_bound_how_many_histories_are_run() -> None:
    class Counted(Judged, frozen=True, kw_only=True):
        def violations(self) -> list[Violation]:
            counts.append(1)
            return super().violations()

    counts: list[int] = []
    history = judged()
    small = reduce_history(Counted(**{name: getattr(history, name) for name in History.__struct_fields__}), attempts=5)
    assert len(counts) == 6  # the first run finds the symptom
    assert len(small.steps) < len(STEPS)


def test_a_history_in_which_nothing_goes_wrong_stays_as_it_is() -> None:
    history = judged((Settles(), Settles()))
    assert reduce_history(history) is history


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (("lost", "c1 was not told of c2's event 1"), ("lost", "c1 was not told of c3's event 4"), True),
        (("lost", "c1 was not told of c2's event 1"), ("lost", "c1 was promised c2's event 1"), False),
        (("lost", "c1 was not told of c2's event 1"), ("lost", "c2 was not told of c2's event 1"), False),
        (("tables", "b1: contexts c1: 3"), ("tables", "b1: contexts c1: 4"), True),
        (("tables", "b1: contexts c1: 3"), ("tables", "b1: filters c1: 3"), False),
        (("lost", "c1 was told"), ("undue", "c1 was told"), False),
        (("error", "Traceback\n  line 1\nKeyError: 'a'"), ("error", "Traceback\n  line 2\nKeyError: 'a'"), True),
        (("error", "Traceback\nKeyError: 'a'"), ("error", "Traceback\nIndexError: 'a'"), False),
    ],
)
def test_symptoms_tell_faults_apart(one: tuple[str, str], other: tuple[str, str], is_same: bool) -> None:
    first, second = Violation(*one), Violation(*other)  # type: ignore[arg-type]
    assert (first.symptom == second.symptom) is is_same
