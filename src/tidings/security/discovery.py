"""A discovery node: which topics and services there are, who owns them, and who may find them.

What it keeps is joined in any order to the same: of each owner's advertisement the latest version counts. Which of them
are shown is a question to all that is kept: where owners have claimed overlapping topics at different nodes at the same
time, who was first keeps it, and all nodes agree on that once they know the same.

Pure: it asks nobody, and draws nothing.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidings.model.errors import SecurityError
from tidings.model.limits import MAX_ADVERTISED, MAX_ADVERTISED_BY_ONE, MAX_FOUND_BYTES, MAX_INTEGER
from tidings.security.advertised import LONGEST, Advertised, Kind
from tidings.security.certificates import Certificate
from tidings.security.credentials import Credentials
from tidings.security.discovery_questions import Changes, Finds, Found, Kept, Key, Replicates
from tidings.security.overlaps import Overlaps
from tidings.security.query import Query
from tidings.security.revocation import Update
from tidings.security.template import ANY

FRESHNESS = 300_000_000  # microseconds that an owner's clock may be wrong by


class Entry(NamedTuple):
    advertised: Advertised
    era: int
    since: int

    @property
    def key(self) -> Key:
        return self.advertised.key

    @property
    def rank(self) -> tuple[int, Key]:
        """Who has the lower one was first."""
        return self.since, self.key

    @property
    def kept(self) -> Kept:
        return Kept(self.advertised.data, self.era, self.since)


class DiscoveryNode:
    def __init__(self, credentials: Credentials, instance: bytes) -> None:
        """`instance` is new for every process: others count changes with it."""
        self.credentials, self.instance = credentials, instance
        self._entries: dict[Key, Entry] = {}
        self._numbers: dict[Key, int] = {}  # of the last change of each, in order
        self._number = 0
        self._shown: dict[Key, Entry] = {}
        self._topics: Overlaps[Key] = Overlaps()  # the templates of all topics that are kept, shown or not
        self._ids: dict[bytes, set[Key]] = {}  # the same by id
        self._services: dict[Key, Entry] = {}
        self._owned: Counter[str] = Counter()
        self._ends: list[tuple[int, Key]] = []  # when to look at an entry again

    # What owners say

    def advertise(self, data: bytes, asker: Certificate, now: int) -> Kept | None:
        """What is to be kept; None if it is known. Raises a `SecurityError` that says what is wrong with it."""
        self._advance(now)
        said = Advertised(data)
        if asker.name != said.owner.name:
            raise SecurityError("owner", f"{said.owner.name} advertises what is its own; {asker.name} cannot do it")
        said.check(self.credentials, now)
        if said.created > now + FRESHNESS or now >= said.expires:
            raise SecurityError("expired", "the advertisement is not valid at this time: look at the clocks")
        known = self._entries.get((said.id, said.owner.name))
        if known is not None and known.advertised.data == data:
            self._check_free(known, asker)
            return None
        if said.created < now - FRESHNESS:
            raise SecurityError("replay", "the advertisement was made too long ago; make it anew")
        if known is None:
            entry = Entry(said, 0, now)
        else:
            self._check_later(said, known.advertised)
            goes_on = self._is_good(known, now)
            entry = Entry(said, known.era, known.since) if goes_on else Entry(said, known.advertised.version, now)
        self._check_room(entry)
        self._check_free(entry, asker)
        self._put(entry, now)
        return entry.kept

    @staticmethod
    def _check_later(said: Advertised, known: Advertised) -> None:
        if said.version <= known.version or said.created < known.created:
            raise SecurityError("replay", f"version {known.version} is known, and later than {said.version}")
        if said.record is not None and known.record is not None and said.record.version < known.record.version:
            raise SecurityError("replay", f"version {known.record.version} of the topic's record is known, and later")

    def _check_room(self, entry: Entry) -> None:
        if entry.key in self._entries:
            return
        if len(self._entries) >= MAX_ADVERTISED:
            raise SecurityError("room", f"more than MAX_ADVERTISED ({MAX_ADVERTISED:,}) topics and services")
        if self._owned[entry.key[1]] >= MAX_ADVERTISED_BY_ONE:
            raise SecurityError("room", f"more than MAX_ADVERTISED_BY_ONE ({MAX_ADVERTISED_BY_ONE:,}) of one owner")

    def _check_free(self, entry: Entry, asker: Certificate) -> None:
        for other in self._excluded(entry):
            if other.key in self._shown:
                record, said = other.advertised.record, entry.advertised.record
                whose = "a topic of another owner"  # who may not find it is not told which
                if record is not None and other.advertised.may_be_found_by(asker):
                    whose = f"{record.template} of {record.owner.name}"
                raise SecurityError("topic", f"{said.template if said else 'it'} overlaps {whose}; choose another one")

    # What is asked

    def find(self, wanted: Finds, asker: Certificate, now: int) -> Found:
        """What the asker may find. What it may not find is as if it were not there. Who asks for everything finds
        centres too that have no topic yet: an owner looks for one.

        What is there during a whole walk from page to page is found once, whatever comes and goes meanwhile."""
        self._advance(now)
        found: dict[Key, Entry] = {}
        centres = set() if wanted.centre is None else {wanted.centre}
        for entry in [] if wanted.topics is None else self._meant(Query.parse(wanted.topics)):
            record = entry.advertised.record
            if record is not None and entry.advertised.may_be_found_by(asker):
                found[entry.key] = entry
                centres.add(record.kmc)
        for entry in self._services.values():
            service = entry.advertised.service
            is_wanted = service is not None and (wanted.topics == ANY or service.certificate.fingerprint in centres)
            if is_wanted and entry.key in self._shown and entry.advertised.may_be_found_by(asker):
                found[entry.key] = entry
        left = [found[key] for key in sorted(found) if wanted.after is None or key > wanted.after]
        taken = list(_fitting(left))
        return Found(
            tuple(one.advertised.data for one in taken), len(taken) < len(left), self._news(wanted.revocations)
        )

    def _meant(self, query: Query) -> Iterator[Entry]:
        candidates: Iterable[Entry] = self._shown.values()
        if query.template is not None:
            candidates = [self._shown[key] for key in self._topics.near(query.template) if key in self._shown]
        for entry in candidates:
            if entry.advertised.record is not None and query.matches(entry.advertised.record.template):
                yield entry

    def _news(self, known: int) -> bytes | None:
        update = self.credentials.revocations.since(known)
        return None if update is None else update.data

    # Among discovery nodes

    def changes(self, wanted: Replicates, now: int) -> Changes:
        """What another node lacks of what this one keeps, also of what is withdrawn or not shown."""
        self._advance(now)
        after = wanted.after if wanted.instance == self.instance else 0
        missing = [self._entries[key] for key, number in self._numbers.items() if number > after]
        taken = list(_fitting(missing))
        more = len(taken) < len(missing)
        number = self._numbers[taken[-1].key] if more else self._number
        kept = tuple(one.kept for one in taken)
        return Changes(self.instance, number, kept, more, self._news(wanted.revocations))

    def join(self, kept: Kept, now: int) -> Kept | None:
        """What another node keeps; what is new in it, None if nothing is. The node is believed when it says since when
        an owner has a topic, the owner's signature is checked all the same."""
        self._advance(now)
        said = Advertised(kept.data)
        known = self._entries.get((said.id, said.owner.name))
        if known is not None and known.kept == kept:
            return None
        if said.created > now + FRESHNESS or said.created + LONGEST <= now:
            raise SecurityError("expired", "the advertisement is from the future, or to be forgotten")
        if known is None or known.advertised.data != said.data:
            # It may have ended since, and is kept then all the same, so that nobody can bring an older one.
            said.check(self.credentials, said.created)
        entry = joined(Entry(said, kept.era, min(kept.since, now)), known)
        if entry == known:
            return None
        self._check_room(entry)
        self._put(entry, now)
        return entry.kept

    def restore(self, kept: Iterable[Kept], now: int) -> None:
        """What it kept before: it was checked then."""
        for one in kept:
            said = Advertised(one.data)
            entry = joined(Entry(said, one.era, one.since), self._entries.get((said.id, said.owner.name)))
            self._put(entry, now)
        self._advance(now)

    def kept(self) -> list[Kept]:
        """All of it."""
        return [one.kept for one in self._entries.values()]

    def shown(self) -> list[Advertised]:
        return [one.advertised for one in self._shown.values()]

    def revoke(self, update: Update, now: int) -> int:
        """Takes an update of the list of revocations; what the revoked have advertised is shown no more."""
        new = self.credentials.revoke(update)
        if new:
            self._settle(list(self._entries.values()), now)
        return len(new)

    # What is shown

    def _put(self, entry: Entry, now: int) -> None:
        key = entry.key
        known = self._entries.get(key)
        if known is None:
            self._owned[key[1]] += 1
        freed = self._hidden(key)
        self._entries[key] = entry
        self._index(key, entry)
        self._number += 1
        self._numbers.pop(key, None)
        self._numbers[key] = self._number
        for end in {entry.advertised.expires, entry.advertised.created + LONGEST}:
            heapq.heappush(self._ends, (end, key))
        self._settle([*freed, entry], now)

    def _index(self, key: Key, entry: Entry | None) -> None:
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

    def _hidden(self, key: Key) -> list[Entry]:
        """Shows it no more; those that may be shown instead."""
        gone = self._shown.pop(key, None)
        return [] if gone is None else self._behind(gone)

    def _behind(self, entry: Entry) -> list[Entry]:
        return [one for one in self._excluded(entry) if one.rank > entry.rank]

    def _excluded(self, entry: Entry) -> list[Entry]:
        """Those that cannot be shown beside it, since one event could be on the topics of two owners."""
        record = entry.advertised.record
        if record is None:
            return []
        near = {*self._topics.near(record.template), *self._ids.get(record.id, ())}
        return [self._entries[key] for key in near if key[1] != entry.key[1]]

    def _settle(self, changed: list[Entry], now: int) -> None:
        """Who was first comes first: when one is looked at, it is settled which of those before it are shown."""
        waiting = {one.key: one.rank for one in changed}
        order = [(one.rank, one.key) for one in changed]
        heapq.heapify(order)
        while order:
            rank, key = heapq.heappop(order)
            if waiting.get(key) != rank:
                continue
            del waiting[key]
            entry = self._entries[key]
            shows = self._is_good(entry, now) and not any(
                one.rank < rank and one.key in self._shown for one in self._excluded(entry)
            )
            if shows == (self._shown.get(key) == entry):
                continue
            if shows:
                self._shown[key] = entry
            else:
                self._shown.pop(key, None)
            for one in self._behind(entry):
                waiting[one.key] = one.rank
                heapq.heappush(order, (one.rank, one.key))

    def _is_good(self, entry: Entry, now: int) -> bool:
        """Whether it may be shown at all."""
        said = entry.advertised
        if said.kind is Kind.WITHDRAWN or now >= said.expires:
            return False
        signers = [said.owner, *([said.record.owner] if said.record else ())]
        try:
            for one in signers:
                self.credentials.revocations.check(
                    one, MAX_INTEGER
                )  # once it is on the list, since when does not matter
            if said.service is not None:
                self.credentials.revocations.check(said.service.certificate, MAX_INTEGER)
        except SecurityError:
            return False
        return True

    def _advance(self, now: int) -> None:
        """What has ended is shown no more, and is forgotten once no older version can come."""
        while self._ends and self._ends[0][0] <= now:
            _, key = heapq.heappop(self._ends)
            entry = self._entries.get(key)
            if entry is None or now < entry.advertised.expires:
                continue
            freed = self._hidden(key)
            if entry.advertised.created + LONGEST <= now:
                del self._entries[key], self._numbers[key]
                self._index(key, None)
                self._owned[key[1]] -= 1
            self._settle(freed, now)


def joined(one: Entry, other: Entry | None) -> Entry:
    """The same whichever comes first: the latest version, and the time since which its owner has it without a break."""
    if other is None:
        return one
    latest = max((one, other), key=lambda entry: (entry.advertised.version, entry.advertised.digest))
    era = max(one.era, other.era)
    since = min(entry.since for entry in (one, other) if entry.era == era)
    return Entry(latest.advertised, era, since)


def _fitting(entries: Iterable[Entry]) -> Iterator[Entry]:
    """As many as fit into an answer; one always does."""
    size = 0
    for entry in entries:
        size += len(entry.advertised.data) + 64
        if size > MAX_FOUND_BYTES:
            return
        yield entry
