"""The command `tidings bench`, with a subcommand for each benchmark of the folder `benchmarks`."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from tidings.cli.commands.bench_overlay import overlay
from tidings.cli.options import AsJson, CommandGroup, Plot

Count = Annotated[int, typer.Option(min=1, help="How many subscriptions.", metavar="NUMBER")]

bench = CommandGroup(
    name="bench",
    help="Measure, side by side with what one would use instead.\n\nExample: tidings bench language",
)
bench.add_typer(overlay)


@bench.callback()
def find_benchmarks() -> None:
    """Makes the benchmarks importable, here and in processes that are started: they stand beside the package."""
    from tidings.model.errors import UnreachableError

    checkout = Path(__file__).parents[4]
    if find_spec("benchmarks") is None:
        if not (checkout / "benchmarks" / "everything.py").exists():
            raise UnreachableError("benchmarks are not installed with tidings: run this in a checkout")
        sys.path.insert(0, str(checkout))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(checkout), os.environ.get("PYTHONPATH")]))


@bench.command(name="language", short_help="Parse many subscriptions of few shapes, and new ones.")
def bench_language(
    count: Annotated[int, typer.Option(min=1, help="How many subscriptions to parse.", metavar="NUMBER")] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Parsing: many subscriptions of few shapes, and one that was never seen.

    Example: tidings bench language --count 10000
    """
    from benchmarks.matching import language

    from tidings.cli.measurement import report

    report(language.measure(count), as_json)


@bench.command(name="covering")
def bench_covering(
    count: Annotated[
        int, typer.Option(min=2, help="How many filters to compare and to merge.", metavar="NUMBER")
    ] = 300,
    as_json: AsJson = False,
) -> None:
    """Covering, overlap and merging.

    Example: tidings bench covering --count 100
    """
    from benchmarks.matching import covering

    from tidings.cli.measurement import report

    report(covering.measure(count), as_json)


@bench.command(name="match", short_help="Match events, beside other libraries.")
def bench_match(count: Count = 100_000, plot: Plot = None, as_json: AsJson = False) -> None:
    """Matching events with the index, beside what one would use instead.

    Example: tidings bench match --count 10000 --plot match.png
    """
    from benchmarks.matching import match

    from tidings.cli.measurement import report

    report(match.measure(count, plot), as_json)


@bench.command(name="ranges", short_help="Match subscriptions of ranges, without any equality.")
def bench_ranges(count: Count = 100_000, as_json: AsJson = False) -> None:
    """Matching subscriptions that have no equality, only ranges.

    Example: tidings bench ranges --count 1000000
    """
    from benchmarks.matching import ranges

    from tidings.cli.measurement import report

    report(ranges.measure(count), as_json)


@bench.command(name="strings", short_help="Match subscriptions that test strings.")
def bench_strings(count: Count = 100_000, as_json: AsJson = False) -> None:
    """Matching subscriptions that ask how strings begin, end, or what they contain.

    Example: tidings bench strings --count 10000
    """
    from benchmarks.matching import strings

    from tidings.cli.measurement import report

    report(strings.measure(count), as_json)


@bench.command(name="contexts", short_help="Change contexts, beside subscribing anew.")
def bench_contexts(count: Count = 1_000_000, plot: Plot = None, as_json: AsJson = False) -> None:
    """Changes of context, at three sizes, beside leaving and subscribing anew.

    Example: tidings bench contexts --count 100000 --plot contexts.png
    """
    from benchmarks.matching import contexts

    from tidings.cli.measurement import report

    report(contexts.measure(count, plot), as_json)


@bench.command(name="grid", short_help="Match events for subscribers nearby.")
def bench_grid(count: Count = 80_000, plot: Plot = None, as_json: AsJson = False) -> None:
    """Events for subscribers nearby, beside looking at everyone's context, and beside content alone.

    Example: tidings bench grid --count 10000 --plot grid.png
    """
    from benchmarks.matching import grid

    from tidings.cli.measurement import report

    report(grid.measure(count, plot), as_json)


@bench.command(name="moving", short_help="Match while clients move, in batches and one by one.")
def bench_moving(
    count: Count = 50_000,
    changes: Annotated[int, typer.Option(min=1, help="How many changes of context.", metavar="NUMBER")] = 500_000,
    events: Annotated[int, typer.Option(min=1, help="How many events.", metavar="NUMBER")] = 200_000,
    as_json: AsJson = False,
) -> None:
    """Clients that move while events come, in the order of time: in batches and one by one.

    The numbers are those of one of two shards.

    Example: tidings bench moving --count 10000 --changes 50000 --events 10000
    """
    from benchmarks.matching import moving

    from tidings.cli.measurement import report

    report(moving.measure(count, changes, events), as_json)


@bench.command(name="growth", short_help="Cost of an event as subscriptions grow tenfold.")
def bench_growth(count: Count = 1_000_000, plot: Plot = None, as_json: AsJson = False) -> None:
    """What an event costs with a hundredth of the subscriptions, a tenth, and all, at the same number of matches.

    Example: tidings bench growth --plot growth.png
    """
    from benchmarks.matching import growth

    from tidings.cli.measurement import report

    report(growth.measure(count, plot), as_json)


