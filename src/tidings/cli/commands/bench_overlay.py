"""The subcommands of `tidings bench` that measure simulated overlays: the figures of the papers, and the simulator
itself."""

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
    """How many messages a second the simulator carries, and what a large world takes.

    Example: tidings bench simulation --brokers 100 --clients 1000
    """
    from benchmarks.overlay import simulation

    from tidings.cli.measurement import report

    report(simulation.measure(simulation.WorldSize(brokers, clients), events, rounds), as_json)
