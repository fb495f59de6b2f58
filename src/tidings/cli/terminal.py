"""How the command line speaks: results on standard output, progress and remarks on standard error."""

import json
import os
import sys
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from tidings.cli.harmless import Harmless, harmless

UNBOUNDED = 100_000  # columns of what is no terminal: who reads lines wants a row to be one
_GAP = 2  # columns between those of a table


def _console(*, stderr: bool) -> Console:
    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = UNBOUNDED
    made.push_render_hook(Harmless())
    return made


out, err = _console(stderr=False), _console(stderr=True)


def print_json(value: Any) -> None:
    """A line; in strings, JSON has the same form for what is written out."""
    sys.stdout.write(harmless(json.dumps(value, ensure_ascii=False)) + "\n")
    sys.stdout.flush()


class _Table(Table):
    """Where it is too wide, it is broken between words, if that is enough: an address in two pieces is none."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        found = [_Words(str(column.header), [str(cell) for cell in column.cells]) for column in self.columns]
        is_enough = sum(one.least for one in found) + _GAP * (len(found) - 1) <= options.max_width
        for column, one in zip(self.columns, found, strict=True):
            column.no_wrap = is_enough and one.are_single
        return super().__rich_console__(console, options)


class _Words(NamedTuple):
    """What stands in a column."""

    header: str
    cells: list[str]

    @property
    def are_single(self) -> bool:
        return not any(" " in cell.strip() for cell in self.cells)

    @property
    def least(self) -> int:
        """How wide it must be, if no word is to be broken."""
        if self.are_single:
            return max(map(len, (self.header, *self.cells)))
        return max(len(word) for text in (self.header, *self.cells) for word in text.split())


def table(*columns: str) -> Table:
    """An empty table of such columns."""
    made = _Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        made.add_column(name, overflow="fold")
    return made


def progress() -> Progress:
    """A progress bar that leaves nothing behind, and is silent where nobody watches."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
