"""The manifest: the small file with a journal's name and salt, which makes a folder a journal.

It is written last when a journal is created, and never changed.
"""

import tomllib
import zlib
from pathlib import Path
from typing import Self

import msgspec

from tidings.journal.disk import Disk
from tidings.model.errors import InvalidValueError, JournalDamagedError, JournalError, JournalVersionError
from tidings.model.limits import MAX_NAME_CHARACTERS
from tidings.model.values import check_unicode

FORMAT = 1
FILE = "journal.toml"


class JournalManifest(msgspec.Struct, frozen=True):
    """The identity of a journal: its name and a salt for its checksums.

    With a random salt, a publisher cannot put bytes into a payload that look like a record of the journal.
    """

    name: str
    salt: bytes = b""

    @classmethod
    def of(cls, name: str, salt: bytes) -> Self:
        """Return a checked manifest; raise an `InvalidValueError` if the name is unsuitable."""
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
            raise InvalidValueError(
                f"a journal's name is a string of 1 to MAX_NAME_CHARACTERS ({MAX_NAME_CHARACTERS}) characters"
            )
        check_unicode(name, "a journal's name")
        if not name.isprintable():
            raise InvalidValueError("a journal's name is printable")
        return cls(name, bytes(salt))

    @property
    def seed(self) -> int:
        """The seed of every checksum in the journal, so that files of two journals cannot be mixed up."""
        return zlib.crc32(self.name.encode(), zlib.crc32(self.salt))

    def write(self, folder: Path, disk: Disk) -> None:
        """Write the manifest into the journal's folder."""
        quoted = self.name.replace("\\", "\\\\").replace('"', '\\"')
        text = f'format = {FORMAT}\nname = "{quoted}"\nsalt = "{self.salt.hex()}"\ncheck = "{self.seed:08x}"\n'
        disk.create(folder / FILE, text.encode())

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest of the journal in a folder.

        Raises a `JournalError` if the folder is not a journal, a `JournalDamagedError` if the manifest is damaged or
        missing, and a `JournalVersionError` for another format.
        """
        path = folder / FILE
        try:
            tables = tomllib.loads(path.read_bytes().decode())
        except FileNotFoundError:
            if any(folder.glob("*/*.log")):
                raise manifest_missing_error(folder) from None
            raise JournalError(f"{folder} is not a journal: there is no {FILE}", folder) from None
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise JournalDamagedError(f"{path} cannot be read: {error}", path) from None
        version = tables.get("format")
        if version != FORMAT:
            raise JournalVersionError(f"{path} says format {version!r}; this version of Tidings reads {FORMAT}", path)
        try:
            identity = cls.of(tables["name"], bytes.fromhex(tables["salt"]))
        except (KeyError, TypeError, ValueError):
            raise JournalDamagedError(f"{path} does not say name and salt", path) from None
        if tables.get("check") != f"{identity.seed:08x}":
            raise JournalDamagedError(f"{path}: name, salt and check do not belong together", path)
        return identity


def manifest_missing_error(folder: Path) -> JournalDamagedError:
    """Return the error for a folder with records but without a manifest, which is needed to verify them."""
    path = folder / FILE
    return JournalDamagedError(f"{path} is missing, but there are records; put it back", path)
