"""`tidings config`: what a broker's configuration says, and what it may say."""

import os
import sys
from pathlib import Path

import msgspec

from tidings.cli.terminal import out, print_json
from tidings.live.configuration import Configuration
from tidings.live.configuration.layout import Layout
from tidings.live.configuration.reference import page, written

_WIDEST = 40  # of a column; what is longer pushes the rest of its line


def show(path: Path | None, *, as_json: bool) -> None:
    """What is in force with that file, or without any, and the environment as it is."""
    configuration = Configuration.from_values({}, os.environ) if path is None else Configuration.from_file(path)
    found = configuration.in_force()
    if as_json:
        print_json([{"key": one.key, "value": one.value, "from": one.origin} for one in found])
        return
    rows = [("key", "value", "from"), *((one.key, written(one.value), one.origin) for one in found)]
    key_width, value_width = (min(_WIDEST, max(len(row[column]) for row in rows)) for column in (0, 1))
    for key, value, origin in rows:
        out.print(f"{key:<{key_width}}  {value:<{value_width}}  {origin}", markup=False, soft_wrap=True)


def reference(*, as_json: bool) -> None:
    """The reference page, in Markdown; for machines, a JSON Schema of the file."""
    if as_json:
        print_json(msgspec.json.schema(Layout))
    else:
        sys.stdout.write(page())
