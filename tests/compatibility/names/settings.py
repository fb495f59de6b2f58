"""The keys of configuration files, the environment variables, and the command line."""

from collections.abc import Iterator
from typing import Any

import msgspec
import typer

from tests.compatibility.names import source
from tests.compatibility.names.layouts import layout
from tidings.broker.config.configuration import variable
from tidings.broker.config.layout import SINGLE_TABLES, Layout
from tidings.broker.config.table_types import keys_of
from tidings.cli.app import app
from tidings.cli.connection import _Files
from tidings.cli.overlay.run import TopologyFile
from tidings.simulation.scenario.scenario import Scenario
from tidings.spark.pipeline.configuration import PipelineConfiguration

_FILES: dict[str, Any] = {
    "broker": Layout,
    "identity": _Files,
    "overlay": TopologyFile,
    "pipeline": PipelineConfiguration,
    "scenario": Scenario,
}


def toml_lines() -> Iterator[str]:
    for name, kind in _FILES.items():
        yield from layout(name, kind)
    for table, keys in SINGLE_TABLES.items():
        yield from (f"broker.{table}.{key.name} is reloaded" for key in keys_of(keys) if key.is_reloaded)


def environment_lines() -> Iterator[str]:
    """Those of the broker's file, those of options, and every other one that the source names."""
    known = {
        variable(table, key.name): f"{table}.{key.name}"
        for table, keys in SINGLE_TABLES.items()
        for key in keys_of(keys)
    }
    yield from (f"{name} is {key} of the broker's file" for name, key in known.items())
    options = {one.envvar for _, command in commands() for one in command.params if one.envvar}
    yield from (f"{name} is an option" for name in options)
    yield from (f"{name} is read" for name in source.variables() - known.keys() - options)


def commands() -> Iterator[tuple[str, Any]]:
    """Every command and group with the words that call it."""
    yield from _below("tidings", typer.main.get_command(app))


def _below(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from _below(f"{path} {name}", one)


def command_lines() -> Iterator[str]:
    for path, command in commands():
        yield f"{path} {'(group)' if hasattr(command, 'commands') else ''}".strip()
        for place, one in enumerate(command.params):
            is_option = one.opts[0].startswith("-")
            spelt = "/".join([*one.opts, *one.secondary_opts]) if is_option else f"argument {place} {one.name.upper()}"
            yield f"{path} {spelt}{_more(one)}"


def _more(parameter: Any) -> str:
    told = " (flag)" if getattr(parameter, "is_flag", False) else ""
    told += " (several)" if parameter.multiple or parameter.nargs == -1 else ""
    told += f" >= {parameter.min}" if parameter.min is not None else ""
    told += f" <= {parameter.max}" if parameter.max is not None else ""
    told += f" ${parameter.envvar}" if parameter.envvar else ""
    if parameter.required:
        return f"{told}, required"
    default = parameter.default
    return told if default is None else f"{told} = {msgspec.json.encode(default, enc_hook=str).decode()}"
