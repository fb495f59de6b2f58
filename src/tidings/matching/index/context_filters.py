"""Context filters of subscriptions (`publishers`) and of events (`subscribers`), compiled to programs and evaluated."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.matching.index.kernels.programs import (
    CONSTANT,
    FLOAT,
    NULL,
    NotExpressible,
    Program,
    compile_condition,
    run_programs,
)
from tidings.matching.index.pending_context_changes import ContextsAtEvents
from tidings.model.filter import ContextFilterValue
from tidings.model.limits import MAX_CACHED_PATTERNS
from tidings.model.values import Value

NO_FILTER, FOR_THE_REFERENCE, GONE = -1, -2, -3  # in place of a number; the last marks a removed subscription
Others = tuple[Any, Any, Any]  # contexts of the other parties: kinds, integers, floats; rows are parties, columns names
SINGLE_PARTY = np.empty(0, np.int64)  # as `which`: there is a single other party
_COMPACTION_SLACK = 1024  # unused programs up to which nothing is compacted


class ContextEncoder(Protocol):
    """The columns and encoded values of the clients' contexts. `Contexts` says what each of these does."""

    columns: dict[str, int]
    renumber_count: int

    @property
    def table(self) -> Others: ...
    def column(self, name: str) -> int: ...
    def known_column(self, name: str) -> int: ...
    def encode_value(self, value: Value | None) -> tuple[int, int, float]: ...
    def encode_without_adding(self, value: Value | None, unknown_strings: dict[str, int]) -> tuple[int, int, float]: ...
    def encode_column(self, name: str, array: pa.Array, unknown_strings: dict[str, int]) -> tuple[Any, Any, Any]: ...


