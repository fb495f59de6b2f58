"""Every sink that a pipeline knows has what docs/contributing/specifications.md asks of one."""

import io
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import pytest

import tidings as td
from tests.spark.cuts import streams, write
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.spark.pipeline import sinks
from tidings.spark.pipeline.configuration import SinkTable, read
from tidings.spark.pipeline.sinks import (
    Console,
    Folder,
    Function,
    HubFolder,
    IntoBroker,
    IntoHub,
    MicroBatchResult,
    ResultKind,
    Sink,
)
from tidings.spark.sinks.broker_sink import BrokerClients
from tidings.testing import broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "pipeline-file.md").read_text()
EVENTS = "id string, timestamp bigint, publisher string, n bigint"
MATCHED = 5  # of the events of the first batch; the second batch has none


class Opened(NamedTuple):
    """A sink, and a function that returns how many notifications its target has got."""

    sink: Sink
    delivered: Callable[[], int]


@contextmanager
def folder_of_files(spark: "SparkSession", path: Path) -> Iterator[Opened]:
    def count() -> int:
        return spark.read.parquet(str(path / "out")).count() if (path / "out").exists() else 0

    yield Opened(Folder(path=str(path / "out")), count)


@contextmanager
def console(spark: "SparkSession", path: Path) -> Iterator[Opened]:
    with redirect_stdout(io.StringIO()) as printed:
        yield Opened(Console(), lambda: len(re.findall(r"\|e\d", printed.getvalue())))


@contextmanager
def function(spark: "SparkSession", path: Path) -> Iterator[Opened]:
    counts: list[int] = []
    yield Opened(Function(function=lambda frame, batch: counts.append(frame.count())), lambda: sum(counts))


@contextmanager
def open_hub(spark: "SparkSession", path: Path) -> Iterator[Opened]:
    with td.Hub() as hub:
        subscription = hub.client("reader").subscribe("n >= 0")
        yield Opened(IntoHub(hub), lambda: len(subscription.take()))


@contextmanager
def folder_of_a_hub(spark: "SparkSession", path: Path) -> Iterator[Opened]:
    with td.Hub(path / "hub") as hub:
        hub.client("reader").subscribe("n >= 0", durable="all")
    with closing(HubFolder(str(path / "hub"))) as sink:

        def count() -> int:
            sink.close()
            with td.Hub(path / "hub") as hub:
                return len(hub.client("reader").subscribe("n >= 0", durable="all").take())

        yield Opened(sink, count)


@contextmanager
def live_broker(spark: "SparkSession", path: Path) -> Iterator[Opened]:
    with broker() as running, td.connect_sync(running.address, name="reader") as reader:
        subscription = reader.subscribe("n >= 0")

        def count() -> int:
            reader.ask("status")  # its answer comes behind the notifications
            return len(subscription.take())

        yield Opened(IntoBroker(BrokerClients(addresses=running.address, name="sink", partitions=2)), count)


class Case(NamedTuple):
    """How a sink is opened, and what it promises."""

    opens: "Callable[[SparkSession, Path], AbstractContextManager[Opened]]"
    once: bool = True  # a repeated batch changes nothing
    travels: bool = True  # the sink can be sent to the process that runs the batches


CASES: dict[type[Any], Case] = {
    Folder: Case(folder_of_files),
    Console: Case(console, once=False),
    Function: Case(function, once=False),
    IntoHub: Case(open_hub, travels=False),
    HubFolder: Case(folder_of_a_hub),
    IntoBroker: Case(live_broker),
}
every_sink = pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)


class Recorder:
    """Keeps the result of each batch, for other sinks to be called with."""

    what: ResultKind = "notifications"

    def __init__(self) -> None:
        self.results: list[MicroBatchResult] = []

    def __call__(self, outcome: MicroBatchResult) -> None:
        self.results.append(outcome)


