"""What data hold, as JSON can say it: the script that writes data and the tests that read them compare by this.

Fields that a later version adds do not show, as long as they are not set.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

import tidings as td
from tests.journal.cases import NOW
from tidings.journal import Record
from tidings.model import Notification, uuid7
from tidings.model.schema import versions_of
from tidings.security import Credentials, Identity, Member, TopicRecord
from tidings.security.ca.revocation import RevocationUpdate
from tidings.security.encoding import encode_canonical
from tidings.security.kmc.state import EpochAdded
from tidings.security.member import decode_key_response
from tidings.security.rpc import kmc_messages
from tidings.services.kmc_store import KmcStore


def event_id(number: int) -> UUID:
    return uuid7(NOW + number * 1_000, number.to_bytes(10, "big"))


def record_fields(record: Record) -> dict[str, Any]:
    """A record as JSON can say it: only fields that are set, so that a version may add fields."""
    fields = {name: value for name, value in _fields(record.operation).items() if value is not None}
    return {"offset": record.offset, "timestamp": record.timestamp, **as_json(fields)}


def hub_state(hub: td.Hub) -> dict[str, Any]:
    """The tables of a hub, what its policies have stored, and what waits in its durable subscriptions."""
    tables = hub.tables()
    return {
        "name": hub.name,
        "advertisements": {one.id: [one.publisher, str(one.content)] for one in tables.advertisements},
        "subscriptions": {
            one.id: [one.subscriber, str(one.content), None if one.publishers is None else str(one.publishers)]
            for one in tables.subscriptions
        },
        "contexts": {client: as_json(context) for client, context in tables.contexts.items()},
        "policies": tables.policies,
        "operator_policies": tables.operator_policies,
        "schemas": {schema.subject: versions_of(schema) for schema in tables.schemas},
        "stored": hub.store("audit"),
        "backlogs": {"car-1 near": _backlog(hub, "car-1"), "bus-1 every": _backlog(hub, "bus-1")},
    }


def _backlog(hub: td.Hub, client: str) -> list[dict[str, Any]]:
    """What a client's durable subscription has not acknowledged; all of it is there again afterwards."""
    (held,) = [one for one in hub.client(client).subscriptions() if one.durable is not None]
    held.redeliver()
    notes = list(map(notification_fields, held.take()))
    held.redeliver()
    return notes


def notification_fields(note: Notification) -> dict[str, Any]:
    event = note.event
    fields = {"id": str(event.id), "publisher": event.publisher, "sequence": event.sequence, "payload": note.payload}
    return as_json({**fields, "attributes": note.attributes, "context": event.context, "subject": event.subject})


def member_of(identity: Identity, record: TopicRecord, revocations: RevocationUpdate) -> Member:
    credentials = Credentials(identity.anchor)
    credentials.revoke(revocations)
    credentials.learn(record, NOW)
    return Member(identity, credentials)


def decide(folder: KmcStore, asker: Identity, kind: str, body: msgspec.Struct) -> bytes:
    """The centre's answer to a question, which it must not refuse."""
    reply = folder.commit(folder.centre.decide(asker.certificate, kind, encode_canonical(body), NOW), NOW)
    assert reply.refused is None, reply.refused
    return reply.body


def fetch_keys(folder: KmcStore, member: Member, record: TopicRecord) -> None:
    wanted = member.wants(record, folder.centre.service.certificate)
    member.take(decode_key_response(decide(folder, member.identity, kmc_messages.KEYS, wanted)), NOW)


def epoch_keys(folder: KmcStore) -> dict[str, str]:
    """The keys that the centre has made, by the numbers of their epochs, in hex."""
    made = [change for change in folder.centre.snapshot() if isinstance(change, EpochAdded)]
    return {str(change.key.epoch): change.key.key.hex() for change in made}


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(struct)


def as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON makes of it: bytes become base64."""
    return msgspec.json.decode(msgspec.json.encode(dict(values)), type=dict[str, Any])
