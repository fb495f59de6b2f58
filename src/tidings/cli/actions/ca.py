"""The commands of `tidings ca`: the certificate authority of an overlay."""

import asyncio
import os
import sys
import time
from pathlib import Path

import typer

from tidings.cli.connection import BrokerConnection
from tidings.cli.options import parse_time
from tidings.cli.output import out, print_json, table, time_text
from tidings.client.secure.service_rpc import ServiceClient
from tidings.model.errors import InvalidValueError
from tidings.security.ca.certificates import Role, microseconds
from tidings.security.ca.revocation import RevocationUpdate
from tidings.security.tokens.notices import KIND, REVOCATIONS
from tidings.services.authority_store import AuthorityStore, CertificateListing, read_listing

VARIABLE = "TIDINGS_CA_PASSPHRASE"
_DAY = 86_400_000_000  # microseconds
_SPREADING = 0.5  # seconds for an advertisement to reach all brokers, under the strategy `advertisement`


def now() -> int:
    """Return the time in microseconds since 1970."""
    return time.time_ns() // 1000


def parse_role(word: str) -> Role:
    """Return the role named by the option `--role`.

    Raises typer.BadParameter for an unknown role and for the authority's.
    """
    names = [role.value for role in Role if role is not Role.AUTHORITY]
    if word not in names:
        raise typer.BadParameter(f"--role is one of {', '.join(names)}, not {word}")
    return Role(word)


def create(folder: Path, name: str, days: int, *, protected: bool, as_json: bool) -> None:
    """Create a new authority in `folder`, publish its first revocation list, and print its name and fingerprint.

    Args:
        folder: The folder to create the authority in.
        name: The authority's name.
        days: How long its certificate is valid.
        protected: Encrypt its key under a passphrase, which is prompted for or read from the environment.
        as_json: Print JSON.
    """
    passphrase = _new_passphrase() if protected else None
    with AuthorityStore.create(folder, name, now(), passphrase, days) as store:
        certificate = store.authority.anchor.certificate
        store.publish(now())
    if as_json:
        print_json({"folder": str(folder), "name": name, "fingerprint": certificate.fingerprint.hex()})
    else:
        out.print(f"{folder} is the authority {name} now; keep a copy of it where nobody else can read", markup=False)


def issue(ca: Path, name: str, role: Role, to: Path, hosts: list[str], days: int, *, as_json: bool) -> None:
    """Issue a certificate with a new key, and save both in the folder `to`.

    Args:
        ca: The authority's folder.
        name: The name of the client, broker or service.
        role: The role in the certificate.
        to: The folder for the certificate, the key and the authority's certificate.
        hosts: Host names and addresses at which a broker is reached.
        days: How long the certificate is valid.
        as_json: Print JSON.
    """
    _check_writable(to)
    with AuthorityStore.open(ca, _existing_passphrase) as store:
        identity = store.issue(name, role, now(), days, hosts)
    identity.save(to)
    until = time_text(identity.certificate.not_after, "seconds")
    if as_json:
        values = {"name": name, "role": role.value, "serial": f"{identity.certificate.serial:x}", "until": until}
        print_json({**values, "folder": str(to)})
    else:
        out.print(f"{to} is the identity of {name}, {role.value}, until {until}", markup=False)


