"""The commands of a client: publish, subscribe, advertise, tail, explain, `context` and `schema`."""

from pathlib import Path
from typing import Annotated

import typer

from tidings.cli.options import (
    DEFAULT_BROKER,
    AsJson,
    Broker,
    CommandGroup,
    Format,
    FoundTopics,
    IdentityFile,
    Name,
    OperatorName,
    Plain,
    PolicyFile,
    ServiceFiles,
    TopicFiles,
    Wait,
)

clients = CommandGroup()
context = CommandGroup(
    name="context",
    help="The contexts of clients: set and show them.\n\n"
    "Example: tidings context set --name gps --of car-1 x=1.0 y=2.0",
)
schema = CommandGroup(
    name="schema",
    help="The schemas of subjects: define, extend and show them.\n\nExample: tidings schema define Loop li=int ts=int",
)
clients.add_typer(context)
clients.add_typer(schema)

Seconds = Annotated[float | None, typer.Option(min=0, help="End after this many seconds.", metavar="SECONDS")]
Count = Annotated[int | None, typer.Option(min=1, help="End after this many notifications.", metavar="NUMBER")]
Content = Annotated[str, typer.Argument(metavar="FILTER", help="The filter of content; empty: everything.")]
Context = Annotated[str | None, typer.Option("--context", help="This client's context, as JSON.", metavar="JSON")]
Pairs = Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="The whole context, such as x=1.0 y=2.0.")]
Types = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME=TYPE...", help="The attributes in order, each with its type: int, float, str or bool."
    ),
]


