"""The index: which of very many subscriptions does an event concern, given everyone's context now?"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.matching.documents import text_of
from tidings.matching.explaining import Explanation as Explanation
from tidings.matching.explaining import explained
from tidings.matching.index import kernels, programs, tables
from tidings.matching.index.columns import Columns, NotPlain
from tidings.matching.index.conjuncts import Conjunct, Constraint, Kind, conjuncts_of
from tidings.matching.index.contexts import NO_FILTER, Contexts
from tidings.matching.index.kernels import PREDICATE, RESIDUAL, SEVERAL, Arrays, Events, Scratch
from tidings.matching.index.segment import Conjuncts
from tidings.matching.index.store import Store
from tidings.matching.reference import Scope, matches_context, passes_structure, passes_subject, truth
from tidings.model.errors import InvalidValueError
from tidings.model.expression import PAYLOAD, PUBLISHER, SUBJECT
from tidings.model.filter import ContextFilter
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes, Context

Positions = npt.NDArray[np.int32]
_NOWHERE = Context()
_FIRST = np.zeros(1, np.int64)


class Stats(NamedTuple):
    """What an index is made of."""

    subscriptions: int
    conjuncts: int
    segments: int
    clusters: int
    blocks: int
    array_bytes: int
    dead_share: float
    candidates_per_match: float


class Index:
    """Subscriptions by position, contexts by client. One thread may change it while others match."""

    def __init__(self) -> None:
        self._columns = Columns()
        self._store = Store()
        self._subscriptions: list[Subscription | None] = []
        self._names: list[str] = []  # the id at each position
        self._positions: dict[str, int] = {}
        self._scoped = np.zeros(64, bool)  # whether a position has a `publishers` filter
        self._clients = np.zeros(64, np.int32)  # the row of the subscriber's context
        self._programs = np.full(64, NO_FILTER, np.int32)  # the program of its `publishers` filter
        self._contexts = Contexts()
        self._changing = threading.RLock()
        self._local = threading.local()
        self._ids: pa.Array = pa.array([], pa.string())
        self._checked = self._found = 0
        self._has_residuals = self._has_scopes = False

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, id: object) -> bool:  # noqa: A002 - the subscription's own word
        return id in self._positions

    # Subscriptions

    def put(self, subscription: Subscription) -> int:
        """Adds a subscription, or replaces the one of the same id; it counts from the moment that this returns."""
        conjuncts = _conjuncts(subscription)
        with self._changing:
            position, replaced = self._place(subscription)
            for one in conjuncts:
                predicates = self._columns.predicates(one)
                self._store.add(position, self._flags(one, conjuncts), predicates, len(self._columns))
            if replaced is not None:
                self._forget(replaced)
            return position

    def put_many(self, subscriptions: list[Subscription]) -> None:
        """Many at once, which is faster than one by one."""
        with self._changing:
            position, flags, lengths, predicates = [], [], [], []
            for subscription in subscriptions:
                at, replaced = self._place(subscription)
                if replaced is not None:
                    self._forget(replaced)
                conjuncts = [
                    _with_structure(one, subscription) for one in conjuncts_of(subscription.content.expression)
                ]
                for one in conjuncts:
                    rows = self._columns.predicates(one)
                    position.append(at)
                    flags.append(self._flags(one, conjuncts))
                    lengths.append(len(rows))
                    predicates.extend(rows)
            first = np.zeros(len(position) + 1, np.int32)
            np.cumsum(lengths, out=first[1:])
            arrays = np.array(position, np.int32), np.array(flags, np.uint8), first, np.array(predicates, PREDICATE)
            self._store.add_many(Conjuncts(*arrays), len(self._columns))

    def remove(self, id: str) -> None:  # noqa: A002
        """Takes a subscription out; `KeyError` if there is none of that id."""
        with self._changing:
            self._forget(self._positions.pop(id))

    def id(self, position: int) -> str:
        """The id of the subscription at a position that `match_positions` gave."""
        return self._names[position]

    def subscriptions(self) -> list[Subscription]:
        """All of them, in no particular order."""
        return [one for position in self._positions.values() if (one := self._subscriptions[position]) is not None]

    def _place(self, subscription: Subscription) -> tuple[int, int | None]:
        position = len(self._subscriptions)
        self._subscriptions.append(subscription)
        self._names.append(subscription.id)
        if position >= len(self._scoped):
            self._scoped = np.concatenate([self._scoped, np.zeros(len(self._scoped), bool)])
            self._clients = np.concatenate([self._clients, self._clients])
            self._programs = np.concatenate([self._programs, self._programs])
        self._scoped[position] = subscription.publishers is not None
        self._clients[position] = self._contexts.row(subscription.subscriber)
        self._programs[position] = self._contexts.program(subscription.publishers)
        self._has_scopes = self._has_scopes or subscription.publishers is not None
        replaced = self._positions.get(subscription.id)
        self._positions[subscription.id] = position
        return position, replaced

    def _flags(self, one: Conjunct, conjuncts: list[Conjunct]) -> int:
        self._has_residuals = self._has_residuals or not one.exact
        return (SEVERAL if len(conjuncts) > 1 else 0) | (0 if one.exact else RESIDUAL)

    def _forget(self, position: int) -> None:
        self._store.remove(position)
        self._subscriptions[position] = None

    # Contexts

    def set_context(self, client: str, context: Mapping[str, Any]) -> bool:
        """The client's context from now on; whether it differs from the one before."""
        given = Context.of(context)
        with self._changing:
            return self._contexts.set(client, given)

    # Matching

    def match(self, event: Mapping[str, Any], **about: Any) -> set[str]:
        """The ids of the subscriptions that an event concerns; takes what `match_positions` takes."""
        names = self._names
        return {names[position] for position in self.match_positions(event, **about).tolist()}

    def match_positions(
        self,
        event: Mapping[str, Any],
        *,
        context: Mapping[str, Any] | None = None,
        subscribers: ContextFilter | None = None,
        subject: str | None = None,
        payload: bytes | None = None,
        publisher: str | None = None,
    ) -> Positions:
        """The positions of the subscriptions that an event concerns: numbers that `id` knows."""
        try:
            encoded = self._columns.encode(self._everything(event, subject, payload, publisher))
        except NotPlain:
            event = Attributes.of(event)
            encoded = self._columns.encode(self._everything(event, subject, payload, publisher))
        parts = [self._match(arrays, encoded, _FIRST)[0] for arrays in self._store.segments]
        found = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if self._has_residuals and (found < 0).any():
            found = self._confirmed(found, Scope(Attributes.of(event), {}, subject, payload, publisher))
        if subscribers is None and not (self._has_scopes and self._scoped[found].any()):
            return found
        return self._in_context(found, Context.of(context), subscribers)

    def _everything(
        self, event: Mapping[str, Any], subject: str | None, payload: bytes | None, publisher: str | None
    ) -> Mapping[str, Any]:
        """The event's attributes, and what the system says of it as far as some filter asks."""
        if not self._columns.asks_system:
            return event
        text = text_of(payload) if PAYLOAD in self._columns.numbers else None
        return {**event, SUBJECT: subject, PUBLISHER: publisher, PAYLOAD: text}

    def match_batch(self, table: pa.Table) -> pa.Table:
        """Pairs of an event's row number and a subscription's id, of many events at once.

        The table has one column an attribute, or a column `attributes` (struct, map or JSON text); `context`
        likewise, and `subscribers` as text, where events have them. `$subject`, `$payload` and `$publisher` are
        columns too.
        """
        rows = table.num_rows
        row: Callable[[int], Mapping[str, Any]]
        if tables.has_rows_of_names(table):
            given = tables.attribute_rows(table)
            encoded, row = self._columns.encode_rows(given), given.__getitem__
        else:
            columns = tables.attribute_columns(table)
            texts = {PAYLOAD: tables.as_text(columns[PAYLOAD])} if PAYLOAD in columns else {}
            encoded, row = self._columns.encode_table({**columns, **texts}, rows), lambda e: tables.row_of(columns, e)
        parts = [self._match_ordered(arrays, encoded, rows) for arrays in self._store.segments]
        event, position = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        if len(parts) > 1:
            order = np.argsort(event, kind="stable")
            event, position = event[order], position[order]
        if (position < 0).any() or self._scoped[position].any() or tables.SUBSCRIBERS in table.column_names:
            event, position = self._settled(event, position, row, table)
        ids = pa.DictionaryArray.from_arrays(pa.array(position), self._dictionary())
        return pa.table({"event": event, "subscription": ids})

    def _match_ordered(self, arrays: Arrays, encoded: Events, rows: int) -> tuple[Any, Positions]:
        """Events that meet the same cluster one after the other, so that its tables stay in the cache."""
        order = np.arange(rows)
        lead = _leading_attribute(arrays)
        column = np.flatnonzero(encoded.attribute == lead)
        if len(column) and rows > 64:
            order = np.lexsort((encoded.f[column[0]], encoded.kind[column[0]]))
        position, ends = self._match(arrays, encoded, order)
        return kernels.in_event_order(order, ends, position)  # type: ignore[no-any-return]

    def _match(self, arrays: Arrays, events: Events, order: Any) -> tuple[Positions, Any]:
        scratch, out = self._scratch(len(order))
        ends = np.zeros(len(order), np.int64)
        parts, start, offset = [], 0, 0
        while True:
            done, needed, checked = kernels.match_events(arrays, events, order, scratch, start, out, ends)
            self._checked += checked
            filled = int(ends[done - 1]) if done > start else 0
            parts.append(out[:filled].copy())
            ends[start:done] += offset
            offset += filled
            if done == len(order):
                self._found += offset
                return (parts[0] if len(parts) == 1 else np.concatenate(parts)), ends
            start = done
            if needed > len(out):
                self._local.out = out = np.empty(2 * needed, np.int32)

    def _scratch(self, events: int) -> tuple[Scratch, Positions]:
        """This thread's scratch memory, large enough for what the index holds."""
        local = self._local
        attributes, tests, positions = len(self._columns), self._columns.test_count, len(self._subscriptions)
        known: Scratch | None = getattr(local, "scratch", None)
        if (
            known is None
            or len(known.kind) < attributes
            or len(known.test_stamp) < tests
            or len(known.seen) < positions
        ):
            size, marks = 2 * attributes + 64, 2 * tests + 64
            local.scratch = Scratch(
                np.zeros(size, np.uint8), np.zeros(size), np.zeros(size, np.int16), np.zeros(size, np.int32),
                np.zeros(marks, np.int64), np.zeros(2 * positions + 64, np.int64), np.zeros(1, np.int64),
            )  # fmt: skip
        wanted = 4096 if events == 1 else 1 << 20
        if len(getattr(local, "out", ())) < wanted:
            local.out = np.empty(wanted, np.int32)
        return local.scratch, local.out

    # What the kernels leave to the reference

    def _confirmed(self, found: Positions, scope: Scope) -> Positions:
        doubtful = found < 0
        sure = found[~doubtful]
        known = set(sure.tolist())
        asked = [position for position in dict.fromkeys((~found[doubtful]).tolist()) if position not in known]
        return np.concatenate([sure, np.array([p for p in asked if self._is_true(p, scope)], np.int32)])

    def _is_true(self, position: int, scope: Scope) -> bool:
        subscription = self._subscriptions[position]
        return (
            subscription is not None
            and passes_subject(subscription, scope.subject)
            and passes_structure(subscription, scope.subject, scope.attributes)
            and truth(subscription.content.expression, scope) is True
        )

    def _in_context(self, found: Positions, context: Context, subscribers: ContextFilter | None) -> Positions:
        with self._changing:
            answers = self._contexts.judge_publisher(found, self._programs, self._clients, context)
            found, answers = found[answers != programs.FALSE], answers[answers != programs.FALSE]
            if subscribers is not None:
                others = self._contexts.judge_subscribers(found, subscribers, self._clients, context)
                if others is None:
                    others = np.full(len(found), programs.UNSURE, np.uint8)
                answers = np.where((answers == programs.TRUE) | (others != programs.TRUE), others, answers)
        unsure = [self._is_in_context(p, context, subscribers) for p in found[answers == programs.UNSURE].tolist()]
        kept = answers == programs.TRUE
        kept[answers == programs.UNSURE] = unsure
        return found[kept]  # type: ignore[no-any-return]

    def _is_in_context(self, position: int, context: Context, subscribers: ContextFilter | None) -> bool:
        subscription = self._subscriptions[position]
        if subscription is None:
            return False
        own = self._contexts.values.get(subscription.subscriber, _NOWHERE)
        return matches_context(subscription.publishers, context, own) and matches_context(subscribers, own, context)

    def _settled(self, event: Any, position: Positions, row: Any, table: pa.Table) -> tuple[Any, Positions]:
        """What is left for the reference in a batch: doubtful candidates, and contexts in both directions."""
        contexts = tables.mappings(table[tables.CONTEXT]) if tables.CONTEXT in table.column_names else None
        texts = table[tables.SUBSCRIBERS].to_pylist() if tables.SUBSCRIBERS in table.column_names else None
        starts = np.flatnonzero(np.diff(event, prepend=-1))
        parts, events = [], []
        for begin, end in zip(starts, [*starts[1:], len(event)], strict=True):
            e, found = int(event[begin]), position[begin:end]
            if (found < 0).any():
                found = self._confirmed(found, tables.scope_of(row(e)))
            wanted = self._parse_context(texts[e]) if texts is not None and texts[e] is not None else None
            if wanted is not None or self._scoped[found].any():
                found = self._in_context(found, Context.of(contexts[e] if contexts else None), wanted)
            parts.append(found)
            events.append(np.full(len(found), e))
        if not parts:
            return event, position
        return np.concatenate(events), np.concatenate(parts)

    def _dictionary(self) -> pa.Array:
        if len(self._ids) != len(self._names):
            self._ids = pa.array(self._names, pa.string())
        return self._ids

    def _parse_context(self, text: str) -> ContextFilter:
        raise InvalidValueError(f"subscribers: {text!r} is text; tidings.Index reads it")

    # What it is made of

    def explain(
        self,
        event: Mapping[str, Any],
        subscription: str,
        *,
        context: Mapping[str, Any] | None = None,
        subscribers: ContextFilter | None = None,
        subject: str | None = None,
        payload: bytes | None = None,
        publisher: str | None = None,
    ) -> Explanation:
        """Why the event does, or does not, concern a subscription; `KeyError` if there is none of that id."""
        wanted = self._subscriptions[self._positions[subscription]]
        if wanted is None:
            raise KeyError(subscription)
        scope = Scope(Attributes.of(event), {}, subject, payload, publisher)
        here, there = Context.of(context), self._contexts.values.get(wanted.subscriber, _NOWHERE)
        return explained(wanted, scope, here, there, subscribers)

    def stats(self) -> Stats:
        segments = self._store.segments
        return Stats(
            subscriptions=len(self),
            conjuncts=self._store.conjuncts,
            segments=len(segments),
            clusters=sum(len(arrays.key_attribute) for arrays in segments),
            blocks=sum(len(arrays.block_word) - 1 for arrays in segments),
            array_bytes=sum(array.nbytes for arrays in segments for array in arrays),
            dead_share=self._store.dead / max(1, self._store.conjuncts + self._store.dead),
            candidates_per_match=self._checked / max(1, self._found),
        )


