"""Sealing: what a publisher does to an event. Every process has content keys of its own, under which it counts."""

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
from tidings.security import batches, root
from tidings.security.encoding import purpose
from tidings.security.envelope import BATCH, EVENT, INSTANCE, VERSION, Seal, digest_of, nonce_of, scope_of
from tidings.security.keys import EpochKey, commitment
from tidings.security.suites import Suite
from tidings.security.token import Right, Token

_forks = 0


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class _Instance:
    """A content key, and how often it was used. It is never saved, and a process that was forked has another one: so no
    nonce comes twice."""

    def __init__(self, key: EpochKey) -> None:
        suite = Suite(key.suite)
        content = secrets.token_bytes(suite.key_bytes)
        self.id = secrets.token_bytes(INSTANCE)
        self.cipher = suite.cipher(content)
        self.commitment = commitment(suite, content, self.id)
        self.wrapped = key.wrap(content)
        self.messages = self.bytes = 0
        self.forks = _forks


class _Unsigned(NamedTuple):
    """A payload that is sealed, and what is to be signed for it."""

    ciphertext: bytes
    seal: Seal
    digest: bytes


class Sealer:
    """Seals events on one topic, in one epoch, as the holder of one token. Threads may share it. `messages` counts
    those that were sealed under the key: with what the one before it, with another token, has sealed."""

    def __init__(self, key: EpochKey, token: Token, signing_key: Ed25519PrivateKey, messages: int = 0) -> None:
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
        """The event with its payload sealed. `timestamp` and `sequence` are the publisher's, for whoever refuses what
        comes again; a sequence that is not given is the event's."""
        made = self._unsigned(event, timestamp, event.sequence if sequence is None else sequence)
        signature = self._signing_key.sign(purpose(EVENT, made.digest))
        return self._with(event, made.ciphertext, msgspec.structs.replace(made.seal, signature=signature))

    def seal_all(self, events: Sequence[Event], timestamp: int) -> list[Event]:
        """Many with one signature; each can be checked alone. Their sequences are their own."""
        if len(events) == 1:
            return [self.seal(events[0], timestamp)]
        made = [self._unsigned(one, timestamp, one.sequence) for one in events]
        top, paths = batches.tree([one.digest for one in made])
        signature, size = self._signing_key.sign(purpose(BATCH, top)), len(made)
        sealed = []
        for index, (event, one, path) in enumerate(zip(events, made, paths, strict=True)):
            seal = msgspec.structs.replace(one.seal, signature=signature, index=index, size=size, path=path)
            sealed.append(self._with(event, one.ciphertext, seal))
        return sealed

    def _unsigned(self, event: Event, timestamp: int, sequence: int) -> _Unsigned:
        if not self.token.template.matches(event.subject, event.attributes):
            raise SecurityError("topic", f"the event is not on {self.token.template}, which the token is for")
        payload = event.payload or b""
        instance, counter = self._next(len(payload))
        many = len(event.attributes) + len(event.context)
        salts, leaves = root.leaves(event.attributes, event.context, secrets.token_bytes(root.SALT * many))
        is_scoped = event.subscribers is not None or event.policy is not None
        scope_salt = secrets.token_bytes(root.SALT) if is_scoped else b""
        seal = Seal(
            *(VERSION, self.key.suite, self.key.topic, self.key.epoch, instance.id, counter, timestamp, sequence),
            *(instance.commitment, instance.wrapped, self.key.epoch, leaves, salts, scope_of(event, scope_salt)),
            scope_salt,
        )
        header = seal.header(event)
        ciphertext = instance.cipher.encrypt(nonce_of(counter), payload, header)
        return _Unsigned(ciphertext, seal, digest_of(header, ciphertext))

    def _with(self, event: Event, ciphertext: bytes, seal: Seal) -> Event:
        return msgspec.structs.replace(event, payload=ciphertext, token=self.token.data, signature=seal.data)

    def _next(self, size: int) -> tuple[_Instance, int]:
        with self._lock:
            instance = self._instance
            if (
                instance.forks != _forks
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
    """The event, sealed; its own time and number count where none are given."""
    return sealer.seal(event, event.timestamp if timestamp is None else timestamp, sequence)
