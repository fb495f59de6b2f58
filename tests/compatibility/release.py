"""The data that released versions of Tidings wrote: a folder for each version, beside this file.

Of each kind of data (`journal`, `hub`, ...) a release has an archive, `<kind>.tar.gz`, and what the archive must hold
as readable text, `<kind>.json`. `SHA256SUMS` has the checksum of every file, and the release's wheel is there too.
`write_fixtures.py` wrote all of them but the wheel.
"""

import gzip
import hashlib
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

FOLDER = Path(__file__).parent
CHECKSUMS = "SHA256SUMS"
MODIFIED = 1_000_000_000  # the time of every file in an archive, in seconds
# Spark's checkpoint names the files that a stream has read by their absolute paths. In an archive this word stands for
# the folder that the archive was made of.
PLACE = "@FOLDER@"


class Release(NamedTuple):
    """One released version and its folder of data."""

    version: str
    folder: Path

    @classmethod
    def of(cls, version: str) -> Self:
        return cls(version, FOLDER / version)

    @property
    def wheel(self) -> Path:
        return self.folder / f"tidings-{self.version}-py3-none-any.whl"

    def expected(self, kind: str) -> Any:
        """What the archive of that kind must hold."""
        return json.loads((self.folder / f"{kind}.json").read_text())

    def unpack(self, kind: str, target: Path) -> Path:
        """Unpacks the archive of that kind into a new folder `target`: tests work on copies."""
        with tarfile.open(self.folder / f"{kind}.tar.gz") as archive:
            archive.extractall(target, filter="data")
        for path in _files_with_place(target):
            path.write_text(path.read_text().replace(PLACE, str(target)))
        return target

    def pack(self, kind: str, source: Path, expected: Any) -> None:
        """Writes the archive of a folder, and its expectation. The same files always give the same bytes."""
        self.folder.mkdir(exist_ok=True)
        with (
            (self.folder / f"{kind}.tar.gz").open("wb") as stream,
            gzip.GzipFile(filename="", fileobj=stream, mode="wb", mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for path in sorted(source.rglob("*")):
                archive.add(path, str(path.relative_to(source)), recursive=False, filter=_anonymous)
        text = json.dumps(expected, indent=1, sort_keys=True, ensure_ascii=False)
        (self.folder / f"{kind}.json").write_text(text + "\n")

    def checksums(self) -> dict[str, str]:
        """The SHA-256 of each file of the release as it is now, by its name."""
        files = [path for path in sorted(self.folder.iterdir()) if path.is_file() and path.name != CHECKSUMS]
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def write_checksums(self) -> None:
        lines = [f"{check}  {name}\n" for name, check in self.checksums().items()]  # as `sha256sum --check` reads it
        (self.folder / CHECKSUMS).write_text("".join(lines))

    def read_checksums(self) -> dict[str, str]:
        lines = (self.folder / CHECKSUMS).read_text().splitlines()
        return {name: check for check, name in (line.split("  ") for line in lines)}


def _releases() -> list[Release]:
    return [Release.of(path.parent.name) for path in sorted(FOLDER.glob(f"*/{CHECKSUMS}"))]


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """A member without what depends on who writes the archive, and when."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = MODIFIED
    return member


def _files_with_place(folder: Path) -> Iterator[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return (path for path in files if PLACE.encode() in path.read_bytes())


RELEASES = _releases()
