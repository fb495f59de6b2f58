"""Who a journal is: the small file that makes a folder a journal. It is written last, and never changed."""

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


class Identity(msgspec.Struct, frozen=True):
    """`salt` is random where it matters (it is handed in): with it, nobody can put a record into a payload that looks
    like one of the journal's own."""

    name: str
    salt: bytes = b""

    @classmethod
    def of(cls, name: str, salt: bytes) -> Self:
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
        """Where every checksum of the journal starts, so that the files of two journals cannot be mixed up."""
        return zlib.crc32(self.name.encode(), zlib.crc32(self.salt))

    def write(self, folder: Path, disk: Disk) -> None:
        quoted = self.name.replace("\\", "\\\\").replace('"', '\\"')
        text = f'format = {FORMAT}\nname = "{quoted}"\nsalt = "{self.salt.hex()}"\ncheck = "{self.seed:08x}"\n'
        disk.create(folder / FILE, text.encode())

    @classmethod
    def read(cls, folder: Path) -> Self:
        path = folder / FILE
        try:
            found = tomllib.loads(path.read_bytes().decode())
        except FileNotFoundError:
            if any(folder.glob("*/*.log")):
                raise missing(folder) from None
            raise JournalError(f"{folder} is not a journal: there is no {FILE}", folder) from None
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise JournalDamagedError(f"{path} cannot be read: {error}", path) from None
        version = found.get("format")
        if version != FORMAT:
            raise JournalVersionError(f"{path} says format {version!r}; this version of Tidings reads {FORMAT}", path)
        try:
            identity = cls.of(found["name"], bytes.fromhex(found["salt"]))
        except (KeyError, TypeError, ValueError):
            raise JournalDamagedError(f"{path} does not say name and salt", path) from None
        if found.get("check") != f"{identity.seed:08x}":
            raise JournalDamagedError(f"{path}: name, salt and check do not belong together", path)
        return identity


def missing(folder: Path) -> JournalDamagedError:
    """Of a folder with records, which nobody can vouch for without it."""
    path = folder / FILE
    return JournalDamagedError(f"{path} is missing, but there are records; put it back", path)
