"""Damage that can be repaired, said so that whoever reads it can act: which file, where in it, and the command."""

import shlex
from pathlib import Path

from tidings.model.errors import JournalDamagedError

LOGS, SEGMENTS, SNAPSHOTS = "log", "segments", "snapshots"


def damage(message: str, path: Path, offset: int | None = None, position: int | None = None) -> JournalDamagedError:
    """`path` is the file, or the folder of the journal if a file is missing."""
    command = f"tidings journal repair {shlex.quote(str(folder_of(path)))}"
    return JournalDamagedError(
        f"{message}; `{command}` keeps what can be read and says what is lost", path, offset, position, repairable=True
    )


def folder_of(path: Path) -> Path:
    """The folder of the journal to which a file belongs."""
    if path.parent.name in (LOGS, SEGMENTS, SNAPSHOTS):
        return path.parent.parent
    return path if path.is_dir() else path.parent
