"""The commands of `tidings kmc`: run a key management centre, and send it requests.

Most commands take the same options for the access to a centre. `with_access_options` adds these options to a command
and passes the access that they describe as the argument `access`.
"""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli.options import (
    DEFAULT_BROKER,
    AsJson,
    CommandGroup,
    IdentityFolder,
    Overlay,
    Plain,
    ServiceBroker,
    Wait,
)

if TYPE_CHECKING:
    from tidings.cli.kmc_access import KmcAccess

kmc = CommandGroup(
    name="kmc",
    short_help="Key management centres: secure topics, grants and keys.",
    help="Key management centres: secure topics, their grants and their keys.\n\n"
    "A running centre is asked over the overlay, by a topic's owner (--identity, --service). One that is not running "
    "is changed in its folder, by its administrator (--folder). The state is sealed under a passphrase, which is asked "
    "for or taken from TIDINGS_KMC_PASSPHRASE, or under the key of a file (--key-file).\n\n"
    "With --wait, a running centre is asked again until it is known and answers. That question changes nothing; what "
    "changes something is asked for after it, as without --wait.\n\n"
    "Example: tidings kmc init data/kmc --identity kmc-1",
)
State = Annotated[Path, typer.Argument(metavar="FOLDER", help="The centre's folder.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        help="A file with the key of the state, instead of a passphrase; `kmc init` creates it.", metavar="FILE"
    ),
]
Owner = Annotated[
    Path | None,
    typer.Option(
        "--identity",
        envvar="TIDINGS_IDENTITY",
        help="The folder that `tidings ca issue` made for the topic's owner.",
        metavar="PATH",
    ),
]
ServiceFile = Annotated[
    Path | None,
    typer.Option(
        "--service",
        envvar="TIDINGS_KMC",
        help="The centre's service.bin; by default discovery nodes are asked.",
        metavar="FILE",
    ),
]
AtRest = Annotated[
    Path | None,
    typer.Option(
        "--folder", help="The folder of a centre that is not running, for its administrator.", metavar="FOLDER"
    ),
]
Topic = Annotated[str, typer.Argument(help="The topic: its template, or its id.", metavar="TOPIC")]
OnTopic = Annotated[str | None, typer.Option("--topic", help="The topic: its template, or its id.", metavar="TOPIC")]
Entity = Annotated[str, typer.Argument(help="The name in the entity's certificate.", metavar="ENTITY")]


def _access_of(
    owner: Owner = None,
    service: ServiceFile = None,
    connect: ServiceBroker = DEFAULT_BROKER,
    folder: AtRest = None,
    key_file: KeyFile = None,
    overlay: Overlay = "tidings",
    plain: Plain = False,
    wait: Wait = 0.0,
) -> "KmcAccess":
    """Return the access to a centre that the options describe: its folder, or the overlay.

    Raises typer.BadParameter if neither `--folder` nor `--identity` is given.
    """
    from tidings.cli.connection import EntityConnection
    from tidings.cli.kmc_access import FolderAccess, OverlayAccess

    if folder is not None:
        return FolderAccess(folder, key_file, overlay)
    if owner is None:
        raise typer.BadParameter("--identity, to ask a centre over the overlay; or --folder, for its administrator")
    return OverlayAccess(EntityConnection(connect, owner, plain, overlay, wait), service)


