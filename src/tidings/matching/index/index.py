"""The matching index: which of very many subscriptions does an event match, given every client's current context?

Theory of operation:

1. A content filter becomes conjuncts (`conjuncts.py`); a conjunct becomes rows of predicates over numbered attributes,
   strings and string tests (`columns.py`). Each subscription has a position, a small number (`positions.py`).
2. A `SegmentStore` contains the conjuncts: an unordered buffer for new ones, and a few segments. Compiled kernels match
   an encoded event against each segment and return the positions of the subscriptions whose content it satisfies.
3. Where a kernel cannot decide (XPath, arithmetic, comparisons of attributes), it returns the position's bitwise
   complement, and the reference decides (`residual_checks.py`).
4. Context filters run as interpreted programs (`context_filters.py`) over a table with a row for each client
   (`contexts.py`), for the positions that content has left. A change of a context writes one row.
5. Subscriptions whose `publishers` filter bounds the distance to the publisher are not in the common store but in a
   `SpatialGroup`, which looks by place or by content, whichever has fewer candidates.

Rules for threads:

- The lock `_lock` serialises all changes. A match takes it only for short: to read contexts and spatial groups.
- A subscription is found by every match that begins after `put` has returned.
- `_store_version` is the version of the stores: it rises by 2 when a subscription is replaced, and is odd during a
  compaction. A match reads it first and last. If it has changed or is odd, the match may have missed a subscription
  that moved between stores; it is then repeated under the lock.
- A position is used for another subscription only after REST others have been removed, and `PositionTable.reuse_count`
  counts that, so that a match can tell whether the ids of its positions are still the right ones.
"""

import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa

from tidings.matching.index import mapped_folder
from tidings.matching.index.batch import EventBatch, Pairs, joined
from tidings.matching.index.bulk_load import BulkLoad, Predicate
from tidings.matching.index.columns import Columns, EncodedEvents, NotPlain
from tidings.matching.index.conjuncts import conjuncts_for
from tidings.matching.index.context_filters import NO_FILTER, ContextFilterPrograms
from tidings.matching.index.contexts import Contexts, is_plain
from tidings.matching.index.covering_queries import CoveringQueries, UnsatisfiableFilters
from tidings.matching.index.kernels import jit, layout, match
from tidings.matching.index.kernels import json_join as json_join
from tidings.matching.index.kernels.layout import CHECKED, FOUND, Raw
from tidings.matching.index.kernels.programs import NotExpressible
from tidings.matching.index.pending_context_changes import PendingContextChanges
from tidings.matching.index.positions import REST, PositionTable
from tidings.matching.index.residual_checks import ResidualChecks
from tidings.matching.index.segment_matcher import NOBODY, UNLIMITED, SegmentMatcher
from tidings.matching.index.segment_matcher import Positions as Positions
from tidings.matching.index.segment_store import SegmentStore
from tidings.matching.index.spatial.grid import place_of
from tidings.matching.index.spatial.groups import SpatialGroups
from tidings.matching.payloads import text_of
from tidings.matching.reference import MatchExplanation as MatchExplanation
from tidings.matching.reference import Scope, explain_match
from tidings.model.errors import IndexDamagedError, InvalidValueError
from tidings.model.expression import PAYLOAD, PUBLISHER, SUBJECT
from tidings.model.filter import ContextFilterValue, FilterValue
from tidings.model.limits import MAX_CONTEXT_COLUMNS
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes, Context


class SubscriptionSource(Protocol):
    """Subscriptions as rows of text, with the columns that matching needs beside their content."""

    table: pa.Table
    names: list[str]
    subscribers: list[str]
    publishers: list[ContextFilterValue | None]


_COMPACTION_SLACK = 1 << 16  # names, strings and tests that may be unused before `remove` compacts
_EVENTS_PER_LOCK = 256  # events that are matched under one acquisition of the lock
_MERGE_FROM_EVENTS = 1024  # events in a batch from which on merging the segments first pays off
_SORTED_PER_VISIT = 3  # conjuncts that could be sorted in the time that an event needs for one more segment
_SORT_FIXED_COST = 2048  # the fixed cost of sorting, as a number of conjuncts


