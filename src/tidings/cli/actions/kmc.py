"""The commands of `tidings kmc`: create and run a key management centre, and send requests to it.

Each request command builds a coroutine that sends its requests in order, and hands it to `access.run` of
`tidings.cli.kmc_access`, which runs it against a running centre or its folder.
"""

import asyncio
import logging
import secrets
import sys
from pathlib import Path
from typing import Any, NamedTuple

import typer

from tidings.cli.connection import EntityConnection, until_stopped
from tidings.cli.kmc_access import CentreConnection, KmcAccess, SendRequest, new_vault, unlocker
from tidings.cli.options import parse_json_object, read_file
from tidings.cli.output import err, out, print_json, table, time_text
from tidings.client.secure.service_rpc import now
from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.ca.identity import Identity
from tidings.security.ca.revocation import RevocationUpdate
from tidings.security.encoding import decode_canonical
from tidings.security.kmc.epochs import SECOND
from tidings.security.rpc import kmc_messages
from tidings.security.suites import Suite
from tidings.security.tdn.discovery_records import Visibility
from tidings.security.template import Template
from tidings.security.tokens.token import Right
from tidings.security.topic_record import ID, TopicRecord
from tidings.services.kmc import KmcServer
from tidings.services.kmc_store import IDENTITY, SERVICE, KmcStore

_DAY = 86_400 * SECOND


# Create and run a centre


def create(folder: Path, identity: Path, key_file: Path | None, overlay: str, *, as_json: bool) -> None:
    """Create a new key management centre in `folder`, with a copy of its identity and its service file.

    Args:
        folder: The folder to create the centre in.
        identity: The folder of the centre's identity.
        key_file: The key that encrypts the state, created if it is missing; None: a passphrase.
        overlay: The name of the overlay.
        as_json: Print JSON.
    """
    centre = Identity.load(identity)
    with KmcStore.create(folder, centre, new_vault(key_file), overlay=overlay):
        pass
    if as_json:
        print_json({"folder": str(folder), "name": centre.name, "service": str(folder / SERVICE)})
    else:
        out.print(f"{folder} is the centre {centre.name} now; {folder / SERVICE} says where it is asked", markup=False)


class ServeOptions(NamedTuple):
    """How a running centre connects to its broker, and which entities may find it at discovery nodes."""

    addresses: str
    overlay: str
    plain: bool
    revocations: Path | None
    visibility: Visibility


def serve(folder: Path, key_file: Path | None, options: ServeOptions, *, as_json: bool) -> None:
    """Run a key management centre until SIGINT or SIGTERM.

    Args:
        folder: The centre's folder.
        key_file: The key that encrypts its state; None: a passphrase.
        options: Its broker, overlay, first revocation list and visibility.
        as_json: Print JSON.
    """
    options.visibility.check()
    update = None if options.revocations is None else RevocationUpdate.read(read_file(options.revocations))
    with KmcStore.open(folder, unlocker(key_file), overlay=options.overlay) as store:
        asyncio.run(until_stopped(_serve(store, options, update, as_json=as_json)))


async def _serve(store: KmcStore, options: ServeOptions, update: RevocationUpdate | None, *, as_json: bool) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    name = store.centre.identity.name
    caller = EntityConnection(options.addresses, store.folder / IDENTITY, options.plain, options.overlay)
    async with (
        caller.client(timeout=None, as_json=as_json) as client,
        KmcServer(store, client, restriction=options.visibility) as server,
    ):
        if update is not None:
            await server.revoke(update)
        if as_json:
            print_json({"centre": name, "broker": client.broker, "service": str(store.folder / SERVICE)})
        else:
            out.print(f"{name} serves at {client.broker}", markup=False)
        _warn_without_list(server)
        await server.serve()


def _warn_without_list(server: KmcServer) -> None:
    """Print a remark if the centre has no fresh revocation list and so refuses all requests."""
    try:
        server.centre.credentials.revocations.check_fresh(now())
    except SecurityError:
        err.print("nobody is answered until there is a list of revocations: `tidings ca publish`", markup=False)


# Requests of topic owners


