"""The data of a release never change."""

from pathlib import Path

from tests.compatibility.release import RELEASES, Release


def test_there_are_data_of_every_release() -> None:
    assert [release.version for release in RELEASES] == ["0.1.0"]


def test_every_file_is_as_it_was_written(release: Release) -> None:
    assert release.checksums() == release.read_checksums()


def test_an_altered_file_has_another_checksum(release: Release, tmp_path: Path) -> None:
    copy = Release(release.version, tmp_path)
    for path in release.folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert copy.checksums() == release.read_checksums()
    altered = bytearray((tmp_path / "journal.tar.gz").read_bytes())
    altered[-1] ^= 1
    (tmp_path / "journal.tar.gz").write_bytes(altered)
    changed = {name for name, check in copy.checksums().items() if check != release.read_checksums()[name]}
    assert changed == {"journal.tar.gz"}


def test_the_same_files_give_the_same_archive(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "data" / "folder").mkdir(parents=True)
        (tmp_path / name / "data" / "folder" / "file").write_text("text")
        Release("0", tmp_path / name).pack("kind", tmp_path / name / "data", {"b": 1, "a": [2]})
    assert Release("0", tmp_path / "one").checksums().keys() == {"kind.json", "kind.tar.gz"}
    assert Release("0", tmp_path / "one").checksums() == Release("0", tmp_path / "two").checksums()
    unpacked = Release("0", tmp_path / "one").unpack("kind", tmp_path / "unpacked")
    assert (unpacked / "folder" / "file").read_text() == "text"
