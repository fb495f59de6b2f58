"""A pipeline with a secure topic: sealed events are checked, and what is refused is told, as an engine does it."""

from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest

from tests.security.world import World
from tests.spark.test_security import (
    EVENTS,
    SUBSCRIPTIONS,
    Traffic,
    event_rows,
    expected,
    found,
    lived,
    subscription_rows,
)
from tidings.model.errors import InvalidValueError
from tidings.spark.pipeline.configuration import read
from tidings.spark.shards import trusted_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SINKS = """
[[sinks]]
format = "parquet"
path = "out/notifications"

[[sinks]]
format = "parquet"
what = "rejected"
path = "out/rejected"
"""
OF_EVENTS = """\
checkpoint = "checkpoint"
trigger = "available-now"
watermark = "1 day"

[events]
path = "events"
format = "parquet"

[subscriptions]
path = "subscriptions"
follow = false

[security]
authority = "authority.pem"
topics = ["scores.topic"]
revocations = "revocations"
notices = ["first.notice", "second.notice"]
"""
OF_A_JOURNAL = """\
checkpoint = "checkpoint"
trigger = "available-now"

[journal]
path = "hub"

[engine]
name = "hub"

[security]
authority = "authority.pem"
"""


class Told(NamedTuple):
    notifications: "DataFrame"
    rejected: "DataFrame"


def told(spark: "SparkSession", base: Path) -> tuple[set[Any], set[Any]]:
    """What stands in the sinks."""
    return found(Told(*(spark.read.parquet(str(base / "out" / name)) for name in Told._fields)))


def files(base: Path, traffic: Traffic) -> None:
    """As `[security]` names them."""
    authority = traffic.world.authority
    (base / "authority.pem").write_bytes(authority.anchor.certificate.pem)
    said = dict(traffic.trust())
    (base / "scores.topic").write_bytes(said["record"])
    (base / "revocations").write_bytes(said["revocations"])
    for name, one in zip(("first", "second"), traffic.notices(), strict=True):
        (base / f"{name}.notice").write_bytes(one.data)


def ran(spark: "SparkSession", base: Path, text: str) -> None:
    from tidings.spark import Pipeline

    (base / "pipeline.toml").write_text(text + SINKS)
    Pipeline.from_file(base / "pipeline.toml", spark).start().await_termination()


@pytest.mark.spark
@pytest.mark.parametrize("in_order", [False, True])
def test_tokens_of_a_pipeline_decide_who_gets_what(spark: "SparkSession", tmp_path: Path, in_order: bool) -> None:
    from tidings.spark import Pipeline
    from tidings.spark.pipeline import Folder

    traffic = Traffic(5)
    tokens = spark.createDataFrame(traffic.trust(), trusted_keys.DDL)
    notes, refused = expected(traffic, trusted_keys.TrustedKeys.of(tokens).gate(knows_all=True), governed=False)
    assert len({reason for _, _, reason in refused}) >= 8
    spark.createDataFrame(event_rows(traffic), EVENTS).repartition(2).write.parquet(str(tmp_path / "events"))
    nobody = spark.createDataFrame([], "client string, timestamp bigint, context string")
    Pipeline(
        spark.readStream.schema(EVENTS).parquet(str(tmp_path / "events")),
        spark.createDataFrame(subscription_rows(traffic, governed=False), SUBSCRIPTIONS),
        nobody if in_order else None,
        tokens=tokens,
        checkpoint=tmp_path / "checkpoint",
        sinks=[Folder(path=str(tmp_path / "out" / name), what=name) for name in Told._fields],  # type: ignore[arg-type]
        trigger="available-now",
        watermark="1 day",
    ).start().await_termination()
    assert told(spark, tmp_path) == (notes, refused)


@pytest.mark.spark
def test_files_of_authority_and_centres_say_whom_to_trust(spark: "SparkSession", tmp_path: Path) -> None:
    traffic = Traffic(6)
    files(tmp_path, traffic)
    spark.createDataFrame(event_rows(traffic), EVENTS).write.parquet(str(tmp_path / "events"))
    (tmp_path / "subscriptions").mkdir()
    lines = [
        {"id": one.id, "subscriber": one.subscriber, "content": str(one.content)}
        | ({} if one.token is None else {"token": b64encode(one.token).decode()})
        for one in traffic.subscriptions
        if one.policy is None
    ]
    (tmp_path / "subscriptions" / "1.json").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    ran(spark, tmp_path, OF_EVENTS)
    gate = trusted_keys.TrustedKeys.of(spark.createDataFrame(traffic.trust(), trusted_keys.DDL)).gate(knows_all=True)
    assert told(spark, tmp_path) == expected(traffic, gate, governed=False)


@pytest.mark.spark
def test_of_a_journal_the_authority_is_enough(spark: "SparkSession", tmp_path: Path) -> None:
    traffic = Traffic(7)
    sealed = {str(one.id) for _, one in traffic.events if one.signature is not None}
    notes, refused = lived(tmp_path / "hub", traffic, governed=False)
    assert refused > 10
    files(tmp_path, traffic)
    ran(spark, tmp_path, OF_A_JOURNAL)
    again, _ = found(Told(spark.read.parquet(str(tmp_path / "out" / "notifications")), spark.range(0)))
    assert {one for one in notes if one[0] in sealed} == {one for one in again if one[0] in sealed} != set()
    assert not (tmp_path / "out" / "rejected").exists()  # what a hub has refused is not in its journal


@pytest.mark.parametrize(
    ("before", "after", "line", "why"),
    [
        ('authority = "authority.pem"', "", 13, "security.authority: is missing"),
        ('"scores.topic"]', '"scores.topic"]\nkeys = []', 16, "security.keys: there is no such key"),
        ('["scores.topic"]', '"scores.topic"', 15, "security.topics: expected `array`, got `str`"),
    ],
)
def test_mistakes_in_the_table_are_named_by_line(tmp_path: Path, before: str, after: str, line: int, why: str) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(OF_EVENTS.replace(before, after) + SINKS)
    with pytest.raises(InvalidValueError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:{line}: {why}")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "line", "why"),
    [
        ("authority.pem", 13, "security: this is no certificate"),
        ("scores.topic", 13, "security: this is no topic record"),
        ("second.notice", 13, "security: this is no notice"),
        ("revocations", 16, "security.revocations: revocations: No such file"),
    ],
)
def test_files_that_are_no_good_are_refused_at_the_start(
    spark: "SparkSession", tmp_path: Path, name: str, line: int, why: str
) -> None:
    files(tmp_path, Traffic(8))
    for folder in ("events", "subscriptions"):
        (tmp_path / folder).mkdir()
    spark.createDataFrame([], EVENTS).write.mode("overwrite").parquet(str(tmp_path / "events"))
    (tmp_path / name).write_bytes(World().key.key)
    if "No such file" in why:
        (tmp_path / name).unlink()
    with pytest.raises(InvalidValueError) as caught:
        ran(spark, tmp_path, OF_EVENTS)
    assert str(caught.value).startswith(f"{tmp_path / 'pipeline.toml'}:{line}: {why}")
