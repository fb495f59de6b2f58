"""Output of the command line: results on standard output, progress and remarks on standard error."""

import datetime as dt
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.segment import Segment
from rich.table import Table

UNBOUNDED = 100_000  # width of output that is no terminal: each row of a table stays one line
_GAP = 2  # characters between two columns of a table

# Characters that move the cursor, change colours or reverse the writing direction; tab and newline are allowed.
_CODES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def escape_control(text: str) -> str:
    r"""Return the text with terminal control characters escaped as `\uXXXX`."""
    return _CODES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class _SanitizedText:
    """A rich renderable whose text has its control characters escaped."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self._renderable, options):
            yield Segment(text if control else escape_control(text), style, control)


class SanitizingHook(RenderHook):
    """Escape control characters in everything that a rich console renders, except the console's own control codes."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_SanitizedText(renderable) for renderable in renderables]


def _console(*, stderr: bool) -> Console:
    """Return a console that sanitizes its text and, when it is no terminal, does not wrap lines."""
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = UNBOUNDED
    console.push_render_hook(SanitizingHook())
    return console


out, err = _console(stderr=False), _console(stderr=True)


def print_json(value: Any) -> None:
    """Write a value as one line of JSON to standard output.

    Control characters are escaped, which JSON strings allow.
    """
    sys.stdout.write(escape_control(json.dumps(value, ensure_ascii=False)) + "\n")
    sys.stdout.flush()


def time_text(
    time: int | dt.datetime, precision: Literal["seconds", "milliseconds", "microseconds"] = "milliseconds"
) -> str:
    """Return a time as every command shows it, in UTC: `2026-01-31T12:00:00.000Z`.

    The time is in microseconds since 1970, or a `datetime`; one without a time zone is in that of this machine, as
    Spark returns it.
    """
    if isinstance(time, int):
        time = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=time)
    return time.astimezone(dt.UTC).isoformat(timespec=precision).replace("+00:00", "Z")


class _Table(Table):
    """A table that wraps cells only between words if that makes it fit, so that an address is never split in two."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [_Words(str(column.header), [str(cell) for cell in column.cells]) for column in self.columns]
        fits = sum(words.min_width for words in widths) + _GAP * (len(widths) - 1) <= options.max_width
        for column, words in zip(self.columns, widths, strict=True):
            column.no_wrap = fits and words.is_unbreakable
        return super().__rich_console__(console, options)


class _Words(NamedTuple):
    """The header and the cells of one table column, for computing its width."""

    header: str
    cells: list[str]

    @property
    def is_unbreakable(self) -> bool:
        """Whether no cell contains a space."""
        return not any(" " in cell.strip() for cell in self.cells)

    @property
    def min_width(self) -> int:
        """The least width of the column that splits no word."""
        if self.is_unbreakable:
            return max(map(len, (self.header, *self.cells)))
        return max(len(word) for text in (self.header, *self.cells) for word in text.split())


def table(*columns: str) -> Table:
    """Return an empty table with these column names."""
    empty = _Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        empty.add_column(name, overflow="fold")
    return empty


def progress() -> Progress:
    """Return a progress bar on standard error that erases itself at the end, and is disabled without a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