def with_access_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace a command's parameter `access` by the options of `_access_of`, and pass the access that they describe.

    The command may also declare one of these options itself, and then gets its value too.
    """
    options, parameters = signature(_access_of).parameters, signature(command).parameters
    own_parameters = [
        parameter for name, parameter in parameters.items() if name not in ("access", "as_json", *options)
    ]
    all_parameters = [*own_parameters, *options.values(), parameters["as_json"]]

    @wraps(command)
    def run(**values: Any) -> None:
        access = _access_of(**{name: values[name] for name in options})
        command(access=access, **{name: value for name, value in values.items() if name in parameters})

    run.__signature__ = Signature([parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in all_parameters])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in all_parameters}
    return run


@kmc.command(name="init")
def kmc_init(
    folder: State,
    identity: IdentityFolder,
    key_file: KeyFile = None,
    overlay: Overlay = "tidings",
    as_json: AsJson = False,
) -> None:
    """Create a key management centre. Its service.bin says where it is asked: hand it to owners and members, or run
    discovery nodes.

    Example: tidings kmc init data/kmc --identity kmc-1
    """
    from tidings.cli.actions.kmc import create

    create(folder, identity, key_file, overlay, as_json=as_json)


@kmc.command(name="serve")
def kmc_serve(
    folder: State,
    connect: ServiceBroker = DEFAULT_BROKER,
    key_file: KeyFile = None,
    revocations: Annotated[
        Path | None,
        typer.Option(help="A list of `tidings ca publish --out`; later ones come over the overlay.", metavar="FILE"),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help="A name whose owner may find the centre at discovery nodes, such as car-*; repeatable.",
            metavar="NAME",
        ),
    ] = None,
    roles: Annotated[
        list[str] | None,
        typer.Option("--role", help="A role that may find it: entity, broker, kmc or tdn; repeatable.", metavar="ROLE"),
    ] = None,
    overlay: Overlay = "tidings",
    plain: Plain = False,
    as_json: AsJson = False,
) -> None:
    """Run the centre until Ctrl-C.

    Example: tidings kmc serve data/kmc --broker tidings://127.0.0.1:7450 --revocations revocations
    """
    from tidings.cli.actions.kmc import ServeOptions, serve
    from tidings.security.tdn.discovery_records import Visibility

    found_by = Visibility(tuple(names or ()), tuple(roles or ()))
    serve(folder, key_file, ServeOptions(connect, overlay, plain, revocations, found_by), as_json=as_json)


@kmc.command(name="topic", short_help="Register or change a secure topic.")
@with_access_options
def kmc_topic(
    access: "KmcAccess",
    owner: Owner,
    template: Annotated[
        str, typer.Argument(help="The events on the topic: Sports=NBA,Team=*, or a subject.", metavar="TEMPLATE")
    ],
    algorithm: Annotated[
        str | None,
        typer.Option(help="The cipher: aes-gcm (for a new topic) or chacha20-poly1305.", metavar="NAME"),
    ] = None,
    bits: Annotated[
        int | None, typer.Option(help="The size of keys: 128, 192 or 256 (for a new topic).", metavar="NUMBER")
    ] = None,
    lifetime: Annotated[
        int | None,
        typer.Option(help="Seconds that a key is used; 86400, a day, for a new topic.", metavar="SECONDS"),
    ] = None,
    messages: Annotated[
        int | None,
        typer.Option(help="Messages that a publisher seals under a key; 4294967296 for a new topic.", metavar="NUMBER"),
    ] = None,
    grace: Annotated[
        int | None,
        typer.Option(help="Seconds for which the previous key is accepted; 30 for a new topic.", metavar="SECONDS"),
    ] = None,
    challenge: Annotated[
        int | None,
        typer.Option(
            help="Seconds after which members answer a challenge again; 0 (never) for a new topic.", metavar="SECONDS"
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--out", help="Write the topic's record into this file.", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Register a secure topic, or change one, as its owner (--identity), who signs its record.

    Settings that are left out stay as they are. With a renewed certificate of the owner or of the centre, the record is
    signed anew.

    Example: tidings kmc topic "Sports=NBA,Team=*" --bits 192 --lifetime 3600 --identity league --service service.bin
    """
    from tidings.cli.actions.kmc import TopicOptions, register
    from tidings.security.suites import Suite

    if owner is None:
        raise typer.BadParameter("--identity is that of the topic's owner, who signs its record")
    suite = None if algorithm is None and bits is None else Suite.of(algorithm or "aes-gcm", bits)
    topic_options = TopicOptions(template, suite, lifetime, messages, grace, challenge)
    register(access, owner, topic_options, to, as_json=as_json)


