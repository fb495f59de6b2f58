"""The subcommands of `tidings bench` that measure overlays, brokers and security: in the simulator, as the papers do,
and as processes, beside other products."""

from typing import Annotated

import typer

from tidings.cli.options import AsJson, CommandGroup, Plot

Contexts = Annotated[
    list[int],
    typer.Option(min=1, max=100, help="How many percent of the contexts a context filter selects.", metavar="NUMBER"),
]
Brokers = Annotated[int, typer.Option(min=2, help="How many brokers.", metavar="NUMBER")]
Clients = Annotated[int, typer.Option(min=1, help="How many clients.", metavar="NUMBER")]
Subscriptions = Annotated[int, typer.Option(min=1, help="How many subscriptions a client.", metavar="NUMBER")]
Events = Annotated[int, typer.Option(min=1, help="How many events a round.", metavar="NUMBER")]
Rounds = Annotated[int, typer.Option(min=1, help="How many rounds; the best counts.", metavar="NUMBER")]

_CONTEXTS = [1, 2, 5, 10, 20, 40, 80]

overlay = CommandGroup()


@overlay.command(name="forwarding", short_help="Events forwarded under spcf, gsf and asf.")
def bench_forwarding(
    publications: Annotated[
        bool, typer.Option("--publications", help="Context filters in publications, not in subscriptions.")
    ] = False,
    varied: Annotated[
        bool, typer.Option("--varied", help="Every subscription has a context filter of its own, not every client.")
    ] = False,
    contexts: Contexts = _CONTEXTS,
    brokers: Brokers = 20,
    clients: Clients = 100,
    subscriptions: Subscriptions = 30,
    events: Events = 500,
    rounds: Rounds = 10,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Events forwarded by spcf, gsf and asf, as context filters select more and more contexts.

    Example: tidings bench forwarding --contexts 10 --contexts 80 --plot forwarding.svg
    """
    from benchmarks.overlay import forwarding
    from benchmarks.workloads.network_workload import NetworkSize

    from tidings.cli.measurement import report

    size = NetworkSize(brokers=brokers, clients=clients, subscriptions=subscriptions)
    where = forwarding.Side.PUBLICATIONS if publications else forwarding.Side.SUBSCRIPTIONS
    report(forwarding.measure(where, contexts, size, events, rounds, plot, is_varied=varied), as_json)


@overlay.command(name="routing", short_help="Packets of a new client under spcf, gsf and asf.")
def bench_routing(
    contexts: Contexts = _CONTEXTS,
    brokers: Brokers = 20,
    clients: Clients = 100,
    subscriptions: Subscriptions = 30,
    trials: Annotated[
        int, typer.Option(min=1, help="How many new clients, one after the other.", metavar="NUMBER")
    ] = 20,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Packets for a new client's subscription and its context, under spcf, gsf and asf.

    Example: tidings bench routing --contexts 10 --contexts 80 --plot routing.svg
    """
    from benchmarks.overlay import routing
    from benchmarks.workloads.network_workload import NetworkSize

    from tidings.cli.measurement import report

    size = NetworkSize(brokers=brokers, clients=clients, subscriptions=subscriptions)
    report(routing.measure(contexts, size, trials, plot), as_json)


@overlay.command(name="resubscribing", short_help="A context change beside a new subscription, simulated.")
def bench_resubscribing(
    brokers: Annotated[int, typer.Option(min=2, help="How many brokers, each with a publisher.", metavar="NUMBER")] = 5,
    subscribers: Annotated[
        int, typer.Option(min=1, help="How many subscribers at each broker.", metavar="NUMBER")
    ] = 100,
    subscriptions: Subscriptions = 10,
    changes: Annotated[int, typer.Option(min=1, help="How many changes of context a round.", metavar="NUMBER")] = 200,
    rounds: Rounds = 3,
    as_json: AsJson = False,
) -> None:
    """A change of context, beside subscribing anew with other values: messages and processor time.

    Example: tidings bench resubscribing --subscribers 10
    """
    from benchmarks.overlay import resubscribing

    from tidings.cli.measurement import report

    report(
        resubscribing.measure(resubscribing.OverlaySize(brokers, subscribers, subscriptions), changes, rounds), as_json
    )


@overlay.command(name="roaming", short_help="Messages while publishers move, by type.")
def bench_roaming(
    brokers: Brokers = 7,
    publishers: Annotated[int, typer.Option(min=1, help="How many publishers that move.", metavar="NUMBER")] = 5,
    subscribers: Annotated[int, typer.Option(min=1, help="How many subscribers that stay.", metavar="NUMBER")] = 3,
    moves: Annotated[int, typer.Option(min=1, help="How many moves.", metavar="NUMBER")] = 200,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Messages by type while publishers move, with advertisements that flood and with the flooding policy.

    Example: tidings bench roaming --moves 50 --plot roaming.svg
    """
    from benchmarks.overlay import roaming

    from tidings.cli.measurement import report

    report(roaming.measure(roaming.RoamingSize(brokers, publishers, subscribers), moves, plot), as_json)


@overlay.command(name="simulation", short_help="Messages a second that the simulator carries.")
def bench_simulation(
    brokers: Annotated[int, typer.Option(min=5, help="How many brokers in the large world.", metavar="NUMBER")] = 1_000,
    clients: Clients = 10_000,
    events: Events = 1_000,
    rounds: Rounds = 5,
    as_json: AsJson = False,
) -> None:
    """Measure the simulator: messages a second, and the time and memory of a large overlay.

    Example: tidings bench simulation --brokers 100 --clients 1000
    """
    from benchmarks.overlay import simulation

    from tidings.cli.measurement import report

    report(simulation.measure(simulation.WorldSize(brokers, clients), events, rounds), as_json)


SubscriptionCount = Annotated[
    int, typer.Option("--count", min=1, max=10_000, help="How many subscriptions.", metavar="NUMBER")
]
Seconds = Annotated[float, typer.Option(min=0.1, help="How long each measurement takes.", metavar="SECONDS")]


@overlay.command(name="brokers", short_help="Tidings beside other brokers: rates and latencies.")
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


@overlay.command(name="live", short_help="One broker process: rates, latencies and memory.")
def bench_live(
    count: SubscriptionCount = 10_000,
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


@overlay.command(name="live-contexts", short_help="A context change beside a new subscription, on brokers.")
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


@overlay.command(name="stalled", short_help="Other subscribers while one takes nothing.")
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


@overlay.command(name="sealing", short_help="Seal, check and open events, by cipher and size.")
def bench_sealing(
    sizes: Annotated[
        list[int] | None,
        typer.Option("--size", min=1, max=1_000_000, help="Bytes of payloads: 1 to 65,536.", metavar="BYTES"),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many events of each size.", metavar="NUMBER")] = 512,
    as_json: AsJson = False,
) -> None:
    """Sealing, checking and opening events, alone and in batches with one signature, by cipher and size.

    Example: tidings bench sealing --size 1024 --count 100
    """
    from benchmarks.security import sealing

    from tidings.cli.measurement import report

    report(sealing.measure(sizes or sealing.SIZES, count), as_json)


@overlay.command(name="keys", short_help="A key management centre: requests and rotations.")
def bench_keys(
    members: Annotated[
        int, typer.Option(min=1, max=10_000, help="How many members a rotation is for.", metavar="NUMBER")
    ] = 1_000,
    requests: Annotated[
        int, typer.Option(min=1, help="How many requests one after the other.", metavar="NUMBER")
    ] = 200,
    as_json: AsJson = False,
) -> None:
    """A key management centre: requests for token and keys, and a rotation, in process and over a broker.

    Example: tidings bench keys --members 100 --requests 50
    """
    from benchmarks.security import keys

    from tidings.cli.measurement import report

    report(keys.measure(members, requests), as_json)


@overlay.command(name="trust", short_help="Publications that need proofs of trust groups.")
def bench_trust(
    count: Annotated[
        int, typer.Option(min=1, max=10_000, help="How many publications of each kind.", metavar="NUMBER")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """Publications between two brokers, of which one has to prove that it belongs to 0, 1, 3 and 5 trust groups.

    Example: tidings bench trust --count 20
    """
    from benchmarks.security import trust

    from tidings.cli.measurement import report

    report(trust.measure(count), as_json)


@overlay.command(name="sealed", short_help="Sealed beside plain delivery through one broker.")
def bench_sealed(
    bits: Annotated[
        list[int] | None,
        typer.Option("--bits", min=128, max=256, help="Bits of keys: 128, 192 and 256.", metavar="NUMBER"),
    ] = None,
    sizes: Annotated[
        list[int] | None,
        typer.Option("--size", min=1, max=1_000_000, help="Bytes of payloads: 1, 2, 4 to 65,536.", metavar="BYTES"),
    ] = None,
    count: Annotated[
        int, typer.Option(min=2, help="How many events of each size, plain and sealed.", metavar="NUMBER")
    ] = 100,
    interval: Annotated[
        float, typer.Option(min=0.0, help="Milliseconds between two events.", metavar="MILLISECONDS")
    ] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Sealed against plain delivery through one broker process: end to end, whose share it is, and the spacing.

    Example: tidings bench sealed --bits 256 --size 1024 --size 65536 --count 50
    """
    from benchmarks.security import sealed

    from tidings.cli.measurement import report

    if unknown := set(bits or ()) - sealed.SUITES.keys():
        raise typer.BadParameter(
            f"there are no keys of {unknown.pop()} bits; there are {', '.join(map(str, sealed.SUITES))}"
        )
    pace = sealed.Pace(count, interval / 1_000)
    report(sealed.measure(bits or list(sealed.SUITES), sizes or sealed.SIZES, pace), as_json)


@overlay.command(name="spark-security", short_help="Check signed events on Spark (needs Java 17).")
def bench_spark_security(
    events: Annotated[
        int, typer.Option(min=1, help="How many events, in batches; fewer with a signature each.", metavar="NUMBER")
    ] = 200_000,
    cores: Annotated[int, typer.Option(min=1, help="How many cores Spark has.", metavar="NUMBER")] = 1,
    as_json: AsJson = False,
) -> None:
    """Checking signed events on Spark, with a signature each and in signed batches (needs Java 17).

    Example: tidings bench spark-security --events 20000
    """
    from benchmarks.spark import spark_security

    from tidings.cli.measurement import report

    report(spark_security.measure(events, cores), as_json)
