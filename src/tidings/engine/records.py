"""Operations as rows of a journal, and back: exact in both directions.

Filters, schemas and structures stand in the rows as canonical texts. What a driver adds to a row's body for itself has
names that start with `$`; it is passed over here.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tidings import journal
from tidings.engine.journey import NEW, Journey
from tidings.engine.operations import (
    Advertise,
    Connect,
    Define,
    Disconnect,
    Entrust,
    Heed,
    Learn,
    Operation,
    Publish,
    Revoke,
    SetContext,
    SetPolicy,
    Subscribe,
    Trust,
    Unadvertise,
    Unsubscribe,
)
from tidings.filters import ContextFilter, Filter
from tidings.index import rows
from tidings.model.advertisement import Advertisement, ContextOffer, listed_offer
from tidings.model.errors import InvalidValueError
from tidings.model.event import Event
from tidings.model.filter import ContextFilter as ContextFilterValue
from tidings.model.schematext import schema_of, versions_of
from tidings.model.values import Context

# Rows that drivers write for themselves: nothing was asked of their engines by them.
ASIDE = frozenset({journal.PASSED, "persist", "acknowledge", "debts", "decided"})
EXPELLED = "$expelled"  # with the end of a subscription that the engine itself has put out: see `is_aside`


def is_aside(kind: str, body: str | None) -> bool:
    """Whether nothing is to be done by a row where all events are handled again: then the engine does it by itself."""
    return kind in ASIDE or (kind == "unsubscribe" and body is not None and EXPELLED in body)


def row(operation: Operation, notes: Mapping[str, Any] | None = None) -> journal.Operation:
    """The row of an operation; `notes` are what the driver wants to find in its body again, under names with `$`."""
    if type(operation) is Publish:
        return _published(operation, notes or {})
    write = _WRITERS.get(type(operation))
    if write is None:
        raise InvalidValueError(f"an operation of the kind {type(operation).__name__} is not for a journal")
    written: journal.Operation = write(operation)
    if not notes:
        return written
    body = {**(msgspec.json.decode(written.body) if written.body else {}), **notes}
    return msgspec.structs.replace(written, body=msgspec.json.encode(body).decode())


def passed(event: Event, notes: Mapping[str, Any]) -> journal.Operation:
    """The row of an event that another broker accepted, with why it is kept here."""
    return journal.Operation.publication(event, journal.PASSED, notes)


def operation(row: journal.Operation) -> Operation:
    """The operation of a row, or an `InvalidValueError` if there is none in it."""
    read = READERS.get(row.kind)
    if read is None:
        raise InvalidValueError(f"a row of the kind {row.kind!r} holds no operation of an engine")
    body = {name: value for name, value in row.content().items() if not name.startswith("$")} if row.body else {}
    return read(row, row.client or "", row.id or "", body)


def notes(row: journal.Operation) -> dict[str, Any]:
    """What the driver has added to a row's body."""
    if not row.body or '"$' not in row.body:
        return {}
    return {name: value for name, value in row.content().items() if name.startswith("$")}


def _published(one: Publish, notes: Mapping[str, Any]) -> journal.Operation:
    if one.journey is NEW or one.journey == NEW:
        return journal.Operation.publication(one.event, body=notes)
    journey = msgspec.Raw(msgspec.json.encode(one.journey, order="deterministic"))
    return journal.Operation.publication(one.event, body={"journey": journey, **notes})


def _advertise(one: Advertise) -> journal.Operation:
    said = one.advertisement
    body = {
        "content": str(said.content),
        # An older reader needs a list here: it takes the advertisement for one that offers no names.
        "publisher_context": _offer_text(listed_offer(said)),
        "subscriber_context": _offer_text(said.subscriber_context),
        "policy": said.policy,
        "publisher_context_all": True if said.publisher_context is None else None,
    }
    return journal.Operation.control("advertise", client=said.publisher, id=said.id, body=_said(body))


def _subscribe(one: Subscribe) -> journal.Operation:
    body = rows.written(one.subscription)
    client, id = body.pop("subscriber"), body.pop("id")  # noqa: A001
    del body["token"]  # in a column of its own, as that of an event
    token = one.subscription.token
    return journal.Operation.control("subscribe", client=client, id=id, body=_said(body), token=token)


def _removal(kind: str) -> Callable[[Any], journal.Operation]:
    def write(one: Unsubscribe | Unadvertise) -> journal.Operation:
        return journal.Operation.control(kind, client=one.client, id=one.id, body=_said({"policy": one.policy}) or None)

    return write


def _set_context(one: SetContext) -> journal.Operation:
    return journal.Operation.control("set_context", client=one.client, id=one.by, body=dict(one.context))