class IndexStats(NamedTuple):
    """The sizes of an index's data structures, and how selective they were."""

    subscriptions: int
    conjuncts: int
    segments: int
    clusters: int
    blocks: int
    array_bytes: int
    dead_share: float
    candidates_per_match: float
    candidates: int  # conjuncts that were candidates for events, since the index was made
    matches: int  # subscriptions whose content events satisfied


class Parts(NamedTuple):
    """The data structures of an index at one moment: `SubscriptionIndex.compact` replaces the columns and the store."""

    columns: Columns
    store: SegmentStore
    position_table: PositionTable
    contexts: Contexts
    programs: ContextFilterPrograms
    spatial_groups: SpatialGroups
    matcher: SegmentMatcher


class SubscriptionIndex:
    """An index of subscriptions and of clients' contexts that returns the subscriptions that an event matches.

    Any number of threads may match while others change it; changes are serialised by a lock.
    """

    def __init__(self) -> None:
        jit.ready()
        self._columns = Columns()
        self._store = SegmentStore()
        self._position_table = PositionTable(self._read)
        self._unsatisfiable = UnsatisfiableFilters()
        self._contexts = Contexts()
        self._programs = ContextFilterPrograms(self._contexts)
        self._spatial_groups = SpatialGroups(
            self._position_table, self._contexts
        )  # subscriptions that match only events nearby
        self._store_version = 0  # the version of the stores: see the rules above
        self._compact_above = _COMPACTION_SLACK  # the size of the columns above which `remove` compacts
        self._lock = threading.RLock()
        self._matcher = SegmentMatcher()
        self._residual_checks = ResidualChecks(
            self._position_table, self._contexts, self._programs, self._lock, self._parse_context
        )
        self._has_residuals = False
        self._extra_segment_visits = (
            0  # additional segments that events had to be matched against since the last `tidy`
        )

    def __len__(self) -> int:
        return len(self._position_table)

    def __contains__(self, id: object) -> bool:  # noqa: A002 - the subscription's own word
        return id in self._position_table.positions

    # Subscriptions

    def put(self, subscription: Subscription) -> int:
        """Add a subscription, or replace the one with the same id; return its position.

        Every match that begins after this has returned finds it.
        """
        conjuncts = conjuncts_for(subscription)
        with self._lock:
            self._has_residuals |= not all(conjunct.exact for conjunct in conjuncts)
            rows = [(conjunct.flags, self._columns.predicates(conjunct)) for conjunct in conjuncts]
            position = self._put(subscription.id, subscription, subscription.subscriber, subscription.publishers, rows)
            self._unsatisfiable.note(position, conjuncts)
            return position

    def _put(
        self,
        name: str,
        subscription: Subscription | dict[str, Any],
        subscriber: str,
        publishers: ContextFilterValue | None,
        conjuncts: list[tuple[int, list[Predicate]]],
    ) -> int:
        """Add a subscription whose conjuncts are already encoded, as flags and predicates each; return its position."""
        former_position = self._position_table.positions.get(name)
        client, program = self._client_and_program(subscriber, publishers)
        position = self._position_table.add(name, subscription, client, program)
        group, radius = self._spatial_groups.find(publishers, program) if publishers is not None else (0, 0.0)
        if group:
            self._spatial_groups.assign(position, group)
            self._spatial_groups.put(position, conjuncts, len(self._columns), radius)
        else:
            for flags, predicates in conjuncts:
                self._store.add(position, flags, predicates, len(self._columns))
        if former_position is not None:
            self._store_version += 2
            self._forget(former_position)
        return position

    def put_many(self, subscriptions: list[Subscription]) -> None:
        """Add or replace many subscriptions, which is faster than one by one.

        Of several with one id, the last counts.
        """
        latest = list({subscription.id: subscription for subscription in subscriptions}.values())
        with self._lock:
            bulk, positions = BulkLoad(self._columns), []
            for row, subscription in enumerate(latest):
                bulk.add(row, subscription)
            replaced = self._replaced([subscription.id for subscription in latest])
            for subscription in latest:
                positions.append(
                    self._position_table.add(
                        subscription.id,
                        subscription,
                        *self._client_and_program(subscription.subscriber, subscription.publishers),
                    )
                )
            self._load(
                bulk, np.array(positions, np.int32), [subscription.publishers for subscription in latest], replaced
            )

    def _put_rows(self, rows: SubscriptionSource, bulk: BulkLoad) -> None:
        """Add the subscriptions of a table of text, whose conjuncts `bulk` has collected."""
        replaced = self._replaced(rows.names)
        clients_and_programs = [
            self._client_and_program(*row) for row in zip(rows.subscribers, rows.publishers, strict=True)
        ]
        clients, programs = np.array(clients_and_programs, np.int32).reshape(-1, 2).T
        positions = self._position_table.add_many(rows.table, rows.names, clients, programs)
        self._load(bulk, positions, rows.publishers, replaced)

    def _replaced(self, names: list[str]) -> list[int]:
        """Return the positions of the subscriptions that have these ids now."""
        positions = self._position_table.positions
        return [positions[name] for name in names if name in positions]

    def _load(
        self,
        bulk: BulkLoad,
        positions: Positions,
        publishers_filters: list[ContextFilterValue | None],
        replaced: list[int],
    ) -> None:
        """Put the conjuncts of new subscriptions into the common store and the spatial groups.

        Forgets the subscriptions at the positions `replaced`.
        """
        self._has_residuals |= bulk.has_residuals
        conjuncts = bulk.conjuncts(positions)
        self._unsatisfiable.note_many(positions.tolist(), conjuncts, self._columns.system())
        table, radii = self._position_table, {}
        for position, publishers in zip(positions.tolist(), publishers_filters, strict=True):
            if publishers is not None:
                group, radii[position] = self._spatial_groups.find(publishers, int(table.programs[position]))
                if group:
                    self._spatial_groups.assign(position, group)
        self._store.add_many(conjuncts.select(table.spatial_groups[conjuncts.owner >> 2] == 0), len(self._columns))
        self._spatial_groups.put_many(positions, conjuncts, len(self._columns), radii)
        self._store_version += 2 * bool(replaced)
        for position in replaced:
            self._forget(position)

    def remove(self, id: str) -> None:  # noqa: A002
        """Remove a subscription; raise `KeyError` if there is none with that id."""
        with self._lock:
            self._forget(self._position_table.positions.pop(id))

    def id(self, position: int) -> str:
        """Return the id of the subscription at a position from `match_positions`, as long as that is not removed."""
        return self._position_table.names[position]

    def subscriptions(self) -> list[Subscription]:
        """Return all subscriptions, in no particular order."""
        return [self._position_table[position] for position in self._position_table.positions.values()]

    def _client_and_program(self, subscriber: str, publishers: ContextFilterValue | None) -> tuple[int, int]:
        """Count one more subscription for the client and the context filter.

        Return the client's row and the program's number.
        """
        return self._contexts.acquire(subscriber), self._programs.acquire(publishers)

    def _forget(self, position: int) -> None:
        """Remove the subscription at a position from all data structures."""
        self._unsatisfiable.forget(position)
        table = self._position_table
        if table.spatial_groups[position]:
            self._spatial_groups.remove(position)
        else:
            self._store.remove(position)
        self._contexts.release(int(table.clients[position]))
        new_numbers = self._programs.release(int(table.programs[position]))
        table.free(position)
        if new_numbers is not None:
            table.renumber_programs(new_numbers)
        if self._columns.size > self._compact_above:
            self.compact()

    def compact(self) -> None:
        """Drop the names, strings and string tests that no filter mentions any more.

        `remove` calls this when there may be many. Events may be matched meanwhile.
        """
        with self._lock:
            self._compact()

    def _compact(self) -> None:
        stores: list[SegmentStore] = [self._store, *(group.store for group in self._spatial_groups.values())]
        conjuncts_by_store = [store.live_conjuncts() for store in stores]
        columns, compacted = self._columns.compacted(
            [conjuncts for conjuncts in conjuncts_by_store if conjuncts is not None]
        )
        renumbered_conjuncts, attributes = iter(compacted), len(columns)
        self._store_version += 1  # concurrent matches will be repeated
        self._columns, self._store = columns, SegmentStore()
        if conjuncts_by_store[0] is not None:
            self._store.add_many(next(renumbered_conjuncts), attributes)
        for group, conjuncts in zip(self._spatial_groups.values(), conjuncts_by_store[1:], strict=True):
            if conjuncts is not None:
                group.replace_conjuncts(next(renumbered_conjuncts), attributes)
        self._store_version += 1
        self._compact_above = 2 * columns.size + _COMPACTION_SLACK

    def _read(self, row: dict[str, Any]) -> Subscription:
        """Parse a row of text as a subscription; `tidings.Index` overrides this."""
        raise InvalidValueError(f"{row['id']!r} is text; tidings.Index reads it")

    # Contexts

    def set_context(self, client: str, context: Mapping[str, Any]) -> bool:
        """Replace the client's context; return whether it differs from the previous one."""
        with self._lock:
            row = self._contexts.set(client, context)
            self._spatial_groups.update_place(row)
            return row >= 0

    def _set_columns(self, clients: pa.Array, values: Mapping[str, pa.Array]) -> int:
        """Replace the contexts of many clients, given as columns; return how many differ from the previous ones."""
        with self._lock:
            try:
                rows = self._contexts.set_many(clients, values)
            except NotExpressible:
                contexts = pa.table(dict(values)).to_pylist()
                return sum(map(self.set_context, clients.to_pylist(), contexts))
            self._spatial_groups.update_places(rows)
            return len(rows)

    def moves(self, clients: pa.Array, values: Mapping[str, Any], before: Any) -> PendingContextChanges:
        """Encode changes of contexts that are made later, by `move`, or only assumed, by `match_moving`.

        Raises `NotExpressible` if these names would take too many of the context columns, which are meant for the names
        that filters mention.

        Args:
            clients: The client of each change.
            values: For each name a column of new values, or a list where values are of several kinds.
            before: For each event of a table, how many of the changes come before it.
        """
        with self._lock:
            if len(self._contexts.columns.keys() | values.keys()) > MAX_CONTEXT_COLUMNS // 2:
                raise NotExpressible
            return self._contexts.encode_changes(clients, values, before)

    def move(self, moves: PendingContextChanges, first: int, end: int) -> Any:
        """Make the changes from `first` up to `end`; return which of them changed something.

        Those before `first` must have been made already.
        """
        with self._lock:
            changed = self._contexts.write(moves, first, end)
            self._spatial_groups.update_places(moves.rows[first:end][changed])
            return changed

    # Matching

    def match(self, event: Mapping[str, Any], **about: Any) -> set[str]:
        """Return the ids of the subscriptions that an event matches; takes the arguments of `match_positions`."""
        table = self._position_table
        while True:
            reuse_count = table.reuse_count
            names = table.names
            ids = {names[position] for position in self.match_positions(event, **about).tolist()}
            if (
                table.reuse_count == reuse_count
            ):  # otherwise a position may have been given to another subscription meanwhile
                return ids

    def match_positions(
        self,
        event: Mapping[str, Any],
        *,
        context: Mapping[str, Any] | None = None,
        subscribers: ContextFilterValue | None = None,
        subject: str | None = None,
        payload: bytes | None = None,
        publisher: str | None = None,
    ) -> Positions:
        """Return the positions of the subscriptions that an event matches; `id` translates them to ids.

        Args:
            event: The event's attributes.
            context: The publisher's context when it published.
            subscribers: The event's own filter over the subscriber's context.
            subject: The event's subject.
            payload: The event's payload.
            publisher: The publisher's name.
        """
        return self._positions(event, context, subscribers, subject, payload, publisher)

    def _positions(
        self,
        event: Mapping[str, Any],
        context: Mapping[str, Any] | None,
        subscribers: ContextFilterValue | None,
        subject: str | None,
        payload: bytes | None,
        publisher: str | None,
    ) -> Positions:
        positions = self._attempt(event, context, subscribers, subject, payload, publisher)
        if positions is None:
            with self._lock:  # now nothing can change meanwhile
                positions = self._attempt(event, context, subscribers, subject, payload, publisher)
        assert positions is not None  # noqa: S101
        return positions

    def _attempt(
        self,
        event: Mapping[str, Any],
        context: Mapping[str, Any] | None,
        subscribers: ContextFilterValue | None,
        subject: str | None,
        payload: bytes | None,
        publisher: str | None,
    ) -> Positions | None:
        """Match an event once, without holding the lock throughout.

        Returns None if a subscription moved between stores meanwhile, since the match may have missed it; the caller
        repeats it under the lock.
        """
        store_version = self._store_version
        if store_version & 1:
            return None
        if self._columns.asks_system:
            encoded = self._encoded(self._with_system_attributes(event, subject, payload, publisher))
        else:
            encoded = self._encoded(event)
        segments, scratch = self._store.segments, self._scratch()
        if (
            self._store_version != store_version
        ):  # after a compaction, the event's numbers may not fit the scratch memory
            return None
        self._extra_segment_visits += self._store.extra_segments
        parts: list[Positions] = [self._matcher.match_one(encoded, scratch, raw, UNLIMITED) for raw in segments]  # type: ignore[misc]
        nearby: list[Positions] = []
        if self._spatial_groups:
            context = context if context is None or is_plain(context) else Context.of(context)
            with self._lock:
                if self._store_version != store_version:
                    return None
                nearby = self._match_nearby(encoded, context)
            parts += nearby
        positions = parts[0] if len(parts) == 1 else np.concatenate([NOBODY, *parts])
        if self._has_residuals and (positions < 0).any():
            positions = self._residual_checks.confirm(
                positions, Scope(Attributes.of(event), {}, subject, payload, publisher)
            )
        needs_context_filters = subscribers is not None or any(map(len, nearby))
        if needs_context_filters or self._residual_checks.have_context_filters(positions):
            positions = self._residual_checks.check_contexts(positions, context, subscribers)
        return positions if self._store_version == store_version else None

    @property
    def is_untidy(self) -> bool:
        """Whether `tidy` would have cost less than the matches against several segments since the last time."""
        cost = self._extra_segment_visits * _SORTED_PER_VISIT
        return cost > _SORT_FIXED_COST and cost > _SORT_FIXED_COST + self._store.conjuncts

    def tidy(self) -> None:
        """Merge all segments into one, so that an event is matched against a single segment.

        It takes long if there are many conjuncts; other threads may match and change the index meanwhile.
        """
        with self._lock:
            self._extra_segment_visits = 0
            store = self._store
            sources = store.begin_merge()
        if not sources:
            return
        merged: Raw | None = None
        try:
            merged = store.merge(sources)
        finally:
            with self._lock:
                store.end_merge(sources, merged)

    def _match_nearby(self, encoded: tuple[Any, Any], context: Mapping[str, Any] | None) -> list[Positions]:
        """Return the positions, from all spatial groups, of the subscriptions whose content the event may satisfy."""
        parts, scratch = [], self._scratch()
        match = partial(self._matcher.match_one, encoded, scratch)
        for group in self._spatial_groups.values():
            place = place_of(context, group.names)
            if place is not None:  # an event without a place is near no subscriber
                parts.append(group.match(place, match, scratch, *encoded))
        return parts

    def _encoded(self, values: Mapping[str, Any]) -> tuple[Any, Any]:
        try:
            return self._columns.encode(values)
        except NotPlain:
            system = {name: value for name, value in values.items() if type(name) is str and name.startswith("$")}
            others = {name: value for name, value in values.items() if name not in system}
            return self._columns.encode({**Attributes.of(others), **system})

    def _with_system_attributes(
        self, event: Mapping[str, Any], subject: str | None, payload: bytes | None, publisher: str | None
    ) -> Mapping[str, Any]:
        """Return the event's attributes with the system attributes.

        The payload, as text, is included only if some filter mentions it.
        """
        text = text_of(payload) if PAYLOAD in self._columns.numbers else None
        return {**event, SUBJECT: subject, PUBLISHER: publisher, PAYLOAD: text}

    def match_batch(self, table: pa.Table) -> pa.Table:
        """Match many events at once; return pairs of an event's row number and a subscription's id.

        The table has one column for each attribute, or a column `attributes` (struct, map or JSON text); `context`
        likewise, and `subscribers` as text, if events have them. `$subject`, `$payload` and `$publisher` are columns
        too.
        """
        if table.num_rows >= _MERGE_FROM_EVENTS:
            with self._lock:
                # The buffer has no tables: all its conjuncts would be checked for every event.
                self._store.order_for(table.num_rows)
        batch = EventBatch(table)
        pairs = self._attempt_batch(batch)
        if pairs is not None:
            return pairs
        parts, first = [], 0
        for part in batch.parts(_EVENTS_PER_LOCK):
            with self._lock:  # nothing can change meanwhile; few events, so that changes do not wait long
                pairs = self._attempt_batch(part, first)
            parts.append(pairs)
            first += part.size
        return pa.concat_tables(parts).unify_dictionaries()

    def _attempt_batch(self, batch: EventBatch, first: int = 0) -> pa.Table | None:
        """Return the pairs of a batch whose events are numbered from `first` on; None in the cases of `_attempt`."""
        removal_count = self._position_table.removal_count
        pairs = self._attempt_pairs(batch)
        ids = self._position_table.ids()
        # A position may belong to another subscription by now.
        if pairs is None or self._position_table.removal_count > removal_count + REST:
            return None
        event, position = pairs
        subscription = pa.DictionaryArray.from_arrays(pa.array(position), ids)
        return pa.table({"event": event + first if first else event, "subscription": subscription})

    def _attempt_pairs(self, batch: EventBatch) -> Pairs | None:
        """Match a batch once; return row numbers and positions, or None in the cases of `_attempt`."""
        store_version = self._store_version
        if store_version & 1:
            return None
        encoded = batch.encoded(self._columns)
        segments, scratch = self._store.segments, self._scratch()
        if self._store_version != store_version:
            return None
        self._extra_segment_visits += batch.size * self._store.extra_segments
        parts = [self._matcher.match_many(encoded, scratch, raw, batch.size) for raw in segments]
        if self._spatial_groups and batch.has_contexts:
            nearby = self._match_batch_nearby(encoded, batch, store_version)
            if nearby is None:
                return None
            parts += nearby
        event, position = joined(parts)
        if (
            (self._has_residuals and (position < 0).any())
            or self._residual_checks.have_context_filters(position)
            or batch.has_subscribers
        ):
            event, position = self._residual_checks.check_batch(event, position, batch)
        return (event, position) if self._store_version == store_version else None

    def match_moving(self, table: pa.Table, moves: PendingContextChanges) -> Pairs:
        """Match many events as if the changes before each of them had been made; return row numbers and positions.

        The contexts themselves stay as they are.
        """
        batch = EventBatch(table)
        with self._lock:
            if batch.size >= _MERGE_FROM_EVENTS:
                self._store.order_for(batch.size)
            encoded, scratch = batch.encoded(self._columns), self._scratch()
            parts = [self._matcher.match_many(encoded, scratch, raw, batch.size) for raw in self._store.segments]
            if batch.has_contexts:
                parts += self._match_moving_nearby(encoded, batch, moves)
            return self._residual_checks.check_batch(*joined(parts), batch, moves)

    def _match_moving_nearby(
        self, events: EncodedEvents, batch: EventBatch, moves: PendingContextChanges
    ) -> list[Pairs]:
        """Match the events of a batch in all spatial groups.

        For each event, the clients are where the changes before it put them.
        """
        order, scratch = np.arange(batch.size), self._scratch()
        parts = []
        for group in self._spatial_groups.values():
            places = batch.places(self._programs, self._contexts.columns, group.names, order)
            sizes, positions = group.match_many(places, events.in_order(order), scratch, moves)
            parts.append((np.repeat(order, np.maximum(sizes, 0)), positions))
            for at in np.flatnonzero(sizes < 0).tolist():
                positions_at = group.match_content(partial(self._matcher.match_one, events.one(at), scratch))
                parts.append((np.full(len(positions_at), at), positions_at))
        return parts

    def _match_batch_nearby(self, events: EncodedEvents, batch: EventBatch, store_version: int) -> list[Pairs] | None:
        """Match the events of a batch in all spatial groups.

        It matches some at a time, so that changes do not wait long for the lock. Returns None in the cases of
        `_attempt`.
        """
        parts = []
        for first in range(0, batch.size, _EVENTS_PER_LOCK):
            order = np.arange(first, min(first + _EVENTS_PER_LOCK, batch.size))
            row_major = events.in_order(order)
            for group in self._spatial_groups.values():
                with self._lock:
                    if self._store_version != store_version:
                        return None
                    scratch = self._scratch()
                    places = batch.places(self._programs, self._contexts.columns, group.names, order)
                    sizes, positions = group.match_many(places, row_major, scratch)
                parts.append((np.repeat(order, np.maximum(sizes, 0)), positions))
                for at in np.flatnonzero(sizes < 0).tolist():
                    values, place = events.one(first + at), tuple(places[at].tolist())
                    with self._lock:
                        if self._store_version != store_version:
                            return None
                        scratch = self._scratch()
                        positions_at = group.match(
                            place, partial(self._matcher.match_one, values, scratch), scratch, *values
                        )
                    parts.append((np.full(len(positions_at), first + at), positions_at))
        return parts

    def _scratch(self) -> Raw:
        """Return this thread's scratch memory, large enough for the attributes, tests and positions of the index."""
        return self._matcher.scratch(len(self._columns), self._columns.test_count, self._position_table.size)

    # Covering

    def covering(self, content: FilterValue) -> set[str]:
        """Return the ids of the subscriptions whose content covers this filter."""
        with self._lock:
            return self._covering_queries().covering(content)

    def covered_by(self, content: FilterValue) -> set[str]:
        """Return the ids of the subscriptions whose content this filter covers."""
        with self._lock:
            return self._covering_queries().covered_by(content)

    def _covering_queries(self) -> CoveringQueries:
        stores = [self._store, *(group.store for group in self._spatial_groups.values())]
        segments = [raw for store in stores for raw in store.segments]
        return CoveringQueries(self._columns, self._position_table, segments, self._unsatisfiable)

    def _parse_context(self, text: str) -> ContextFilterValue:
        """Parse the text of an event's `subscribers` filter; `tidings.Index` overrides this."""
        raise InvalidValueError(f"subscribers: {text!r} is text; tidings.Index reads it")

    # On disk

    def save(self, folder: str | Path) -> None:
        """Write the index into a folder, in place of its previous contents: subscriptions, contexts, and all arrays."""
        with self._lock:
            segments = {f"segment{number:03}": raw for number, raw in enumerate(self._store.flushed_segments())}
            position_arrays, table = self._position_table.saved(self._written)
            context_arrays, facts = self._contexts.saved()
            group_arrays, group_facts = self._spatial_groups.saved()
            facts = {
                "contexts": facts,
                "columns": self._columns.saved(),
                "scopes": self._programs.saved(),
                "residuals": self._has_residuals,
                "homes": group_facts,
                "tables": [match.BLOCK, match.BUCKETS, match.STRING_BUCKETS],
            }
            mapped_folder.write(
                Path(folder),
                {**segments, **position_arrays, **context_arrays, **group_arrays},
                {"subscriptions": table},
                facts,
            )

    @classmethod
    def load(cls, folder: str | Path, *, verify: bool = True) -> Self:
        """Load the index from a folder, mapped into memory, so that all processes on a machine share one copy.

        Raises `IndexDamagedError` for a damaged folder. Without `verify`, only files that are missing or cut off are
        noticed, and nothing is read before it is needed.
        """
        saved = mapped_folder.MappedFolder(Path(folder), verify=verify)
        facts = saved.facts
        if facts["tables"] != [match.BLOCK, match.BUCKETS, match.STRING_BUCKETS]:
            raise IndexDamagedError(f"{folder}: was saved with tables of other sizes; save it anew")
        index = cls()
        index._columns = Columns.of(facts["columns"])
        segments = [saved.array(name) for name in saved.names("segment")]
        index._store = SegmentStore.of(segments, len(index._columns))
        index._position_table.restore(saved.array, saved.table("subscriptions"))
        index._contexts.restore(saved.array, facts["contexts"])
        index._programs.restore(facts["scopes"])
        index._has_residuals = facts["residuals"]
        index._unsatisfiable = UnsatisfiableFilters(unread=True)
        index._spatial_groups.restore(saved.array, saved.names, facts["homes"], len(index._columns))
        index._programs.in_use = bool((index._position_table.programs != NO_FILTER).any())
        return index

    def _written(self, subscription: Subscription) -> dict[str, Any]:
        """Return a subscription as a row of text; `tidings.Index` overrides this."""
        raise InvalidValueError("tidings.Index writes subscriptions as text")

    # Inspection

    def explain(
        self,
        event: Mapping[str, Any],
        subscription: str,
        *,
        context: Mapping[str, Any] | None = None,
        subscribers: ContextFilterValue | None = None,
        subject: str | None = None,
        payload: bytes | None = None,
        publisher: str | None = None,
    ) -> MatchExplanation:
        """Explain why an event does, or does not, match a subscription; raise `KeyError` if there is none with that id.

        Args:
            event: The event's attributes.
            subscription: The subscription's id.
            context: The publisher's context when it published.
            subscribers: The event's own filter over the subscriber's context.
            subject: The event's subject.
            payload: The event's payload.
            publisher: The publisher's name.
        """
        matched = self._position_table[self._position_table.positions[subscription]]
        scope = Scope(Attributes.of(event), {}, subject, payload, publisher)
        publisher_context, subscriber_context = Context.of(context), self._contexts.get(matched.subscriber)
        return explain_match(matched, scope, publisher_context, subscriber_context, subscribers)

    @property
    def parts(self) -> Parts:
        """The data structures of the index, to be measured and examined.

        Their own methods change the index without its lock: call these only while no other thread uses the index.
        """
        return Parts(
            self._columns,
            self._store,
            self._position_table,
            self._contexts,
            self._programs,
            self._spatial_groups,
            self._matcher,
        )

    def stats(self) -> IndexStats:
        """Return the sizes of the data structures, and the counts of candidates and matches so far."""
        segments = [layout.segment(raw) for raw in self._store.segments]
        counters = self._matcher.counters
        return IndexStats(
            subscriptions=len(self),
            conjuncts=self._store.conjuncts,
            segments=len(segments),
            clusters=sum(len(arrays.key_attribute) for arrays in segments),
            blocks=sum(len(arrays.block_word) - 1 for arrays in segments),
            array_bytes=sum(raw.nbytes for raw in self._store.segments),
            dead_share=self._store.dead / max(1, self._store.conjuncts + self._store.dead),
            candidates_per_match=float(counters[CHECKED]) / max(1, int(counters[FOUND])),
            candidates=int(counters[CHECKED]),
            matches=int(counters[FOUND]),
        )
