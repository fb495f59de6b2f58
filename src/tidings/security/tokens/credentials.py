"""Credentials: the topics, tokens and notices that a broker, centre or client has verified.

Each token and record is verified once and then cached, by its bytes. A revocation drops the tokens of the revoked
certificates. What depends on time (expiry, revocation, the grants of the latest notice) is checked at every use.
`HistoricalCredentials` also answers for moments in the past, for stored events. `TopicLookup` finds the secure topic
that an event is on, by a value that the topic's template requires.
"""

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tidings.model.errors import SecurityError
from tidings.model.limits import MAX_CHECKED_TOKENS, MAX_REFUSED_TOKENS, MAX_SECURE_TOPICS, MAX_SECURE_TOPICS_OF_ONE
from tidings.security.ca.certificates import Role, TrustAnchor
from tidings.security.ca.revocation import RevocationEntry, Revocations, RevocationUpdate
from tidings.security.template import key_of
from tidings.security.tokens.notices import Notice, SignedNotice
from tidings.security.tokens.token import Token
from tidings.security.topic_record import TopicRecord


class Credentials:
    """Verified topic records, tokens, notices and revocations of one overlay.

    Pure: the caller passes the time, and nothing is requested from elsewhere.
    """

    def __init__(self, anchor: TrustAnchor, overlay: str = "tidings") -> None:
        self.anchor, self.overlay = anchor, overlay
        self.revocations = Revocations(anchor)
        self.topics: dict[bytes, TopicRecord] = {}  # by topic id; the one that was learnt last comes last
        self._topic_counts: Counter[str] = (
            Counter()
        )  # the number of topics by owner name; a topic never changes its owner
        self.notices: dict[bytes, SignedNotice] = {}
        self._tokens: dict[bytes, Token] = {}  # by the token's bytes; the one that was verified first comes first
        self._refused: dict[bytes, SecurityError] = {}  # by digest, because refused data may have any size
        # Cached tokens by the serial numbers of their certificates, and by topic: a revocation drops them.
        self._by_serial: dict[bytes, set[bytes]] = {}
        self._by_topic: dict[bytes, set[bytes]] = {}
        self.version = 0  # rises with every topic that is learnt, so that an index of templates can follow

    # Learning

    def learn(self, record: TopicRecord, now: int) -> bool:
        """Verify and add a topic record. Returns whether the topic, or this version of it, is new.

        Raises `SecurityError` if the record or its owner is not trusted, if another record of the topic counts,
        if its template overlaps a topic of another owner, or if there are too many topics.
        """
        earlier = self.topics.get(record.id)
        if earlier is not None and earlier.data == record.data:
            return False
        record.check(self.anchor, self.overlay, now)
        self.revocations.check(record.owner, now)
        if earlier is not None:
            if not record.replaces(earlier):
                raise SecurityError("topic", f"another record of {earlier.template} counts, by {earlier.owner.name}")
            self._drop_tokens(self._by_topic.get(record.id, ()))
        for other in self.topics.values():
            if other.id == record.id:
                continue
            if other.owner.name == record.owner.name:
                if other.template == record.template:  # publishers and subscribers might choose different ones
                    raise SecurityError(
                        "topic", f"{record.template} of {record.owner.name} is a topic already, under another id"
                    )
            elif other.template.overlaps(record.template):
                raise SecurityError(
                    "topic",
                    f"{record.template} overlaps {other.template} of {other.owner.name}, an event could be on both: "
                    "add a tag of that one, with another value",
                )
        if earlier is None:
            self._check_limits(record.owner.name)
        self._add_topic(record)
        return True

    def heed(self, notice: SignedNotice, now: int) -> bool:
        """Verify and store a notice. Returns whether it is newer than the stored one.

        Raises `SecurityError` unless it is signed by the key management centre that the topic's record names.
        """
        self._check_notice(notice, now)
        content = notice.notice
        earlier = self.notices.get(content.topic)
        if earlier is not None and earlier.notice.version >= content.version:
            return False
        self.notices[content.topic] = notice
        return True

    def revoke(self, update: RevocationUpdate) -> tuple[RevocationEntry, ...]:
        """Apply an update of the revocation list, and return the new entries.

        Tokens that depend on revoked certificates are dropped from the cache. Raises `SecurityError` for an
        update that the authority did not sign.
        """
        new = tuple(self.revocations.apply(update))
        for entry in new:
            self._drop_tokens(self._by_serial.get(entry.serial, ()))
        return new

    def recall(
        self, records: Iterable[TopicRecord], notices: Iterable[SignedNotice], update: RevocationUpdate | None
    ) -> None:
        """Restore topics, notices and revocations that were verified before a restart, without verifying them again.

        A topic whose owner is no longer trusted must stay known: events on a topic that is not known as secure
        would be accepted unsealed.
        """
        for record in records:
            earlier = self.topics.get(record.id)
            if earlier is None or record.replaces(earlier):
                self._add_topic(record)
        for notice in notices:
            known_notice = self.notices.get(notice.notice.topic)
            if known_notice is None or known_notice.notice.version < notice.notice.version:
                self.notices[notice.notice.topic] = notice
        if update is not None:
            self.revoke(update)

    def _add_topic(self, record: TopicRecord) -> None:
        """Add or replace a topic, at the end of `topics`, so that a reader who has processed the first n finds new
        ones behind them."""
        if self.topics.pop(record.id, None) is None:
            self._topic_counts[record.owner.name] += 1
        self.topics[record.id] = record
        self.version += 1

    def _check_limits(self, owner: str) -> None:
        """Raise `SecurityError` if there are too many topics, in all or of this owner, to add one."""
        if len(self.topics) >= MAX_SECURE_TOPICS:
            raise SecurityError("topic", f"more than MAX_SECURE_TOPICS ({MAX_SECURE_TOPICS:,}) secure topics")
        if self._topic_counts[owner] >= MAX_SECURE_TOPICS_OF_ONE:
            raise SecurityError("topic", f"{owner} has MAX_SECURE_TOPICS_OF_ONE ({MAX_SECURE_TOPICS_OF_ONE:,}) already")

    # Queries

    def token(self, data: bytes, now: int) -> Token:
        """Return the token, verified, unless its grant was revoked.

        Raises `SecurityError` if it is not valid. Expiry and rights are not checked here; call `Token.check_use`
        at every use.
        """
        token = self._tokens.get(data)
        if token is None:
            token = self._verified_token(data, now)
        self._check_grant(token, now)
        return token

    def known_token(self, data: bytes) -> Token | None:
        """Return the token if it was verified before. Never learns a topic from it."""
        return self._tokens.get(data)

    def has_judged(self, data: bytes) -> bool:
        """Return whether these bytes were verified or refused before."""
        return data in self._tokens or hashlib.sha256(data).digest() in self._refused

    def turns(self, token: Token) -> list[int]:
        """Return the moments, in order, at which the validity of a token or the notice of its topic may change."""
        moments = {*token.turns, *self.revocations.turns(token.serials)}
        for since, notice in self._notice_history(token.topic):
            moments |= {since, notice.accepted_until}
        return sorted(moments)

    def stored_token(self, data: bytes, accepted: int) -> Token:
        """Return the token of an event that was accepted at that time.

        A grant that was revoked after the event was accepted still counts.
        """
        token = self._tokens.get(data)
        if token is None:
            token = self._verified_token(data, accepted)
        notice = self.notice(token.topic, accepted)
        if notice is not None and notice.issued <= accepted:
            self._check_grant(token, accepted)
        return token

    def check_trusted(self, token: Token, at: int) -> None:
        """Raise `SecurityError` if a certificate that the token depends on was revoked by then: centre, holder or
        topic owner."""
        if not self.revocations.has_any(token.serials):  # the common case
            return
        for certificate in (token.kmc, token.holder, token.record.owner):
            self.revocations.check(certificate, at)

    def notice(self, topic: bytes, now: int | None = None) -> Notice | None:
        """Return the latest notice of a topic. `HistoricalCredentials` returns the one in force at `now`."""
        signed = self.notices.get(topic)
        return None if signed is None else signed.notice

    def _notice_history(self, topic: bytes) -> list[tuple[int, Notice]]:
        """Return all notices that `notice` may return for a topic, each with the time from which on it does."""
        notice = self.notice(topic)
        return [] if notice is None else [(0, notice)]

    def _check_notice(self, notice: SignedNotice, now: int) -> None:
        record = self.topics.get(notice.notice.topic)
        if record is None:
            raise SecurityError("topic", "the notice is of a topic that is not known here")
        if notice.kmc.fingerprint != record.kmc:
            raise SecurityError("kmc", f"{notice.kmc.name} is not the centre that counts for {record.template}")
        self.anchor.check(notice.kmc, now, Role.KMC)
        self.revocations.check(notice.kmc, now)

    def _check_grant(self, token: Token, now: int) -> None:
        """Raise `SecurityError` if the topic's notice says that the token's grant was revoked."""
        notice = self.notice(token.topic, now)
        if notice is None or not notice.grants:
            return
        if token.grant < notice.grants.get(token.holder.fingerprint.hex(), 0):
            raise SecurityError("revoked", f"what {token.holder.name} was granted on {token.template} was taken back")

    def _verified_token(self, data: bytes, now: int) -> Token:
        digest = hashlib.sha256(data).digest()
        refused = self._refused.get(digest)
        if refused is not None:
            raise SecurityError(refused.check, refused.reason)
        try:
            token = Token(data)
            token.check(self.anchor, self.overlay, now)
        except SecurityError as error:
            if error.check not in ("expired", "not yet"):  # these depend on the time, so they are not cached
                self._refused[digest] = error
                if len(self._refused) > MAX_REFUSED_TOKENS:
                    del self._refused[next(iter(self._refused))]
            raise
        record = self.topics.get(token.topic)
        if record is None or record.data != token.record.data:
            self.learn(token.record, now)
        self._add_token(token)
        return token

    def _add_token(self, token: Token) -> None:
        self._tokens[token.data] = token
        for serial in token.serials:
            self._by_serial.setdefault(serial, set()).add(token.data)
        self._by_topic.setdefault(token.topic, set()).add(token.data)
        if len(self._tokens) > MAX_CHECKED_TOKENS:
            self._drop_tokens([next(iter(self._tokens))])

    def _drop_tokens(self, tokens: Iterable[bytes]) -> None:
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


