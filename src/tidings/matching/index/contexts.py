"""Everyone's context, as columns: one row a client, one column a name.

A change writes one row, whatever the client or anyone else subscribes to.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from tidings.matching.index.programs import BOOLEAN, FLOAT, INT, NULL, STRING, NotSayable, Program, compiled, judge
from tidings.model.filter import ContextFilter
from tidings.model.limits import MAX_CACHED_PATTERNS
from tidings.model.values import Context, Value

NO_FILTER, FOR_THE_REFERENCE = -1, -2
_NOWHERE = 1 << 30  # a column that no row has


class Contexts:
    def __init__(self) -> None:
        self.values: dict[str, Context] = {}
        self._rows: dict[str, int] = {}
        self._columns: dict[str, int] = {}
        self._strings: dict[str, int] = {}
        self._many_strings = 1024  # when to look which ones are still in use
        self._kind = np.zeros((64, 8), np.uint8)
        self._int = np.zeros((64, 8), np.int64)
        self._float = np.zeros((64, 8))
        self._constants: list[Value | None] = []
        self._steps: Program = []
        self._first: list[int] = [0]
        self._programs: dict[ContextFilter, int] = {}
        self._arrays: tuple[Any, ...] | None = None  # the programs of subscriptions, as the kernel takes them
        self._passing: OrderedDict[ContextFilter, _Passing | None] = OrderedDict()

    def row(self, client: str) -> int:
        """The client's row; a new one where it has none yet."""
        row = self._rows.get(client)
        if row is None:
            row = self._rows[client] = len(self._rows)
            if row >= len(self._kind):
                self._grow(2 * len(self._kind), self._kind.shape[1])
        return row

    def set(self, client: str, context: Context) -> bool:
        """The client's context from now on; whether it differs from the one before."""
        before = self.values.get(client)
        if before == context:
            return False
        row = self.row(client)
        for name in before or ():
            if name not in context:
                self._kind[row, self._columns[name]] = NULL
        self.values[client] = context
        self._write(row, context)
        if len(self._strings) > self._many_strings:
            self._forget_strings()
        return True

    def program(self, wanted: ContextFilter | None) -> int:
        """The number of a subscription's program; equal filters share one."""
        if wanted is None:
            return NO_FILTER
        number = self._programs.get(wanted)
        if number is None:
            try:
                self._steps.extend(compiled(wanted.expression, self))
                self._first.append(len(self._steps))
                number = len(self._first) - 2
            except NotSayable:
                number = FOR_THE_REFERENCE
            self._programs[wanted] = number
            self._arrays = None
        return number

    def judge_publisher(self, positions: Any, programs: Any, clients: Any, publisher: Mapping[str, Value]) -> Any:
        """What each subscription's program says of the publisher's context."""
        filters = self._program_arrays()  # first: it takes in the strings that filters name
        size = len(self._columns)
        row = np.zeros(size, np.uint8), np.zeros(size, np.int64), np.zeros(size)
        strangers: dict[str, int] = {}
        for name, value in publisher.items():
            column = self._columns.get(name)
            if column is not None:
                row[0][column], row[1][column], row[2][column] = self._looked_up(value, strangers)
        return judge(positions, programs, clients, *filters, *row, *self._table(), False)

    def judge_subscribers(
        self, positions: Any, wanted: ContextFilter, clients: Any, publisher: Mapping[str, Value]
    ) -> Any | None:
        """What an event's own filter says of each subscriber's context; None where only the reference can say."""
        passing = self._passing_program(wanted)
        if passing is None:
            return None
        strangers: dict[str, int] = {}
        constants = _columns([self._looked_up(value, strangers) for value in passing.constants])
        own = _columns([self._looked_up(publisher.get(name), strangers) for name in passing.names])
        first, steps = np.array([0, len(passing.steps)], np.int32), np.array(passing.steps, np.int32)
        program = np.zeros(1, np.int32)
        return judge(positions, program, clients, first, steps, *constants, *own, *self._table(), True)

    # The numbers of what subscriptions speak of

    def other(self, name: str) -> int:
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = len(self._columns)
            if column >= self._kind.shape[1]:
                self._grow(len(self._kind), 2 * self._kind.shape[1])
        return column

    own = other  # both parties' values have the same columns

    def constant(self, value: Value | None) -> int:
        self._constants.append(value)
        return len(self._constants) - 1

    def column(self, name: str) -> int:
        """The column of a name if some client has it."""
        return self._columns.get(name, _NOWHERE)

    def _passing_program(self, wanted: ContextFilter) -> "_Passing | None":
        """Filters that come with events are kept for a while, in case they come again."""
        if wanted not in self._passing:
            try:
                self._passing[wanted] = _Passing(wanted, self)
            except NotSayable:
                self._passing[wanted] = None
            if len(self._passing) > MAX_CACHED_PATTERNS:
                self._passing.popitem(last=False)
        found = self._passing[wanted]
        # A name that nobody had when the filter first came may have a column by now.
        if found is not None and found.is_outdated(self):
            found = self._passing[wanted] = _Passing(wanted, self)
        return found

    def _write(self, row: int, context: Context) -> None:
        for name, value in context.items():
            column = self.other(name)
            self._kind[row, column], self._int[row, column], self._float[row, column] = self._encoded(value)

    def _encoded(self, value: Value | None) -> tuple[int, int, float]:
        if isinstance(value, str):
            return STRING, self._strings.setdefault(value, len(self._strings)), 0.0
        return _number(value)

    def _looked_up(self, value: Value | None, strangers: dict[str, int]) -> tuple[int, int, float]:
        """The same without keeping anything: a string that nobody has gets a number below zero."""
        if isinstance(value, str):
            known = self._strings.get(value)
            return STRING, strangers.setdefault(value, -1 - len(strangers)) if known is None else known, 0.0
        return _number(value)

    def _forget_strings(self) -> None:
        """Numbers the strings anew that some context or filter still has."""
        self._strings = {}
        self._arrays = None
        for value in self._constants:
            self._encoded(value)
        for client, context in self.values.items():
            self._write(self._rows[client], context)
        self._many_strings = 2 * len(self._strings) + 1024

    def _table(self) -> tuple[Any, Any, Any]:
        return self._kind, self._int, self._float

    def _program_arrays(self) -> tuple[Any, ...]:
        if self._arrays is None:
            constants = _columns([self._encoded(value) for value in self._constants])
            self._arrays = (np.array(self._first, np.int32), np.array(self._steps or [(0, 0)], np.int32), *constants)
        return self._arrays

    def _grow(self, rows: int, columns: int) -> None:
        for name in ("_kind", "_int", "_float"):
            old = getattr(self, name)
            grown = np.zeros((rows, columns), old.dtype)
            grown[: old.shape[0], : old.shape[1]] = old
            setattr(self, name, grown)