@clients.command(name="publish", short_help="Publish one event, or one for each line of standard input.")
def publish(
    event: Annotated[
        str | None,
        typer.Argument(
            help="The event's attributes as JSON; by default one event per line of standard input.", metavar="EVENT"
        ),
    ] = None,
    subject: Annotated[str | None, typer.Option(help="The subject.", metavar="SUBJECT")] = None,
    payload: Annotated[str | None, typer.Option(help="The payload, as text.", metavar="TEXT")] = None,
    payload_file: Annotated[Path | None, typer.Option(help="The payload, from a file.", metavar="FILE")] = None,
    subscribers: Annotated[
        str | None, typer.Option(help="A filter over subscribers' contexts, for whom the event is.", metavar="FILTER")
    ] = None,
    safe: Annotated[
        str, typer.Option(help="The durability to wait for: accepted, journaled or settled.", metavar="LEVEL")
    ] = "journaled",
    policy_file: PolicyFile = None,
    context_text: Context = None,
    events: Annotated[
        bool, typer.Option("--events", help="Lines are whole events, as `tidings subscribe` writes them.")
    ] = False,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="The maximum number of events per second.", metavar="NUMBER")
    ] = None,
    advertise: Annotated[bool, typer.Option(help="Advertise first, if brokers route by advertisements.")] = True,
    pause: Annotated[
        float,
        typer.Option(min=0, help="Seconds to wait until the advertisement has reached all brokers.", metavar="SECONDS"),
    ] = 0.5,
    connect: Broker = DEFAULT_BROKER,
    name: Name = "",
    identity: IdentityFile = None,
    service: ServiceFiles = None,
    topic: TopicFiles = None,
    find: FoundTopics = None,
    plain: Plain = False,
    wait: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Publish one event, or one for each line of standard input, with many in flight at a time.

    On a secure topic events are sealed, if --identity is the folder of an entity with the right to publish. With
    --topic or --find, an event that would be sent unsealed is refused.

    Example: tidings publish '{"msg": "accident", "n": 3}' --subject Traffic

    Example: tidings publish '{"Sports": "NBA"}' --payload 99:98 --identity ann --find 'Sports=NBA' --wait 20
    """
    from tidings.cli import options
    from tidings.cli.actions import policy, publish
    from tidings.cli.connection import BrokerConnection, SecureTopicsOptions

    if payload is not None and payload_file is not None:
        raise typer.BadParameter("one of --payload and --payload-file")
    if event is not None and (events or rate is not None):
        raise typer.BadParameter("--events and --rate are for standard input; leave the event out")
    if safe not in ("accepted", "journaled", "settled"):
        raise typer.BadParameter(f"--safe is one of accepted, journaled, settled, not {safe}")
    data = None if payload is None else payload.encode(errors="surrogateescape")
    caller = BrokerConnection(
        connect, name, identity, SecureTopicsOptions(tuple(service or ()), tuple(topic or ()), find, plain), wait
    )
    common = publish.CommonFields(
        subject,
        subscribers,
        data if payload_file is None else options.read_file(payload_file),
        None if policy_file is None else policy.read(policy_file),
        safe,
        {} if context_text is None else options.parse_json_object(context_text, "--context"),
        pause if advertise else None,
        caller.must_seal,
    )
    if event is None:
        publish.publish_stdin(caller, common, are_events=events, rate=rate, as_json=as_json)
    else:
        publish.publish_event(caller, event, common, as_json=as_json)


@clients.command(name="subscribe", short_help="Subscribe, and print notifications as JSON lines.")
def subscribe(
    content: Content = "",
    publishers: Annotated[
        str | None,
        typer.Option(help="A filter over publishers' contexts; `this.` is the subscriber's own.", metavar="FILTER"),
    ] = None,
    durable: Annotated[
        str | None,
        typer.Option(
            help="A name; the broker keeps notifications under it while the subscriber is away.", metavar="NAME"
        ),
    ] = None,
    policy_file: Annotated[
        Path | None, typer.Option("--policy", help="The file of a policy, as text or XML.", metavar="FILE")
    ] = None,
    format: Format = "sql",  # noqa: A002
    context_text: Context = None,
    entrusted: Annotated[
        list[str] | None,
        typer.Option("--let-set-context", help="A client that may set this one's context.", metavar="CLIENT"),
    ] = None,
    count: Count = None,
    seconds: Seconds = None,
    connect: Broker = DEFAULT_BROKER,
    name: Name = "",
    identity: IdentityFile = None,
    service: ServiceFiles = None,
    topic: TopicFiles = None,
    find: FoundTopics = None,
    plain: Plain = False,
    wait: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Subscribe, and print notifications as JSON lines until Ctrl-C.

    With --json, the lines on standard error about a lost connection are JSON, too. Sealed events are decrypted with the
    rights of --identity; those that cannot be decrypted are left out.

    Example: tidings subscribe "msg = 'accident'" --publishers "x < 100" | jq .attributes

    Example: tidings subscribe "Sports = 'NBA'" --identity bob --find 'Sports=NBA' --wait 20
    """
    from tidings.cli import options
    from tidings.cli.actions import policy, subscribe
    from tidings.cli.connection import BrokerConnection, SecureTopicsOptions

    if durable is not None and not name and (identity is None or not identity.is_dir()):
        raise typer.BadParameter("--durable needs --name: by it the client is known when it comes back")
    subscribe_options = subscribe.SubscribeOptions(
        content,
        publishers,
        None if policy_file is None else policy.read(policy_file),
        durable,
        format,
        {} if context_text is None else options.parse_json_object(context_text, "--context"),
        entrusted or [],
    )
    subscribe.subscribe(
        BrokerConnection(
            connect, name, identity, SecureTopicsOptions(tuple(service or ()), tuple(topic or ()), find, plain), wait
        ),
        subscribe_options,
        count=count,
        seconds=seconds,
        as_json=as_json,
    )