def _conjuncts(subscription: Subscription) -> list[Conjunct]:
    return [_with_structure(one, subscription) for one in conjuncts_of(subscription.content.expression)]


def _leading_attribute(arrays: Arrays) -> int:
    """The attribute through which the most conjuncts are reached, weighed by how often that happens."""
    if not len(arrays.key_attribute):
        return -1
    blocks = np.diff(arrays.cluster_block)[:-1].astype(float)
    return int(np.argmax(np.bincount(arrays.key_attribute, blocks**2)))


def _with_structure(conjunct: Conjunct, subscription: Subscription) -> Conjunct:
    """Subject and structure, as constraints like any other."""
    subject, structure = subscription.subject, subscription.structure
    if subject is None and structure is None:
        return conjunct
    asked: dict[str, Constraint] = {}
    if structure is not None:
        asked |= {name: Constraint(Kind.PRESENT) for name in structure.names}
        asked |= {name: Constraint(Kind.MISSING) for name in structure.absent}
        asked[SUBJECT] = Constraint(Kind.STRING, text=structure.schema.subject)
    exact = conjunct.exact
    if subject is not None:
        exact = exact and asked.get(SUBJECT, Constraint(Kind.STRING, text=subject)).text == subject
        asked[SUBJECT] = Constraint(Kind.STRING, text=subject)
    # Where the content asks of the same attribute, the reference decides.
    exact = exact and all(conjunct.constraints.get(name, one) == one for name, one in asked.items())
    return Conjunct({**asked, **conjunct.constraints}, exact)
