"""The folder of a local overlay: a configuration, a log and a journal for each broker, all there to be looked at."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidings.journal.lock import FolderLock
from tidings.live.configuration import Configuration
from tidings.live.configuration.reference import written
from tidings.model.errors import JournalLockedError, TidingsError

CONFIGURATION, LOG, JOURNAL = ".toml", ".log", "-journal"


def taken(folder: Path) -> FolderLock:
    """The folder, for one overlay at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return FolderLock(folder)
    except JournalLockedError as error:
        who = f"process {error.process}" if error.process else "another process"
        told = f"an overlay is running in {folder} ({who}); stop it, or name another folder"
        raise TidingsError(told) from None


def write_configuration(path: Path, tables: Mapping[str, Any]) -> None:
    """Tables, and lists of tables, of plain values."""
    lines: list[str] = []
    for name, table in tables.items():
        is_list = isinstance(table, list)
        for one in table if is_list else [table]:
            head = f"[[{name}]]" if is_list else f"[{name}]"
            lines += [head, *(f"{key} = {written(value)}" for key, value in one.items()), ""]
    path.write_text("\n".join(lines))


def addresses_in(folder: Path) -> dict[str, str]:
    """Where the brokers of the overlay in a folder listen, by name."""
    found = [Configuration.from_file(path, {}) for path in sorted(folder.glob(f"*{CONFIGURATION}"))]
    if not found:
        raise TidingsError(f"{folder} holds no overlay; `tidings overlay run --folder {folder}` makes one")
    return {one.broker.name: one.broker.listen for one in found}
