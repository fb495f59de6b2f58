"""Names and bytes that others rely on are what they were: see `tests/compatibility/names`."""

from typing import TYPE_CHECKING

import pytest

from tests.compatibility import names
from tests.compatibility.names import batch, stored
from tests.compatibility.names.samples import Sample, rows, samples
from tests.compatibility.release import Release
from tidings.broker.sessions.queries import QUERY_NAMES
from tidings.engine import journal_codec
from tidings.journal.record import LOST
from tidings.policy.policy import Policy
from tidings.protocol.frames import FrameKind

pytestmark = pytest.mark.process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BYTES = names.golden_bytes()


@pytest.fixture(scope="module")
def by_label() -> dict[str, Sample]:
    return {sample.label: sample for sample in samples()}


@pytest.mark.parametrize("subject", names.SUBJECTS)
def test_names_are_those_of_the_golden_file(subject: str) -> None:
    difference = names.difference(subject, names.SUBJECTS[subject]())
    assert not difference, difference


@pytest.mark.spark
def test_columns_are_those_of_the_golden_file(spark: "SparkSession") -> None:
    difference = names.difference(names.COLUMNS, batch.column_lines(spark))
    assert not difference, difference


@pytest.mark.parametrize("label", BYTES)
def test_golden_bytes_are_decoded_and_encoded_again(label: str, by_label: dict[str, Sample]) -> None:
    sample = by_label[label]
    assert sample.decode(sample.read(BYTES[label])) == sample.value
    assert sample.written(sample.encode(sample.value)) == BYTES[label]


def test_bytes_of_a_release_are_still_decoded(release: Release, by_label: dict[str, Sample]) -> None:
    """A field that was added since has its default there."""
    for label, text in names.split_bytes((release.folder / "bytes.txt").read_text()).items():
        sample = by_label[label]
        value = sample.decode(sample.read(text))
        assert sample.decode(sample.encode(value)) == value, label


def test_every_sample_has_golden_bytes(by_label: dict[str, Sample]) -> None:
    assert by_label.keys() == BYTES.keys(), f"`{names.COMMAND} {names.BYTES}` writes the golden bytes"


def test_every_kind_of_frame_is_listed() -> None:
    assert {int(kind) for kind in FrameKind} == stored.FRAMES.keys()


def test_every_kind_of_row_has_a_sample() -> None:
    """Repair writes the kind LOST by itself, with nothing in it."""
    assert {row.kind for row in rows().values()} == {*journal_codec.READERS, *journal_codec.ASIDE, LOST} - {LOST}


def test_every_question_is_listed() -> None:
    assert set(QUERY_NAMES) == stored.QUESTIONS.keys()


def test_a_policy_with_every_element_is_read_from_its_document() -> None:
    policy = Policy.parse(names.formats.POLICY)
    assert Policy.from_xml(policy.to_xml()) == policy


def test_a_difference_says_what_has_gone_and_what_is_new() -> None:
    first, *others = names.golden("environment")
    told = names.difference("environment", [*others, "TIDINGS_NEW is read"])
    assert told.splitlines() == [
        "",
        "gone, which breaks what relies on it:",
        f"  - {first}",
        "new:",
        "  + TIDINGS_NEW is read",
        "if this is intended, `python -m tests.compatibility.names` rewrites tests/compatibility/names/environment.txt",
    ]
    assert names.difference("environment", [f"{first} # a comment", *others]) == ""


def test_a_field_of_an_array_may_be_called_otherwise_and_may_not_change_its_place() -> None:
    first, second = "frame 34 lost[1] integer, required", "frame 34 lost[2] integer, required"
    others = [line for line in names.golden("wire") if not line.startswith((first, second))]
    assert names.difference("wire", [*others, f"{first} # number", f"{second} # sum"]) == ""
    told = names.difference("wire", [*others, f"{first} # total", f"{second} # count"])
    assert "  ! frame 34 lost[1] is [2] now # count\n  ! frame 34 lost[2] is [1] now # total" in told
