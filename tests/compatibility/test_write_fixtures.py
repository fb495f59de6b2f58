"""The script that writes the data of a release works on every day before a release, too."""

import json
from pathlib import Path

import pytest

from tests.compatibility.release import Release
from tests.compatibility.write_fixtures import WRITERS


@pytest.mark.parametrize("kind", ["journal", "hub", "security"])
def test_what_it_writes_is_packed_and_unpacked_unchanged(tmp_path: Path, kind: str) -> None:
    source, release = tmp_path / "source", Release("present", tmp_path / "present")
    source.mkdir()
    contents = WRITERS[kind](source)
    release.pack(kind, source, contents)
    target = release.unpack(kind, tmp_path / "target")
    files = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert all((target / path).read_bytes() == (source / path).read_bytes() for path in files)
    assert release.expected(kind) == json.loads(json.dumps(contents))


@pytest.mark.parametrize("kind", ["journal", "hub"])
def test_it_writes_the_same_every_time(tmp_path: Path, kind: str) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        WRITERS[kind](tmp_path / name)
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert all((tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes() for path in files)
