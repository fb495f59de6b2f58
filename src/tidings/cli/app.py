"""The typer application `tidings` with its top-level commands. Each command imports its modules when it runs, so that
`tidings --help` stays fast."""

from pathlib import Path
from typing import Annotated

import typer

from tidings._version import __version__
from tidings.cli.commands.bench import bench
from tidings.cli.commands.broker import brokers
from tidings.cli.commands.ca import ca
from tidings.cli.commands.client import clients
from tidings.cli.commands.journal import journal
from tidings.cli.commands.kmc import kmc
from tidings.cli.commands.topics import tdn, topics
from tidings.cli.commands.trust import trust
from tidings.cli.options import DEFAULT_BROKER, AsJson, Broker, CommandGroup, Format, IdentityFile, OperatorName

Since = Annotated[
    str | None, typer.Option(help="Events accepted from this time on: 2026-01-31T12:00:00Z.", metavar="TIME")
]
Until = Annotated[str | None, typer.Option(help="Events accepted before this time.", metavar="TIME")]

app = CommandGroup(
    name="tidings",
    help="Content-based, context-aware publish/subscribe.",
)
policy = CommandGroup(
    name="policy",
    help="Policies: check, try, apply and remove them.\n\nExample: tidings policy check zones.policy",
)
pipeline = CommandGroup(
    name="pipeline",
    help="The Spark pipeline: run one, and show its progress.\n\nExample: tidings pipeline run pipeline.toml",
)
config = CommandGroup(
    name="config",
    help="The configuration of a broker: show it, and its reference.\n\n"
    "Example: tidings config show --config broker.toml",
)
app.add_typer(policy)
app.add_typer(pipeline)
app.add_typer(config)
app.add_typer(journal)
app.add_typer(brokers)
app.add_typer(kmc)
app.add_typer(clients)
app.add_typer(bench)
app.add_typer(ca)
app.add_typer(trust)
app.add_typer(tdn)
app.add_typer(topics)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"tidings {__version__}")
        raise typer.Exit


