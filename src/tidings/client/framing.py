"""Framing: publications and requests as the broker of this connection takes them."""

import contextlib

import msgspec

from tidings.client.standing import Standing
from tidings.client.underway import Publication
from tidings.model.errors import InvalidValueError, SchemaError
from tidings.model.limits import MAX_FRAME_BYTES
from tidings.model.schema import Schema
from tidings.model.schematext import schema_of
from tidings.protocol.events import Values
from tidings.protocol.frames import LENGTH_BYTES, Kind, frame
from tidings.protocol.handshake import Bound
from tidings.protocol.publications import Published, front

_ENCODE = msgspec.msgpack.Encoder().encode
_NOTHING_AHEAD = front()


class Framing:
    """`most` is how large a frame may be."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self.most = MAX_FRAME_BYTES
        self.schemas: dict[str, tuple[int, Schema]] = {}  # as the broker has bound them

    def bind(self, bound: Bound) -> None:
        self.schemas[bound.subject] = bound.number, schema_of(bound.subject, list(bound.versions))

    def request(self, kind: Kind, message: msgspec.Struct) -> bytes:
        return self._checked(frame(kind, _ENCODE(message)))

    def publication(self, number: int, publication: Publication, *, is_connected: bool) -> bytes:
        event = publication.event if publication.sealed is None else publication.sealed
        # What its broker knows need not be said, unless that may have changed since, or is signed.
        context: Values | None = event.context
        is_known = self._standing.tells_context and is_connected and not publication.sent
        if is_known and publication.sealed is None:
            context = None
        subject, ahead = event.subject, _NOTHING_AHEAD
        if subject is not None and subject in self.schemas:
            bound, schema = self.schemas[subject]
            with contextlib.suppress(SchemaError):  # the broker may know a later version, and else says what is wrong
                ahead = front(bound, schema.bits_of(event.attributes))
                subject = None
        published = Published(
            number,
            event.id.bytes,
            event.sequence,
            publication.safe,
            event.attributes,
            subject,
            event.payload,
            context,
            None if event.subscribers is None else str(event.subscribers),
            event.policy,
            event.token,
            event.signature,
        )
        return self._checked(frame(Kind.PUBLISH, ahead + _ENCODE(published)))

    def _checked(self, data: bytes) -> bytes:
        """Refuses what the broker would close the connection for."""
        if len(data) - LENGTH_BYTES > self.most:
            raise InvalidValueError(
                f"what is to be sent has {len(data):,} bytes; the broker takes {self.most:,} at a time"
            )
        return data
