"""The subcommands of `tidings bench` that measure broker processes of Tidings and of other products."""

from typing import Annotated

import typer

from tidings.cli.options import AsJson, CommandGroup, Plot

Subscriptions = Annotated[
    int, typer.Option("--count", min=1, max=10_000, help="How many subscriptions.", metavar="NUMBER")
]
Seconds = Annotated[float, typer.Option(min=0.1, help="How long each measurement takes.", metavar="SECONDS")]

live = CommandGroup()


@live.command(name="brokers", short_help="Tidings beside other brokers: rates and latencies.")
def bench_brokers(
    systems: Annotated[
        list[str] | None,
        typer.Option("--system", help="Only these: mosquitto, rabbitmq, activemq, and so on.", metavar="NAME"),
    ] = None,
    counts: Annotated[
        list[int] | None,
        typer.Option("--count", min=1, max=10_000, help="How many subscriptions: 1, 1000 and 10000.", metavar="NUMBER"),
    ] = None,
    seconds: Seconds = 5.0,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Brokers as processes of their own, beside each other: what they carry, and how long an event takes.

    Those of others have to be installed: apt-get install mosquitto rabbitmq-server activemq

    Example: tidings bench brokers --system mosquitto --system rabbitmq --count 1000 --seconds 2
    """
    from benchmarks.brokers import table
    from benchmarks.brokers.systems import SYSTEMS

    if unknown := set(systems or ()) - SYSTEMS.keys():
        raise typer.BadParameter(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(SYSTEMS)}")
    outcomes = table.measure(systems or list(SYSTEMS), counts or [1, 1_000, 10_000], seconds)
    if plot is not None:
        table.draw(outcomes, plot)
    table.report(outcomes, as_json)


@live.command(name="live", short_help="One broker process: rates, latencies and memory.")
def bench_live(
    count: Subscriptions = 10_000,
    clients: Annotated[
        int, typer.Option(min=1, max=1_000, help="How many clients that connect.", metavar="NUMBER")
    ] = 1_000,
    seconds: Seconds = 5.0,
    as_json: AsJson = False,
) -> None:
    """One broker as a process: what it carries, how long an event takes, what clients and subscriptions cost.

    Example: tidings bench live --count 1000 --clients 100 --seconds 2
    """
    from benchmarks.live import live

    from tidings.cli.measurement import report

    report(live.measure(count, clients, seconds), as_json)


@live.command(name="live-contexts", short_help="A context change beside a new subscription, on brokers.")
def bench_live_contexts(
    brokers: Annotated[int, typer.Option(min=2, max=20, help="How many brokers.", metavar="NUMBER")] = 4,
    subscribers: Annotated[int, typer.Option(min=1, help="How many subscribers.", metavar="NUMBER")] = 10,
    subscriptions: Annotated[int, typer.Option(min=1, help="How many subscriptions a client.", metavar="NUMBER")] = 10,
    changes: Annotated[int, typer.Option(min=1, help="How many changes of context.", metavar="NUMBER")] = 200,
    as_json: AsJson = False,
) -> None:
    """A change of context, beside subscribing anew, on broker processes: messages, and time until it takes effect.

    Example: tidings bench live-contexts --brokers 3 --changes 50
    """
    from benchmarks.live import live_contexts

    from tidings.cli.measurement import report

    report(live_contexts.measure(live_contexts.LiveOverlaySize(brokers, subscribers, subscriptions), changes), as_json)


@live.command(name="stalled", short_help="Other subscribers while one takes nothing.")
def bench_stalled(
    subscribers: Annotated[
        int, typer.Option(min=2, max=900, help="How many subscribers, one of them stalled.", metavar="NUMBER")
    ] = 100,
    seconds: Seconds = 12.0,
    as_json: AsJson = False,
) -> None:
    """One subscriber of many takes nothing any more: what the others feel of it.

    Example: tidings bench stalled --subscribers 20 --seconds 5
    """
    from benchmarks.live import stalled

    from tidings.cli.measurement import report

    report(stalled.measure(subscribers, seconds), as_json)