@clients.command(name="advertise", short_help="Advertise events until Ctrl-C.")
def advertise(
    content: Content = "",
    publisher_context: Annotated[
        list[str] | None,
        typer.Option(
            help="A context name of the publisher that subscribers may use; by default all names.", metavar="NAME"
        ),
    ] = None,
    no_publisher_context: Annotated[
        bool, typer.Option("--no-publisher-context", help="Subscribers may use no context name of the publisher.")
    ] = False,
    subscriber_context: Annotated[
        list[str] | None,
        typer.Option(help="A context name of subscribers that publications use.", metavar="NAME"),
    ] = None,
    policy_file: PolicyFile = None,
    format: Format = "sql",  # noqa: A002
    seconds: Seconds = None,
    connect: Broker = DEFAULT_BROKER,
    name: Name = "",
    identity: IdentityFile = None,
    service: ServiceFiles = None,
    topic: TopicFiles = None,
    find: FoundTopics = None,
    plain: Plain = False,
    wait: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Advertise events until Ctrl-C: an advertisement ends with its client's connection.

    Example: tidings advertise "msg = 'accident'" --publisher-context x --publisher-context y --name cam-1
    """
    from tidings.cli.actions import policy, requests
    from tidings.cli.connection import BrokerConnection, SecureTopicsOptions

    advertised_policy = None if policy_file is None else policy.read(policy_file)
    if publisher_context and no_publisher_context:
        raise typer.BadParameter("--no-publisher-context offers no name, and --publisher-context offers one")
    names = [] if no_publisher_context else publisher_context or None  # None offers all names
    advertise_options = requests.AdvertiseOptions(content, names, subscriber_context or [], advertised_policy, format)
    requests.advertise(
        BrokerConnection(
            connect, name, identity, SecureTopicsOptions(tuple(service or ()), tuple(topic or ()), find, plain), wait
        ),
        advertise_options,
        seconds=seconds,
        as_json=as_json,
    )


@clients.command(name="tail", short_help="Print events as they come, a line each.")
def tail(
    content: Content = "",
    since: Annotated[
        str | None,
        typer.Option(help="First replay the broker's journal from this time on: 2026-01-31T12:00:00Z.", metavar="TIME"),
    ] = None,
    format: Format = "sql",  # noqa: A002
    count: Count = None,
    seconds: Seconds = None,
    connect: Broker = DEFAULT_BROKER,
    name: Name = "",
    identity: IdentityFile = None,
    service: ServiceFiles = None,
    topic: TopicFiles = None,
    find: FoundTopics = None,
    plain: Plain = False,
    wait: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Print events as they come, a line each, until Ctrl-C: time, publisher, subject, attributes.

    Sealed events are decrypted, if --identity is the folder of an entity with the right to subscribe; otherwise their
    size and epoch are shown.

    Example: tidings tail "severity > 3" --since 2026-01-31T12:00:00Z

    Example: tidings tail "Sports = 'NBA'" --identity bob --find 'Sports=NBA' --wait 20
    """
    from tidings.cli.actions import subscribe as subscriptions
    from tidings.cli.connection import BrokerConnection, SecureTopicsOptions
    from tidings.cli.options import parse_time

    begin = parse_time(since, "--since")
    caller = BrokerConnection(
        connect, name, identity, SecureTopicsOptions(tuple(service or ()), tuple(topic or ()), find, plain), wait
    )
    subscriptions.tail(caller, content, format, since=begin, count=count, seconds=seconds, as_json=as_json)


@clients.command(name="explain", short_help="Explain why an event reaches a subscription or does not.")
def explain(
    event: Annotated[
        str,
        typer.Argument(help="The id of a past event, or the attributes of a possible one, as JSON.", metavar="EVENT"),
    ],
    subscription: Annotated[str | None, typer.Option(help="The id of a subscription.", metavar="ID")] = None,
    client: Annotated[
        str | None, typer.Option(help="Explain all subscriptions of this client.", metavar="CLIENT")
    ] = None,
    publisher: Annotated[
        str | None, typer.Option(help="The publisher of the possible event.", metavar="CLIENT")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="The subject of the possible event.", metavar="SUBJECT")] = None,
    subscribers: Annotated[
        str | None,
        typer.Option(help="A filter over subscribers' contexts, for whom the possible event is.", metavar="FILTER"),
    ] = None,
    connect: Broker = DEFAULT_BROKER,
    name: OperatorName = "operator",
    identity: IdentityFile = None,
    as_json: AsJson = False,
) -> None:
    """Explain step by step why an event does, or does not, reach a subscription.

    Example: tidings explain '{"msg": "accident"}' --publisher cam-1 --client car-1
    """
    from tidings.cli.actions import requests
    from tidings.cli.connection import BrokerConnection

    if (subscription is None) == (client is None):
        raise typer.BadParameter("one of --subscription and --client")
    question = requests.ExplainOptions(event, subscription, client, publisher, subject, subscribers)
    requests.explain(BrokerConnection(connect, name, identity), question, as_json=as_json)