def _check_writable(folder: Path) -> None:
    """Create the folder, and raise InvalidValueError unless it is writable.

    Called before a certificate is issued: if its key could not be saved, the certificate would be valid but useless.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InvalidValueError(f"--out: {folder}: {error.strerror or error}") from None
    if not os.access(folder, os.W_OK):
        raise InvalidValueError(f"--out: {folder} cannot be written to")


def revoke(ca: Path, name: str, since: str | None, reason: str, *, as_json: bool) -> None:
    """Revoke all certificates of a name, and publish the new revocation list in the authority's folder.

    Args:
        ca: The authority's folder.
        name: The name in the certificates.
        since: The time from which they are not trusted; None: now.
        reason: The reason, which the list contains.
        as_json: Print JSON.
    """
    when = parse_time(since, "--since")
    with AuthorityStore.open(ca, _existing_passphrase) as store:
        entries = store.revoke(name, now(), since=None if when is None else microseconds(when), reason=reason)
        store.publish(now())
    if as_json:
        print_json(
            [
                {"name": entry.name, "serial": entry.serial.hex(), "since": time_text(entry.when, "seconds")}
                for entry in entries
            ]
        )
    else:
        since_text = time_text(entries[0].when, "seconds")
        out.print(
            f"{len(entries)} of {name} revoked, since {since_text}; tell brokers: `tidings ca publish`", markup=False
        )


def show(ca: Path, *, as_json: bool) -> None:
    """Print all issued certificates with their state. Needs no passphrase."""
    listings, at = read_listing(ca), now()
    if as_json:
        print_json([_json_listing(listing, at) for listing in listings])
        return
    rows = table("name", "role", "state", "until", "serial", "reason")
    for listing in listings:
        values = _json_listing(listing, at)
        rows.add_row(*(str(values[key]) for key in ("name", "role", "state", "until", "serial", "reason")))
    if rows.row_count:
        out.print(rows, markup=False)
    else:
        out.print("no certificate has been issued", markup=False)


def publish(ca: Path, to: Path | None, caller: BrokerConnection | None, days: float, *, as_json: bool) -> None:
    """Sign a new revocation list, and write it to a file, send it to all brokers, or both.

    Args:
        ca: The authority's folder.
        to: The file to write the list to; None: no file.
        caller: The broker to publish the list through; None: do not send it.
        days: After how many days the list is out of date.
        as_json: Print JSON.
    """
    with AuthorityStore.open(ca, _existing_passphrase) as store:
        update = store.publish(now(), next_update=int(days * _DAY))
    if to is not None:
        try:
            to.write_bytes(update.data)
        except OSError as error:
            raise InvalidValueError(f"--out: {to}: {error.strerror or error}") from None
    if caller is not None:
        asyncio.run(_send_update(caller, update))
    places = [str(to)] * (to is not None) + ([] if caller is None else [caller.addresses])
    if as_json:
        print_json({"revoked": len(update.entries), "published": places})
    else:
        out.print(f"a list of {len(update.entries)} revoked certificates, at {' and '.join(places)}", markup=False)


async def _send_update(caller: BrokerConnection, update: RevocationUpdate) -> None:
    """Publish the revocation list as an event."""
    async with caller.client() as client:
        await _advertise_updates(client)
        await client.publish({KIND: REVOCATIONS}, payload=update.data)


async def _advertise_updates(client: ServiceClient) -> None:
    """Advertise revocation lists, and wait until the advertisement has reached all brokers, if routing needs it."""
    await client.advertise(f"{KIND} = '{REVOCATIONS}'")
    status = await client.ask("status")
    if status["strategy"] == "advertisement" and len(status["brokers"]) > 1:
        await asyncio.sleep(_SPREADING)


def _json_listing(listing: CertificateListing, at: int) -> dict[str, str]:
    """Return a certificate's listing as strings."""
    state = "valid" if at < listing.not_after else "expired"
    return {
        "name": listing.name,
        "role": listing.role.value,
        "state": state if listing.revoked is None else "revoked",
        "until": time_text(listing.not_after if listing.revoked is None else listing.revoked.when, "seconds"),
        "serial": listing.serial.hex(),
        "reason": "" if listing.revoked is None else listing.revoked.reason,
    }


def _existing_passphrase() -> bytes | None:
    """Return the passphrase of an existing authority, from the environment or a prompt.

    Raises InvalidValueError if there is neither a variable nor a terminal.
    """
    passphrase = os.environ.get(VARIABLE)
    if passphrase is None:
        if not sys.stdin.isatty():
            raise InvalidValueError(f"the authority's key has a passphrase: set {VARIABLE}")
        passphrase = typer.prompt("Passphrase of the authority", hide_input=True, err=True)
    return passphrase.encode()


def _new_passphrase() -> bytes:
    """Return the passphrase for a new authority, from the environment or a prompt with confirmation.

    Raises InvalidValueError if there is neither a variable nor a terminal, and for an empty passphrase.
    """
    passphrase = os.environ.get(VARIABLE)
    if passphrase is None:
        if not sys.stdin.isatty():
            raise InvalidValueError(f"set {VARIABLE} to a passphrase for the authority's key, or give --no-passphrase")
        passphrase = typer.prompt(
            "Passphrase of the new authority", hide_input=True, confirmation_prompt=True, err=True
        )
    if not passphrase:
        raise InvalidValueError("a passphrase is not empty; --no-passphrase does without one")
    return passphrase.encode()
