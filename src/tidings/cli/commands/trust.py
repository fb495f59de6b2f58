"""The commands of `tidings trust`: hand the secret of a trust group to its members."""

from pathlib import Path
from typing import Annotated

import typer

from tidings.cli.options import CommandGroup

trust = CommandGroup(
    name="trust",
    help="Trust groups: their secrets, and how they get to their members.\n\n"
    "Example: tidings trust init Restricted --out restricted.secret",
)
Folder = Annotated[
    Path,
    typer.Option(
        "--identity", envvar="TIDINGS_IDENTITY", help="The folder that `tidings ca issue` made.", metavar="FOLDER"
    ),
]
Secret = Annotated[
    Path, typer.Option("--out", help="The file for the secret; only its owner can read it.", metavar="FILE")
]
Request = Annotated[Path, typer.Option("--request", help="The file of the request.", metavar="FILE")]
Key = Annotated[
    Path, typer.Option("--key", help="The file of the request's key; it stays where it is.", metavar="FILE")
]


@trust.command(name="init")
def trust_init(group: Annotated[str, typer.Argument(help="The group's name.", metavar="GROUP")], to: Secret) -> None:
    """Create the secret of a new trust group. Whoever has the file belongs to the group.

    Example: tidings trust init Restricted --out restricted.secret
    """
    from tidings.cli.actions.trust import init

    init(group, to)


@trust.command(name="request", short_help="Request a group's secret from a member.")
def trust_request(
    group: Annotated[str, typer.Argument(help="The group's name.", metavar="GROUP")],
    identity: Folder,
    request: Request,
    key: Key,
) -> None:
    """Request a group's secret: give the request to a member, and keep the key.

    Example: tidings trust request Restricted --identity b2 --request b2.request --key b2.request.key
    """
    from tidings.cli.actions.trust import ask

    ask(group, identity, request, key)


@trust.command(name="invite", short_help="Answer a request with the sealed secret.")
def trust_invite(
    group: Annotated[str, typer.Argument(help="The group's name.", metavar="GROUP")],
    secret: Annotated[Path, typer.Option("--secret", help="The file of the group's secret.", metavar="FILE")],
    identity: Folder,
    request: Request,
    members: Annotated[
        list[str],
        typer.Option(
            "--member",
            help="An entity that may have the secret, by the name in its certificate; repeatable.",
            metavar="NAME",
        ),
    ],
    to: Annotated[
        Path, typer.Option("--out", help="The file for the answer, which only the requester can open.", metavar="FILE")
    ],
) -> None:
    """Answer a request with the group's secret, sealed for the requester, if it is one of --member.

    Example: tidings trust invite G --secret G.secret --identity b1 --request b2.request --member b2 --out b2.answer
    """
    from tidings.cli.actions.trust import invite

    invite(group, secret, identity, request, members, to)


@trust.command(name="join", short_help="Open the answer and become a member.")
def trust_join(
    answer: Annotated[Path, typer.Argument(help="The file of a member's answer.", metavar="FILE")],
    identity: Folder,
    request: Request,
    key: Key,
    to: Secret,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--from", help="A member that the answer may be from; repeatable; by default any.", metavar="NAME"
        ),
    ] = None,
) -> None:
    """Open the answer to a request, and save the group's secret.

    Example: tidings trust join b2.answer --identity b2 --request b2.request --key b2.request.key --out G.secret
    """
    from tidings.cli.actions.trust import join

    join(answer, identity, request, key, to, by or [])
