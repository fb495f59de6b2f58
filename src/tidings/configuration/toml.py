"""TOML files whose mistakes are named by file and line.

`tomllib` does not say where a value stands, but it says whether the beginning of a file can be read: the line of a
value is the first with which it is there. That is slow and exact, and only done once something is wrong.
"""

import re
import tomllib
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from tidings.model.errors import InvalidValueError

_Read = TypeVar("_Read")
Steps = tuple[str | int, ...]  # the way to a value: names of keys, and places in lists
_AT = re.compile(r"(?P<told>.*?)(?: - at `\$(?P<path>[^`]*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")
_NAMED = re.compile(r"(?P<name>[a-z_]+)(?P<place>\[\d+\])?: (?P<told>.*)", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)|\[(?P<place>\d+)\]|\[\.\.\.\]")


class TomlFile:
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.text = self.path.read_text("utf-8")
        except OSError as error:
            raise InvalidValueError(f"{path}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise InvalidValueError(f"{path}: is not UTF-8 text") from None
        try:
            self.values = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            told = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", str(error))
            line = int(told[2]) if told and told[2] else max(1, len(self.text.splitlines()))
            raise InvalidValueError(f"{path}:{line}: {told[1] if told else error}") from None

    def read(self, kind: type[_Read]) -> _Read:
        """The values as a struct, or an error that names the line."""
        try:
            return msgspec.convert(self.values, kind)
        except msgspec.ValidationError as error:
            return self.refuse(*understood(str(error)))

    def refuse(self, steps: Steps, told: str) -> NoReturn:
        """Raises an error about the value there. What is not there is missed in the table that should have it."""
        name = dotted(steps)
        raise InvalidValueError(f"{self.path}:{self.line(steps)}: {name}: {told}" if name else f"{self.path}: {told}")

    def place(self, message: str) -> str:
        """A message that begins with the name of a key at the top, with file and line before it."""
        named = _NAMED.fullmatch(message)
        known = named is not None and named["name"] in self.values
        return f"{self.path}:{self.line((named['name'],))}: {message}" if named and known else f"{self.path}: {message}"

    def line(self, steps: Steps) -> int:
        lines = self.text.splitlines(keepends=True)
        while steps and not _has(self.values, steps):
            steps = steps[:-1]
        begun = 0  # lines that are read; what cannot be read yet goes on in the next
        for count in range(1, len(lines) + 1):
            try:
                values = tomllib.loads("".join(lines[:count]))
            except tomllib.TOMLDecodeError:
                continue
            if _has(values, steps):
                return begun + 1
            begun = count
        return 1


def dotted(steps: Steps) -> str:
    """The way to a value as one text: `sinks[0].path`."""
    return "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in steps).removeprefix(".")


def understood(message: str) -> tuple[Steps, str]:
    """The way to what msgspec complains of, and the complaint."""
    found = _AT.fullmatch(message)
    told, path = (found["told"], found["path"] or "") if found else (message, "")
    steps: Steps = tuple(
        int(one["place"]) if one["place"] else one["name"]
        for one in _STEP.finditer(path)
        if one["place"] or one["name"]
    )
    if unknown := _UNKNOWN.fullmatch(told):
        return (*steps, unknown["name"]), "there is no such key"
    if missing := _MISSING.fullmatch(told):
        return (*steps, missing["name"]), "is missing"
    if named := _NAMED.fullmatch(told):
        place = (int(named["place"][1:-1]),) if named["place"] else ()
        return (*steps, named["name"], *place), named["told"]
    return steps, told[:1].lower() + told[1:]


def _has(values: Any, steps: Steps) -> bool:
    for step in steps:
        try:
            values = values[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True
