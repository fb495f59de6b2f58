"""Encode operations as journal rows and decode them again, exactly in both directions.

Filters, schemas and structures are written as canonical texts. A driver may add fields of its own to a row's body under
names that start with `$`; decoding an operation skips them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tidings import journal, text_index
from tidings.engine.headers import NEW, ForwardingHeader
from tidings.engine.operations import (
    Advertise,
    ApplyNotice,
    Connect,
    Define,
    DelegateContext,
    Disconnect,
    LearnTopic,
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
from tidings.model.advertisement import Advertisement, ContextOffer, listed_offer
from tidings.model.errors import InvalidValueError
from tidings.model.event import Event
from tidings.model.filter import ContextFilterValue
from tidings.model.schema import schema_of, versions_of
from tidings.model.values import Context

# Rows that drivers write for their own bookkeeping: they hold no operation of an engine.
ASIDE = frozenset({journal.PASSED, "persist", "acknowledge", "debts", "decided"})
EXPELLED = "$expelled"  # in the body of the removal of an expelled subscription: see `is_aside`


def is_aside(kind: str, body: str | None) -> bool:
    """Whether a row is superfluous when all events are replayed.

    It is driver bookkeeping, or the removal of an expelled subscription, which the engine repeats itself.
    """
    return kind in ASIDE or (kind == "unsubscribe" and body is not None and EXPELLED in body)


def row(operation: Operation, notes: Mapping[str, Any] | None = None) -> journal.Operation:
    """Encode an operation as a journal row. Raises `InvalidValueError` if operations of its kind are not journaled.

    Args:
        operation: The operation to encode.
        notes: Fields that the driver adds to the row's body, under names that start with `$`.
    """
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


def passed_row(event: Event, notes: Mapping[str, Any]) -> journal.Operation:
    """Encode an event that another broker accepted as a row, with `notes` saying why this broker stores it."""
    return journal.Operation.publication(event, journal.PASSED, notes)


def operation(row: journal.Operation) -> Operation:
    """Decode the operation of a row. Raises `InvalidValueError` if the row holds none."""
    read = READERS.get(row.kind)
    if read is None:
        raise InvalidValueError(f"a row of the kind {row.kind!r} holds no operation of an engine")
    body = {name: value for name, value in row.content().items() if not name.startswith("$")} if row.body else {}
    return read(row, row.client or "", row.id or "", body)


def driver_notes(row: journal.Operation) -> dict[str, Any]:
    """Return the fields that the driver added to a row's body."""
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
        # Older readers need a list here; they read an advertisement that offers no names.
        "publisher_context": _offer_text(listed_offer(said)),
        "subscriber_context": _offer_text(said.subscriber_context),
        "policy": said.policy,
        "publisher_context_all": True if said.publisher_context is None else None,
    }
    return journal.Operation.control("advertise", client=said.publisher, id=said.id, body=_without_none(body))


def _subscribe(one: Subscribe) -> journal.Operation:
    body = text_index.row_of(one.subscription)
    client, id = body.pop("subscriber"), body.pop("id")  # noqa: A001
    del body["token"]  # it has a column of its own, as the token of an event has
    token = one.subscription.token
    return journal.Operation.control("subscribe", client=client, id=id, body=_without_none(body), token=token)


def _removal(kind: str) -> Callable[[Any], journal.Operation]:
    def write(one: Unsubscribe | Unadvertise) -> journal.Operation:
        return journal.Operation.control(
            kind, client=one.client, id=one.id, body=_without_none({"policy": one.policy}) or None
        )

    return write


def _set_context(one: SetContext) -> journal.Operation:
    return journal.Operation.control("set_context", client=one.client, id=one.by, body=dict(one.context))


def _entrust(one: DelegateContext) -> journal.Operation:
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
    def write(one: LearnTopic | ApplyNotice | Revoke) -> journal.Operation:
        (data,) = msgspec.structs.astuple(one)
        return journal.Operation.control(kind, payload=data)

    return write


SIGNED = ("learn", "heed", "revoke")  # rows whose authority is a signature, not a client

_WRITERS: dict[type, Callable[[Any], journal.Operation]] = {
    Advertise: _advertise,
    Unadvertise: _removal("unadvertise"),
    Subscribe: _subscribe,
    Unsubscribe: _removal("unsubscribe"),
    SetContext: _set_context,
    DelegateContext: _entrust,
    SetPolicy: _set_policy,
    Define: _define,
    Connect: _connect,
    Disconnect: _disconnect,
    Trust: _trust,
    LearnTopic: _signed("learn"),
    ApplyNotice: _signed("heed"),
    Revoke: _signed("revoke"),
}


def _read_publish(row: journal.Operation, _: str, __: str, body: dict[str, Any]) -> Operation:
    journey = msgspec.convert(body["journey"], ForwardingHeader) if "journey" in body else NEW
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
    read = text_index.subscription_of({"id": id, "subscriber": client, **body})
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
    "entrust": lambda _, client, about, body: DelegateContext(client, about, body["entrusted"]),
    "set_policy": lambda _, client, about, body: SetPolicy(client, about, body["policy"]),
    "schema": lambda _, client, about, body: Define(client, schema_of(about, body["versions"])),
    "connect": lambda _, client, __, body: Connect(client, body["moved"], body["session"]),
    "disconnect": lambda _, client, __, ___: Disconnect(client),
    "trust": lambda _, party, group, body: Trust(party, group, body["member"], body["until"]),
    "learn": lambda row, *_: LearnTopic(row.payload or b""),
    "heed": lambda row, *_: ApplyNotice(row.payload or b""),
    "revoke": lambda row, *_: Revoke(row.payload or b""),
}


def _offer_text(offer: ContextOffer) -> list[str] | str:
    return str(offer) if isinstance(offer, ContextFilterValue) else list(offer)


def _offer(said: list[str] | str) -> ContextOffer:
    return ContextFilter.parse(said) if isinstance(said, str) else tuple(said)


def _without_none(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body without the fields that are None."""
    return {name: value for name, value in body.items() if value is not None}
