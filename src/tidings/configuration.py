"""Reads TOML files, and reports errors in them by file and line.

`tomllib` does not tell the line of a value, but it can tell whether the beginning of a file is valid. The line of a
value is therefore found as the first line up to which the file parses with that value. That is slow but exact, and done
only to report an error.
"""

import re
import tomllib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from tidings.model.errors import InvalidValueError, TidingsError

_Read = TypeVar("_Read")
Steps = tuple[str | int, ...]  # the path to a value: names of keys, and indexes in lists
_AT = re.compile(r"(?P<told>.*?)(?: - at `\$(?P<path>[^`]*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")
_NAMED = re.compile(r"(?P<name>[a-z_]+)(?P<place>\[\d+\])?: (?P<told>.*)", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)|\[(?P<place>\d+)\]|\[\.\.\.\]")


class TomlFile:
    """A TOML file, read and parsed; its methods raise errors that name the file and the line.

    Raises:
        InvalidValueError: The file cannot be read, or is not valid TOML.
    """

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
            match = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", str(error))
            line = int(match[2]) if match and match[2] else max(1, len(self.text.splitlines()))
            raise InvalidValueError(f"{path}:{line}: {match[1] if match else error}") from None

    def read(self, kind: type[_Read]) -> _Read:
        """Convert the values to a struct; raise an `InvalidValueError` that names the line of an invalid value."""
        try:
            return msgspec.convert(self.values, kind)
        except msgspec.ValidationError as error:
            return self.refuse(*parse_error(str(error)))

    def refuse(self, steps: Steps, complaint: str) -> NoReturn:
        """Raise an error about the value at that path.

        For a missing key, with the line of the table that should have it.
        """
        name = dotted(steps)
        raise InvalidValueError(
            f"{self.path}:{self.line(steps)}: {name}: {complaint}" if name else f"{self.path}: {complaint}"
        )

    def place(self, message: str) -> str:
        """Prefix a message that begins with the name of a top-level key with the file and the key's line."""
        named = _NAMED.fullmatch(message)
        is_known_key = named is not None and named["name"] in self.values
        return (
            f"{self.path}:{self.line((named['name'],))}: {message}"
            if named and is_known_key
            else f"{self.path}: {message}"
        )

    def line(self, steps: Steps) -> int:
        """Return the number of the line where the value at that path begins."""
        lines = self.text.splitlines(keepends=True)
        while steps and not _has(self.values, steps):
            steps = steps[:-1]
        begun = 0  # lines up to here parse; a value that does not parse yet continues on the next line
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
    """Return a path as text: `sinks[0].path`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def parse_error(message: str) -> tuple[Steps, str]:
    """Split a message of msgspec into the path of the invalid value and the complaint."""
    match = _AT.fullmatch(message)
    complaint, path = (match["told"], match["path"] or "") if match else (message, "")
    steps: Steps = tuple(
        int(step["place"]) if step["place"] else step["name"]
        for step in _STEP.finditer(path)
        if step["place"] or step["name"]
    )
    if unknown := _UNKNOWN.fullmatch(complaint):
        return (*steps, unknown["name"]), "there is no such key"
    if missing := _MISSING.fullmatch(complaint):
        return (*steps, missing["name"]), "is missing"
    if named := _NAMED.fullmatch(complaint):
        place = (int(named["place"][1:-1]),) if named["place"] else ()
        return (*steps, named["name"], *place), named["told"]
    return steps, complaint[:1].lower() + complaint[1:]


def _has(values: Any, steps: Steps) -> bool:
    for step in steps:
        try:
            values = values[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def one_of(key: str, value: str, allowed: Collection[str]) -> None:
    """Raise an `InvalidValueError` unless the key has one of the known values."""
    if value not in allowed:
        raise InvalidValueError(f"{key}: '{value}' is none of {', '.join(allowed)}")


def at_least_one(key: str, value: int | None) -> None:
    """Raise an `InvalidValueError` if the value of the key is below 1."""
    if value is not None and value < 1:
        raise InvalidValueError(f"{key}: must be at least 1")


def check_parses(key: str, parse: Callable[..., object], *arguments: object) -> None:
    """Call `parse` with the arguments; if it raises, raise an `InvalidValueError` that names the key."""
    try:
        parse(*arguments)
    except TidingsError as error:
        raise InvalidValueError(f"{key}: {error}") from None
