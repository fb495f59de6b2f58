"""A topic discovery node: stores and replicates discovery records, and answers queries for topics and services.

Theory of operation:

1. The store is a join semilattice: per owner and id the latest version counts, so nodes that received the same
   records in any order store the same (`merge`).
2. Which stored records are *shown* depends only on the store, the revocation list and the time. If two owners
   advertised overlapping topics at different nodes at the same time, the one with the lower rank, that is the
   earlier `since`, is shown. Nodes with equal stores agree on it.
3. A withdrawn or expired record stays stored, but not shown, until `LONGEST` after it was made, so that no older
   version can be replayed.

Pure: the caller passes the time, and nothing is random.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

import msgspec

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.model.limits import (
    MAX_ADVERTISED,
    MAX_ADVERTISED_BY_ONE,
    MAX_FOUND_BYTES,
    MAX_INTEGER,
    MAX_SUBJECT_CHARACTERS,
)
from tidings.security.ca.certificates import Certificate
from tidings.security.ca.revocation import RevocationUpdate, UpdatableTrust
from tidings.security.rpc.tdn_messages import (
    FindRequest,
    FindResponse,
    Key,
    ReplicatedRecord,
    ReplicateRequest,
    ReplicateResponse,
)
from tidings.security.tdn.discovery_records import LONGEST, DiscoveryRecord, RecordKind, fits
from tidings.security.template import ANY, Template, TemplateIndex, read_tags

FRESHNESS = 300_000_000  # microseconds by which an owner's clock may be wrong


class TopicQuery(msgspec.Struct, frozen=True):
    """A query for topics by their templates.

    `*` finds all topics; `/Sports/*` those with a matching subject; `Sports=NBA` or `Sports=*` those with tags
    that agree with these, though they may have more or fewer: an event with these attributes may be on them.
    """

    subject: str | None = None
    tags: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a query. Raises `InvalidValueError`."""
        if not text or len(text) > MAX_SUBJECT_CHARACTERS:
            raise InvalidValueError(f"query: a text of 1 to MAX_SUBJECT_CHARACTERS ({MAX_SUBJECT_CHARACTERS:,})")
        if "=" in text:
            return cls(tags=tuple(sorted(read_tags(text).items())))
        return cls(subject=text)

    @property
    def template(self) -> Template | None:
        """A template that overlaps all templates that the query finds, for use with an index; None if there is none."""
        if self.subject is not None:
            return None if ANY in self.subject else Template(subject=self.subject)
        return Template(tags=self.tags) if any(value != ANY for _, value in self.tags) else None

    def matches(self, template: Template) -> bool:
        """Return whether the query finds a topic with this template."""
        if self.subject == ANY:
            return True
        if self.subject is not None:
            return template.subject is not None and fits(self.subject, template.subject)
        if template.subject is not None:
            return False
        own_tags, template_tags = dict(self.tags), dict(template.tags)
        shared = own_tags.keys() & template_tags.keys()
        if len(shared) < min(len(own_tags), len(template_tags)):
            return False
        return all(
            ANY in (own_tags[name], template_tags[name]) or own_tags[name] == template_tags[name] for name in shared
        )


class DiscoveryEntry(NamedTuple):
    """A stored discovery record. See `ReplicatedRecord` for `era` and `since`."""

    advertised: DiscoveryRecord
    era: int
    since: int

    @property
    def key(self) -> Key:
        """Identifies the entry at every node, whatever its version."""
        return self.advertised.key

    @property
    def rank(self) -> tuple[int, Key]:
        """Decides which of two overlapping topics is shown: the one with the lower rank, whose owner was first."""
        return self.since, self.key

    @property
    def replicated(self) -> ReplicatedRecord:
        """The entry in the form in which nodes replicate it."""
        return ReplicatedRecord(self.advertised.data, self.era, self.since)