@pytest.fixture(scope="module")
def results(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> list[MicroBatchResult]:
    """The results of a batch with `MATCHED` notifications, and of one without any."""
    from tidings.spark.pipeline import Pipeline

    folder, recorder = tmp_path_factory.mktemp("pipeline"), Recorder()
    write(folder / "events", EVENTS, [[(f"e{n}", n, "p", n) for n in range(2 * MATCHED)], [("e", 50, "p", -1)]])
    pipeline = Pipeline(
        streams(spark, folder / "events", EVENTS),
        spark.createDataFrame([("s", "ann", f"n >= {MATCHED}")], "id string, subscriber string, content string"),
        checkpoint=folder / "checkpoint",
        sinks=[recorder],
        trigger="available-now",
    )
    pipeline.start().await_termination()
    assert [result.count("notifications") for result in recorder.results] == [MATCHED, 0]
    return recorder.results


def test_every_sink_of_the_module_has_a_case() -> None:
    defined = [kind for kind in vars(sinks).values() if isinstance(kind, type) and kind.__module__ == sinks.__name__]
    assert {kind for kind in defined if "__call__" in vars(kind) and kind is not Sink} == CASES.keys()


@every_sink
def test_a_batch_is_delivered_and_once_if_the_sink_says_so(
    spark: "SparkSession", results: list[MicroBatchResult], tmp_path: Path, kind: type[Any]
) -> None:
    case = CASES[kind]
    with case.opens(spark, tmp_path) as opened:
        opened.sink(results[0])
        opened.sink(results[0])  # as Spark does after a crash
        assert opened.delivered() == (MATCHED if case.once else 2 * MATCHED)
    if not case.once:
        assert "again" in (kind.__doc__ or ""), "the docstring says that a repeated batch is seen again"


@every_sink
def test_a_batch_without_rows_leaves_nothing(
    spark: "SparkSession", results: list[MicroBatchResult], tmp_path: Path, kind: type[Any]
) -> None:
    with CASES[kind].opens(spark, tmp_path) as opened:
        opened.sink(results[1])
        assert opened.delivered() == 0


@every_sink
def test_a_sink_says_which_result_it_reads(spark: "SparkSession", tmp_path: Path, kind: type[Any]) -> None:
    with CASES[kind].opens(spark, tmp_path) as opened:
        assert opened.sink.what == "notifications", "the default of every sink"
        assert opened.sink.what in get_args(ResultKind)


@every_sink
def test_a_sink_travels_to_other_processes_or_says_why_not(
    spark: "SparkSession", tmp_path: Path, kind: type[Any]
) -> None:
    from pyspark import cloudpickle

    case = CASES[kind]
    refused = nullcontext() if case.travels else pytest.raises(TidingsError, match="cannot be sent to another")
    with case.opens(spark, tmp_path) as opened, refused:
        copy = cloudpickle.loads(cloudpickle.dumps(opened.sink))
        assert type(copy) is kind
        assert copy.what == opened.sink.what


@pytest.mark.process
def test_files_are_checked_without_pyspark() -> None:
    probe = "import tidings.spark.pipeline.configuration, sys; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# In a pipeline's file

FORMATS: dict[str, dict[str, Any]] = {
    "parquet": {"path": "out"},
    "json": {"path": "out"},
    "console": {},
    "hub": {"path": "hub"},
    "broker": {"address": "tidings://127.0.0.1:7450"},
}
VALUES: dict[str, Any] = {
    "path": "out",
    "rows": 3,
    "publisher": "p",
    "name": "n",
    "address": "tidings://127.0.0.1:7450",
    "safe": "journaled",
    "partitions": 2,
    "patience": "1 second",
    "authority": "ca.pem",
    "certificate": "c.pem",
    "key": "k.pem",
}
every_format = pytest.mark.parametrize("name", FORMATS)


def test_every_format_has_a_case() -> None:
    with pytest.raises(InvalidValueError, match="format: 'xml' is none of ") as caught:
        SinkTable(format="xml")
    assert str(caught.value).partition("none of ")[2].split(", ") == list(FORMATS)
    assert set(SinkTable.__struct_fields__) == {"format", "what", *VALUES}


@every_format
def test_a_format_makes_a_sink_and_is_documented(name: str) -> None:
    assert type(SinkTable(format=name, **FORMATS[name]).sink(Path("/base"))) in CASES
    assert f"`{name}`" in PAGE
    for key in VALUES:
        assert f"`{key}`" in PAGE


@every_format
@pytest.mark.parametrize("key", VALUES)
def test_an_option_of_another_format_is_refused_by_its_name(name: str, key: str) -> None:
    table = {"format": name, **FORMATS[name], key: VALUES[key]}
    if key in ("certificate", "key"):
        table["authority"] = "ca.pem"
    try:
        SinkTable(**table)
    except InvalidValueError as error:
        assert f"{error}".endswith(f" alone, not for {name}")
        assert str(error).split(":")[0] in (key, "authority")


@every_format
def test_a_required_option_that_is_missing_is_named_with_its_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(
        f'checkpoint = "c"\n[journal]\npath = "j"\n[[sinks]]\nformat = "{name}"\nodd = 1\n'
    )
    with pytest.raises(InvalidValueError, match=r"pipeline\.toml:\d+: sinks\[0\]\.odd: there is no such key"):
        read(tmp_path / "pipeline.toml")
    for key in FORMATS[name]:
        with pytest.raises(InvalidValueError, match=f"^{key}: is missing"):
            SinkTable(format=name)
