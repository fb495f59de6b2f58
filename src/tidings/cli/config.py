"""`tidings config`: what a broker's configuration says, and what it may say."""

import os
import sys
from pathlib import Path

import msgspec
from rich.table import Table

from tidings.cli.terminal import out, print_json
from tidings.live.configuration import Configuration
from tidings.live.configuration.layout import Layout
from tidings.live.configuration.reference import page, written


def show(path: Path | None, *, as_json: bool) -> None:
    """What is in force with that file, or without any, and the environment as it is."""
    configuration = Configuration.from_values({}, os.environ) if path is None else Configuration.from_file(path)
    found = configuration.in_force()
    if as_json:
        print_json([{"key": one.key, "value": one.value, "from": one.origin} for one in found])
        return
    table = Table(box=None, pad_edge=False)
    for name in ("key", "value", "from"):
        table.add_column(name, overflow="fold")
    for one in found:
        table.add_row(one.key, written(one.value), one.origin)
    out.print(table, markup=False)


def reference(*, as_json: bool) -> None:
    """The reference page, in Markdown; for machines, a JSON Schema of the file."""
    if as_json:
        print_json(msgspec.json.schema(Layout))
    else:
        sys.stdout.write(page())
