"""Files with secrets: nobody but their owner can read them."""

import os
import stat
from pathlib import Path

from tidings.model.errors import InvalidValueError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def write_secret(path: Path, data: bytes) -> None:
    """A file that nobody else can read, not even for a moment."""
    write_whole(path, data, 0o600)


def write_whole(path: Path, data: bytes, mode: int = 0o666) -> None:
    """All of it or, whenever the process or the machine stops, what was there before: a program may need it to start
    again."""
    from tidings.journal.disk import Disk  # with it comes the journal: only for those who write

    Disk().create(path, data, mode)


def read_secret(path: Path, most: int) -> bytes:
    """Refused if others can read it; of a file that is longer, only the first so many bytes."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & _OTHERS:
                raise InvalidValueError(f"{path}: others can read this secret; `chmod 600` it")
            return file.read(most)
    except OSError as error:
        raise InvalidValueError(f"{path}: {error.strerror or error}") from None
