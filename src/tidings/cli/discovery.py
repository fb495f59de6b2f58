"""`tidings tdn serve`, and `tidings topics find`, `advertise` and `withdraw`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tidings.cli.caller import EntityCaller
from tidings.cli.serving import until_stopped
from tidings.cli.terminal import err, out, print_json, table
from tidings.cli.values import file_bytes
from tidings.client.centres import has_topic
from tidings.client.discovery import Discovery
from tidings.client.retry import Retry
from tidings.client.security import now
from tidings.model.errors import InvalidValueError
from tidings.security.advertised import DAY, Advertised
from tidings.security.certificates import moment
from tidings.security.credentials import Credentials
from tidings.security.identity import Identity
from tidings.security.records import TopicRecord, provenance
from tidings.security.restriction import Restriction
from tidings.security.revocation import Update
from tidings.security.template import Template
from tidings.services.tdn import DiscoveryService


class Whom(NamedTuple):
    """Who may find a topic, and for how many days."""

    names: list[str]
    roles: list[str]
    days: int


def serve(caller: EntityCaller, folder: Path, revocations: Path | None, *, as_json: bool) -> None:
    update = None if revocations is None else Update.read(file_bytes(revocations))
    asyncio.run(until_stopped(_served(caller, folder, update, as_json=as_json)))


async def _served(caller: EntityCaller, folder: Path, update: Update | None, *, as_json: bool) -> None:
    identity = caller.entity()
    async with (
        caller.client(timeout=None, as_json=as_json) as client,
        DiscoveryService(client, identity, folder, overlay=caller.overlay, revocations=update) as made,
    ):
        known = len(made.node.shown())
        if as_json:
            print_json({"node": identity.name, "broker": client.broker, "advertised": known})
        else:
            out.print(f"{identity.name} serves at {client.broker}, and knows {known} topics and services", markup=False)
        if made.lacks_revocations:
            err.print(f"{identity.name} answers nobody until it has a list of revocations: `tidings ca publish`")
        await client.until_closed()


@asynccontextmanager
async def _looking(caller: EntityCaller) -> AsyncIterator[tuple[Discovery, Identity]]:
    identity = caller.entity()
    async with caller.client() as client:
        yield Discovery(client, identity, Credentials(identity.anchor, caller.overlay)), identity


def find(caller: EntityCaller, query: str, to: Path | None, limit: int, *, as_json: bool) -> None:
    found = asyncio.run(_found(caller, query, limit + 1))
    if len(found) > limit:
        found.pop()
        err.print(f"there is more than these {limit:,}: say --limit, or a narrower template", markup=False)
    topics = [_plain(one, found) for one in found if one.record is not None]
    if to is not None:
        _write(found, to)
    if as_json:
        print_json(topics)
    elif topics:
        shown = table("topic", "owner", "version", "centre", "until", "id")
        for one in topics:
            shown.add_row(*(str(one[key]) for key in ("topic", "owner", "version", "centre", "until", "id")))
        out.print(shown, markup=False)
    else:
        out.print("nothing is found", markup=False)


async def _found(caller: EntityCaller, query: str, limit: int) -> list[Advertised]:
    retry = Retry(caller.wait)
    async with _looking(caller) as (discovery, _):
        return await retry.answer_to(partial(discovery.find, query, limit=limit), has_topic)


def _plain(one: Advertised, found: list[Advertised]) -> dict[str, Any]:
    record = one.record
    assert record is not None  # noqa: S101 - topics are asked for
    said = provenance(record)
    centres = (other.service.certificate for other in found if other.service is not None)
    return {
        "topic": said.template,
        "owner": said.owner,
        "owner_serial": said.serial,
        "version": said.version,
        "centre": next((each.name for each in centres if each.fingerprint == record.kmc), ""),
        "until": moment(one.expires).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "id": record.id.hex(),
    }


def _write(found: list[Advertised], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in found:
            if one.record is not None:
                (folder / f"{one.record.id.hex()}.record").write_bytes(one.record.data)
            elif one.service is not None:
                (folder / f"{one.id.hex()}.service").write_bytes(one.service.data)
    except OSError as error:
        raise InvalidValueError(f"--out: {folder}: {error.strerror or error}") from None


def advertise(caller: EntityCaller, file: Path, whom: Whom, *, as_json: bool) -> None:
    record = TopicRecord(file_bytes(file))
    restriction = Restriction(tuple(whom.names), tuple(whom.roles))

    async def said() -> list[str]:
        retry = Retry(caller.wait)
        async with _looking(caller._replace(overlay=record.overlay)) as (discovery, identity):
            made = Advertised.topic(identity, record, now(), restriction=restriction, lifetime=whom.days * DAY)
            return await retry.answer_to(partial(discovery.advertise, made))

    _tell(str(record.template), "can be found", asyncio.run(said()), as_json=as_json)


def withdraw(caller: EntityCaller, template: str, *, as_json: bool) -> None:
    wanted = Template.parse(template)

    async def said() -> list[str]:
        retry = Retry(caller.wait)
        async with _looking(caller) as (discovery, identity):
            for one in await retry.answer_to(partial(discovery.find, template)):
                if one.record is not None and one.record.template == wanted and one.owner.name == identity.name:
                    gone = Advertised.withdrawal(identity, one.id, now(), overlay=one.overlay)
                    return await retry.answer_to(partial(discovery.withdraw, gone))
            raise InvalidValueError(f"{identity.name} has advertised no topic {wanted}; see `tidings topics find`")

    _tell(str(wanted), "is found no more", asyncio.run(said()), as_json=as_json)


def _tell(topic: str, what: str, nodes: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"topic": topic, "nodes": nodes})
    else:
        out.print(f"{topic} {what}; told to {', '.join(nodes)}", markup=False)
