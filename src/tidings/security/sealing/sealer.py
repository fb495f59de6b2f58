"""Sealing of events by a publisher.

Each process draws random content keys of its own and uses each with counter nonces from 0. A new content key (an
*instance*) is drawn after a fork, and before a limit of messages or bytes is exceeded. Content keys are never saved,
so no nonce is used twice under a key.
"""

import os
import secrets
import threading
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.model.event import Event
from tidings.model.limits import MAX_INSTANCE_BYTES, MAX_INSTANCE_MESSAGES
from tidings.security.encoding import signing_input
from tidings.security.sealing import attribute_merkle, signatures
from tidings.security.sealing.envelope import BATCH, EVENT, INSTANCE, VERSION, Seal, digest_of, nonce_of, scope_of
from tidings.security.sealing.keys import EpochKey, commitment
from tidings.security.suites import Suite
from tidings.security.tokens.token import Right, Token

_fork_count = 0


def _count_fork() -> None:
    global _fork_count
    _fork_count += 1


os.register_at_fork(after_in_child=_count_fork)


class _Instance:
    """A content key and the number of messages and bytes sealed with it. Never saved, and not used after a fork."""

    def __init__(self, key: EpochKey) -> None:
        suite = Suite(key.suite)
        content_key = secrets.token_bytes(suite.key_bytes)
        self.id = secrets.token_bytes(INSTANCE)
        self.cipher = suite.cipher(content_key)
        self.commitment = commitment(suite, content_key, self.id)
        self.wrapped = key.wrap(content_key)
        self.messages = self.bytes = 0
        self.fork_count = _fork_count


class _Unsigned(NamedTuple):
    """A sealed payload with its seal, and the digest still to be signed."""

    ciphertext: bytes
    seal: Seal
    digest: bytes


class Sealer:
    """Seals events on one topic under one epoch key, as the holder of one token. Safe to share between threads.

    `messages` counts the messages sealed under the epoch key, including those of an earlier sealer with another
    token.
    """

    def __init__(self, key: EpochKey, token: Token, signing_key: Ed25519PrivateKey, messages: int = 0) -> None:
        """Check that token, epoch key and signing key belong together.

        Raises `InvalidValueError` if they do not, and `SecurityError` if the token does not grant the right to
        publish.

        Args:
            key: The epoch key of the topic.
            token: The publisher's token for the topic.
            signing_key: The Ed25519 key that the token names.
            messages: The messages that were sealed under this epoch key before.
        """
        if token.topic != key.topic:
            raise InvalidValueError("the token is for another topic than the key")
        if signing_key.public_key().public_bytes_raw() != token.key:
            raise InvalidValueError("the token names another signing key")
        if Right.PUBLISH not in token.rights:
            raise SecurityError("right", f"the token of {token.holder.name} gives no right to publish")
        self.key, self.token = key, token
        self._signing_key = signing_key
        self._lock = threading.Lock()
        self._instance = _Instance(key)
        self.messages = messages

    def seal(self, event: Event, timestamp: int, sequence: int | None = None) -> Event:
        """Return the event with its payload sealed and signed.

        `timestamp` and `sequence` are the publisher's and serve replay protection; `sequence` defaults to the
        event's. Raises `SecurityError("topic")` if the event is not on the part of the topic that the token is for.
        """
        unsigned = self._encrypt(event, timestamp, event.sequence if sequence is None else sequence)
        signature = self._signing_key.sign(signing_input(EVENT, unsigned.digest))
        return self._sealed_event(
            event, unsigned.ciphertext, msgspec.structs.replace(unsigned.seal, signature=signature)
        )

    def seal_all(self, events: Sequence[Event], timestamp: int) -> list[Event]:
        """Seal several events with one signature over a Merkle tree.

        Each event can be verified alone. The events' own sequences are used.
        """
        if len(events) == 1:
            return [self.seal(events[0], timestamp)]
        unsigned = [self._encrypt(event, timestamp, event.sequence) for event in events]
        root, paths = signatures.tree([item.digest for item in unsigned])
        signature, size = self._signing_key.sign(signing_input(BATCH, root)), len(unsigned)
        sealed = []
        for index, (event, item, path) in enumerate(zip(events, unsigned, paths, strict=True)):
            seal = msgspec.structs.replace(item.seal, signature=signature, index=index, size=size, path=path)
            sealed.append(self._sealed_event(event, item.ciphertext, seal))
        return sealed

    def _encrypt(self, event: Event, timestamp: int, sequence: int) -> _Unsigned:
        if not self.token.template.matches(event.subject, event.attributes):
            raise SecurityError("topic", f"the event is not on {self.token.template}, which the token is for")
        payload = event.payload or b""
        instance, counter = self._next_counter(len(payload))
        value_count = len(event.attributes) + len(event.context)
        salts, leaves = attribute_merkle.leaves(
            event.attributes, event.context, secrets.token_bytes(attribute_merkle.SALT * value_count)
        )
        is_scoped = event.subscribers is not None or event.policy is not None
        scope_salt = secrets.token_bytes(attribute_merkle.SALT) if is_scoped else b""
        seal = Seal(
            *(VERSION, self.key.suite, self.key.topic, self.key.epoch, instance.id, counter, timestamp, sequence),
            *(instance.commitment, instance.wrapped, self.key.epoch, leaves, salts, scope_of(event, scope_salt)),
            scope_salt,
        )
        header = seal.header(event)
        ciphertext = instance.cipher.encrypt(nonce_of(counter), payload, header)
        return _Unsigned(ciphertext, seal, digest_of(header, ciphertext))

    def _sealed_event(self, event: Event, ciphertext: bytes, seal: Seal) -> Event:
        return msgspec.structs.replace(event, payload=ciphertext, token=self.token.data, signature=seal.data)

    def _next_counter(self, size: int) -> tuple[_Instance, int]:
        """Return the instance to seal `size` bytes with, and its next counter; draws a new instance if needed."""
        with self._lock:
            instance = self._instance
            if (
                instance.fork_count != _fork_count
                or instance.messages >= MAX_INSTANCE_MESSAGES
                or instance.bytes + size > MAX_INSTANCE_BYTES
            ):
                instance = self._instance = _Instance(self.key)
            counter = instance.messages
            instance.messages += 1
            instance.bytes += size
            self.messages += 1
            return instance, counter


def seal(event: Event, sealer: Sealer, *, timestamp: int | None = None, sequence: int | None = None) -> Event:
    """Seal an event with a sealer; `timestamp` and `sequence` default to the event's.

    Args:
        event: The event to seal.
        sealer: The sealer of the event's topic.
        timestamp: Microseconds, for replay protection.
        sequence: The publisher's sequence number, for replay protection.
    """
    return sealer.seal(event, event.timestamp if timestamp is None else timestamp, sequence)
