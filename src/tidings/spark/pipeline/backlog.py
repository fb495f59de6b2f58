"""Count the input that a pipeline has not read yet: files in its source folders, and rows of its journal.

Spark does not report a backlog of files. Its checkpoint lists the files that it has read; the other files in the
folders are the backlog.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from tidings.journal.reader import JournalReader
from tidings.model.errors import TidingsError
from tidings.spark.pipeline.configuration import (
    ChangingSourceTable,
    EventsTable,
    JournalSourceTable,
    PipelineConfiguration,
    is_elsewhere,
    resolved,
)

_COMPACT = ".compact"  # a log of Spark's file source that contains all logs before it


class BacklogSize(msgspec.Struct, frozen=True):
    """How many files and journal rows a pipeline has not read yet."""

    files: int | None = None  # None: unknown
    rows: int | None = None  # None: there is no journal, or it cannot be read


class SourceBacklog:
    """Counts the backlog of a pipeline's sources; `base` is the folder of the configuration file."""

    def __init__(self, configuration: PipelineConfiguration, base: Path) -> None:
        self._spark_sources = Path(resolved(base, configuration.checkpoint)) / "spark" / "sources"
        self._folders: list[Path] | None = []
        self._journal: Path | None = None
        for table in configuration.sources().values():
            if isinstance(table, JournalSourceTable):
                self._journal = Path(resolved(base, table.path))
            elif table.path is not None and (
                isinstance(table, EventsTable) or (isinstance(table, ChangingSourceTable) and table.follow)
            ):
                self._follow(table.path, base)

    def _follow(self, path: str, base: Path) -> None:
        if is_elsewhere(path) or not Path(resolved(base, path)).is_dir() or self._folders is None:
            self._folders = None  # an address or a pattern: its files cannot be listed here
        else:
            self._folders.append(Path(resolved(base, path)).resolve())

    def measure(self, offsets: dict[str, str]) -> BacklogSize:
        """Return the backlog; `offsets` are those of `Progress`, which say how far each source has been read."""
        files = None
        if self._folders:
            read_files = set(self._read_files())
            files = sum(1 for folder in self._folders for path in _data_files(folder) if str(path) not in read_files)
        return BacklogSize(files, self._unread_rows(offsets))

    def _read_files(self) -> Iterator[str]:
        """Yield the paths of the files that Spark has read, from the logs in its checkpoint."""
        for source in self._spark_sources.glob("*"):
            logs = [(number, log) for log in source.iterdir() if (number := _log_number(log)) is not None]
            compacted = max((number for number, log in logs if log.suffix == _COMPACT), default=-1)
            for number, log in logs:
                if number >= compacted:
                    yield from _paths_in_log(log)

    def _unread_rows(self, offsets: dict[str, str]) -> int | None:
        if self._journal is None:
            return None
        read = [json.loads(offset) for offset in offsets.values() if offset and offset.startswith("{")]
        try:
            end = JournalReader(self._journal).end
        except (OSError, TidingsError):
            return None
        return max(0, end - max((offset["offset"] for offset in read if "offset" in offset), default=0))


def _data_files(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder that Spark reads: none with a name, or in a folder, that begins with `.` or `_`."""
    for path in folder.rglob("*"):
        if not any(part[0] in "._" for part in path.relative_to(folder).parts) and path.is_file():
            yield path


def _log_number(path: Path) -> int | None:
    name = path.name.removesuffix(_COMPACT)
    return int(name) if name.isdecimal() else None


def _paths_in_log(log: Path) -> Iterator[str]:
    try:
        lines = log.read_text().splitlines()
    except FileNotFoundError:  # Spark has compacted it meanwhile
        return
    for line in lines[1:]:
        yield unquote(urlsplit(json.loads(line)["path"]).path)