@bench.command(name="add", short_help="Add and remove subscriptions, in bulk and one by one.")
def bench_add(count: Count = 100_000, as_json: AsJson = False) -> None:
    """Getting subscriptions into the index, in bulk and one by one, and out of it.

    Example: tidings bench add --count 1000000
    """
    from benchmarks.matching import add

    from tidings.cli.measurement import report

    report(add.measure(count), as_json)


@bench.command(name="engine", short_help="What the engine adds to matching.")
def bench_engine(count: Count = 10_000, as_json: AsJson = False) -> None:
    """What the engine adds to matching, one by one and in batches, without policies and with.

    Example: tidings bench engine --count 1000
    """
    from benchmarks.engine import engine

    from tidings.cli.measurement import report

    report(engine.measure(count), as_json)


@bench.command(name="hub", short_help="Publish through a hub, in memory and on disk.")
def bench_hub(count: Count = 10_000, as_json: AsJson = False) -> None:
    """Publications through a hub, beside matching alone, and how fast they are safe on a disk.

    Example: tidings bench hub --count 10000
    """
    from benchmarks.engine import hub

    from tidings.cli.measurement import report

    report(hub.measure(count), as_json)


@bench.command(name="spark", short_help="Route on Spark, beside Spark's joins (needs Java 17).")
def bench_spark(
    count: Count = 100_000,
    events: Annotated[int, typer.Option(min=1, help="How many events.", metavar="NUMBER")] = 200_000,
    growth: Annotated[bool, typer.Option("--growth", help="Also with ten times the subscriptions.")] = False,
    cluster: Annotated[bool, typer.Option("--cluster", help="Also on one and on two executors.")] = False,
    as_json: AsJson = False,
) -> None:
    """Routing on Spark, Parquet to Parquet, beside a pass through Python and Spark's own joins (needs Java 17).

    Example: tidings bench spark --count 10000 --events 20000
    """
    from benchmarks.spark import spark

    from tidings.cli.measurement import report

    report(spark.measure(count, events, growth=growth, cluster=cluster), as_json)


@bench.command(name="spark-moving", short_help="Route for moving subscribers, beside an as-of join.")
def bench_spark_moving(
    count: Count = 100_000,
    changes: Annotated[int, typer.Option(min=1, help="How many changes of context.", metavar="NUMBER")] = 1_000_000,
    events: Annotated[int, typer.Option(min=1, help="How many events.", metavar="NUMBER")] = 200_000,
    as_json: AsJson = False,
) -> None:
    """Subscribers that move while events come, on Spark; beside an as-of join of Spark's own.

    Example: tidings bench spark-moving --count 10000 --changes 100000 --events 20000
    """
    from benchmarks.spark import spark_moving

    from tidings.cli.measurement import report

    report(spark_moving.measure(count, changes, events), as_json)


@bench.command(name="spark-streaming", short_help="A steady stream through a pipeline: rate and latency.")
def bench_spark_streaming(
    count: Count = 100_000,
    rate: Annotated[int, typer.Option(min=1, help="How many events a second.", metavar="NUMBER")] = 5_000,
    seconds: Annotated[int, typer.Option(min=5, help="How many seconds.", metavar="SECONDS")] = 300,
    as_json: AsJson = False,
) -> None:
    """A stream at a steady pace through a pipeline: whether it keeps up, and how long an event takes.

    Example: tidings bench spark-streaming --count 10000 --seconds 30
    """
    from benchmarks.spark import spark_streaming

    from tidings.cli.measurement import report

    report(spark_streaming.measure(count, rate, seconds), as_json)


@bench.command(name="spark-many", short_help="Very many subscriptions on Spark: time and memory.")
def bench_spark_many(
    count: Count = 10_000_000,
    events: Annotated[int, typer.Option(min=1, help="How many events.", metavar="NUMBER")] = 20_000,
    as_json: AsJson = False,
) -> None:
    """Very many subscriptions on Spark: how long, and how much memory.

    Example: tidings bench spark-many --count 100000
    """
    from benchmarks.spark import spark_many

    from tidings.cli.measurement import report

    report(spark_many.measure(count, events), as_json)


@bench.command(name="trimming", short_help="Bytes of a notification that a policy trims.")
def bench_trimming(plot: Plot = None, as_json: AsJson = False) -> None:
    """How many bytes a notification has when a policy takes attributes away.

    Example: tidings bench trimming --plot trimming.png
    """
    from benchmarks.engine import trimming

    from tidings.cli.measurement import report

    report(trimming.measure(plot), as_json)


@bench.command(name="start", short_help="Start of `import tidings` and `tidings --help`.")
def bench_start(
    rounds: Annotated[int, typer.Option(min=1, help="How often to start; the median counts.", metavar="NUMBER")] = 15,
    as_json: AsJson = False,
) -> None:
    """How long `import tidings` and `tidings --help` take, beside a bare interpreter.

    Example: tidings bench start
    """
    from benchmarks import start

    from tidings.cli.measurement import report

    report(start.measure(rounds), as_json)


@bench.command(name="all")
def bench_all(
    count: Annotated[int, typer.Option(min=1, help="How many subscriptions, at most.", metavar="NUMBER")] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Everything that can be measured, one after the other.

    Example: tidings bench all --json > today.json
    """
    from benchmarks import everything

    from tidings.cli.measurement import report

    report(everything.measure(count), as_json)