@kmc.command(name="grant", short_help="Grant an entity rights on a topic.")
@with_access_options
def kmc_grant(
    access: "KmcAccess",
    topic: Topic,
    entity: Entity,
    rights: Annotated[list[str], typer.Argument(help="The rights: publish, subscribe, govern.", metavar="RIGHT...")],
    days: Annotated[float, typer.Option(min=0.0001, max=36_500, help="For how many days.", metavar="DAYS")] = 365,
    part: Annotated[
        str | None,
        typer.Option("--template", help="A part of the topic, to which the grant is limited.", metavar="TEMPLATE"),
    ] = None,
    history: Annotated[bool, typer.Option("--history", help="Grant the keys of all earlier epochs, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Grant an entity rights on a topic, in place of its present rights.

    An entity with the right to publish can read, too, while it has a key: one key serves for both.

    Example: tidings kmc grant "Sports=NBA,Team=*" car-1 publish subscribe --days 30 --identity league --wait 20
    """
    from tidings.cli.actions.kmc import grant

    grant(access, topic, entity, rights, days, part, history=history, as_json=as_json)


@kmc.command(name="revoke", short_help="Revoke the grants of an entity.")
@with_access_options
def kmc_revoke(
    access: "KmcAccess",
    entity: Entity,
    topic: OnTopic = None,
    as_json: AsJson = False,
) -> None:
    """Revoke the grants of an entity: on a topic, or, as the administrator, on all topics.

    Every topic that this concerns gets a new key at once, and brokers refuse events sealed under older keys.

    Example: tidings kmc revoke car-1 --topic "Sports=NBA,Team=*" --identity league --service service.bin
    """
    from tidings.cli.actions.kmc import revoke

    revoke(access, entity, topic, as_json=as_json)


@kmc.command(name="rotate")
@with_access_options
def kmc_rotate(
    access: "KmcAccess",
    topic: Topic,
    compromised: Annotated[
        bool, typer.Option("--compromised", help="Refuse events sealed under older keys at once.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Give a topic a new key before its present one ends.

    Example: tidings kmc rotate "Sports=NBA,Team=*" --identity league --service service.bin
    """
    from tidings.cli.actions.kmc import rotate

    rotate(access, topic, compromised=compromised, as_json=as_json)


@kmc.command(name="enrol", short_help="Agree on challenge queries with a centre.")
@with_access_options
def kmc_enrol(
    access: "KmcAccess",
    file: Annotated[
        Path,
        typer.Argument(help="A JSON object of queries with their answers; - is standard input.", metavar="FILE"),
    ],
    entity: Annotated[
        str | None, typer.Option(help="The entity, with --folder; by default that of --identity.", metavar="ENTITY")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Agree on a set of challenge queries: on topics with --challenge, the member has to answer one from time to time.

    Example: echo '{"the first pet?": "Rex"}' | tidings kmc enrol - --identity car-1 --service service.bin
    """
    from tidings.cli.actions.kmc import enrol

    enrol(access, file, entity, as_json=as_json)


@kmc.command(name="answer")
@with_access_options
def kmc_answer(
    access: "KmcAccess",
    query: Annotated[str, typer.Argument(help="The query, from the refusal `challenge: QUERY`.", metavar="QUERY")],
    as_json: AsJson = False,
) -> None:
    """Answer a challenge of a centre. The answer is asked for, or read from standard input.

    Example: tidings kmc answer "the first pet?" --identity car-1 --service service.bin
    """
    from tidings.cli.actions.kmc import answer

    answer(access, query, as_json=as_json)


@kmc.command(name="release")
@with_access_options
def kmc_release(
    access: "KmcAccess",
    entity: Entity,
    anew: Annotated[
        bool, typer.Option("--anew", help="Delete its challenge queries, too: it has to enrol again.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Forget the wrong answers of an entity that is suspended for them.

    Example: tidings kmc release car-1 --identity league --service service.bin
    """
    from tidings.cli.actions.kmc import release

    release(access, entity, anew=anew, as_json=as_json)


@kmc.command(name="list", short_help="List topics with their epochs and grants.")
@with_access_options
def kmc_list(
    access: "KmcAccess",
    as_json: AsJson = False,
) -> None:
    """List topics with their epochs and grants: an owner sees its own topics, the administrator all.

    Example: tidings kmc list --folder data/kmc --json
    """
    from tidings.cli.actions.kmc import show

    show(access, as_json=as_json)
