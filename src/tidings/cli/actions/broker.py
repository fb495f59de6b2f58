"""The command `tidings broker`: run one broker in the foreground."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tidings.broker import process
from tidings.broker.config import Address, BrokerConfiguration
from tidings.broker.config.configuration import variable
from tidings.cli.output import print_json
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