class ContextFilterPrograms:
    """The programs of the subscriptions' context filters, by number; equal filters share one.

    `evaluate_...` evaluates programs on contexts: TRUE, FALSE, UNKNOWN, or UNSURE where only the reference can decide.
    """

    def __init__(self, contexts: ContextEncoder) -> None:
        self._contexts = contexts
        self.in_use = False  # whether some subscription has, or had, a filter
        self._event_filters: OrderedDict[ContextFilterValue, _EventFilterProgram | None] = OrderedDict()
        self._numbers: dict[ContextFilterValue, int] = {}
        self._encoded_at = 0  # `Contexts.renumber_count` when the arrays were made
        self._publisher_row, self._publisher_views = _row(0)  # memory for the context of a single publisher
        self._clear()

    def _clear(self) -> None:
        self._users: list[int] = []  # the number of subscriptions of each program
        self._constants: list[Value | None] = []
        self._steps: Program = []
        self._first = [0]
        self._arrays: tuple[Any, ...] | None = None  # the programs as the kernel takes them
        self._unused = 0

    def acquire(self, context_filter: ContextFilterValue | None) -> int:
        """Count one more subscription with this filter; return the number of its program.

        NO_FILTER stands for no filter, FOR_THE_REFERENCE for one that no program can express.
        """
        if context_filter is None:
            return NO_FILTER
        self.in_use = True
        number = self._numbers.get(context_filter)
        if number is None:
            number = self._numbers[context_filter] = self._compile(context_filter)
        if number >= 0:
            self._users[number] += 1
        return number

    def release(self, number: int) -> npt.NDArray[np.int32] | None:
        """Count one subscription less for a program.

        If that compacts the programs, it returns the new number of each program by its old one; else None.
        """
        if number < 0:
            return None
        self._users[number] -= 1
        if not self._users[number]:
            self._unused += 1
        return self._compacted() if self._unused > _COMPACTION_SLACK + len(self._users) // 2 else None

    def _compile(self, context_filter: ContextFilterValue) -> int:
        steps, constants = len(self._steps), len(self._constants)
        try:
            self._steps.extend(compile_condition(context_filter.expression, self))
        except NotExpressible:
            del self._steps[steps:], self._constants[constants:]
            return FOR_THE_REFERENCE
        self._first.append(len(self._steps))
        self._users.append(0)
        self._arrays = None
        return len(self._users) - 1

    def _compacted(self) -> npt.NDArray[np.int32]:
        """Drop the programs that have no subscriptions, and their constants; return the new numbers by the old ones."""
        users, steps, first, constants = self._users, self._steps, self._first, self._constants
        filters = {number: context_filter for context_filter, number in self._numbers.items() if number >= 0}
        self._clear()
        self._numbers = {}
        new_numbers = np.full(len(users), NO_FILTER, np.int32)
        for old, count in enumerate(users):
            if count:
                new_numbers[old] = len(self._users)
                for step, number in steps[first[old] : first[old + 1]]:
                    self._steps.append((step, self.constant(constants[number]) if step == CONSTANT else number))
                self._first.append(len(self._steps))
                self._users.append(count)
                if old in filters:
                    self._numbers[filters[old]] = int(new_numbers[old])
        return new_numbers

    def saved(self) -> dict[str, Any]:
        """Return the programs as JSON values."""
        return {"users": self._users, "steps": self._steps, "first": self._first, "constants": self._constants}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Load the programs that `saved` returned; filters added later do not share these."""
        self._users, self._first, self._constants = saved["users"], saved["first"], saved["constants"]
        self._steps = [(step, number) for step, number in saved["steps"]]
        self._unused = self._users.count(0)

    # ProgramNumbering

    def other(self, name: str) -> int:
        """Return the column of a name in the other party's context."""
        return self._contexts.column(name)

    own = other  # both parties' values have the same columns

    def constant(self, value: Value | None) -> int:
        """Add a constant; return its number."""
        self._constants.append(value)
        return len(self._constants) - 1

    # Evaluation

    @property
    def state(self) -> tuple[int, int]:
        """A value that changes when encoded contexts become invalid."""
        return self._contexts.renumber_count, len(self._contexts.columns)

    def publishers(self, contexts: Sequence[Mapping[str, Value]]) -> Others:
        """Encode contexts of publishers in the form that `evaluate_publishers` takes."""
        self._program_arrays()  # first, since it numbers the strings in filters
        size = (len(contexts), len(self._contexts.columns))
        kinds, ints, floats = np.zeros(size, np.uint8), np.zeros(size, np.int64), np.zeros(size)
        columns, unknown_strings = self._contexts.columns, dict[str, int]()
        for row, context in enumerate(contexts):
            for name, value in context.items():
                column = columns.get(name)
                if column is not None:
                    at = row, column
                    kinds[at], ints[at], floats[at] = self._contexts.encode_without_adding(value, unknown_strings)
        return kinds, ints, floats

    def publishers_of(self, values: Mapping[str, pa.Array], count: int) -> Others:
        """Encode contexts of publishers that are given as columns."""
        self._program_arrays()
        size = (count, len(self._contexts.columns))
        kinds, ints, floats = np.zeros(size, np.uint8), np.zeros(size, np.int64), np.zeros(size)
        unknown_strings: dict[str, int] = {}
        for name, array in values.items():
            column = self._contexts.columns.get(name)
            if column is not None:
                encoded = self._contexts.encode_column(name, array, unknown_strings)
                kinds[:, column], ints[:, column], floats[:, column] = encoded
        return kinds, ints, floats

    def evaluate_publisher(self, positions: Any, programs: Any, clients: Any, context: Mapping[str, Value]) -> Any:
        """Evaluate the `publishers` filters of subscriptions on the context of one publisher, with little overhead.

        Args:
            positions: The positions of the subscriptions.
            programs: The program of each position.
            clients: The row of each position's subscriber.
            context: The publisher's context.
        """
        arrays = self._program_arrays()
        if self._publisher_row[0].shape[1] != len(self._contexts.columns):
            self._publisher_row, self._publisher_views = _row(len(self._contexts.columns))
        kinds, ints, floats = self._publisher_views
        self._publisher_row[0].fill(NULL)
        columns, unknown_strings = self._contexts.columns, dict[str, int]()
        for name, value in context.items():
            column = columns.get(name)
            if column is None:
                continue
            if type(value) is float:
                kinds[column], floats[column] = FLOAT, value
            else:
                kinds[column], ints[column], floats[column] = self._contexts.encode_without_adding(
                    value, unknown_strings
                )
        return run_programs(
            positions, SINGLE_PARTY, programs, clients, *arrays, *self._publisher_row, *self._contexts.table, False
        )

    def evaluate_publishers(
        self, which: Any, programs: Any, subscriber_contexts: ContextsAtEvents, publishers: Others
    ) -> Any:
        """Evaluate the `publishers` filters of subscriptions on the contexts of many publishers.

        Args:
            which: For each subscription the row of its publisher.
            programs: For each subscription its program.
            subscriber_contexts: For each subscription its subscriber's context.
            publishers: The publishers' contexts.
        """
        answers = np.empty(len(programs), np.uint8)
        arrays = self._program_arrays()
        for at, clients, table in subscriber_contexts.parts():
            indices = np.arange(len(clients), dtype=np.int32)
            answers[at] = run_programs(indices, which[at], programs[at], clients, *arrays, *publishers, *table, False)
        return answers

    def evaluate_subscribers(
        self, event_filter: ContextFilterValue, subscriber_contexts: ContextsAtEvents, publisher: Mapping[str, Value]
    ) -> Any | None:
        """Evaluate an event's `subscribers` filter on the subscribers' contexts; None if only the reference can."""
        program = self._event_filter_program(event_filter)
        if program is None:
            return None
        unknown_strings: dict[str, int] = {}
        encode = self._contexts.encode_without_adding
        constants = _columns([encode(value, unknown_strings) for value in program.constants])
        own = [
            array[None] for array in _columns([encode(publisher.get(name), unknown_strings) for name in program.names])
        ]
        first, steps = np.array([0, len(program.steps)], np.int32), np.array(program.steps, np.int32)
        program_numbers = np.zeros(1, np.int32)
        answers = np.empty(len(subscriber_contexts), np.uint8)
        for at, clients, table in subscriber_contexts.parts():
            indices = np.arange(len(clients), dtype=np.int32)
            answers[at] = run_programs(
                indices, SINGLE_PARTY, program_numbers, clients, first, steps, *constants, *own, *table, True
            )
        return answers

    def _event_filter_program(self, event_filter: ContextFilterValue) -> "_EventFilterProgram | None":
        """Return the program of an event's filter, from a bounded cache; None if no program can express it."""
        if event_filter in self._event_filters:
            cached = self._event_filters[event_filter]
            # A name without a column when the filter was compiled may have one by now.
            if cached is None or not cached.is_outdated(self._contexts.known_column):
                return cached
        try:
            program = _EventFilterProgram(event_filter, self._contexts.known_column)
        except NotExpressible:
            program = None
        self._event_filters[event_filter] = program
        if len(self._event_filters) > MAX_CACHED_PATTERNS:
            self._event_filters.popitem(last=False)
        return program

    def _program_arrays(self) -> tuple[Any, ...]:
        if self._arrays is None or self._encoded_at != self._contexts.renumber_count:
            self._encoded_at = self._contexts.renumber_count
            constants = _columns([self._contexts.encode_value(value) for value in self._constants])
            self._arrays = (np.array(self._first, np.int32), np.array(self._steps or [(0, 0)], np.int32), *constants)
        return self._arrays