class TopicOptions(NamedTuple):
    """The settings of a secure topic. None keeps the present value, or takes the default for a new topic."""

    template: str
    suite: Suite | None
    lifetime: int | None
    messages: int | None
    grace: int | None
    challenge: int | None

    def parameters(self, listing: kmc_messages.TopicListing | None) -> dict[str, int]:
        """Return the settings to register: the options that are set here, and for the others the present topic's
        settings."""
        names = ("lifetime", "messages", "grace", "challenge")
        settings = {} if listing is None else {name: getattr(listing, name) for name in names}
        return settings | {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def register(access: KmcAccess, owner: Path, options: TopicOptions, to: Path | None, *, as_json: bool) -> None:
    """Register a secure topic, or change its settings, as its owner.

    The topic's record is signed anew only if the owner's certificate, the centre or the cipher suite has changed.

    Args:
        access: The access to the centre.
        owner: The folder of the owner's identity.
        options: The topic's settings.
        to: The file to write the topic's record to; None: no file.
        as_json: Print JSON.
    """
    identity, template = Identity.load(owner), Template.parse(options.template)

    async def series(centre: CentreConnection) -> tuple[TopicRecord, kmc_messages.ChangeResponse]:
        registered = [(TopicRecord(listing.record), listing) for listing in (await _list_topics(centre.send)).topics]
        own_topics = (
            pair for pair in registered if pair[0].template == template and pair[0].owner.name == identity.name
        )
        current, listing_before = next(own_topics, (None, None))
        suite = options.suite or (Suite.AES_256_GCM if current is None else current.suite)
        content = (
            identity.certificate,
            centre.certificate.fingerprint,
            suite,
        )  # a renewed certificate differs from the old one
        if current is not None and (current.owner, current.kmc, current.suite) == content:
            record = current
        else:
            record = TopicRecord.make(
                identity,
                id=secrets.token_bytes(ID) if current is None else current.id,
                template=options.template,
                kmc=centre.certificate,
                suite=suite,
                version=1 if current is None else current.version + 1,
                overlay=access.overlay,
            )
        body = kmc_messages.RegisterTopicRequest(record.data, **options.parameters(listing_before))
        return record, decode_canonical(
            await centre.send(kmc_messages.TOPIC, body), kmc_messages.ChangeResponse, "answer"
        )

    record, change = access.run(series)
    if to is not None:
        try:
            to.write_bytes(record.data)
        except OSError as error:
            raise InvalidValueError(f"--out: {to}: {error.strerror or error}") from None
    epoch = change.epochs[record.id.hex()]
    if as_json:
        values = {"topic": str(record.template), "id": record.id.hex(), "version": record.version, "epoch": epoch}
        print_json({**values, "owner": identity.name, "suite": record.suite.text})
    else:
        out.print(f"{record.template} is a secure topic of {identity.name}, {record.suite.text}", markup=False)


def grant(
    access: KmcAccess,
    topic: str,
    entity: str,
    rights: list[str],
    days: float,
    part: str | None,
    *,
    history: bool,
    as_json: bool,
) -> None:
    """Grant an entity rights on a topic, in place of its earlier ones.

    Args:
        access: The access to the centre.
        topic: The topic's template or id.
        entity: The name in the entity's certificate.
        rights: The words `publish`, `subscribe` and `govern`.
        days: How long the grant is valid.
        part: A template that limits the grant to a part of the topic.
        history: Include the keys of all earlier epochs.
        as_json: Print JSON.
    """
    granted, until = Right.of(rights), now() + int(days * _DAY)

    async def series(centre: CentreConnection) -> None:
        topic_id = await _topic_id(centre.send, topic)
        await centre.send(
            kmc_messages.GRANT, kmc_messages.GrantRequest(topic_id, entity, int(granted), until, part, history)
        )

    access.run(series)
    if as_json:
        print_json({"topic": topic, "entity": entity, "rights": granted.words, "until": time_text(until, "seconds")})
    else:
        out.print(
            f"{entity} may {' and '.join(granted.words)} on {topic} until {time_text(until, 'seconds')}", markup=False
        )


def revoke(access: KmcAccess, entity: str, topic: str | None, *, as_json: bool) -> None:
    """Revoke all rights of an entity on a topic, or, as the administrator, on all topics; print the new epochs.

    Args:
        access: The access to the centre.
        entity: The name in the entity's certificate.
        topic: The topic's template or id; None: all topics.
        as_json: Print JSON.
    """

    async def series(centre: CentreConnection) -> kmc_messages.ChangeResponse:
        topic_id = None if topic is None else await _topic_id(centre.send, topic)
        return decode_canonical(
            await centre.send(kmc_messages.REVOKE, kmc_messages.RevokeRequest(entity, topic_id)),
            kmc_messages.ChangeResponse,
            "answer",
        )

    _print_epochs(access.run(series), f"{entity} is revoked", as_json=as_json)


def rotate(access: KmcAccess, topic: str, *, compromised: bool, as_json: bool) -> None:
    """Start a new epoch of a topic, with a new key. After a compromise, brokers refuse events sealed under older keys.

    Args:
        access: The access to the centre.
        topic: The topic's template or id.
        compromised: Refuse events under older keys at once, without the grace period.
        as_json: Print JSON.
    """

    async def series(centre: CentreConnection) -> kmc_messages.ChangeResponse:
        request = kmc_messages.RotateRequest(await _topic_id(centre.send, topic), compromised)
        return decode_canonical(await centre.send(kmc_messages.ROTATE, request), kmc_messages.ChangeResponse, "answer")

    _print_epochs(access.run(series), f"{topic} has a new key", as_json=as_json)


def enrol(access: KmcAccess, file: Path, entity: str | None, *, as_json: bool) -> None:
    """Agree with the centre on a query set: questions that the entity answers when it is challenged.

    Args:
        access: The access to the centre.
        file: A JSON object of queries and answers; `-` is standard input.
        entity: The name of the entity, for the administrator; None: the caller.
        as_json: Print JSON.
    """
    answers = parse_json_object(sys.stdin.buffer.read() if str(file) == "-" else read_file(file), "the query set")
    if not all(isinstance(answer, str) for answer in answers.values()):
        raise InvalidValueError("the query set: every answer is a text")

    async def series(centre: CentreConnection) -> None:
        await centre.send(kmc_messages.ENROL, kmc_messages.EnrolRequest(tuple(answers.items()), entity))

    access.run(series)
    _print_result({"queries": len(answers)}, f"a query set of {len(answers)} is agreed on", as_json=as_json)


def answer(access: KmcAccess, query: str, *, as_json: bool) -> None:
    """Answer a challenge of the centre. The answer is prompted for, or read from standard input."""
    if sys.stdin.isatty():
        response = str(typer.prompt(query, hide_input=True, err=True))
    else:
        response = sys.stdin.readline().rstrip("\n")

    async def series(centre: CentreConnection) -> None:
        await centre.send(kmc_messages.CHALLENGE, kmc_messages.AnswerChallengeRequest(query, response))

    access.run(series)
    _print_result({"query": query}, "the answer is right", as_json=as_json)


def release(access: KmcAccess, entity: str, *, anew: bool, as_json: bool) -> None:
    """Lift an entity's suspension for wrong answers. With `anew`, its query set is removed too.

    Args:
        access: The access to the centre.
        entity: The name in the entity's certificate.
        anew: Remove the entity's query set, so that it must enrol again.
        as_json: Print JSON.
    """

    async def series(centre: CentreConnection) -> None:
        await centre.send(kmc_messages.RELEASE, kmc_messages.ReleaseRequest(entity, anew))

    access.run(series)
    _print_result({"entity": entity, "anew": anew}, f"{entity} is released", as_json=as_json)


def show(access: KmcAccess, *, as_json: bool) -> None:
    """Print the topics that the caller may see, with their epochs and grants, and the suspended entities."""

    async def series(centre: CentreConnection) -> kmc_messages.ListResponse:
        return await _list_topics(centre.send)

    listing = access.run(series)
    if as_json:
        print_json({"topics": [_json_topic(entry) for entry in listing.topics], "suspended": list(listing.suspended)})
        return
    rows = table("topic", "owner", "suite", "epoch", "entity", "may", "until", "on")
    for topic in map(_json_topic, listing.topics):
        head = [str(topic[key]) for key in ("topic", "owner", "suite", "epoch")]
        for entry in topic["grants"] or [{}]:
            rights = ", ".join(entry.get("rights", ()))
            rows.add_row(*head, entry.get("entity", ""), rights, entry.get("until", ""), entry.get("template") or "")
            head = [""] * len(head)
    out.print(rows if rows.row_count else "no topic is registered", markup=False)
    if listing.suspended:
        out.print(f"suspended after wrong answers: {', '.join(listing.suspended)}", markup=False)


async def _list_topics(send: SendRequest) -> kmc_messages.ListResponse:
    """Ask the centre for its topics, grants and suspended entities."""
    return decode_canonical(await send(kmc_messages.LIST, b""), kmc_messages.ListResponse, "answer")


async def _topic_id(send: SendRequest, topic: str) -> bytes:
    """Return the id of the topic that `topic` names by its id or by its template.

    Raises InvalidValueError if the caller sees no such topic.
    """
    records = [TopicRecord(listing.record) for listing in (await _list_topics(send)).topics]
    template = None if len(topic) == 2 * ID and "=" not in topic else Template.parse(topic)
    for record in records:
        if record.id.hex() == topic.lower() or record.template == template:
            return record.id
    raise InvalidValueError(f"there is no topic {topic} here, or it belongs to somebody else; see `tidings kmc list`")


def _json_topic(topic: kmc_messages.TopicListing) -> dict[str, Any]:
    """Return a topic's listing as a dictionary for JSON."""
    record = TopicRecord(topic.record)
    return {
        "topic": str(record.template),
        "id": record.id.hex(),
        "owner": record.owner.name,
        "suite": record.suite.text,
        "epoch": topic.epoch,
        "epoch_until": time_text(topic.until, "seconds"),
        "lifetime": topic.lifetime,
        "messages": topic.messages,
        "grace": topic.grace,
        "challenge": topic.challenge,
        "grants": [
            {
                "entity": grant_entry.entity,
                "rights": Right(grant_entry.rights).words,
                "until": time_text(grant_entry.until, "seconds"),
                "template": grant_entry.template,
                "since_epoch": grant_entry.since,
            }
            for grant_entry in topic.grants
        ],
    }


def _print_epochs(change: kmc_messages.ChangeResponse, event: str, *, as_json: bool) -> None:
    epochs = ", ".join(f"{topic} is in epoch {epoch}" for topic, epoch in change.epochs.items())
    _print_result({"epochs": change.epochs}, f"{event}: {epochs}", as_json=as_json)


def _print_result(values: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(values)
    else:
        out.print(text, markup=False)
