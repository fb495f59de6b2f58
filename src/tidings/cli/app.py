"""The verbs of the command line. Each imports what it needs when it runs, so that `tidings --help` is quick."""

from pathlib import Path
from typing import Annotated

import typer

from tidings._version import __version__

AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Count = Annotated[int, typer.Option(min=1, help="How many subscriptions.")]
Since = Annotated[str | None, typer.Option(help="Events accepted from this time on: 2026-01-31T12:00:00Z.")]
Until = Annotated[str | None, typer.Option(help="Events accepted before this time.")]
Plot = Annotated[Path | None, typer.Option(help="Draw the result into this file (PNG or SVG).")]

app = typer.Typer(
    name="tidings",
    help="Content-based, context-aware publish/subscribe.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(
    name="bench",
    help="Measure, side by side with what one would use instead.\n\nExample: tidings bench language",
    no_args_is_help=True,
    rich_markup_mode=None,
)
policy = typer.Typer(
    name="policy",
    help="Policies: read, check and try them.\n\nExample: tidings policy check zones.policy",
    no_args_is_help=True,
    rich_markup_mode=None,
)
pipeline = typer.Typer(
    name="pipeline",
    help="The Spark pipeline: run one, ask how it is.\n\nExample: tidings pipeline run pipeline.toml",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(policy)
app.add_typer(pipeline)
app.add_typer(bench)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidings {__version__}")
        raise typer.Exit


@app.callback()
def _tidings(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Content-based, context-aware publish/subscribe."""


@app.command()
def demo(
    spark: Annotated[bool, typer.Option(help="Ask Spark SQL the same questions at the end (needs Java 17).")] = True,
    as_json: AsJson = False,
) -> None:
    """The whole story on this machine: what there is so far, played through.

    Example: tidings demo --no-spark
    """
    from tidings.cli.demo import play

    play(spark=spark, as_json=as_json)


@app.command()
def warm(as_json: AsJson = False) -> None:
    """Compile the matching kernels now, so that no program that uses the index has to wait for it later.

    Example: tidings warm
    """
    from tidings.cli.warm import warm

    warm(as_json)


@app.command(name="filter")
def filter_command(
    text: Annotated[str, typer.Argument(help="The filter.")],
    format: Annotated[str, typer.Option(help="sql, topic, tags, regex, xpath or padres.")] = "sql",  # noqa: A002
    event: Annotated[str | None, typer.Option(help="Attributes as JSON: does the filter match them?")] = None,
    subject: Annotated[str | None, typer.Option(help="The event's subject.")] = None,
    payload: Annotated[str | None, typer.Option(help="The event's payload, as text.")] = None,
    against: Annotated[
        str | None, typer.Option(help="Another filter of this format: does one cover the other?")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read a filter, write it canonically, try it on an event, compare it with another.

    Example: tidings filter "class = 'report' and d1 > 10" --event '{"class": "report", "d1": 11}'
    """
    from tidings.cli.filter import show

    show(text, format, event=event, subject=subject, payload=payload, against=against, as_json=as_json)


@policy.command(name="check")
def policy_check(
    file: Annotated[Path, typer.Argument(help="The policy, as text or XML; - is standard input.")],
    on: Annotated[
        str | None,
        typer.Option(
            "--with",
            help="publication, subscription, advertisement, unsubscription or unadvertisement: may it stand there?",
        ),
    ] = None,
    hub: Annotated[bool, typer.Option(help="In a hub, where nothing goes from broker to broker.")] = False,
    xml: Annotated[bool, typer.Option(help="Write it as XML.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read a policy, say where it may stand and what is suspicious in it, and write it canonically.

    Example: tidings policy check zones.policy --with advertisement
    """
    from tidings.cli.policy import On, check
    from tidings.model.errors import InvalidValueError

    try:
        place = None if on is None else On(on)
    except ValueError:
        raise InvalidValueError(f"--with is one of {', '.join(On)}, not {on}") from None
    check(file, place, hub=hub, xml=xml, as_json=as_json)


@policy.command(name="try")
def policy_try(
    file: Annotated[Path, typer.Argument(help="The policy, as text or XML; - is standard input.")],
    journal: Annotated[Path, typer.Argument(help="The folder of a hub's or broker's journal.")],
    since: Since = None,
    until: Until = None,
    on: Annotated[
        str | None,
        typer.Option(help="The id of a subscription or an advertisement; without it, the policy is for everything."),
    ] = None,
    as_owner: Annotated[
        bool, typer.Option("--as-owner", help="In the place of the owner's policy, not as the operator's beside it.")
    ] = False,
    examples: Annotated[int, typer.Option(min=0, help="How many changes of each kind to show.")] = 3,
    as_json: AsJson = False,
) -> None:
    """What would have changed, had this policy been set: notifications lost, gained and altered (needs Java 17).

    Example: tidings policy try trim.policy data/hub --since 2026-01-31 --on car-1.s1
    """
    from tidings.cli.history import Span
    from tidings.cli.trial import show

    show(file, Span.of(journal, since, until), on, as_owner=as_owner, examples=examples, as_json=as_json)


@app.command()
def history(
    folder: Annotated[Path, typer.Argument(help="The folder of a hub's or broker's journal.")],
    since: Since = None,
    until: Until = None,
    subscription: Annotated[str | None, typer.Option(help="Only this subscription, by its id.")] = None,
    client: Annotated[
        str | None, typer.Option(help="Only this client: what it subscribed to, published and got.")
    ] = None,
    events: Annotated[bool, typer.Option("--events", help="List events, and to whom each went.")] = False,
    policies: Annotated[bool, typer.Option("--policies", help="What each rule blocked and shaped.")] = False,
    why: Annotated[
        str | None,
        typer.Option(help="The id of an event: why did it, or did it not, reach --subscription or --client?"),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many lines of a table.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Questions to what was journaled: how much there was, who got what, and why (needs Java 17).

    Example: tidings history data/hub --since 2026-01-31T12:00:00Z --client car-1 --events
    """
    from tidings.cli import history as asked

    if events + policies + (why is not None) > 1:
        raise typer.BadParameter("one of --events, --policies and --why at a time")
    span, question = asked.Span.of(folder, since, until), asked.Question(subscription, client, limit)
    if why is not None:
        asked.why(span, why, question, as_json=as_json)
    elif events:
        asked.events(span, question, as_json=as_json)
    elif policies:
        asked.rules(span, question, as_json=as_json)
    else:
        asked.summary(span, question, as_json=as_json)


@pipeline.command(name="run")
def pipeline_run(
    file: Annotated[Path, typer.Argument(help="The pipeline's TOML file.")],
    once: Annotated[bool, typer.Option("--once", help="Take what is there, and end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline until Ctrl-C (or, with --once, until nothing is left), and say what came of it (needs Java 17).

    Example: tidings pipeline run examples/pipeline/pipeline.toml --once
    """
    from tidings.cli.pipeline import run

    run(file, once=once, as_json=as_json)


@pipeline.command(name="status")
def pipeline_status(
    place: Annotated[Path, typer.Argument(help="The pipeline's TOML file, or its checkpoint.")],
    as_json: AsJson = False,
) -> None:
    """How a pipeline is, running or not: what it has done, how fast, how far it has come. Needs no Spark.

    Example: tidings pipeline status examples/pipeline/pipeline.toml
    """
    from tidings.cli.pipeline import status

    status(place, as_json=as_json)


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
