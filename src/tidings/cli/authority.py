"""`tidings ca`: the authority of an overlay."""

import asyncio
import os
import sys
import time
from pathlib import Path

import typer

from tidings.cli.caller import Caller
from tidings.cli.terminal import out, print_json, table
from tidings.cli.values import time_of
from tidings.client.client import Client
from tidings.model.errors import InvalidValueError
from tidings.security.certificates import Role, microseconds, moment
from tidings.security.proclaimed import KIND, REVOCATIONS
from tidings.security.revocation import Update
from tidings.services.authority_folder import AuthorityFolder, Listed, read_listing

VARIABLE = "TIDINGS_CA_PASSPHRASE"
_DAY = 86_400_000_000  # microseconds
_SPREADING = 0.5  # seconds for brokers that lead the way by advertisements to tell each other


def now() -> int:
    return time.time_ns() // 1000


def role_of(word: str) -> Role:
    given = [one.value for one in Role if one is not Role.AUTHORITY]
    if word not in given:
        raise typer.BadParameter(f"--role is one of {', '.join(given)}, not {word}")
    return Role(word)


def found(folder: Path, name: str, days: int, *, protected: bool, as_json: bool) -> None:
    passphrase = _chosen() if protected else None
    with AuthorityFolder.found(folder, name, now(), passphrase, days) as made:
        certificate = made.authority.anchor.certificate
        made.publish(now())
    if as_json:
        print_json({"folder": str(folder), "name": name, "fingerprint": certificate.fingerprint.hex()})
    else:
        out.print(f"{folder} is the authority {name} now; keep a copy of it where nobody else can read", markup=False)


def issue(ca: Path, name: str, role: Role, to: Path, hosts: list[str], days: int, *, as_json: bool) -> None:
    _check_writable(to)
    with AuthorityFolder.open(ca, _asked) as folder:
        identity = folder.issue(name, role, now(), days, hosts)
    identity.save(to)
    until = _text(identity.certificate.not_after)
    if as_json:
        told = {"name": name, "role": role.value, "serial": f"{identity.certificate.serial:x}", "until": until}
        print_json({**told, "folder": str(to)})
    else:
        out.print(f"{to} is the identity of {name}, {role.value}, until {until}", markup=False)


def _check_writable(folder: Path) -> None:
    """Before anything is issued: a certificate whose key could not be written is valid, and nobody has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InvalidValueError(f"--out: {folder}: {error.strerror or error}") from None
    if not os.access(folder, os.W_OK):
        raise InvalidValueError(f"--out: {folder} cannot be written to")


def revoke(ca: Path, name: str, since: str | None, reason: str, *, as_json: bool) -> None:
    when = time_of(since, "--since")
    with AuthorityFolder.open(ca, _asked) as folder:
        entries = folder.revoke(name, now(), since=None if when is None else microseconds(when), reason=reason)
        folder.publish(now())
    if as_json:
        print_json([{"name": one.name, "serial": one.serial.hex(), "since": _text(one.when)} for one in entries])
    else:
        out.print(
            f"{len(entries)} of {name} revoked, since {_text(entries[0].when)}; tell brokers: `tidings ca publish`",
            markup=False,
        )


def show(ca: Path, *, as_json: bool) -> None:
    listed, at = read_listing(ca), now()
    if as_json:
        print_json([_plain(one, at) for one in listed])
        return
    shown = table("name", "role", "state", "until", "serial", "reason")
    for one in listed:
        told = _plain(one, at)
        shown.add_row(*(str(told[key]) for key in ("name", "role", "state", "until", "serial", "reason")))
    if shown.row_count:
        out.print(shown, markup=False)
    else:
        out.print("no certificate has been issued", markup=False)


def publish(ca: Path, to: Path | None, caller: Caller | None, days: float, *, as_json: bool) -> None:
    with AuthorityFolder.open(ca, _asked) as folder:
        update = folder.publish(now(), next_update=int(days * _DAY))
    if to is not None:
        try:
            to.write_bytes(update.data)
        except OSError as error:
            raise InvalidValueError(f"--out: {to}: {error.strerror or error}") from None
    if caller is not None:
        asyncio.run(_sent(caller, update))
    where = [str(to)] * (to is not None) + ([] if caller is None else [caller.addresses])
    if as_json:
        print_json({"revoked": len(update.entries), "published": where})
    else:
        out.print(f"a list of {len(update.entries)} revoked certificates, at {' and '.join(where)}", markup=False)


async def _sent(caller: Caller, update: Update) -> None:
    async with caller.client() as client:
        await _advertised(client)
        await client.publish({KIND: REVOCATIONS}, payload=update.data)


async def _advertised(client: Client) -> None:
    await client.advertise(f"{KIND} = '{REVOCATIONS}'")
    status = await client.ask("status")
    if status["strategy"] == "advertisement" and len(status["brokers"]) > 1:
        await asyncio.sleep(_SPREADING)


def _plain(one: Listed, at: int) -> dict[str, str]:
    state = "valid" if at < one.not_after else "expired"
    return {
        "name": one.name,
        "role": one.role.value,
        "state": state if one.revoked is None else "revoked",
        "until": _text(one.not_after if one.revoked is None else one.revoked.when),
        "serial": one.serial.hex(),
        "reason": "" if one.revoked is None else one.revoked.reason,
    }


def _text(when: int) -> str:
    return moment(when).strftime("%Y-%m-%dT%H:%M:%SZ")


def _asked() -> bytes | None:
    """The passphrase of an authority that has one."""
    given = os.environ.get(VARIABLE)
    if given is None:
        if not sys.stdin.isatty():
            raise InvalidValueError(f"the authority's key has a passphrase: set {VARIABLE}")
        given = typer.prompt("Passphrase of the authority", hide_input=True, err=True)
    return given.encode()


def _chosen() -> bytes:
    """That of a new one."""
    given = os.environ.get(VARIABLE)
    if given is None:
        if not sys.stdin.isatty():
            raise InvalidValueError(f"set {VARIABLE} to a passphrase for the authority's key, or give --no-passphrase")
        given = typer.prompt("Passphrase of the new authority", hide_input=True, confirmation_prompt=True, err=True)
    if not given:
        raise InvalidValueError("a passphrase is not empty; --no-passphrase does without one")
    return given.encode()
