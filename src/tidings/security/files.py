"""Files with secrets: nobody but their owner can read them."""

import os
import stat
from pathlib import Path

from tidings.model.errors import InvalidValueError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def write_secret(path: Path, data: bytes) -> None:
    """A file that nobody else can read, not even for a moment."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(file.fileno(), 0o600)  # it may have been there before
        file.write(data)


def read_secret(path: Path, most: int) -> bytes:
    """Refused if others can read it; of a file that is longer, only the first so many bytes."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & _OTHERS:
                raise InvalidValueError(f"{path}: others can read this secret; `chmod 600` it")
            return file.read(most)
    except OSError as error:
        raise InvalidValueError(f"{path}: {error.strerror or error}") from None
