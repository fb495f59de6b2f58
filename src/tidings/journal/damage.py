"""Errors for repairable damage, with the file, the place in it, and the repair command."""

import shlex
from pathlib import Path

from tidings.model.errors import JournalDamagedError

LOGS, SEGMENTS, SNAPSHOTS = "log", "segments", "snapshots"


def damage_error(
    message: str, path: Path, offset: int | None = None, position: int | None = None
) -> JournalDamagedError:
    """Return a repairable `JournalDamagedError`; its message contains the repair command.

    Args:
        message: What is damaged.
        path: The damaged file, or the folder of the journal if a file is missing.
        offset: The first record that cannot be verified.
        position: The byte in the file where the damage starts.
    """
    command = f"tidings journal repair {shlex.quote(str(folder_of(path)))}"
    return JournalDamagedError(
        f"{message}; `{command}` keeps what can be read and says what is lost", path, offset, position, repairable=True
    )


def folder_of(path: Path) -> Path:
    """Return the folder of the journal to which a file belongs."""
    if path.parent.name in (LOGS, SEGMENTS, SNAPSHOTS):
        return path.parent.parent
    return path if path.is_dir() else path.parent