@app.callback()
def _tidings(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Content-based, context-aware publish/subscribe."""


@app.command(short_help="Play the whole story on this machine, step by step.")
def demo(
    spark: Annotated[bool, typer.Option(help="Ask Spark SQL the same questions at the end (needs Java 17).")] = True,
    as_json: AsJson = False,
) -> None:
    """Play the whole story on this machine: an overlay, contexts, policies, sealed topics and Spark.

    Example: tidings demo --no-spark
    """
    from tidings.cli.demo import play

    play(spark=spark, as_json=as_json)


@app.command(short_help="Compile the matching kernels ahead of their first use.")
def warm(as_json: AsJson = False) -> None:
    """Compile the matching kernels now, so that no program that uses the index waits for it later.

    Example: tidings warm
    """
    from tidings.cli.actions.matcher import warm

    warm(as_json)


@app.command(name="filter", short_help="Parse a filter, test it on an event, compare it with another.")
def filter_command(
    text: Annotated[str, typer.Argument(help="The filter.", metavar="FILTER")],
    format: Format = "sql",  # noqa: A002
    event: Annotated[
        str | None, typer.Option(help="Attributes as JSON: does the filter match them?", metavar="JSON")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="The event's subject.", metavar="SUBJECT")] = None,
    payload: Annotated[str | None, typer.Option(help="The event's payload, as text.", metavar="TEXT")] = None,
    against: Annotated[
        str | None, typer.Option(help="Another filter of this format: does one cover the other?", metavar="FILTER")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Parse a filter, print it canonically, test it on an event, compare it with another.

    Example: tidings filter "class = 'report' and d1 > 10" --event '{"class": "report", "d1": 11}'
    """
    from tidings.cli.actions.matcher import show

    show(text, format, event=event, subject=subject, payload=payload, against=against, as_json=as_json)


@policy.command(name="check", short_help="Parse a policy and report what is suspicious in it.")
def policy_check(
    file: Annotated[Path, typer.Argument(help="The policy, as text or XML; - is standard input.", metavar="FILE")],
    on: Annotated[
        str | None,
        typer.Option(
            "--with",
            help="Check whether the policy may be given with this message: publication, subscription, "
            "advertisement, unsubscription or unadvertisement.",
            metavar="MESSAGE",
        ),
    ] = None,
    hub: Annotated[bool, typer.Option(help="Check it for a hub, where no message goes from broker to broker.")] = False,
    xml: Annotated[bool, typer.Option(help="Print the policy as XML.")] = False,
    as_json: AsJson = False,
) -> None:
    """Parse a policy, print it canonically, and report where it may be given and what is suspicious in it.

    Example: tidings policy check zones.policy --with advertisement
    """
    from tidings.cli.actions.policy import PolicyTarget, check
    from tidings.model.errors import InvalidValueError

    try:
        place = None if on is None else PolicyTarget(on)
    except ValueError:
        raise InvalidValueError(f"--with is one of {', '.join(PolicyTarget)}, not {on}") from None
    check(file, place, hub=hub, xml=xml, as_json=as_json)


@policy.command(name="try", short_help="Show what a policy would have changed (needs Java 17).")
def policy_try(
    file: Annotated[Path, typer.Argument(help="The policy, as text or XML; - is standard input.", metavar="FILE")],
    journal: Annotated[Path, typer.Argument(help="The folder of a hub's or broker's journal.", metavar="FOLDER")],
    since: Since = None,
    until: Until = None,
    on: Annotated[
        str | None,
        typer.Option(
            help="The id of a subscription or an advertisement; without it, the policy is for everything.", metavar="ID"
        ),
    ] = None,
    as_owner: Annotated[
        bool, typer.Option("--as-owner", help="Replace the owner's policy, instead of adding an operator's policy.")
    ] = False,
    examples: Annotated[int, typer.Option(min=0, help="How many changes of each kind to show.", metavar="NUMBER")] = 3,
    as_json: AsJson = False,
) -> None:
    """Show what would have changed with this policy: notifications lost, gained and altered (needs Java 17).

    Example: tidings policy try trim.policy data/hub --since 2026-01-31 --on car-1.s1
    """
    from tidings.cli.actions.history import JournalSpan
    from tidings.cli.actions.policy import try_on_journal

    try_on_journal(
        file, JournalSpan.of(journal, since, until), on, as_owner=as_owner, examples=examples, as_json=as_json
    )


@policy.command(name="apply", short_help="Set a policy on a filter at a running broker.")
def policy_apply(
    file: Annotated[Path, typer.Argument(help="The policy, as text or XML; - is standard input.", metavar="FILE")],
    to: Annotated[str, typer.Option(help="The id of a subscription or an advertisement.", metavar="ID")],
    connect: Broker = DEFAULT_BROKER,
    name: OperatorName = "operator",
    identity: IdentityFile = None,
    as_json: AsJson = False,
) -> None:
    """Set a policy on a subscription or an advertisement at a running broker; an operator's policy is added to the
    owner's.

    Example: tidings policy apply trim.policy --to car-1.s1
    """
    from tidings.cli.actions.policy import apply
    from tidings.cli.connection import BrokerConnection

    apply(BrokerConnection(connect, name, identity), file, to, as_json=as_json)


@policy.command(name="remove")
def policy_remove(
    of: Annotated[str, typer.Argument(metavar="ID", help="The id of a subscription or an advertisement.")],
    connect: Broker = DEFAULT_BROKER,
    name: OperatorName = "operator",
    identity: IdentityFile = None,
    as_json: AsJson = False,
) -> None:
    """Remove the policy that was set with `apply`.

    Example: tidings policy remove car-1.s1
    """
    from tidings.cli.actions.policy import remove
    from tidings.cli.connection import BrokerConnection

    remove(BrokerConnection(connect, name, identity), of, as_json=as_json)


@app.command(short_help="Show who got which event of a journal, and why (needs Java 17).")
def history(
    folder: Annotated[Path, typer.Argument(help="The folder of a hub's or broker's journal.", metavar="FOLDER")],
    since: Since = None,
    until: Until = None,
    subscription: Annotated[str | None, typer.Option(help="Only this subscription, by its id.", metavar="ID")] = None,
    client: Annotated[
        str | None, typer.Option(help="Only this client: what it subscribed to, published and got.", metavar="CLIENT")
    ] = None,
    events: Annotated[
        bool, typer.Option("--events", help="List events with the subscriptions that each reached.")
    ] = False,
    policies: Annotated[bool, typer.Option("--policies", help="List what each rule blocked and transformed.")] = False,
    why: Annotated[
        str | None,
        typer.Option(
            help="The id of an event: why did it, or did it not, reach --subscription or --client?", metavar="ID"
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The maximum number of lines of a table.", metavar="NUMBER")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show what a journal holds: how many events, who got what, and why (needs Java 17).

    Example: tidings history data/hub --since 2026-01-31T12:00:00Z --client car-1 --events
    """
    from tidings.cli.actions import history as actions

    if events + policies + (why is not None) > 1:
        raise typer.BadParameter("one of --events, --policies and --why at a time")
    span, question = actions.JournalSpan.of(folder, since, until), actions.HistoryOptions(subscription, client, limit)
    if why is not None:
        actions.why(span, why, question, as_json=as_json)
    elif events:
        actions.events(span, question, as_json=as_json)
    elif policies:
        actions.rules(span, question, as_json=as_json)
    else:
        actions.summary(span, question, as_json=as_json)


@app.command(short_help="Simulate an overlay with clients and faults in virtual time.")
def simulate(
    file: Annotated[Path, typer.Argument(help="The scenario's TOML file, or a step file: FILE.steps.", metavar="FILE")],
    seed: Annotated[int | None, typer.Option(help="The seed, instead of the file's.", metavar="NUMBER")] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="The routing strategy, instead of the file's: advertisement, asf, gsf or spcf.", metavar="NAME"
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="The length of the workload in virtual seconds, instead of the file's.", metavar="SECONDS"),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            help="Draw the overlay with the traffic of each link: a path ending in .svg or .png.", metavar="FILE"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate an overlay of brokers with clients and faults in virtual time; the same seed gives the same result.

    A step file is replayed: the command reports what goes wrong in its history.

    Example: tidings simulate examples/scenarios/cars.toml --strategy spcf --picture cars.svg
    """
    from tidings.cli.actions.simulate import replay, simulate
    from tidings.routing import STRATEGIES
    from tidings.simulation.scenario import read

    if strategy is not None and strategy not in STRATEGIES:
        raise typer.BadParameter(f"--strategy is one of {', '.join(STRATEGIES)}, not {strategy}")
    if seconds is not None and seconds <= 0:
        raise typer.BadParameter("--seconds must be more than 0")
    if file.suffix == ".steps":
        if seconds is not None or picture is not None:
            raise typer.BadParameter("--seconds and --picture are for scenarios, not for step files")
        replay(file, seed=seed, strategy=strategy, as_json=as_json)
        return
    simulate(read(file, seed=seed, strategy=strategy, seconds=seconds), picture=picture, as_json=as_json)


@pipeline.command(name="run", short_help="Run a pipeline until Ctrl-C, or once (needs Java 17).")
def pipeline_run(
    file: Annotated[Path, typer.Argument(help="The pipeline's TOML file.", metavar="FILE")],
    once: Annotated[bool, typer.Option("--once", help="Process the available input, then end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline until Ctrl-C, or with --once until its input is used up, and print a summary (needs Java 17).

    Example: tidings pipeline run examples/pipeline/pipeline.toml --once
    """
    from tidings.cli.actions.pipeline import run

    run(file, once=once, as_json=as_json)


@pipeline.command(name="status", short_help="Show the progress and the rates of a pipeline.")
def pipeline_status(
    place: Annotated[Path, typer.Argument(help="The pipeline's TOML file, or its checkpoint folder.", metavar="PATH")],
    as_json: AsJson = False,
) -> None:
    """Show the progress of a pipeline, running or not: its counts, its rates and its watermark. Needs no Spark.

    Example: tidings pipeline status examples/pipeline/pipeline.toml
    """
    from tidings.cli.actions.pipeline import status

    status(place, as_json=as_json)


@config.command(name="show", short_help="Show the configuration in force and where each value is from.")
def config_show(
    file: Annotated[
        Path | None, typer.Option("--config", help="The broker's TOML file; without it, defaults.", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the configuration in force and where each value is from: the file, an environment variable TIDINGS_*, or the
    default.

    Example: tidings config show --config broker.toml
    """
    from tidings.cli.actions.broker import show

    show(file, as_json=as_json)


@config.command(name="reference", short_help="Print all keys of a broker's file: Markdown or JSON Schema.")
def config_reference(as_json: AsJson = False) -> None:
    """Print every key of a broker's file with its meaning, in Markdown; with --json as a JSON Schema, for editors.

    Example: tidings config reference
    """
    from tidings.cli.actions.broker import reference

    reference(as_json=as_json)
