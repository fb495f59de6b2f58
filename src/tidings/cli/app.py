"""The verbs of the command line. Each imports what it needs when it runs, so that `tidings --help` is quick."""

from pathlib import Path
from typing import Annotated

import typer

from tidings._version import __version__

AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]

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
def bench_match(
    count: Annotated[int, typer.Option(min=1, help="How many subscriptions.")] = 100_000,
    plot: Annotated[Path | None, typer.Option(help="Draw the result into this file (PNG or SVG).")] = None,
    as_json: AsJson = False,
) -> None:
    """Matching events with the index, beside what one would use instead.

    Example: tidings bench match --count 10000 --plot match.png
    """
    from tidings.cli.bench import match, report

    report(match.measure(count, plot), as_json)


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
def bench_all(as_json: AsJson = False) -> None:
    """Everything that can be measured, one after the other.

    Example: tidings bench all --json > today.json
    """
    from tidings.cli.bench import covering, language, report, start

    report([*start.measure(15), *language.measure(100_000), *covering.measure(300)], as_json)
