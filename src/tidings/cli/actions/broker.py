"""The commands `tidings broker` and `tidings config`: run one broker in the foreground; show its configuration."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tidings.broker import process
from tidings.broker.config import Address, BrokerConfiguration
from tidings.broker.config.configuration import variable
from tidings.broker.config.layout import Layout
from tidings.broker.config.reference_page import page, written
from tidings.cli.output import out, print_json
from tidings.configuration import check_parses
from tidings.model.event import checked_client


def run(
    file: Path | None, *, name: str | None, listen: str | None, journal: Path | None, attached: bool, as_json: bool
) -> int:
    """Run a broker until it is stopped, and return its exit code.

    Options override TIDINGS_ environment variables, and these override the configuration file.

    Args:
        file: The broker's configuration file; None: defaults.
        name: The option `--name`: the broker's name.
        listen: The option `--listen`: the address to listen at.
        journal: The option `--journal`: the folder of the journal.
        attached: Stop when standard input ends.
        as_json: Write the ready notice as JSON.
    """
    overrides: dict[str, str] = {}
    if name is not None:
        check_parses("--name", checked_client, name)
        overrides[variable("broker", "name")] = name
    if listen is not None:
        check_parses("--listen", Address.parse, listen)
        overrides[variable("broker", "listen")] = listen
    if journal is not None:
        overrides[variable("journal", "folder")] = str(journal)

    def ready(notice: process.ReadyNotice) -> None:
        if as_json:
            print_json(msgspec.to_builtins(notice))
        else:
            http = "" if notice.http is None else f", watched at http://{notice.http}"
            sys.stdout.write(f"{notice.broker} listens at {notice.address}{http}\n")
        sys.stdout.flush()

    return process.run(lambda: _read(file, overrides), ready, attached=attached)


def _read(file: Path | None, overrides: Mapping[str, str]) -> BrokerConfiguration:
    environment = {**os.environ, **overrides}
    return (
        BrokerConfiguration.from_values({}, environment)
        if file is None
        else BrokerConfiguration.from_file(file, environment)
    )


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