class _EventFilterProgram:
    """The program of an event's `subscribers` filter.

    It numbers the publisher's names and the constants itself, and adds none to the contexts' strings.
    """

    def __init__(self, event_filter: ContextFilterValue, known_column: Callable[[str], int]) -> None:
        self.names: list[str] = []
        self.constants: list[Value | None] = []
        self._subscriber_columns = {name: known_column(name) for name in event_filter.names}
        self.steps = compile_condition(event_filter.expression, self)

    def is_outdated(self, known_column: Callable[[str], int]) -> bool:
        """Return whether a name of the filter has another column now."""
        return any(known_column(name) != column for name, column in self._subscriber_columns.items())

    def other(self, name: str) -> int:
        """Return the column of a subscriber's value."""
        return self._subscriber_columns[name]

    def own(self, name: str) -> int:
        """Add a name of the publisher's context; return its number."""
        self.names.append(name)
        return len(self.names) - 1

    def constant(self, value: Value | None) -> int:
        """Add a constant; return its number."""
        self.constants.append(value)
        return len(self.constants) - 1


def _row(width: int) -> tuple[Others, tuple[Any, ...]]:
    """Return memory for one context as arrays, and as memoryviews, which are much faster for single values."""
    row = np.zeros((1, width), np.uint8), np.zeros((1, width), np.int64), np.zeros((1, width))
    return row, tuple(memoryview(array.reshape(-1)) for array in row)  # type: ignore[arg-type]


def _columns(values: list[tuple[int, int, float]]) -> tuple[Any, Any, Any]:
    encoded = values or [(NULL, 0, 0.0)]
    return (
        np.array([value[0] for value in encoded], np.uint8),
        np.array([value[1] for value in encoded], np.int64),
        np.array([value[2] for value in encoded]),
    )
