"""`tidings kmc`: a key management centre, run and asked from the command line."""

import asyncio
import logging
import secrets
import sys
from pathlib import Path
from typing import Any, NamedTuple

import typer

from tidings.cli.caller import EntityCaller
from tidings.cli.centre_doors import Asking, Door, new_vault, unlocking
from tidings.cli.serving import until_stopped
from tidings.cli.terminal import err, out, print_json, table
from tidings.cli.values import file_bytes, json_object
from tidings.client.security import now
from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security import centre_questions as asked
from tidings.security.centre.epochs import SECOND
from tidings.security.certificates import Certificate, moment
from tidings.security.encoding import decoded
from tidings.security.identity import Identity
from tidings.security.records import ID, TopicRecord
from tidings.security.restriction import Restriction
from tidings.security.revocation import Update
from tidings.security.suites import Suite
from tidings.security.template import Template
from tidings.security.token import Right
from tidings.services.centre_folder import IDENTITY, SERVICE, CentreFolder
from tidings.services.kmc import CentreServer

_DAY = 86_400 * SECOND


# The centre itself


def found(folder: Path, identity: Path, key_file: Path | None, overlay: str, *, as_json: bool) -> None:
    who = Identity.load(identity)
    with CentreFolder.found(folder, who, new_vault(key_file), overlay=overlay):
        pass
    if as_json:
        print_json({"folder": str(folder), "name": who.name, "service": str(folder / SERVICE)})
    else:
        out.print(f"{folder} is the centre {who.name} now; {folder / SERVICE} says where it is asked", markup=False)


class Serving(NamedTuple):
    addresses: str
    overlay: str
    plain: bool
    revocations: Path | None
    found_by: Restriction


def serve(folder: Path, key_file: Path | None, how: Serving, *, as_json: bool) -> None:
    how.found_by.check()
    update = None if how.revocations is None else Update.read(file_bytes(how.revocations))
    with CentreFolder.open(folder, unlocking(key_file), overlay=how.overlay) as held:
        asyncio.run(until_stopped(_served(held, how, update, as_json=as_json)))


async def _served(held: CentreFolder, how: Serving, update: Update | None, *, as_json: bool) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    name = held.centre.identity.name
    caller = EntityCaller(how.addresses, held.folder / IDENTITY, how.plain, how.overlay)
    async with (
        caller.client(timeout=None, as_json=as_json) as client,
        CentreServer(held, client, restriction=how.found_by) as server,
    ):
        if update is not None:
            await server.revoke(update)
        if as_json:
            print_json({"centre": name, "broker": client.broker, "service": str(held.folder / SERVICE)})
        else:
            out.print(f"{name} serves at {client.broker}", markup=False)
        _warn_without_list(server)
        await server.serve()


def _warn_without_list(server: CentreServer) -> None:
    try:
        server.centre.credentials.revocations.check_fresh(now())
    except SecurityError:
        err.print("nobody is answered until there is a list of revocations: `tidings ca publish`", markup=False)


# What owners ask


