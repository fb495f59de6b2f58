"""Console blocks: `$ command` lines with the output that is to be expected below them.

`python` and `tidings` are really run, in the project's folder, with the virtual environment first on the PATH; `...`
in the expected output stands for anything. A command that fails must be followed by `$ echo $?` and its status. Of
`tidings`, what ends by itself and starts no Spark is called in the process of the tests, which is quicker, and so is a
pipeline that takes the Spark session of the tests.
`make` is asked with --dry-run whether it knows the target. A few lines that set a machine up are accepted as they
are; others make a shell of the page's own, see `shell.py`. Whatever is not run must not show any output.
"""

import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from sybil import Example
from sybil.evaluators.doctest import OutputChecker

from tests.cli import command as tidings
from tests.docs.shell import Shell
from tests.limits import PATIENCE
from tests.spark.settings import defaults, lent_session

RUN = frozenset({"python", "tidings"})
ACCEPTED = (r"git clone \S+", r"cd tidings", r"source \.venv/bin/activate")
_ALONE = frozenset({"broker", "overlay", "pipeline", "history", "warm", "demo", "bench"})
_STATUS = "echo $?"
_SHELL = re.compile(r"[|&;<>$`*?(){}]")


class Command(NamedTuple):
    text: str
    expected: str


def run_console(example: Example) -> str | None:
    """What is wrong with the block, or nothing."""
    try:
        commands = commands_of(example.parsed)
    except ValueError as error:
        return str(error)
    status = 0
    for command, following in zip(commands, [*commands[1:], None], strict=True):
        if command.text == _STATUS:
            got = f"{status}\n"
        else:
            status, got = _run(command, Shell.of(example.namespace))
            asked = following is not None and following.text == _STATUS
            if status and not asked:
                return f"$ {command.text}\nended with status {status}, and no '$ {_STATUS}' follows:\n{got}"
        if not OutputChecker().check_output(command.expected, got, doctest.ELLIPSIS):
            return f"$ {command.text}\nexpected:\n{command.expected}\ngot:\n{got}"
    return None


def commands_of(source: str) -> list[Command]:
    """The commands of a block, each with the lines below it; a backslash at the end of a line carries it on."""
    commands: list[Command] = []
    for line in source.replace("\\\n", " ").splitlines(keepends=True):
        if line.startswith("$ "):
            commands.append(Command(line[2:].strip(), ""))
        elif commands:
            commands[-1] = commands[-1]._replace(expected=commands[-1].expected + line)
        else:
            raise ValueError("a console block starts with a line '$ command'")
    if not commands:
        raise ValueError("a console block has at least one line '$ command'")
    return [Command(text, expected.rstrip() + "\n" if expected.strip() else "") for text, expected in commands]


def _run(command: Command, shell: Shell) -> tuple[int, str]:
    if shell.takes(command.text) or any(re.fullmatch(pattern, command.text) for pattern in ACCEPTED):
        return 0, ""
    words = shlex.split(command.text)
    if words[0] == "make":
        status, output = _output(["make", "--dry-run", *words[1:]], Shell())
        return status, output if status else ""
    if words[0] not in RUN:
        return 1, f"{words[0]} is none of the commands that may stand in the documentation"
    goes_on = words[-1] == "&"
    if _SHELL.search(re.sub(r"'[^']*'", "", command.text.removesuffix(" &"))):
        return (
            1,
            "only plain commands are run: no pipes, variables or other signs of the shell outside of single quotes",
        )
    return _output([shell.real(word) for word in words[: -1 if goes_on else None]], shell, goes_on=goes_on)


def _output(words: list[str], shell: Shell, *, goes_on: bool = False) -> tuple[int, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    program = shutil.which(words[0], path=path)
    if program is None:
        return 127, f"{words[0]}: not found"
    settings = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100", "SPARK_CONF_DIR": defaults().name}
    environment = {**kept, "PATH": path, **settings, **shell.variables}
    if goes_on:
        return shell.begin([program, *words[1:]], environment)
    if words[:3] == ["tidings", "pipeline", "run"]:
        with lent_session():
            called = tidings.run(*words[1:], folder=shell.folder, variables=environment, merged=True)
        return called.returncode, called.stdout
    if words[0] == "tidings" and words[1] not in _ALONE:
        called = tidings.run(*words[1:], folder=shell.folder, variables=environment, merged=True)
        return called.returncode, called.stdout
    done = subprocess.run(
        [program, *words[1:]],
        cwd=shell.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stdout
