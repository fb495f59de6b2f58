"""The commands of `tidings tdn` and `tidings topics`: run discovery nodes; list, find and advertise topics."""

from pathlib import Path
from typing import Annotated

import typer

from tidings.cli.options import (
    DEFAULT_BROKER,
    AsJson,
    Broker,
    CommandGroup,
    IdentityFile,
    IdentityFolder,
    Name,
    Overlay,
    Plain,
    ServiceBroker,
    Wait,
)
from tidings.model.limits import DEFAULT_FOUND

tdn = CommandGroup(
    name="tdn",
    short_help="Topic discovery nodes: where topics and centres are found.",
    help="Topic discovery nodes: where secure topics and key management centres are found.\n\n"
    "Example: tidings tdn serve --identity tdn-1 --folder data/tdn-1",
)
topics = CommandGroup(
    name="topics",
    short_help="List what can be subscribed to; find secure topics.",
    help="What can be subscribed to: subjects with their schemas, and what is advertised; with a verb, secure topics."
    "\n\n"
    "Example: tidings topics",
    invoke_without_command=True,
)
Days = Annotated[int, typer.Option(min=1, max=400, help="For how many days it can be found.", metavar="DAYS")]


@tdn.command(name="serve")
def tdn_serve(
    identity: IdentityFolder,
    folder: Annotated[Path, typer.Option(help="The folder for the node's records; it is created.", metavar="FOLDER")],
    connect: ServiceBroker = DEFAULT_BROKER,
    revocations: Annotated[
        Path | None,
        typer.Option(help="A list of `tidings ca publish --out`; later ones come over the overlay.", metavar="FILE"),
    ] = None,
    overlay: Overlay = "tidings",
    plain: Plain = False,
    as_json: AsJson = False,
) -> None:
    """Run a discovery node until Ctrl-C. Nodes replicate their records, so that one of several is enough.

    Example: tidings tdn serve --identity tdn-1 --folder data/tdn-1 --broker tidings://127.0.0.1:7450
    """
    from tidings.cli.actions.topics import serve
    from tidings.cli.connection import EntityConnection

    serve(EntityConnection(connect, identity, plain, overlay), folder, revocations, as_json=as_json)


@topics.callback()
def topics_list(
    context: typer.Context,
    connect: Broker = DEFAULT_BROKER,
    name: Name = "",
    identity: IdentityFile = None,
    wait: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    """List what can be subscribed to: subjects with their schemas, and advertisements; with a verb, secure topics.

    Example: tidings topics --wait 20
    """
    from tidings.cli.actions.requests import show_topics
    from tidings.cli.connection import BrokerConnection

    if context.invoked_subcommand is None:
        show_topics(BrokerConnection(connect, name, identity, wait=wait), as_json=as_json)


@topics.command(name="find", short_help="Find secure topics, their owners and their centres.")
def topics_find(
    query: Annotated[
        str,
        typer.Argument(metavar="TEMPLATE", help="Tags such as Sports=NBA, a subject such as /Sports/*, or *: all."),
    ],
    identity: IdentityFolder,
    connect: ServiceBroker = DEFAULT_BROKER,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the records of the topics, and of their centres, into this folder.", metavar="FOLDER"),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, help="The maximum number of topics and centres.", metavar="NUMBER")
    ] = DEFAULT_FOUND,
    overlay: Overlay = "tidings",
    plain: Plain = False,
    wait: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Find secure topics, their owners and their key management centres at discovery nodes.

    Records that the identity may not find are not shown. With --wait, nodes are asked again until one answers and finds
    a topic.

    Example: tidings topics find "Sports=NBA,Team=*" --identity car-1 --wait 20
    """
    from tidings.cli.actions.topics import find
    from tidings.cli.connection import EntityConnection

    find(EntityConnection(connect, identity, plain, overlay, wait), query, out, limit, as_json=as_json)


@topics.command(name="advertise", short_help="Make a secure topic discoverable, as its owner.")
def topics_advertise(
    record: Annotated[
        Path, typer.Argument(help="The file of the topic's record, signed by its owner.", metavar="FILE")
    ],
    identity: IdentityFolder,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help="A name whose owner may find the topic, such as car-*; repeatable; by default anybody.",
            metavar="NAME",
        ),
    ] = None,
    roles: Annotated[
        list[str] | None,
        typer.Option("--role", help="A role that may find it: entity, broker, kmc or tdn; repeatable.", metavar="ROLE"),
    ] = None,
    days: Days = 365,
    connect: ServiceBroker = DEFAULT_BROKER,
    plain: Plain = False,
    wait: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Make a secure topic discoverable, as its owner; advertise it again to change who may find it.

    With --wait, the same signed advertisement is sent again until a node answers: twice has the effect of once.

    Example: tidings topics advertise nba.record --identity owner --only "car-*" --wait 20
    """
    from tidings.cli.actions.topics import VisibilityOptions, advertise
    from tidings.cli.connection import EntityConnection

    whom = VisibilityOptions(names or [], roles or [], days)
    advertise(EntityConnection(connect, identity, plain, wait=wait), record, whom, as_json=as_json)


@topics.command(name="withdraw")
def topics_withdraw(
    template: Annotated[str, typer.Argument(help="The topic's template, as it was advertised.", metavar="TEMPLATE")],
    identity: IdentityFolder,
    connect: ServiceBroker = DEFAULT_BROKER,
    overlay: Overlay = "tidings",
    plain: Plain = False,
    wait: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Withdraw a secure topic from discovery, as its owner. Entities with a token keep it.

    With --wait, the same signed withdrawal is sent again until a node answers: twice has the effect of once. A topic
    that no node knows is not waited for.

    Example: tidings topics withdraw "Sports=NBA,Team=*" --identity owner --wait 20
    """
    from tidings.cli.actions.topics import withdraw
    from tidings.cli.connection import EntityConnection

    withdraw(EntityConnection(connect, identity, plain, overlay, wait), template, as_json=as_json)