class Wanted(NamedTuple):
    """A topic, as its owner wants it; what is None is as it was, or usual for a new one."""

    template: str
    suite: Suite | None
    lifetime: int | None
    messages: int | None
    grace: int | None
    challenge: int | None

    def parameters(self, before: asked.ListedTopic | None) -> dict[str, int]:
        names = ("lifetime", "messages", "grace", "challenge")
        known = {} if before is None else {name: getattr(before, name) for name in names}
        return known | {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def register(door: Door, owner: Path, wanted: Wanted, to: Path | None, *, as_json: bool) -> None:
    identity, template = Identity.load(owner), Template.parse(wanted.template)

    async def questions(asking: Asking, centre: Certificate) -> tuple[TopicRecord, asked.Changed]:
        known = [(TopicRecord(one.record), one) for one in (await _listed(asking)).topics]
        mine = (one for one in known if one[0].template == template and one[0].owner.name == identity.name)
        before, listed = next(mine, (None, None))
        suite = wanted.suite or (Suite.AES_256_GCM if before is None else before.suite)
        says = identity.certificate, centre.fingerprint, suite  # a certificate that was renewed is another one
        if before is not None and (before.owner, before.kmc, before.suite) == says:
            record = before
        else:
            record = TopicRecord.make(
                identity,
                id=secrets.token_bytes(ID) if before is None else before.id,
                template=wanted.template,
                kmc=centre,
                suite=suite,
                version=1 if before is None else before.version + 1,
                overlay=door.overlay,
            )
        body = asked.RegistersTopic(record.data, **wanted.parameters(listed))
        return record, decoded(await asking(asked.TOPIC, body), asked.Changed, "answer")

    record, changed = door.ask(questions)
    if to is not None:
        try:
            to.write_bytes(record.data)
        except OSError as error:
            raise InvalidValueError(f"--out: {to}: {error.strerror or error}") from None
    epoch = changed.epochs[record.id.hex()]
    if as_json:
        told = {"topic": str(record.template), "id": record.id.hex(), "version": record.version, "epoch": epoch}
        print_json({**told, "owner": identity.name, "suite": record.suite.text})
    else:
        out.print(f"{record.template} is a secure topic of {identity.name}, {record.suite.text}", markup=False)


def grant(
    door: Door,
    topic: str,
    entity: str,
    rights: list[str],
    days: float,
    part: str | None,
    *,
    history: bool,
    as_json: bool,
) -> None:
    given, until = Right.of(rights), now() + int(days * _DAY)

    async def questions(asking: Asking, _: Certificate) -> None:
        wanted = await _meant(asking, topic)
        await asking(asked.GRANT, asked.Grants(wanted, entity, int(given), until, part, history))

    door.ask(questions)
    if as_json:
        print_json({"topic": topic, "entity": entity, "rights": given.words, "until": _text(until)})
    else:
        out.print(f"{entity} may {' and '.join(given.words)} on {topic} until {_text(until)}", markup=False)


def revoke(door: Door, entity: str, topic: str | None, *, as_json: bool) -> None:
    async def questions(asking: Asking, _: Certificate) -> asked.Changed:
        wanted = None if topic is None else await _meant(asking, topic)
        return decoded(await asking(asked.REVOKE, asked.Revokes(entity, wanted)), asked.Changed, "answer")

    _tell_epochs(door.ask(questions), f"{entity} is revoked", as_json=as_json)


def rotate(door: Door, topic: str, *, compromised: bool, as_json: bool) -> None:
    async def questions(asking: Asking, _: Certificate) -> asked.Changed:
        wanted = asked.Rotates(await _meant(asking, topic), compromised)
        return decoded(await asking(asked.ROTATE, wanted), asked.Changed, "answer")

    _tell_epochs(door.ask(questions), f"{topic} has a new key", as_json=as_json)


def enrol(door: Door, file: Path, entity: str | None, *, as_json: bool) -> None:
    given = json_object(sys.stdin.buffer.read() if str(file) == "-" else file_bytes(file), "the query set")
    if not all(isinstance(answer, str) for answer in given.values()):
        raise InvalidValueError("the query set: every answer is a text")

    async def questions(asking: Asking, _: Certificate) -> None:
        await asking(asked.ENROL, asked.Enrols(tuple(given.items()), entity))

    door.ask(questions)
    _tell({"queries": len(given)}, f"a query set of {len(given)} is agreed on", as_json=as_json)


def answer(door: Door, query: str, *, as_json: bool) -> None:
    if sys.stdin.isatty():
        given = str(typer.prompt(query, hide_input=True, err=True))
    else:
        given = sys.stdin.readline().rstrip("\n")

    async def questions(asking: Asking, _: Certificate) -> None:
        await asking(asked.CHALLENGE, asked.AnswersChallenge(query, given))

    door.ask(questions)
    _tell({"query": query}, "the answer is right", as_json=as_json)


def release(door: Door, entity: str, *, anew: bool, as_json: bool) -> None:
    async def questions(asking: Asking, _: Certificate) -> None:
        await asking(asked.RELEASE, asked.Releases(entity, anew))

    door.ask(questions)
    _tell({"entity": entity, "anew": anew}, f"{entity} is released", as_json=as_json)


def show(door: Door, *, as_json: bool) -> None:
    async def questions(asking: Asking, _: Certificate) -> asked.Listed:
        return await _listed(asking)

    listed = door.ask(questions)
    if as_json:
        print_json({"topics": [_plain(one) for one in listed.topics], "suspended": list(listed.suspended)})
        return
    shown = table("topic", "owner", "suite", "epoch", "entity", "may", "until", "on")
    for topic in map(_plain, listed.topics):
        head = [str(topic[key]) for key in ("topic", "owner", "suite", "epoch")]
        for one in topic["grants"] or [{}]:
            rights = ", ".join(one.get("rights", ()))
            shown.add_row(*head, one.get("entity", ""), rights, one.get("until", ""), one.get("template") or "")
            head = [""] * len(head)
    out.print(shown if shown.row_count else "no topic is registered", markup=False)
    if listed.suspended:
        out.print(f"suspended after wrong answers: {', '.join(listed.suspended)}", markup=False)


async def _listed(asking: Asking) -> asked.Listed:
    return decoded(await asking(asked.LIST, b""), asked.Listed, "answer")


async def _meant(asking: Asking, topic: str) -> bytes:
    """The id of a topic that was named by its id or by its template."""
    records = [TopicRecord(one.record) for one in (await _listed(asking)).topics]
    wanted = None if len(topic) == 2 * ID and "=" not in topic else Template.parse(topic)
    for record in records:
        if record.id.hex() == topic.lower() or record.template == wanted:
            return record.id
    raise InvalidValueError(f"there is no topic {topic} here, or it belongs to somebody else; see `tidings kmc list`")


def _plain(topic: asked.ListedTopic) -> dict[str, Any]:
    record = TopicRecord(topic.record)
    return {
        "topic": str(record.template),
        "id": record.id.hex(),
        "owner": record.owner.name,
        "suite": record.suite.text,
        "epoch": topic.epoch,
        "epoch_until": _text(topic.until),
        "lifetime": topic.lifetime,
        "messages": topic.messages,
        "grace": topic.grace,
        "challenge": topic.challenge,
        "grants": [
            {
                "entity": one.entity,
                "rights": Right(one.rights).words,
                "until": _text(one.until),
                "template": one.template,
                "since_epoch": one.since,
            }
            for one in topic.grants
        ],
    }


def _tell_epochs(changed: asked.Changed, what: str, *, as_json: bool) -> None:
    epochs = ", ".join(f"{topic} is in epoch {epoch}" for topic, epoch in changed.epochs.items())
    _tell({"epochs": changed.epochs}, f"{what}: {epochs}", as_json=as_json)


def _tell(values: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(values)
    else:
        out.print(text, markup=False)


def _text(when: int) -> str:
    return moment(when).strftime("%Y-%m-%dT%H:%M:%SZ")