@schema.command(name="define", short_help="Define the schema of a subject.")
def schema_define(
    subject: Annotated[str, typer.Argument(help="The subject.", metavar="SUBJECT")],
    attributes: Types,
    connect: Broker = DEFAULT_BROKER,
    name: Name = "",
    identity: IdentityFile = None,
    as_json: AsJson = False,
) -> None:
    """Define the schema of a subject: its attributes in order, each with its type.

    Example: tidings schema define Loop li=int ts=int lo=str
    """
    from tidings.cli.actions import requests
    from tidings.cli.connection import BrokerConnection
    from tidings.cli.options import parse_pairs

    requests.define_schema(BrokerConnection(connect, name, identity), subject, parse_pairs(attributes), as_json=as_json)


@schema.command(name="extend")
def schema_extend(
    subject: Annotated[str, typer.Argument(help="The subject.", metavar="SUBJECT")],
    attributes: Types,
    connect: Broker = DEFAULT_BROKER,
    name: Name = "",
    identity: IdentityFile = None,
    as_json: AsJson = False,
) -> None:
    """Append attributes to the schema of a subject.

    Example: tidings schema extend Loop vc=str
    """
    from tidings.cli.actions import requests
    from tidings.cli.connection import BrokerConnection
    from tidings.cli.options import parse_pairs

    requests.extend_schema(BrokerConnection(connect, name, identity), subject, parse_pairs(attributes), as_json=as_json)


@schema.command(name="show", short_help="Show the schema of a subject.")
def schema_show(
    subject: Annotated[str, typer.Argument(help="The subject.", metavar="SUBJECT")],
    connect: Broker = DEFAULT_BROKER,
    name: Name = "",
    identity: IdentityFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the schema of a subject, with the version that added each attribute.

    Example: tidings schema show Loop
    """
    from tidings.cli.actions import requests
    from tidings.cli.connection import BrokerConnection

    requests.show_schema(BrokerConnection(connect, name, identity), subject, as_json=as_json)


@context.command(name="set")
def context_set(
    values: Pairs,
    of: Annotated[
        str,
        typer.Option(
            help="The client whose context to set; it must have allowed this client to do so.", metavar="CLIENT"
        ),
    ],
    connect: Broker = DEFAULT_BROKER,
    name: Name = "",
    identity: IdentityFile = None,
    as_json: AsJson = False,
) -> None:
    """Replace the whole context of another client.

    A client sets its own context while it is connected: see `subscribe --context`.

    Example: tidings context set --name gps --of car-1 x=1.0 y=2.0
    """
    from tidings.cli.actions.requests import set_context
    from tidings.cli.connection import BrokerConnection
    from tidings.cli.options import parse_pairs

    set_context(BrokerConnection(connect, name, identity), of, parse_pairs(values), as_json=as_json)


@context.command(name="show", short_help="Show the contexts that a broker knows.")
def context_show(
    client: Annotated[str | None, typer.Argument(help="Only this client's.", metavar="CLIENT")] = None,
    connect: Broker = DEFAULT_BROKER,
    name: OperatorName = "operator",
    identity: IdentityFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the contexts that a broker knows: those of its clients, and of others as far as it needs them.

    Example: tidings context show car-1
    """
    from tidings.cli.actions.requests import show_contexts
    from tidings.cli.connection import BrokerConnection

    show_contexts(BrokerConnection(connect, name, identity), client, as_json=as_json)
