"""How the command line speaks: results on standard output, progress and remarks on standard error."""

import json
import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from tidings.cli.harmless import Harmless, harmless

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
for _console in (out, err):
    _console.push_render_hook(Harmless())


def print_json(value: Any) -> None:
    """A line; in strings, JSON has the same form for what is written out."""
    sys.stdout.write(harmless(json.dumps(value, ensure_ascii=False)) + "\n")
    sys.stdout.flush()


def table(*columns: str) -> Table:
    """An empty table of such columns."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        made.add_column(name, overflow="fold")
    return made


def progress() -> Progress:
    """A progress bar that leaves nothing behind, and is silent where nobody watches."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
