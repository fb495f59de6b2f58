"""The commands `tidings tdn serve` and `tidings topics find | advertise | withdraw`: discovery of secure topics."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tidings.cli.connection import EntityConnection, until_stopped
from tidings.cli.options import read_file
from tidings.cli.output import err, out, print_json, table, time_text
from tidings.client.secure.discovery import Discovery
from tidings.client.secure.kmc_client import has_topic
from tidings.client.secure.service_rpc import Retry, now
from tidings.model.errors import InvalidValueError
from tidings.security.ca.identity import Identity
from tidings.security.ca.revocation import RevocationUpdate
from tidings.security.tdn.discovery_records import DAY, DiscoveryRecord, Visibility
from tidings.security.template import Template
from tidings.security.tokens.credentials import Credentials
from tidings.security.topic_record import TopicRecord, provenance
from tidings.services.tdn import DiscoveryService


class VisibilityOptions(NamedTuple):
    """Which entities may find a topic, by name pattern and role, and for how many days."""

    names: list[str]
    roles: list[str]
    days: int


def serve(caller: EntityConnection, folder: Path, revocations: Path | None, *, as_json: bool) -> None:
    """Run a topic discovery node until SIGINT or SIGTERM.

    Args:
        caller: The connection to the broker, and the node's identity.
        folder: The folder of the node's state.
        revocations: The file of the first revocation list; None: it arrives over the overlay.
        as_json: Print JSON.
    """
    update = None if revocations is None else RevocationUpdate.read(read_file(revocations))
    asyncio.run(until_stopped(_serve(caller, folder, update, as_json=as_json)))


async def _serve(caller: EntityConnection, folder: Path, update: RevocationUpdate | None, *, as_json: bool) -> None:
    identity = caller.entity()
    async with (
        caller.client(timeout=None, as_json=as_json) as client,
        DiscoveryService(client, identity, folder, overlay=caller.overlay, revocations=update) as service,
    ):
        count = len(service.node.shown())
        if as_json:
            print_json({"node": identity.name, "broker": client.broker, "advertised": count})
        else:
            out.print(f"{identity.name} serves at {client.broker}, and knows {count} topics and services", markup=False)
        if service.lacks_revocations:
            err.print(f"{identity.name} answers nobody until it has a list of revocations: `tidings ca publish`")
        await client.until_closed()


@asynccontextmanager
async def _connect_discovery(caller: EntityConnection) -> AsyncIterator[tuple[Discovery, Identity]]:
    """Connect, and yield a discovery client and the caller's identity."""
    identity = caller.entity()
    async with caller.client() as client:
        yield Discovery(client, identity, Credentials(identity.anchor, caller.overlay)), identity


def find(caller: EntityConnection, query: str, to: Path | None, limit: int, *, as_json: bool) -> None:
    """Find secure topics and their key management centres at discovery nodes, and print the topics.

    Args:
        caller: The connection to the broker, and the identity.
        query: A template such as `Sports=NBA`, or `*` for all topics.
        to: The folder to write topic records and service records into; None: no files.
        limit: How many topics and centres to show.
        as_json: Print JSON.
    """
    records = asyncio.run(_find(caller, query, limit + 1))
    if len(records) > limit:
        records.pop()
        err.print(f"there is more than these {limit:,}: say --limit, or a narrower template", markup=False)
    topics = [_json_topic(record.record, record.expires, records) for record in records if record.record is not None]
    if to is not None:
        _write_records(records, to)
    if as_json:
        print_json(topics)
    elif topics:
        rows = table("topic", "owner", "version", "centre", "until", "id")
        for topic in topics:
            rows.add_row(*(str(topic[key]) for key in ("topic", "owner", "version", "centre", "until", "id")))
        out.print(rows, markup=False)
    else:
        out.print("nothing is found", markup=False)


async def _find(caller: EntityConnection, query: str, limit: int) -> list[DiscoveryRecord]:
    """Ask discovery nodes until a topic is found or the caller's waiting time is over."""
    retry = Retry(caller.wait)
    async with _connect_discovery(caller) as (discovery, _):
        return await retry.answer_to(partial(discovery.find, query, limit=limit), has_topic)


def _json_topic(record: TopicRecord, expires: int, records: list[DiscoveryRecord]) -> dict[str, Any]:
    """Return a found topic, which is advertised until `expires`, as a dictionary for JSON."""
    origin = provenance(record)
    centres = (entry.service.certificate for entry in records if entry.service is not None)
    return {
        "topic": origin.template,
        "owner": origin.owner,
        "owner_serial": origin.serial,
        "version": origin.version,
        "centre": next((certificate.name for certificate in centres if certificate.fingerprint == record.kmc), ""),
        "until": time_text(expires, "seconds"),
        "id": record.id.hex(),
    }


def _write_records(records: list[DiscoveryRecord], folder: Path) -> None:
    """Write the records of the topics and of their centres into the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for entry in records:
            if entry.record is not None:
                (folder / f"{entry.record.id.hex()}.record").write_bytes(entry.record.data)
            elif entry.service is not None:
                (folder / f"{entry.id.hex()}.service").write_bytes(entry.service.data)
    except OSError as error:
        raise InvalidValueError(f"--out: {folder}: {error.strerror or error}") from None


def advertise(caller: EntityConnection, file: Path, visibility: VisibilityOptions, *, as_json: bool) -> None:
    """Advertise a secure topic at discovery nodes, as its owner; again, to change which entities may find it.

    Args:
        caller: The connection to the broker, and the owner's identity.
        file: The topic's record.
        visibility: Which entities may find the topic, and for how long.
        as_json: Print JSON.
    """
    record = TopicRecord(read_file(file))
    restriction = Visibility(tuple(visibility.names), tuple(visibility.roles))

    async def send() -> list[str]:
        retry = Retry(caller.wait)
        async with _connect_discovery(caller._replace(overlay=record.overlay)) as (discovery, identity):
            entry = DiscoveryRecord.topic(
                identity, record, now(), restriction=restriction, lifetime=visibility.days * DAY
            )
            return await retry.answer_to(partial(discovery.advertise, entry))

    _print_nodes(str(record.template), "can be found", asyncio.run(send()), as_json=as_json)


def withdraw(caller: EntityConnection, template: str, *, as_json: bool) -> None:
    """Withdraw the advertisement of a secure topic from discovery nodes, as its owner.

    Raises InvalidValueError if the owner has advertised no such topic.
    """
    parsed = Template.parse(template)

    async def send() -> list[str]:
        retry = Retry(caller.wait)
        async with _connect_discovery(caller) as (discovery, identity):
            for entry in await retry.answer_to(partial(discovery.find, template)):
                if entry.record is not None and entry.record.template == parsed and entry.owner.name == identity.name:
                    withdrawal = DiscoveryRecord.withdrawal(identity, entry.id, now(), overlay=entry.overlay)
                    return await retry.answer_to(partial(discovery.withdraw, withdrawal))
            raise InvalidValueError(f"{identity.name} has advertised no topic {parsed}; see `tidings topics find`")

    _print_nodes(str(parsed), "is found no more", asyncio.run(send()), as_json=as_json)


def _print_nodes(topic: str, outcome: str, nodes: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"topic": topic, "nodes": nodes})
    else:
        out.print(f"{topic} {outcome}; told to {', '.join(nodes)}", markup=False)