class HistoricalCredentials(Credentials):
    """Credentials that also answer for past moments, for stored events.

    Each notice counts from when it was received here until the next one was received. Revocations carry the time
    from which they count. If `is_complete` is set, no topics are learnt beyond those known already.
    """

    def __init__(self, anchor: TrustAnchor, overlay: str = "tidings") -> None:
        super().__init__(anchor, overlay)
        self._histories: dict[bytes, list[tuple[int, Notice]]] = {}  # by topic: notices with the time each counts from
        self.is_complete = False

    def learn(self, record: TopicRecord, now: int) -> bool:
        """Verify and add a topic record. If `is_complete`, raise `SecurityError` for a topic that is not known."""
        if self.is_complete and record.id not in self.topics:
            raise SecurityError("topic", f"the topic {record.template} is none of those that are known here")
        return super().learn(record, now)

    def heed(self, notice: SignedNotice, now: int) -> bool:
        """Verify and store a notice that counts from `now`. Returns whether it is newer than those before."""
        return super().heed(notice, now) and self._append_notice(notice, now)

    def recall(
        self, records: Iterable[TopicRecord], notices: Iterable[SignedNotice], update: RevocationUpdate | None
    ) -> None:
        """Restore topics, notices and revocations; each notice counts from the time at which it was issued."""
        signed_notices = list(notices)
        super().recall(records, signed_notices, update)
        for notice in signed_notices:
            self._append_notice(notice, notice.notice.issued)

    def notice(self, topic: bytes, now: int | None = None) -> Notice | None:
        """Return the notice of a topic that was in force at `now`, by default the latest."""
        history = self._histories.get(topic)
        if history is None:
            return None
        if now is None or history[-1][0] <= now:  # the common case
            return history[-1][1]
        position = bisect_right(history, now, key=lambda entry: entry[0])
        return history[position - 1][1] if position else None

    def _notice_history(self, topic: bytes) -> list[tuple[int, Notice]]:
        return self._histories.get(topic, [])

    def _append_notice(self, notice: SignedNotice, since: int) -> bool:
        """Append a notice that counts from `since`. Returns False if it is not later than those before."""
        history = self._histories.get(notice.notice.topic, [])
        if history and (history[-1][0] > since or history[-1][1].version >= notice.notice.version):
            return False
        self._histories[notice.notice.topic] = [*history, (since, notice.notice)]
        return True