class DiscoveryNode:
    """Stores discovery records, and decides which of them are shown. See the module docstring."""

    def __init__(self, credentials: UpdatableTrust, instance: bytes) -> None:
        """`instance` is a new random id for every process: other nodes count this node's changes by it."""
        self.credentials, self.instance = credentials, instance
        self._entries: dict[Key, DiscoveryEntry] = {}
        self._numbers: dict[Key, int] = {}  # the number of each entry's last change, in rising order
        self._number = 0
        self._shown: dict[Key, DiscoveryEntry] = {}
        self._topics: TemplateIndex[Key] = TemplateIndex()  # templates of all stored topics, shown or not
        self._ids: dict[bytes, set[Key]] = {}  # stored topics by topic id
        self._services: dict[Key, DiscoveryEntry] = {}
        self._owner_counts: Counter[str] = Counter()
        self._deadlines: list[tuple[int, Key]] = []  # a heap: when an entry expires or can be deleted

    # Records from owners

    def advertise(self, data: bytes, asker: Certificate, now: int) -> ReplicatedRecord | None:
        """Verify and store a record that its owner sent. Returns what to store durably, or None if it is known
        already.

        Raises `SecurityError` if the asker is not the owner, the record is not valid, newer versions are known, a
        limit is reached, or the topic overlaps a shown one of another owner.
        """
        self._advance(now)
        record = DiscoveryRecord(data)
        if asker.name != record.owner.name:
            raise SecurityError("owner", f"{record.owner.name} advertises what is its own; {asker.name} cannot do it")
        record.check(self.credentials, now)
        if record.created > now + FRESHNESS or now >= record.expires:
            raise SecurityError("expired", "the advertisement is not valid at this time: look at the clocks")
        earlier = self._entries.get((record.id, record.owner.name))
        if earlier is not None and earlier.advertised.data == data:
            self._check_no_overlap(earlier, asker)
            return None
        if record.created < now - FRESHNESS:
            raise SecurityError("replay", "the advertisement was made too long ago; make it anew")
        if earlier is None:
            entry = DiscoveryEntry(record, 0, now)
        else:
            self._check_later(record, earlier.advertised)
            continues_era = self._may_be_shown(earlier, now)
            entry = (
                DiscoveryEntry(record, earlier.era, earlier.since)
                if continues_era
                else DiscoveryEntry(record, earlier.advertised.version, now)
            )
        self._check_limits(entry)
        self._check_no_overlap(entry, asker)
        self._put(entry, now)
        return entry.replicated

    @staticmethod
    def _check_later(record: DiscoveryRecord, earlier: DiscoveryRecord) -> None:
        """Raise `SecurityError` unless `record` is a later version than `known`."""
        if record.version <= earlier.version or record.created < earlier.created:
            raise SecurityError("replay", f"version {earlier.version} is known, and later than {record.version}")
        if record.record is not None and earlier.record is not None and record.record.version < earlier.record.version:
            raise SecurityError("replay", f"version {earlier.record.version} of the topic's record is known, and later")

    def _check_limits(self, entry: DiscoveryEntry) -> None:
        """Raise `SecurityError` if a new entry would exceed a limit."""
        if entry.key in self._entries:
            return
        if len(self._entries) >= MAX_ADVERTISED:
            raise SecurityError("room", f"more than MAX_ADVERTISED ({MAX_ADVERTISED:,}) topics and services")
        if self._owner_counts[entry.key[1]] >= MAX_ADVERTISED_BY_ONE:
            raise SecurityError("room", f"more than MAX_ADVERTISED_BY_ONE ({MAX_ADVERTISED_BY_ONE:,}) of one owner")

    def _check_no_overlap(self, entry: DiscoveryEntry, asker: Certificate) -> None:
        """Raise `SecurityError` if the topic overlaps a shown topic of another owner."""
        for other in self._overlapping_entries(entry):
            if other.key in self._shown:
                record, own_record = other.advertised.record, entry.advertised.record
                description = "a topic of another owner"  # not named to an asker that may not find it
                if record is not None and other.advertised.may_be_found_by(asker):
                    description = f"{record.template} of {record.owner.name}"
                raise SecurityError(
                    "topic", f"{own_record.template if own_record else 'it'} overlaps {description}; choose another one"
                )

    # Queries

    def find(self, wanted: FindRequest, asker: Certificate, now: int) -> FindResponse:
        """Return a page of the shown records that match the request and that the asker may find.

        A query for topics also finds their centres; the query `*` finds centres without topics as well, which an
        owner needs. A record that exists during a whole walk through the pages is found exactly once, whatever
        else changes.
        """
        self._advance(now)
        entries: dict[Key, DiscoveryEntry] = {}
        centres = set() if wanted.centre is None else {wanted.centre}
        for entry in [] if wanted.topics is None else self._matching_topics(TopicQuery.parse(wanted.topics)):
            record = entry.advertised.record
            if record is not None and entry.advertised.may_be_found_by(asker):
                entries[entry.key] = entry
                centres.add(record.kmc)
        for entry in self._services.values():
            service = entry.advertised.service
            is_wanted = service is not None and (wanted.topics == ANY or service.certificate.fingerprint in centres)
            if is_wanted and entry.key in self._shown and entry.advertised.may_be_found_by(asker):
                entries[entry.key] = entry
        remaining = [entries[key] for key in sorted(entries) if wanted.after is None or key > wanted.after]
        page = list(_page(remaining))
        return FindResponse(
            tuple(entry.advertised.data for entry in page),
            len(page) < len(remaining),
            self._revocation_update(wanted.revocations),
        )

    def _matching_topics(self, query: TopicQuery) -> Iterator[DiscoveryEntry]:
        """Yield the shown topics that match a query."""
        candidates: Iterable[DiscoveryEntry] = self._shown.values()
        if query.template is not None:
            candidates = [self._shown[key] for key in self._topics.overlapping(query.template) if key in self._shown]
        for entry in candidates:
            if entry.advertised.record is not None and query.matches(entry.advertised.record.template):
                yield entry

    def _revocation_update(self, known: int) -> bytes | None:
        """Return the update of the revocation list for a reader with `known` entries, if there is a list."""
        update = self.credentials.revocations.since(known)
        return None if update is None else update.data

    # Replication between nodes

    def changes(self, wanted: ReplicateRequest, now: int) -> ReplicateResponse:
        """Return the stored records that another node lacks, including withdrawn ones and ones that are not shown."""
        self._advance(now)
        after = wanted.after if wanted.instance == self.instance else 0
        missing = [self._entries[key] for key, number in self._numbers.items() if number > after]
        page = list(_page(missing))
        more = len(page) < len(missing)
        number = self._numbers[page[-1].key] if more else self._number
        records = tuple(entry.replicated for entry in page)
        return ReplicateResponse(self.instance, number, records, more, self._revocation_update(wanted.revocations))

    def join(self, kept: ReplicatedRecord, now: int) -> ReplicatedRecord | None:
        """Merge a record from another node. Returns what to store durably, or None if nothing is new.

        The owner's signature is verified; `since` and `era` are taken from the other node on trust. Raises
        `SecurityError` if the record is not valid or a limit is reached.
        """
        self._advance(now)
        record = DiscoveryRecord(kept.data)
        earlier = self._entries.get((record.id, record.owner.name))
        if earlier is not None and earlier.replicated == kept:
            return None
        if record.created > now + FRESHNESS or record.created + LONGEST <= now:
            raise SecurityError("expired", "the advertisement is from the future, or to be forgotten")
        if earlier is None or earlier.advertised.data != record.data:
            # Checked as of its creation: an expired record is stored as well, so that no older one can replace it.
            record.check(self.credentials, record.created)
        entry = merge(DiscoveryEntry(record, kept.era, min(kept.since, now)), earlier)
        if entry == earlier:
            return None
        self._check_limits(entry)
        self._put(entry, now)
        return entry.replicated

    def restore(self, kept: Iterable[ReplicatedRecord], now: int) -> None:
        """Restore stored records after a restart, without verifying them again."""
        for replicated in kept:
            record = DiscoveryRecord(replicated.data)
            entry = merge(
                DiscoveryEntry(record, replicated.era, replicated.since),
                self._entries.get((record.id, record.owner.name)),
            )
            self._put(entry, now)
        self._advance(now)

    def kept(self) -> list[ReplicatedRecord]:
        """Return all stored records."""
        return [entry.replicated for entry in self._entries.values()]

    def shown(self) -> list[DiscoveryRecord]:
        """Return the records that queries can find: advertised, not expired, not hidden by a revocation."""
        return [entry.advertised for entry in self._shown.values()]

    def revoke(self, update: RevocationUpdate, now: int) -> int:
        """Apply an update of the revocation list and hide the records of revoked certificates. Returns the number of
        new entries."""
        new = self.credentials.revoke(update)
        if new:
            self._decide_shown(list(self._entries.values()), now)
        return len(new)

    # Deciding which records are shown

    def _put(self, entry: DiscoveryEntry, now: int) -> None:
        """Store an entry, index it, and decide again which records are shown."""
        key = entry.key
        earlier = self._entries.get(key)
        if earlier is None:
            self._owner_counts[key[1]] += 1
        candidates = self._hide(key)
        self._entries[key] = entry
        self._index(key, entry)
        self._number += 1
        self._numbers.pop(key, None)
        self._numbers[key] = self._number
        for end in {entry.advertised.expires, entry.advertised.created + LONGEST}:
            heapq.heappush(self._deadlines, (end, key))
        self._decide_shown([*candidates, entry], now)

    def _index(self, key: Key, entry: DiscoveryEntry | None) -> None:
        """Update the indexes for an entry; None removes it."""
        record = None if entry is None else entry.advertised.record
        if entry is None or entry.advertised.service is None:
            self._services.pop(key, None)
        else:
            self._services[key] = entry
        if record is None:
            self._topics.remove(key)
            self._ids.get(key[0], set()).discard(key)
        else:
            self._topics.put(key, record.template)
            self._ids.setdefault(record.id, set()).add(key)

    def _hide(self, key: Key) -> list[DiscoveryEntry]:
        """Hide an entry, and return the entries of higher rank that may be shown instead."""
        hidden = self._shown.pop(key, None)
        return [] if hidden is None else self._outranked(hidden)

    def _outranked(self, entry: DiscoveryEntry) -> list[DiscoveryEntry]:
        """Return the entries that this entry excludes from being shown, because it ranks lower."""
        return [other for other in self._overlapping_entries(entry) if other.rank > entry.rank]

    def _overlapping_entries(self, entry: DiscoveryEntry) -> list[DiscoveryEntry]:
        """Return the entries of other owners that cannot be shown together with this one: an event could be on both
        topics."""
        record = entry.advertised.record
        if record is None:
            return []
        keys = {*self._topics.overlapping(record.template), *self._ids.get(record.id, ())}
        return [self._entries[key] for key in keys if key[1] != entry.key[1]]

    def _decide_shown(self, changed: list[DiscoveryEntry], now: int) -> None:
        """Decide for changed entries, and for all that depend on them, whether they are shown.

        Processes entries in the order of rank: when it reaches an entry, all of lower rank are decided.
        """
        waiting = {other.key: other.rank for other in changed}
        queue = [(other.rank, other.key) for other in changed]
        heapq.heapify(queue)
        while queue:
            rank, key = heapq.heappop(queue)
            if waiting.get(key) != rank:
                continue
            del waiting[key]
            entry = self._entries[key]
            is_shown = self._may_be_shown(entry, now) and not any(
                other.rank < rank and other.key in self._shown for other in self._overlapping_entries(entry)
            )
            if is_shown == (self._shown.get(key) == entry):
                continue
            if is_shown:
                self._shown[key] = entry
            else:
                self._shown.pop(key, None)
            for other in self._outranked(entry):
                waiting[other.key] = other.rank
                heapq.heappush(queue, (other.rank, other.key))

    def _may_be_shown(self, entry: DiscoveryEntry, now: int) -> bool:
        """Return whether an entry may be shown, overlaps aside: not withdrawn, not expired, no signer revoked."""
        record = entry.advertised
        if record.kind is RecordKind.WITHDRAWN or now >= record.expires:
            return False
        signers = [record.owner, *([record.record.owner] if record.record else ())]
        try:
            for signer in signers:
                self.credentials.revocations.check(
                    signer, MAX_INTEGER
                )  # a certificate on the list counts as revoked, whatever the time of its revocation
            if record.service is not None:
                self.credentials.revocations.check(record.service.certificate, MAX_INTEGER)
        except SecurityError:
            return False
        return True

    def _advance(self, now: int) -> None:
        """Hide entries that have expired, and delete entries that no older version could replace any more."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, key = heapq.heappop(self._deadlines)
            entry = self._entries.get(key)
            if entry is None or now < entry.advertised.expires:
                continue
            candidates = self._hide(key)
            if entry.advertised.created + LONGEST <= now:
                del self._entries[key], self._numbers[key]
                self._index(key, None)
                self._owner_counts[key[1]] -= 1
            self._decide_shown(candidates, now)


def merge(one: DiscoveryEntry, other: DiscoveryEntry | None) -> DiscoveryEntry:
    """Merge two entries of one key; commutative and associative.

    The latest version counts, and of the latest era the earliest `since`.
    """
    if other is None:
        return one
    latest = max((one, other), key=lambda entry: (entry.advertised.version, entry.advertised.digest))
    era = max(one.era, other.era)
    since = min(entry.since for entry in (one, other) if entry.era == era)
    return DiscoveryEntry(latest.advertised, era, since)


def _page(entries: Iterable[DiscoveryEntry]) -> Iterator[DiscoveryEntry]:
    """Yield entries until the response is full, at least the first."""
    size = 0
    for entry in entries:
        size += len(entry.advertised.data) + 64
        if size > MAX_FOUND_BYTES:
            return
        yield entry
