"""The commands `tidings broker` and `tidings overlay`: run brokers, and ask running brokers for their state."""

from pathlib import Path
from typing import Annotated

import typer

from tidings.cli.options import DEFAULT_BROKER, AsJson, CommandGroup, IdentityFile, Name, OperatorName

brokers = CommandGroup()
overlay = CommandGroup(
    name="overlay",
    help="Overlays of brokers: run one here, or ask running brokers.\n\nExample: tidings overlay run --brokers 4",
)
brokers.add_typer(overlay)


@brokers.command(name="broker", short_help="Run a broker in the foreground.")
def broker(
    file: Annotated[
        Path | None, typer.Option("--config", help="The broker's TOML file; without it, defaults.", metavar="FILE")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The broker's name, instead of the file's.", metavar="NAME")] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            help="The address to listen at, instead of the file's: 127.0.0.1:7450; port 0 picks a free one.",
            metavar="ADDRESS",
        ),
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="The journal's folder, instead of the file's.", metavar="FOLDER")
    ] = None,
    attached: Annotated[
        bool,
        typer.Option("--attached", help="Stop when standard input ends, for a parent process that starts the broker."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a broker until it is stopped: SIGTERM or Ctrl-C once to let it finish, twice to end it; SIGHUP reloads.

    Example: tidings broker --config broker.toml
    """
    from tidings.cli.actions.broker import run

    raise typer.Exit(run(file, name=name, listen=listen, journal=journal, attached=attached, as_json=as_json))


@overlay.command(name="run")
def overlay_run(
    count: Annotated[
        int | None, typer.Option("--brokers", min=1, help="The number of brokers; by default 4.", metavar="NUMBER")
    ] = None,
    topology: Annotated[
        str,
        typer.Option(
            help="The shape: star, line, ring, tree, or a TOML file with links = [['b1', 'b2']].", metavar="SHAPE"
        ),
    ] = "star",
    folder: Annotated[
        Path, typer.Option(help="The folder for configurations, logs and journals, which stay there.", metavar="FOLDER")
    ] = Path("tidings-overlay"),
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65_000,
            help="The port of the first broker; the others have the next ones. 0: free ports.",
            metavar="PORT",
        ),
    ] = 7450,
    strategy: Annotated[
        str,
        typer.Option(help="How brokers route: advertisement, asf, gsf or spcf.", metavar="NAME"),
    ] = "advertisement",
    journal: Annotated[bool, typer.Option(help="Whether brokers have journals on disk.")] = True,
    as_json: AsJson = False,
) -> None:
    """Run brokers on this machine, linked to each other, until Ctrl-C.

    Example: tidings overlay run --brokers 4 --topology ring
    """
    from tidings.cli.overlay import LocalOverlay
    from tidings.cli.overlay.run import read_topology, run
    from tidings.routing import STRATEGIES

    if strategy not in STRATEGIES:
        raise typer.BadParameter(f"--strategy is one of {', '.join(STRATEGIES)}, not {strategy}")
    shape = read_topology(topology, count)
    run(LocalOverlay(shape, folder, port=port, strategy=strategy, journal=journal, http=True), as_json=as_json)


Addresses = Annotated[
    list[str] | None,
    typer.Option(
        "--connect",
        envvar="TIDINGS_CONNECT",
        help="A broker to ask; repeat the option, or separate addresses by commas, for more.",
        metavar="ADDRESS",
    ),
]
OverlayFolder = Annotated[
    Path | None,
    typer.Option("--folder", help="Ask all brokers of the overlay that runs in this folder.", metavar="FOLDER"),
]


@overlay.command(name="status", short_help="Show links, routing tables and clients of running brokers.")
def overlay_status(
    connect: Addresses = None,
    folder: OverlayFolder = None,
    name: Name = "",
    identity: IdentityFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of brokers: their links, whether their routing tables are complete, and their clients.

    Example: tidings overlay status --folder tidings-overlay
    """
    from tidings.cli.overlay.status import StatusTargets, status

    status(StatusTargets(connect or [], folder, name, identity, DEFAULT_BROKER), as_json=as_json)


@overlay.command(name="stats", short_help="Show the counters of running brokers.")
def overlay_stats(
    connect: Addresses = None,
    folder: OverlayFolder = None,
    name: Name = "",
    identity: IdentityFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what brokers have counted since their start: events, notifications, bytes, messages over links.

    Example: tidings overlay stats --connect tidings://127.0.0.1:7450 --json
    """
    from tidings.cli.overlay.status import StatusTargets, stats

    stats(StatusTargets(connect or [], folder, name, identity, DEFAULT_BROKER), as_json=as_json)


@overlay.command(name="tables", short_help="Show the filters and contexts that running brokers know.")
def overlay_tables(
    connect: Addresses = None,
    folder: OverlayFolder = None,
    name: OperatorName = "operator",
    identity: IdentityFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the advertisements, subscriptions and contexts that brokers have, of their own clients and of others.

    Example: tidings overlay tables --folder tidings-overlay
    """
    from tidings.cli.overlay.status import StatusTargets, tables

    tables(StatusTargets(connect or [], folder, name, identity, DEFAULT_BROKER), as_json=as_json)


@overlay.command(name="forget", short_help="Tell brokers that a broker will not come back.")
def overlay_forget(
    broker: Annotated[str, typer.Argument(help="The broker that will not come back.", metavar="BROKER")],
    connect: Addresses = None,
    folder: OverlayFolder = None,
    name: OperatorName = "operator",
    identity: IdentityFile = None,
    as_json: AsJson = False,
) -> None:
    """Tell brokers that a broker will not come back, so that they drop the events that they store for it.

    Example: tidings overlay forget b3 --folder tidings-overlay
    """
    from tidings.cli.overlay.status import StatusTargets, forget

    forget(StatusTargets(connect or [], folder, name, identity, DEFAULT_BROKER), broker, as_json=as_json)
