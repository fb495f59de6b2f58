"""The context filters of subscriptions and of passing events, and what they say of everyone's context."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.matching.index.contexts import Contexts
from tidings.matching.index.moves import Seen
from tidings.matching.index.programs import CONSTANT, FLOAT, NULL, NotSayable, Program, compiled, judge
from tidings.model.filter import ContextFilter
from tidings.model.limits import MAX_CACHED_PATTERNS
from tidings.model.values import Value

NO_FILTER, FOR_THE_REFERENCE, GONE = -1, -2, -3  # the last is the number of those who were removed
Others = tuple[Any, Any, Any]  # contexts of other parties: kinds, integers and floats, a row a party, a column a name
ONE = np.empty(0, np.int64)  # there is but one of them
_SOME = 1024  # below it, nothing is tidied up


class Scopes:
    """Programs by number; equal filters share one."""

    def __init__(self, contexts: Contexts) -> None:
        self._contexts = contexts
        self.in_use = False  # whether some subscription has, or had, a filter
        self._passing: OrderedDict[ContextFilter, _Passing | None] = OrderedDict()
        self._numbers: dict[ContextFilter, int] = {}
        self._renumbered = 0  # the strings, when the arrays were made
        self._one, self._views = _row(0)  # for the context of a single publisher
        self._clear()

    def _clear(self) -> None:
        self._users: list[int] = []  # subscriptions, by program
        self._constants: list[Value | None] = []
        self._steps: Program = []
        self._first = [0]
        self._arrays: tuple[Any, ...] | None = None  # as the kernel takes them
        self._unused = 0

    def enter(self, wanted: ContextFilter | None) -> int:
        """The number of the program for one subscription more."""
        if wanted is None:
            return NO_FILTER
        self.in_use = True
        number = self._numbers.get(wanted)
        if number is None:
            number = self._numbers[wanted] = self._compiled(wanted)
        if number >= 0:
            self._users[number] += 1
        return number

    def leave(self, number: int) -> npt.NDArray[np.int32] | None:
        """One subscription less. Where it is time to tidy up: the new number of each program, by the old one."""
        if number < 0:
            return None
        self._users[number] -= 1
        if not self._users[number]:
            self._unused += 1
        return self._tidied() if self._unused > _SOME + len(self._users) // 2 else None

    def _compiled(self, wanted: ContextFilter) -> int:
        steps, constants = len(self._steps), len(self._constants)
        try:
            self._steps.extend(compiled(wanted.expression, self))
        except NotSayable:
            del self._steps[steps:], self._constants[constants:]
            return FOR_THE_REFERENCE
        self._first.append(len(self._steps))
        self._users.append(0)
        self._arrays = None
        return len(self._users) - 1

    def _tidied(self) -> npt.NDArray[np.int32]:
        """Throws out the programs, and the constants in them, that nobody uses."""
        users, steps, first, constants = self._users, self._steps, self._first, self._constants
        filters = {number: wanted for wanted, number in self._numbers.items() if number >= 0}
        self._clear()
        self._numbers = {}
        moved = np.full(len(users), NO_FILTER, np.int32)
        for old, count in enumerate(users):
            if count:
                moved[old] = len(self._users)
                for step, number in steps[first[old] : first[old + 1]]:
                    self._steps.append((step, self.constant(constants[number]) if step == CONSTANT else number))
                self._first.append(len(self._steps))
                self._users.append(count)
                if old in filters:
                    self._numbers[filters[old]] = int(moved[old])
        return moved

    def saved(self) -> dict[str, Any]:
        """The programs, in a form that JSON can carry."""
        return {"users": self._users, "steps": self._steps, "first": self._first, "constants": self._constants}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """What `saved` gave. Filters that come later share programs among themselves only."""
        self._users, self._first, self._constants = saved["users"], saved["first"], saved["constants"]
        self._steps = [(step, number) for step, number in saved["steps"]]
        self._unused = self._users.count(0)

    # The numbers of what subscriptions speak of

    def other(self, name: str) -> int:
        return self._contexts.column(name)

    own = other  # both parties' values have the same columns

    def constant(self, value: Value | None) -> int:
        self._constants.append(value)
        return len(self._constants) - 1

    # What they say

    @property
    def state(self) -> tuple[int, int]:
        """What is the same as long as encoded contexts mean the same."""
        return self._contexts.renumbered, self._contexts.width

    def publishers(self, contexts: Sequence[Mapping[str, Value]]) -> Others:
        """Contexts as `judge_publishers` takes them."""
        self._program_arrays()  # first: it takes in the strings that filters name
        size = (len(contexts), self._contexts.width)
        kinds, ints, floats = np.zeros(size, np.uint8), np.zeros(size, np.int64), np.zeros(size)
        columns, strangers = self._contexts.columns, dict[str, int]()
        for row, context in enumerate(contexts):
            for name, value in context.items():
                column = columns.get(name)
                if column is not None:
                    at = row, column
                    kinds[at], ints[at], floats[at] = self._contexts.looked_up(value, strangers)
        return kinds, ints, floats

    def publishers_of(self, values: Mapping[str, pa.Array], count: int) -> Others:
        """The same from columns."""
        self._program_arrays()
        size = (count, self._contexts.width)
        kinds, ints, floats = np.zeros(size, np.uint8), np.zeros(size, np.int64), np.zeros(size)
        strangers: dict[str, int] = {}
        for name, array in values.items():
            column = self._contexts.columns.get(name)
            if column is not None:
                found = self._contexts.encoded_column(name, array, strangers)
                kinds[:, column], ints[:, column], floats[:, column] = found
        return kinds, ints, floats

    def judge_publisher(self, positions: Any, programs: Any, clients: Any, context: Mapping[str, Value]) -> Any:
        """What each subscription's program says of one publisher's context, without much ado around it."""
        arrays = self._program_arrays()
        if self._one[0].shape[1] != self._contexts.width:
            self._one, self._views = _row(self._contexts.width)
        kinds, ints, floats = self._views
        self._one[0].fill(NULL)
        columns, strangers = self._contexts.columns, dict[str, int]()
        for name, value in context.items():
            column = columns.get(name)
            if column is None:
                continue
            if type(value) is float:
                kinds[column], floats[column] = FLOAT, value
            else:
                kinds[column], ints[column], floats[column] = self._contexts.looked_up(value, strangers)
        return judge(positions, ONE, programs, clients, *arrays, *self._one, *self._contexts.table, False)

    def judge_publishers(self, which: Any, programs: Any, seen: Seen, publishers: Others) -> Any:
        """What each subscription's program says of a publisher's context; `which` tells for each whose, `seen` has the
        subscriber's own."""
        answers = np.empty(len(programs), np.uint8)
        arrays = self._program_arrays()
        for at, clients, table in seen.parts():
            each = np.arange(len(clients), dtype=np.int32)
            answers[at] = judge(each, which[at], programs[at], clients, *arrays, *publishers, *table, False)
        return answers

    def judge_subscribers(self, wanted: ContextFilter, seen: Seen, publisher: Mapping[str, Value]) -> Any | None:
        """What an event's own filter says of each subscriber's context; None where only the reference can say."""
        passing = self._passing_program(wanted)
        if passing is None:
            return None
        strangers: dict[str, int] = {}
        looked_up = self._contexts.looked_up
        constants = _columns([looked_up(value, strangers) for value in passing.constants])
        own = [one[None] for one in _columns([looked_up(publisher.get(name), strangers) for name in passing.names])]
        first, steps = np.array([0, len(passing.steps)], np.int32), np.array(passing.steps, np.int32)
        program = np.zeros(1, np.int32)
        answers = np.empty(len(seen), np.uint8)
        for at, clients, table in seen.parts():
            each = np.arange(len(clients), dtype=np.int32)
            answers[at] = judge(each, ONE, program, clients, first, steps, *constants, *own, *table, True)
        return answers

    def _passing_program(self, wanted: ContextFilter) -> "_Passing | None":
        """Filters that come with events are kept for a while, in case they come again."""
        if wanted in self._passing:
            found = self._passing[wanted]
            # A name that nobody had when the filter first came may have a column by now.
            if found is None or not found.is_outdated(self._contexts):
                return found
        try:
            made = _Passing(wanted, self._contexts)
        except NotSayable:
            made = None
        self._passing[wanted] = made
        if len(self._passing) > MAX_CACHED_PATTERNS:
            self._passing.popitem(last=False)
        return made

    def _program_arrays(self) -> tuple[Any, ...]:
        if self._arrays is None or self._renumbered != self._contexts.renumbered:
            self._renumbered = self._contexts.renumbered
            constants = _columns([self._contexts.encoded(value) for value in self._constants])
            self._arrays = (np.array(self._first, np.int32), np.array(self._steps or [(0, 0)], np.int32), *constants)
        return self._arrays


