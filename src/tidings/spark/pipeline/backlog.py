"""What is there and has not been read yet, of the sources that a pipeline's file names.

Spark does not tell it for files. It notes which it has taken, in its checkpoint; what else is in a folder waits.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from tidings.journal.reader import JournalReader
from tidings.model.errors import TidingsError
from tidings.spark.pipeline.configuration import Changing, Configuration, Events, Journal, is_elsewhere, resolved

_COMPACT = ".compact"  # a log with all that stood in those before it


class Waiting(msgspec.Struct, frozen=True):
    files: int | None = None  # None: nobody knows
    rows: int | None = None  # of a journal


class Backlog:
    def __init__(self, configuration: Configuration, base: Path) -> None:
        self._taken = Path(resolved(base, configuration.checkpoint)) / "spark" / "sources"
        self._folders: list[Path] | None = []
        self._journal: Path | None = None
        for table in configuration.sources().values():
            if isinstance(table, Journal):
                self._journal = Path(resolved(base, table.path))
            elif table.path is not None and (
                isinstance(table, Events) or (isinstance(table, Changing) and table.follow)
            ):
                self._follow(table.path, base)

    def _follow(self, path: str, base: Path) -> None:
        if is_elsewhere(path) or not Path(resolved(base, path)).is_dir() or self._folders is None:
            self._folders = None  # an address or a pattern: what is there is not ours to list
        else:
            self._folders.append(Path(resolved(base, path)).resolve())

    def waiting(self, offsets: dict[str, str]) -> Waiting:
        """`offsets` are those of `Progress`: how far each source has been read."""
        files = None
        if self._folders:
            taken = set(self._known())
            files = sum(1 for folder in self._folders for one in _data(folder) if str(one) not in taken)
        return Waiting(files, self._rows(offsets))

    def _known(self) -> Iterator[str]:
        for source in self._taken.glob("*"):
            logs = [(number, one) for one in source.iterdir() if (number := _number(one)) is not None]
            whole = max((number for number, one in logs if one.suffix == _COMPACT), default=-1)
            for number, one in logs:
                if number >= whole:
                    yield from _paths(one)

    def _rows(self, offsets: dict[str, str]) -> int | None:
        if self._journal is None:
            return None
        read = [json.loads(one) for one in offsets.values() if one and one.startswith("{")]
        try:
            end = JournalReader(self._journal).end
        except (OSError, TidingsError):
            return None
        return max(0, end - max((one["offset"] for one in read if "offset" in one), default=0))


def _data(folder: Path) -> Iterator[Path]:
    """As Spark sees them: what begins with a dot or a low line is not there."""
    for one in folder.rglob("*"):
        if not any(part[0] in "._" for part in one.relative_to(folder).parts) and one.is_file():
            yield one


def _number(path: Path) -> int | None:
    name = path.name.removesuffix(_COMPACT)
    return int(name) if name.isdecimal() else None


def _paths(log: Path) -> Iterator[str]:
    try:
        lines = log.read_text().splitlines()
    except FileNotFoundError:  # it was brought together with others meanwhile
        return
    for line in lines[1:]:
        yield unquote(urlsplit(json.loads(line)["path"]).path)
