"""A folder of arrays, tables and facts that is written atomically, mapped into memory, and refused when damaged.

A reader sees either the previous contents or the new ones. Arrays are mapped copy-on-write: all processes share the
pages of the file, and what a process changes stays private to it. Checksums detect damage, not malice: load a folder
only if you trust its writer.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.model.errors import IndexDamagedError

_FORMAT, _VERSION = "tidings index", 1
_CONTENTS = "contents.json"
_CHUNK_BYTES = 1 << 24
_MAP_FROM_BYTES = 1 << 16


def write(
    folder: Path, arrays: dict[str, npt.NDArray[Any]], tables: dict[str, pa.Table], facts: dict[str, Any]
) -> None:
    """Replace the contents of a folder. Only one process may write at a time; others may read meanwhile.

    Args:
        folder: The folder; it is created if it does not exist.
        arrays: The arrays by name.
        tables: The tables by name.
        facts: JSON values by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mark = _unused_mark(folder)  # new file names, so that no file that is being read is overwritten
    files: dict[str, Any] = {}
    for name, array in arrays.items():
        path = folder / f"{name}-{mark}.npy"
        np.save(path, array)
        files[name] = _described(path)
    for name, table in tables.items():
        path = folder / f"{name}-{mark}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        files[name] = _described(path)
    body = {"format": _FORMAT, "version": _VERSION, "byte_order": sys.byteorder, "files": files, "facts": facts}
    text = json.dumps(body)
    unfinished = folder / f"contents-{mark}.json"
    unfinished.write_text(json.dumps({"digest": _digest_of_text(text), "body": text}))
    unfinished.replace(folder / _CONTENTS)
    current_names = {entry["file"] for entry in files.values()}
    for path in folder.iterdir():
        if path.suffix in (".npy", ".arrow") and path.name not in current_names:
            path.unlink()


class MappedFolder:
    """The contents of a folder that `write` wrote.

    Raises `IndexDamagedError` if something is missing or damaged. With `verify`, every byte is read and compared with
    its checksum; without, only the sizes of the files are checked.
    """

    def __init__(self, folder: Path, *, verify: bool = True) -> None:
        self._folder = folder
        body = self._contents()
        self.facts: dict[str, Any] = body["facts"]
        self._files: dict[str, Any] = body["files"]
        for entry in self._files.values():
            self._check(entry, verify)

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return an array, mapped into memory unless it is small."""
        path = self._folder / self._files[name]["file"]
        if path.stat().st_size < _MAP_FROM_BYTES:
            return np.load(path, allow_pickle=False)  # type: ignore[no-any-return]
        mapped = np.load(path, mmap_mode="c", allow_pickle=False)
        return mapped.view(np.ndarray)  # type: ignore[no-any-return]

    def table(self, name: str) -> pa.Table:
        """Return a table, mapped into memory."""
        with pa.memory_map(str(self._folder / self._files[name]["file"])) as file:
            return pa.ipc.open_file(file).read_all()

    def names(self, prefix: str) -> list[str]:
        """Return the names of arrays and tables that begin with the prefix, sorted."""
        return sorted(name for name in self._files if name.startswith(prefix))

    def _contents(self) -> dict[str, Any]:
        path = self._folder / _CONTENTS
        try:
            contents = json.loads(path.read_text())
            text = contents["body"]
            digest = contents["digest"]
        except FileNotFoundError:
            raise IndexDamagedError(f"{self._folder}: there is no index; {_CONTENTS} is missing") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise IndexDamagedError(f"{path}: cannot be read ({error})") from None
        if not isinstance(text, str) or digest != _digest_of_text(text):
            raise IndexDamagedError(f"{path}: does not fit its checksum")
        body: dict[str, Any] = json.loads(text)
        if body["format"] != _FORMAT or body["version"] != _VERSION:
            raise IndexDamagedError(f"{path}: version {body['version']} of the format is not {_VERSION}; save it anew")
        if body["byte_order"] != sys.byteorder:
            raise IndexDamagedError(f"{path}: was saved on a machine of the other byte order; save it anew")
        return body

    def _check(self, entry: dict[str, Any], verify: bool) -> None:
        path = self._folder / entry["file"]
        if not path.is_file():
            raise IndexDamagedError(f"{path}: is missing; the index must be saved again")
        if path.stat().st_size != entry["bytes"] or (verify and _described(path) != entry):
            raise IndexDamagedError(f"{path}: does not fit its checksum; the index must be saved again")


def _unused_mark(folder: Path) -> int:
    """Return a number that no file name in the folder contains yet."""
    marks = [path.stem.rpartition("-")[2] for path in folder.iterdir()]
    return 1 + max((int(mark) for mark in marks if mark.isdecimal()), default=0)


def _described(path: Path) -> dict[str, Any]:
    """Return the name, size and digest of a file."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while piece := file.read(_CHUNK_BYTES):
            digest.update(piece)
    return {"file": path.name, "bytes": path.stat().st_size, "digest": digest.hexdigest()}


def _digest_of_text(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
