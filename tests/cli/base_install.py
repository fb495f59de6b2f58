"""What works without optional packages, as JSON: run in a process in which these cannot be imported."""

import importlib
import json
import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

import tidings
from tests.cli.command import run
from tidings.cli.app import app
from tidings.model.packages import missing_package


def verbs(group: Any, *words: str) -> Iterator[tuple[str, ...]]:
    """The words of every command, down to the last subcommand."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from verbs(command, *words, name)
        else:
            yield *words, name


def unusable_modules() -> dict[str, str]:
    """The modules that cannot be imported, with what is said of it."""
    found: dict[str, str] = {}
    for module in pkgutil.walk_packages(tidings.__path__, "tidings."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError as error:
                found[module.name] = str(missing_package(error) or repr(error))
    return found


def spark_errors(pipeline: str) -> dict[str, str]:
    """What functions of `tidings.spark` say that a program can call without a DataFrame."""
    from tidings import spark

    calls: dict[str, Callable[[], Any]] = {
        "session": spark.session,
        "register": lambda: spark.register(object()),
        "Pipeline.from_file": lambda: spark.Pipeline.from_file(pipeline),
    }
    found: dict[str, str] = {}
    for name, call in calls.items():
        try:
            call()
        except tidings.TidingsError as error:
            found[name] = str(error)
    return found


def main(folder: Path, pipeline: str, commands: list[list[str]]) -> None:
    answers = {
        "help": {" ".join(words): run(*words, "--help").returncode for words in verbs(typer.main.get_command(app))},
        "modules": unusable_modules(),
        "spark": spark_errors(pipeline),
        "commands": [[done.returncode, done.stderr] for done in (run(*words, folder=folder) for words in commands)],
    }
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