class _Passing:
    """The program of an event's own filter. The publisher's values are numbered by themselves; nothing of it stays."""

    def __init__(self, wanted: ContextFilter, contexts: Contexts) -> None:
        self.names: list[str] = []
        self.constants: list[Value | None] = []
        self._asked = {name: contexts.known_column(name) for name in wanted.names}
        self.steps = compiled(wanted.expression, self)

    def is_outdated(self, contexts: Contexts) -> bool:
        return any(contexts.known_column(name) != column for name, column in self._asked.items())

    def other(self, name: str) -> int:
        return self._asked[name]

    def own(self, name: str) -> int:
        self.names.append(name)
        return len(self.names) - 1

    def constant(self, value: Value | None) -> int:
        self.constants.append(value)
        return len(self.constants) - 1


def _row(width: int) -> tuple[Others, tuple[Any, ...]]:
    """Room for one context; and the same as memoryviews, through which one value is written much faster."""
    row = np.zeros((1, width), np.uint8), np.zeros((1, width), np.int64), np.zeros((1, width))
    return row, tuple(memoryview(one.reshape(-1)) for one in row)  # type: ignore[arg-type]


def _columns(values: list[tuple[int, int, float]]) -> tuple[Any, Any, Any]:
    given = values or [(NULL, 0, 0.0)]
    return (
        np.array([one[0] for one in given], np.uint8),
        np.array([one[1] for one in given], np.int64),
        np.array([one[2] for one in given]),
    )
