"""A durable inbox against a list that keeps everything: nothing is lost, nothing comes out of order, all is bounded."""

from hypothesis import given
from hypothesis import strategies as st

from tests.hub.cases import NOW
from tests.sizes import examples
from tidings.model import Attributes, Event, Notification, uuid7
from tidings.runtime.durable_inbox import DurableInbox, Entry

steps = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 4)),
    st.tuples(st.just("arrive"), st.integers(1, 5)),
    st.tuples(st.just("take"), st.none() | st.integers(1, 4)),
    st.tuples(st.just("acknowledge"), st.integers(0, 9)),
    st.tuples(st.just("acknowledge all"), st.none()),
    st.tuples(st.just("redeliver"), st.none()),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("replay"), st.none()),
)


def note(offset: int) -> Notification:
    id = uuid7(NOW, offset.to_bytes(10, "big"))  # noqa: A001
    event = Event(id=id, publisher="p", timestamp=NOW, sequence=offset)
    return Notification(event=event, subscription="s", subscriber="a", attributes=Attributes({"offset": offset}))


class World:
    """A journal whose every other row is due, a backlog on it, and what must be true of the two."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.journal: list[int] = []  # the offsets that are due
        self.rows: list[tuple[str, tuple[int, list[int], int] | int]] = []
        self.on_their_way: list[int] = []  # published, and not yet put
        self.acknowledged: set[int] = set()
        self.taken: list[int] = []
        self.backlog = DurableInbox(limit, self.read)

    def read(self, start: int, count: int) -> tuple[list[Entry], int]:
        found = [(offset, note(offset)) for offset in self.journal if offset >= start][:count]
        end = self.journal[-1] + 1 if self.journal else 0
        return found, found[-1][0] + 1 if len(found) == count else max(start, end)

    def do(self, step: str, argument: int | None) -> None:
        match step:
            case "publish":
                for _ in range(argument or 0):
                    offset = 2 * len(self.journal)
                    self.journal.append(offset)
                    self.rows.append(("due", offset))
                    self.backlog.expect(offset)
                    self.on_their_way.append(offset)
            case "arrive":
                for offset in self.on_their_way[:argument]:
                    assert self.backlog.put(note(offset), offset) is None
                self.on_their_way = self.on_their_way[argument:]
            case "take":
                got = [int(one.attributes["offset"]) for one in self.backlog.take(argument)]
                assert not set(got) & (self.acknowledged | set(self.taken))
                assert got == sorted(got)
                due = [offset for offset in self.journal if offset not in self.acknowledged | set(self.taken)]
                assert got == due[: len(got)]
                self.taken += got
            case "acknowledge":
                if self.taken:
                    self.acknowledge([self.taken[(argument or 0) % len(self.taken)]])
            case "acknowledge all":
                self.acknowledge(self.taken[:])
            case "redeliver":
                assert self.backlog.redeliver() == len(self.taken)
                self.taken = []
            case "restart":
                state = self.backlog.state()
                self.forget()
                self.backlog.restore(*state)
            case "replay":
                self.forget()
                for kind, said in self.rows:
                    if kind == "due":
                        assert isinstance(said, int)
                        self.backlog.restore_due(said)
                    else:
                        assert isinstance(said, tuple)
                        self.backlog.restore_acknowledgement(*said)

    def forget(self) -> None:
        self.backlog = DurableInbox(self.limit, self.read)
        self.taken, self.on_their_way = [], []

    def acknowledge(self, offsets: list[int]) -> None:
        done = self.backlog.acknowledgement([note(offset).event.id for offset in offsets])
        assert (done is None) == (not offsets)
        if done is not None:
            self.rows.append(("acknowledge", (done.floor, done.beyond, done.count)))
            self.backlog.acknowledge(done)
        self.acknowledged |= set(offsets)
        self.taken = [offset for offset in self.taken if offset not in offsets]

    def check(self) -> None:
        backlog = self.backlog
        _, beyond, _, _ = backlog.state()
        assert backlog.waiting == len(self.journal) - len(self.acknowledged) - len(self.taken)
        assert backlog.size <= self.limit + len(beyond)
        assert len(beyond) <= self.limit


@examples(300, 18_000)
@given(st.integers(1, 5), st.lists(steps, max_size=40))
def test_nothing_is_lost_doubled_or_out_of_order(limit: int, history: list[tuple[str, int | None]]) -> None:
    world = World(limit)
    for step, argument in history:
        world.do(step, argument)
        world.check()
    world.do("arrive", 1000)
    for _ in range(len(world.journal) + 1):
        world.do("take", None)
        world.do("acknowledge all", None)
    assert world.acknowledged == set(world.journal)
    assert world.backlog.waiting == 0


class Repeats:
    """A backlog in which events may come again, under an offset of their own, and the events that are due."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.journal: list[Entry] = []
        self.rows: list[tuple[int, list[int], int] | int] = []
        self.taken: list[Notification] = []
        self.backlog = DurableInbox(limit, self.read)

    def read(self, start: int, count: int) -> tuple[list[Entry], int]:
        found = [entry for entry in self.journal if entry[0] >= start][:count]
        return found, found[-1][0] + 1 if len(found) == count else max(start, len(self.journal))

    def do(self, step: str, argument: int) -> None:
        match step:
            case "publish":
                offset = len(self.journal)
                self.journal.append((offset, note(argument)))
                self.rows.append(offset)
                self.backlog.expect(offset)
                self.backlog.put(note(argument), offset)
            case "take":
                self.taken += self.backlog.take(argument)
            case "acknowledge":  # also what was given back, as by a connection that was slow
                self.acknowledge(self.taken[: argument + 1])
            case "redeliver":
                self.backlog.redeliver()
            case "replay":
                self.backlog = DurableInbox(self.limit, self.read)
                for said in self.rows:
                    if isinstance(said, int):
                        self.backlog.restore_due(said)
                    else:
                        self.backlog.restore_acknowledgement(*said)

    def acknowledge(self, notes: list[Notification]) -> None:
        done = self.backlog.acknowledgement([one.event.id for one in notes])
        if done is not None:
            self.rows.append((done.floor, done.beyond, done.count))
            self.backlog.acknowledge(done)


repeated_steps = st.tuples(
    st.sampled_from(["publish", "publish", "take", "acknowledge", "redeliver", "replay"]), st.integers(0, 2)
)


@examples(300, 18_000)
@given(st.integers(1, 5), st.lists(repeated_steps, max_size=30))
def test_nothing_waits_when_all_is_acknowledged_though_events_came_twice(
    limit: int, history: list[tuple[str, int]]
) -> None:
    world = Repeats(limit)
    for step, argument in history:
        world.do(step, argument)
    world.do("redeliver", 0)
    for _ in range(2):  # the second time after a restart, with the journal alone
        while notes := world.backlog.take(None):
            world.acknowledge(notes)
        assert world.backlog.waiting == 0
        world.do("replay", 0)