class _Passing:
    """The program of an event's own filter. The publisher's values are numbered by themselves; nothing of it stays."""

    def __init__(self, wanted: ContextFilter, contexts: Contexts) -> None:
        self.names: list[str] = []
        self.constants: list[Value | None] = []
        self._asked = {name: contexts.column(name) for name in wanted.names}
        self.steps = compiled(wanted.expression, self)

    def is_outdated(self, contexts: Contexts) -> bool:
        return any(contexts.column(name) != column for name, column in self._asked.items())

    def other(self, name: str) -> int:
        return self._asked[name]

    def own(self, name: str) -> int:
        self.names.append(name)
        return len(self.names) - 1

    def constant(self, value: Value | None) -> int:
        self.constants.append(value)
        return len(self.constants) - 1


def _number(value: bool | int | float | None) -> tuple[int, int, float]:
    if value is None:
        return NULL, 0, 0.0
    if isinstance(value, bool):
        return BOOLEAN, int(value), 0.0
    return (INT, value, float(value)) if isinstance(value, int) else (FLOAT, 0, value)


def _columns(values: list[tuple[int, int, float]]) -> tuple[Any, Any, Any]:
    given = values or [(NULL, 0, 0.0)]
    return (
        np.array([one[0] for one in given], np.uint8),
        np.array([one[1] for one in given], np.int64),
        np.array([one[2] for one in given]),
    )
