"""`tidings broker`: one broker, in the foreground."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tidings.cli.terminal import print_json
from tidings.configuration.checks import readable
from tidings.live import process
from tidings.live.configuration import Address, Configuration
from tidings.live.configuration.environment import variable
from tidings.model.event import checked_client


def run(
    file: Path | None, *, name: str | None, listen: str | None, journal: Path | None, attached: bool, as_json: bool
) -> int:
    """Options win over variables of the environment, and these over the file."""
    over: dict[str, str] = {}
    if name is not None:
        readable("--name", checked_client, name)
        over[variable("broker", "name")] = name
    if listen is not None:
        readable("--listen", Address.parse, listen)
        over[variable("broker", "listen")] = listen
    if journal is not None:
        over[variable("journal", "folder")] = str(journal)

    def ready(told: process.Ready) -> None:
        if as_json:
            print_json(msgspec.to_builtins(told))
        else:
            watched = "" if told.http is None else f", watched at http://{told.http}"
            sys.stdout.write(f"{told.broker} listens at {told.address}{watched}\n")
        sys.stdout.flush()

    return process.run(lambda: _read(file, over), ready, attached=attached)


def _read(file: Path | None, over: Mapping[str, str]) -> Configuration:
    environment = {**os.environ, **over}
    return Configuration.from_values({}, environment) if file is None else Configuration.from_file(file, environment)
