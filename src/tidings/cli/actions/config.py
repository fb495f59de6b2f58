"""The commands of `tidings config`: show a broker's effective configuration, and the reference of all keys."""

import os
import sys
from pathlib import Path

import msgspec

from tidings.broker.config import BrokerConfiguration
from tidings.broker.config.layout import Layout
from tidings.broker.config.reference_page import page, written
from tidings.cli.output import out, print_json

_WIDEST = 40  # widest column; a longer value shifts the rest of its line


def show(path: Path | None, *, as_json: bool) -> None:
    """Print the effective configuration and the origin of each value: the file, the environment, or the default."""
    configuration = (
        BrokerConfiguration.from_values({}, os.environ) if path is None else BrokerConfiguration.from_file(path)
    )
    settings = configuration.in_force()
    if as_json:
        print_json([{"key": setting.key, "value": setting.value, "from": setting.origin} for setting in settings])
        return
    rows = [("key", "value", "from"), *((setting.key, written(setting.value), setting.origin) for setting in settings)]
    key_width, value_width = (min(_WIDEST, max(len(row[column]) for row in rows)) for column in (0, 1))
    for key, value, origin in rows:
        out.print(f"{key:<{key_width}}  {value:<{value_width}}  {origin}", markup=False, soft_wrap=True)


def reference(*, as_json: bool) -> None:
    """Print the configuration reference in Markdown, or as a JSON Schema of the file."""
    if as_json:
        print_json(msgspec.json.schema(Layout))
    else:
        sys.stdout.write(page())
