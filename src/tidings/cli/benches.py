"""The verb `bench`: what can be measured, each by a module of its own."""

from typing import Annotated

import typer

from tidings.cli.live_benches import live
from tidings.cli.options import AsJson, Plot
from tidings.cli.overlay_benches import overlay
from tidings.cli.secure_benches import secure

Count = Annotated[int, typer.Option(min=1, help="How many subscriptions.")]

bench = typer.Typer(
    name="bench",
    help="Measure, side by side with what one would use instead.\n\nExample: tidings bench language",
    no_args_is_help=True,
    rich_markup_mode=None,
)
bench.add_typer(overlay)
bench.add_typer(live)
bench.add_typer(secure)


@bench.command(name="language")
def bench_language(
    count: Annotated[int, typer.Option(min=1, help="How many subscriptions to parse.")] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Parsing: many subscriptions of few shapes, and one that was never seen.

    Example: tidings bench language --count 10000
    """
    from tidings.cli.bench import language, report

    report(language.measure(count), as_json)


@bench.command(name="covering")
def bench_covering(
    count: Annotated[int, typer.Option(min=2, help="How many filters to compare and to merge.")] = 300,
    as_json: AsJson = False,
) -> None:
    """Covering, overlap and merging.

    Example: tidings bench covering --count 100
    """
    from tidings.cli.bench import covering, report

    report(covering.measure(count), as_json)


@bench.command(name="match")
def bench_match(count: Count = 100_000, plot: Plot = None, as_json: AsJson = False) -> None:
    """Matching events with the index, beside what one would use instead.

    Example: tidings bench match --count 10000 --plot match.png
    """
    from tidings.cli.bench import match, report

    report(match.measure(count, plot), as_json)


@bench.command(name="ranges")
def bench_ranges(count: Count = 100_000, as_json: AsJson = False) -> None:
    """Matching subscriptions that have no equality, only ranges.

    Example: tidings bench ranges --count 1000000
    """
    from tidings.cli.bench import ranges, report

    report(ranges.measure(count), as_json)


@bench.command(name="strings")
def bench_strings(count: Count = 100_000, as_json: AsJson = False) -> None:
    """Matching subscriptions that ask how strings begin, end, or what they contain.

    Example: tidings bench strings --count 10000
    """
    from tidings.cli.bench import report, strings

    report(strings.measure(count), as_json)


@bench.command(name="contexts")
def bench_contexts(count: Count = 1_000_000, plot: Plot = None, as_json: AsJson = False) -> None:
    """Changes of context, at three sizes, beside leaving and subscribing anew.

    Example: tidings bench contexts --count 100000 --plot contexts.png
    """
    from tidings.cli.bench import contexts, report

    report(contexts.measure(count, plot), as_json)


@bench.command(name="grid")
def bench_grid(count: Count = 80_000, plot: Plot = None, as_json: AsJson = False) -> None:
    """Events for subscribers nearby, beside looking at everyone's context, and beside content alone.

    Example: tidings bench grid --count 10000 --plot grid.png
    """
    from tidings.cli.bench import grid, report

    report(grid.measure(count, plot), as_json)


@bench.command(name="moving")
def bench_moving(
    count: Count = 50_000,
    changes: Annotated[int, typer.Option(min=1, help="How many changes of context.")] = 500_000,
    events: Annotated[int, typer.Option(min=1, help="How many events.")] = 200_000,
    as_json: AsJson = False,
) -> None:
    """Clients that move while events come, in the order of time: in batches and one by one.

    The numbers are those of one of two shards.

    Example: tidings bench moving --count 10000 --changes 50000 --events 10000
    """
    from tidings.cli.bench import moving, report

    report(moving.measure(count, changes, events), as_json)


@bench.command(name="growth")
def bench_growth(count: Count = 1_000_000, plot: Plot = None, as_json: AsJson = False) -> None:
    """What an event costs with a hundredth of the subscriptions, a tenth, and all, at the same number of matches.

    Example: tidings bench growth --plot growth.png
    """
    from tidings.cli.bench import growth, report

    report(growth.measure(count, plot), as_json)


@bench.command(name="add")
def bench_add(count: Count = 100_000, as_json: AsJson = False) -> None:
    """Getting subscriptions into the index, in bulk and one by one, and out of it.

    Example: tidings bench add --count 1000000
    """
    from tidings.cli.bench import add, report

    report(add.measure(count), as_json)


@bench.command(name="engine")
def bench_engine(count: Count = 10_000, as_json: AsJson = False) -> None:
    """What the engine adds to matching, one by one and in batches, without policies and with.

    Example: tidings bench engine --count 1000
    """
    from tidings.cli.bench import engine, report

    report(engine.measure(count), as_json)


@bench.command(name="hub")
def bench_hub(count: Count = 10_000, as_json: AsJson = False) -> None:
    """Publications through a hub, beside matching alone, and how fast they are safe on a disk.

    Example: tidings bench hub --count 10000
    """
    from tidings.cli.bench import hub, report

    report(hub.measure(count), as_json)


@bench.command(name="spark")
def bench_spark(
    count: Count = 100_000,
    events: Annotated[int, typer.Option(min=1, help="How many events.")] = 200_000,
    growth: Annotated[bool, typer.Option("--growth", help="Also with ten times the subscriptions.")] = False,
    cluster: Annotated[bool, typer.Option("--cluster", help="Also on one and on two executors.")] = False,
    as_json: AsJson = False,
) -> None:
    """Routing on Spark, Parquet to Parquet, beside a pass through Python and Spark's own joins (needs Java 17).

    Example: tidings bench spark --count 10000 --events 20000
    """
    from tidings.cli.bench import report, spark

    report(spark.measure(count, events, growth=growth, cluster=cluster), as_json)


@bench.command(name="spark-moving")
def bench_spark_moving(
    count: Count = 100_000,
    changes: Annotated[int, typer.Option(min=1, help="How many changes of context.")] = 1_000_000,
    events: Annotated[int, typer.Option(min=1, help="How many events.")] = 200_000,
    as_json: AsJson = False,
) -> None:
    """Subscribers that move while events come, on Spark; beside an as-of join of Spark's own.

    Example: tidings bench spark-moving --count 10000 --changes 100000 --events 20000
    """
    from tidings.cli.bench import report, spark_moving

    report(spark_moving.measure(count, changes, events), as_json)


@bench.command(name="spark-streaming")
def bench_spark_streaming(
    count: Count = 100_000,
    rate: Annotated[int, typer.Option(min=1, help="How many events a second.")] = 5_000,
    seconds: Annotated[int, typer.Option(min=5, help="For how long.")] = 300,
    as_json: AsJson = False,
) -> None:
    """A stream at a steady pace through a pipeline: whether it keeps up, and how long an event takes.

    Example: tidings bench spark-streaming --count 10000 --seconds 30
    """
    from tidings.cli.bench import report, spark_streaming

    report(spark_streaming.measure(count, rate, seconds), as_json)


@bench.command(name="spark-many")
def bench_spark_many(
    count: Count = 10_000_000,
    events: Annotated[int, typer.Option(min=1, help="How many events.")] = 20_000,
    as_json: AsJson = False,
) -> None:
    """Very many subscriptions on Spark: how long, and how much memory.

    Example: tidings bench spark-many --count 100000
    """
    from tidings.cli.bench import report, spark_many

    report(spark_many.measure(count, events), as_json)


@bench.command(name="trimming")
def bench_trimming(plot: Plot = None, as_json: AsJson = False) -> None:
    """How many bytes a notification has when a policy takes attributes away.

    Example: tidings bench trimming --plot trimming.png
    """
    from tidings.cli.bench import report, trimming

    report(trimming.measure(plot), as_json)


@bench.command(name="start")
def bench_start(
    rounds: Annotated[int, typer.Option(min=1, help="How often to start; the median counts.")] = 15,
    as_json: AsJson = False,
) -> None:
    """How long `import tidings` and `tidings --help` take, beside a bare interpreter.

    Example: tidings bench start
    """
    from tidings.cli.bench import report, start

    report(start.measure(rounds), as_json)


@bench.command(name="all")
def bench_all(
    count: Annotated[int, typer.Option(min=1, help="How many subscriptions, at most.")] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Everything that can be measured, one after the other.

    Example: tidings bench all --json > today.json
    """
    from tidings.cli.bench import everything, report

    report(everything.measure(count), as_json)
