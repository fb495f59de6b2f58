"""The commands of `tidings ca`: the certificate authority."""

from pathlib import Path
from typing import Annotated

import typer

from tidings.cli.options import AsJson, CommandGroup, IdentityFile, Name, Wait

ca = CommandGroup(
    name="ca",
    short_help="The certificate authority: issue and revoke certificates.",
    help="The authority: certificates for entities, brokers, key management centres and discovery nodes.\n\n"
    "The passphrase of its key is asked for, or taken from TIDINGS_CA_PASSPHRASE.\n\n"
    "Example: tidings ca init ca --name example",
)
Folder = Annotated[Path, typer.Option("--ca", envvar="TIDINGS_CA", help="The authority's folder.", metavar="FOLDER")]
DEFAULT_FOLDER = Path("ca")


@ca.command(name="init", short_help="Create an authority, with a passphrase.")
def ca_init(
    folder: Annotated[
        Path, typer.Argument(help="The folder to create for the authority.", metavar="FOLDER")
    ] = DEFAULT_FOLDER,
    name: Annotated[str, typer.Option(help="The authority's name.", metavar="NAME")] = "authority",
    days: Annotated[
        int, typer.Option(min=1, max=3_650, help="For how many days its certificate is valid.", metavar="DAYS")
    ] = 3_650,
    no_passphrase: Annotated[
        bool, typer.Option("--no-passphrase", help="Protect the key by no passphrase, to try things out.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create an authority, with a key that is encrypted under a passphrase.

    Example: tidings ca init ca --name example
    """
    from tidings.cli.actions.ca import create

    create(folder, name, days, protected=not no_passphrase, as_json=as_json)


@ca.command(name="issue", short_help="Issue or renew a certificate with a new key.")
def ca_issue(
    name: Annotated[str, typer.Argument(help="The name of the client, broker or service.", metavar="NAME")],
    to: Annotated[
        Path, typer.Option("--out", help="The folder for authority.pem, certificate.pem and key.pem.", metavar="FILE")
    ],
    role: Annotated[str, typer.Option(help="The role: entity, broker, kmc or tdn.", metavar="ROLE")] = "entity",
    host: Annotated[
        list[str] | None,
        typer.Option(help="A host name or address of the broker; repeatable.", metavar="HOST"),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3_650, help="For how many days it is valid.", metavar="DAYS")] = 365,
    folder: Folder = DEFAULT_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Issue a certificate with a new key, or renew that of a name. The older one stays valid until its end.

    Example: tidings ca issue b1 --role broker --host 127.0.0.1 --out b1
    """
    from tidings.cli.actions.ca import issue, parse_role

    issue(folder, name, parse_role(role), to, host or [], days, as_json=as_json)


@ca.command(name="revoke")
def ca_revoke(
    name: Annotated[str, typer.Argument(help="The name whose certificates are all revoked.", metavar="NAME")],
    since: Annotated[
        str | None,
        typer.Option(
            help="The time from which they are not trusted: 2026-01-31T12:00:00Z; by default now.", metavar="TIME"
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="The reason, which everybody can read.", metavar="TEXT")] = "",
    folder: Folder = DEFAULT_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Revoke the certificates of a name. This takes effect where the revocation list arrives: see `tidings ca publish`.

    Example: tidings ca revoke car-1 --since 2026-01-31T12:00:00Z --reason stolen
    """
    from tidings.cli.actions.ca import revoke

    revoke(folder, name, since, reason, as_json=as_json)


@ca.command(name="list")
def ca_list(folder: Folder = DEFAULT_FOLDER, as_json: AsJson = False) -> None:
    """List the certificates that were issued, with their state. Needs no passphrase.

    Example: tidings ca list --json
    """
    from tidings.cli.actions.ca import show

    show(folder, as_json=as_json)


@ca.command(name="publish")
def ca_publish(
    to: Annotated[
        Path | None, typer.Option("--out", help="Write the signed list into this file.", metavar="FILE")
    ] = None,
    connect: Annotated[
        str | None,
        typer.Option(
            "--connect",
            "--broker",
            envvar="TIDINGS_CONNECT",
            help="Send the list to all brokers, through this one.",
            metavar="ADDRESS",
        ),
    ] = None,
    days: Annotated[
        float, typer.Option(min=0.001, help="The number of days for which the list is valid.", metavar="DAYS")
    ] = 7,
    name: Name = "",
    identity: IdentityFile = None,
    wait: Wait = 0.0,
    folder: Folder = DEFAULT_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Sign the revocation list anew, and send it. Do so before the last list expires, for example daily.

    Example: tidings ca publish --broker tidings://127.0.0.1:7450 --wait 20
    """
    from tidings.cli.actions.ca import publish
    from tidings.cli.connection import BrokerConnection

    if to is None and connect is None:
        raise typer.BadParameter("one of --out and --broker, or both")
    caller = None if connect is None else BrokerConnection(connect, name, identity, wait=wait)
    publish(folder, to, caller, days, as_json=as_json)