class SecureTopics(Protocol):
    """The secure topics that are known, and a number that rises with each of them."""

    topics: dict[bytes, TopicRecord]
    version: int


class TopicLookup:
    """An index over the templates of all topics in the credentials. It follows changes of the credentials on each
    call."""

    def __init__(self, credentials: SecureTopics) -> None:
        self._credentials = credentials
        self._templates: dict[tuple[str, str], list[TopicRecord]] = {}
        self._names: set[str] = set()
        self._required_values: dict[str, set[str]] = {}
        self._version = -1

    def of(self, subject: str | None, attributes: Mapping[str, Any]) -> TopicRecord | None:
        """Return the record of the secure topic that an event is on, or None."""
        if not self._credentials.topics:
            return None
        self._update()
        if subject is not None:
            for record in self._templates.get(("", subject), ()):
                return record
        for name in self._names.intersection(attributes):
            for record in self._templates.get((name, key_of(attributes[name])), ()):
                if record.template.matches(subject, attributes):
                    return record
        return None

    @property
    def required_values(self) -> dict[str, set[str]]:
        """By attribute name ("" is the subject), the values that templates require. An event with none of them is on
        no secure topic."""
        self._update()
        return self._required_values

    def _update(self) -> None:
        """Rebuild the index if topics were learnt since."""
        if self._version == self._credentials.version:
            return
        self._templates, self._names, self._required_values = {}, set(), {}
        for record in self._credentials.topics.values():
            key = record.template.key
            self._templates.setdefault(key, []).append(record)
            self._names.add(key[0])
            name, value = record.template.required_value
            self._required_values.setdefault(name, set()).add(value)
        self._version = self._credentials.version
