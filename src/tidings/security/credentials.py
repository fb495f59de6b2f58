"""Credentials: topics, tokens and notices that have been checked. Each costs signatures once; the revoked are out."""

import hashlib
from collections import Counter
from collections.abc import Iterable

from tidings.model.errors import SecurityError
from tidings.model.limits import MAX_CHECKED_TOKENS, MAX_REFUSED_TOKENS, MAX_SECURE_TOPICS, MAX_SECURE_TOPICS_OF_ONE
from tidings.security.certificates import Anchor, Role
from tidings.security.notices import Notice, SignedNotice
from tidings.security.records import TopicRecord
from tidings.security.revocation import Entry, Revocations, Update
from tidings.security.token import Token


class Credentials:
    """Pure: it asks nobody, and draws nothing."""

    def __init__(self, anchor: Anchor, overlay: str = "tidings") -> None:
        self.anchor, self.overlay = anchor, overlay
        self.revocations = Revocations(anchor)
        self.topics: dict[bytes, TopicRecord] = {}  # the one that was learnt last is the last
        self._owned: Counter[str] = Counter()  # topics, by the names of their owners, which never change
        self.notices: dict[bytes, SignedNotice] = {}
        self._tokens: dict[bytes, Token] = {}  # by its bytes; the one that was checked first comes first
        self._refused: dict[bytes, SecurityError] = {}  # by digest: these may be anything
        # Where a revocation has to look: by serial number of holder and centre, and by topic.
        self._by_serial: dict[bytes, set[bytes]] = {}
        self._by_topic: dict[bytes, set[bytes]] = {}
        self.version = 0  # rises with every topic that is learnt: for whoever keeps an index of templates

    # What is told

    def learn(self, record: TopicRecord, now: int) -> bool:
        """Whether the topic, or this version of it, is new; one that is not to be trusted raises a `SecurityError`."""
        known = self.topics.get(record.id)
        if known is not None and known.data == record.data:
            return False
        record.check(self.anchor, self.overlay, now)
        self.revocations.check(record.owner, now)
        if known is not None:
            if not record.replaces(known):
                raise SecurityError("topic", f"another record of {known.template} counts, by {known.owner.name}")
            self._drop(self._by_topic.get(record.id, ()))
        for other in self.topics.values():
            if other.id == record.id:
                continue
            if other.owner.name == record.owner.name:
                if other.template == record.template:  # who publishes and who subscribes might take different ones
                    raise SecurityError(
                        "topic", f"{record.template} of {record.owner.name} is a topic already, under another id"
                    )
            elif other.template.overlaps(record.template):
                raise SecurityError(
                    "topic",
                    f"{record.template} overlaps {other.template} of {other.owner.name}, an event could be on both: "
                    "add a tag of that one, with another value",
                )
        if known is None:
            self._check_room(record.owner.name)
        self._add(record)
        return True

    def heed(self, notice: SignedNotice, now: int) -> bool:
        """Whether the notice says something new; only that of the topic's own centre counts."""
        self._check_notice(notice, now)
        said = notice.notice
        known = self.notices.get(said.topic)
        if known is not None and known.notice.version >= said.version:
            return False
        self.notices[said.topic] = notice
        return True

    def revoke(self, update: Update) -> tuple[Entry, ...]:
        """Takes an update of the list; what was checked with those certificates is forgotten."""
        new = tuple(self.revocations.take(update))
        for entry in new:
            self._drop(self._by_serial.get(entry.serial, ()))
        return new

    def recall(self, records: Iterable[TopicRecord], notices: Iterable[SignedNotice], update: Update | None) -> None:
        """What was checked before a restart. It is not asked again whether it can be trusted: a topic that is
        forgotten, because its owner is not trusted any more, would be open to everybody."""
        for record in records:
            known = self.topics.get(record.id)
            if known is None or record.replaces(known):
                self._add(record)
        for notice in notices:
            known_notice = self.notices.get(notice.notice.topic)
            if known_notice is None or known_notice.notice.version < notice.notice.version:
                self.notices[notice.notice.topic] = notice
        if update is not None:
            self.revoke(update)

    def _add(self, record: TopicRecord) -> None:
        """At the end: whoever has heard of so many of them finds the others there."""
        if self.topics.pop(record.id, None) is None:
            self._owned[record.owner.name] += 1
        self.topics[record.id] = record
        self.version += 1

    def _check_room(self, owner: str) -> None:
        """For another topic."""
        if len(self.topics) >= MAX_SECURE_TOPICS:
            raise SecurityError("topic", f"more than MAX_SECURE_TOPICS ({MAX_SECURE_TOPICS:,}) secure topics")
        if self._owned[owner] >= MAX_SECURE_TOPICS_OF_ONE:
            raise SecurityError("topic", f"{owner} has MAX_SECURE_TOPICS_OF_ONE ({MAX_SECURE_TOPICS_OF_ONE:,}) already")

    # What is asked

    def token(self, data: bytes, now: int) -> Token:
        """The token, if it is good for something; what is checked at every use (`Token.check_use`) is not asked."""
        found = self._tokens.get(data)
        if found is None:
            found = self._checked(data, now)
        self._check_grant(found, now)
        return found

    def known_token(self, data: bytes) -> Token | None:
        """The token, if it has been checked before: to ask for it tells nothing new of any topic."""
        return self._tokens.get(data)

    def has_judged(self, data: bytes) -> bool:
        """Whether it is known what such a token is worth, be it nothing."""
        return data in self._tokens or hashlib.sha256(data).digest() in self._refused

    def turns(self, token: Token) -> list[int]:
        """The moments, in order, at which something may change in what is said of a token and its topic."""
        found = {*token.turns, *self.revocations.turns(token.serials)}
        for since, notice in self._told_of(token.topic):
            found |= {since, notice.accepted_until}
        return sorted(found)

    def stored_token(self, data: bytes, accepted: int) -> Token:
        """The token of an event that was accepted then: what was taken back later was granted still."""
        found = self._tokens.get(data)
        if found is None:
            found = self._checked(data, accepted)
        notice = self.notice(found.topic, accepted)
        if notice is not None and notice.issued <= accepted:
            self._check_grant(found, accepted)
        return found

    def check_trusted(self, token: Token, at: int) -> None:
        """Nobody who has to do with it has been revoked by then."""
        if not self.revocations.has_any(token.serials):  # as it mostly is
            return
        for certificate in (token.kmc, token.holder, token.record.owner):
            self.revocations.check(certificate, at)

    def notice(self, topic: bytes, now: int | None = None) -> Notice | None:
        """The latest one; who knows the past too answers with the one of that time."""
        found = self.notices.get(topic)
        return None if found is None else found.notice

    def _told_of(self, topic: bytes) -> list[tuple[int, Notice]]:
        """All that `notice` may answer, each with the time from which on it does."""
        found = self.notice(topic)
        return [] if found is None else [(0, found)]

    def _check_notice(self, notice: SignedNotice, now: int) -> None:
        record = self.topics.get(notice.notice.topic)
        if record is None:
            raise SecurityError("topic", "the notice is of a topic that is not known here")
        if notice.kmc.fingerprint != record.kmc:
            raise SecurityError("kmc", f"{notice.kmc.name} is not the centre that counts for {record.template}")
        self.anchor.check(notice.kmc, now, Role.KMC)
        self.revocations.check(notice.kmc, now)

    def _check_grant(self, token: Token, now: int) -> None:
        notice = self.notice(token.topic, now)
        if notice is None or not notice.grants:
            return
        if token.grant < notice.grants.get(token.holder.fingerprint.hex(), 0):
            raise SecurityError("revoked", f"what {token.holder.name} was granted on {token.template} was taken back")

    def _checked(self, data: bytes, now: int) -> Token:
        digest = hashlib.sha256(data).digest()
        refused = self._refused.get(digest)
        if refused is not None:
            raise SecurityError(refused.check, refused.reason)
        try:
            token = Token(data)
            token.check(self.anchor, self.overlay, now)
        except SecurityError as error:
            if error.check not in ("expired", "not yet"):  # these pass by
                self._refused[digest] = error
                if len(self._refused) > MAX_REFUSED_TOKENS:
                    del self._refused[next(iter(self._refused))]
            raise
        known = self.topics.get(token.topic)
        if known is None or known.data != token.record.data:
            self.learn(token.record, now)
        self._put(token)
        return token

    def _put(self, token: Token) -> None:
        self._tokens[token.data] = token
        for serial in token.serials:
            self._by_serial.setdefault(serial, set()).add(token.data)
        self._by_topic.setdefault(token.topic, set()).add(token.data)
        if len(self._tokens) > MAX_CHECKED_TOKENS:
            self._drop([next(iter(self._tokens))])

    def _drop(self, tokens: Iterable[bytes]) -> None:
        for data in list(tokens):
            token = self._tokens.pop(data, None)
            if token is None:
                continue
            for serial in token.serials:
                self._by_serial[serial].discard(data)
                if not self._by_serial[serial]:
                    del self._by_serial[serial]
            self._by_topic[token.topic].discard(data)
            if not self._by_topic[token.topic]:
                del self._by_topic[token.topic]