def _entrust(one: Entrust) -> journal.Operation:
    return journal.Operation.control("entrust", client=one.client, id=one.other, body={"entrusted": one.entrusted})


def _set_policy(one: SetPolicy) -> journal.Operation:
    return journal.Operation.control("set_policy", client=one.client, id=one.id, body={"policy": one.policy})


def _define(one: Define) -> journal.Operation:
    body = {"versions": versions_of(one.schema)}
    return journal.Operation.control("schema", client=one.client, id=one.schema.subject, body=body)


def _connect(one: Connect) -> journal.Operation:
    body = {"session": one.session, "moved": one.moved}
    return journal.Operation.control("connect", client=one.client, body=body)


def _disconnect(one: Disconnect) -> journal.Operation:
    return journal.Operation.control("disconnect", client=one.client)


def _trust(one: Trust) -> journal.Operation:
    body = {"member": one.member, "until": one.until}
    return journal.Operation.control("trust", client=one.party, id=one.group, body=body)


def _signed(kind: str) -> Callable[[Any], journal.Operation]:
    def write(one: Learn | Heed | Revoke) -> journal.Operation:
        (data,) = msgspec.structs.astuple(one)
        return journal.Operation.control(kind, payload=data)

    return write


SIGNED = ("learn", "heed", "revoke")  # by whoever signed them: no client has to be asked

_WRITERS: dict[type, Callable[[Any], journal.Operation]] = {
    Advertise: _advertise,
    Unadvertise: _removal("unadvertise"),
    Subscribe: _subscribe,
    Unsubscribe: _removal("unsubscribe"),
    SetContext: _set_context,
    Entrust: _entrust,
    SetPolicy: _set_policy,
    Define: _define,
    Connect: _connect,
    Disconnect: _disconnect,
    Trust: _trust,
    Learn: _signed("learn"),
    Heed: _signed("heed"),
    Revoke: _signed("revoke"),
}


def _read_publish(row: journal.Operation, _: str, __: str, body: dict[str, Any]) -> Operation:
    journey = msgspec.convert(body["journey"], Journey) if "journey" in body else NEW
    return Publish(row.event(ContextFilter.parse), journey)


def _read_advertise(_: journal.Operation, client: str, id: str, body: dict[str, Any]) -> Operation:  # noqa: A002
    return Advertise(
        Advertisement.of(
            Filter.parse(body["content"]),
            id=id,
            publisher=client,
            publisher_context=None if body.get("publisher_context_all") else _offer(body["publisher_context"]),
            subscriber_context=_offer(body["subscriber_context"]),
            policy=body.get("policy"),
        )
    )


def _read_subscribe(row: journal.Operation, client: str, id: str, body: dict[str, Any]) -> Operation:  # noqa: A002
    read = rows.read({"id": id, "subscriber": client, **body})
    return Subscribe(read if row.token is None else msgspec.structs.replace(read, token=row.token))


def _read_set_context(row: journal.Operation, client: str, _: str, body: dict[str, Any]) -> Operation:
    return SetContext(client, Context(body), row.id)


READERS: dict[str, Callable[[journal.Operation, str, str, dict[str, Any]], Operation]] = {
    "publish": _read_publish,
    "advertise": _read_advertise,
    "unadvertise": lambda _, client, about, body: Unadvertise(client, about, body.get("policy")),
    "subscribe": _read_subscribe,
    "unsubscribe": lambda _, client, about, body: Unsubscribe(client, about, body.get("policy")),
    "set_context": _read_set_context,
    "entrust": lambda _, client, about, body: Entrust(client, about, body["entrusted"]),
    "set_policy": lambda _, client, about, body: SetPolicy(client, about, body["policy"]),
    "schema": lambda _, client, about, body: Define(client, schema_of(about, body["versions"])),
    "connect": lambda _, client, __, body: Connect(client, body["moved"], body["session"]),
    "disconnect": lambda _, client, __, ___: Disconnect(client),
    "trust": lambda _, party, group, body: Trust(party, group, body["member"], body["until"]),
    "learn": lambda row, *_: Learn(row.payload or b""),
    "heed": lambda row, *_: Heed(row.payload or b""),
    "revoke": lambda row, *_: Revoke(row.payload or b""),
}


def _offer_text(offer: ContextOffer) -> list[str] | str:
    return str(offer) if isinstance(offer, ContextFilterValue) else list(offer)


def _offer(said: list[str] | str) -> ContextOffer:
    return ContextFilter.parse(said) if isinstance(said, str) else tuple(said)


def _said(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}
