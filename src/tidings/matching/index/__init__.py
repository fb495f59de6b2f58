"""The index: which of very many subscriptions does an event concern, given everyone's context now?"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.matching.documents import text_of
from tidings.matching.explaining import Explanation as Explanation
from tidings.matching.explaining import explained
from tidings.matching.index import archive, kernels, layout, programs, tables
from tidings.matching.index.bulk import Bulk
from tidings.matching.index.columns import Columns, Events, NotPlain
from tidings.matching.index.conjuncts import conjuncts_for
from tidings.matching.index.contexts import Contexts
from tidings.matching.index.layout import CHECKED, FOUND, NEEDED, Raw
from tidings.matching.index.programs import NotSayable
from tidings.matching.index.register import Register
from tidings.matching.index.scopes import NO_FILTER, Scopes
from tidings.matching.index.store import Store
from tidings.matching.reference import Scope, matches_context, passes_structure, passes_subject, truth
from tidings.model.errors import IndexDamagedError, InvalidValueError
from tidings.model.expression import PAYLOAD, PUBLISHER, SUBJECT
from tidings.model.filter import ContextFilter
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes, Context


class Rows(Protocol):
    """Subscriptions as text: a table, and what matching needs to know of its rows beside their content."""

    table: pa.Table
    names: list[str]
    subscribers: list[str]
    publishers: list[ContextFilter | None]


Positions = npt.NDArray[np.int32]
_UNLIMITED = 1 << 62


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
        self._register = Register(self._read)
        self._contexts = Contexts()
        self._scopes = Scopes(self._contexts)
        self._changing = threading.RLock()
        self._local = threading.local()
        self._scratches: list[layout.Scratch] = []  # of all threads, for the statistics
        self._has_residuals = self._has_scopes = False

    def __len__(self) -> int:
        return len(self._register)

    def __contains__(self, id: object) -> bool:  # noqa: A002 - the subscription's own word
        return id in self._register.positions

    # Subscriptions

    def put(self, subscription: Subscription) -> int:
        """Adds a subscription, or replaces the one of the same id; it counts from the moment that this returns."""
        conjuncts = conjuncts_for(subscription)
        with self._changing:
            self._has_residuals |= not all(one.exact for one in conjuncts)
            replaced = self._register.positions.get(subscription.id)
            client, program = self._situation(subscription.subscriber, subscription.publishers)
            position = self._register.place(subscription, client, program)
            for one in conjuncts:
                self._store.add(position, one.flags, self._columns.predicates(one), len(self._columns))
            if replaced is not None:
                self._forget(replaced)
            return position

    def put_many(self, subscriptions: list[Subscription]) -> None:
        """Many at once, which is faster than one by one."""
        given = list({one.id: one for one in subscriptions}.values())  # of those with one id, the last counts
        with self._changing:
            bulk, positions = Bulk(self._columns), []
            for row, one in enumerate(given):
                bulk.take(row, one)
            replaced = self._replaced([one.id for one in given])
            for one in given:
                positions.append(self._register.place(one, *self._situation(one.subscriber, one.publishers)))
            self._load(bulk, np.array(positions, np.int32), replaced)

    def _put_rows(self, rows: Rows, bulk: Bulk) -> None:
        replaced = self._replaced(rows.names)
        situations = [self._situation(*one) for one in zip(rows.subscribers, rows.publishers, strict=True)]
        clients, programs = np.array(situations, np.int32).reshape(-1, 2).T
        self._load(bulk, self._register.place_many(rows.table, rows.names, clients, programs), replaced)

    def _replaced(self, names: list[str]) -> list[int]:
        known = self._register.positions
        return [known[name] for name in names if name in known]

    def _load(self, bulk: Bulk, positions: Positions, replaced: list[int]) -> None:
        self._has_residuals |= bulk.has_residuals
        self._store.add_many(bulk.conjuncts(positions), len(self._columns))
        for position in replaced:
            self._forget(position)

    def remove(self, id: str) -> None:  # noqa: A002
        """Takes a subscription out; `KeyError` if there is none of that id."""
        with self._changing:
            self._forget(self._register.positions.pop(id))

    def id(self, position: int) -> str:
        """The id of the subscription at a position that `match_positions` gave, as long as it is not removed."""
        return self._register.names[position]

    def subscriptions(self) -> list[Subscription]:
        """All of them, in no particular order."""
        return [self._register[position] for position in self._register.positions.values()]

    def _situation(self, subscriber: str, publishers: ContextFilter | None) -> tuple[int, int]:
        self._has_scopes = self._has_scopes or publishers is not None
        return self._contexts.enter(subscriber), self._scopes.enter(publishers)

    def _forget(self, position: int) -> None:
        register = self._register
        self._store.remove(position)
        self._contexts.leave(int(register.clients[position]))
        moved = self._scopes.leave(int(register.programs[position]))
        register.forget(position)
        if moved is not None:
            register.renumber_programs(moved)

    def _read(self, row: dict[str, Any]) -> Subscription:
        raise InvalidValueError(f"{row['id']!r} is text; tidings.Index reads it")

    # Contexts

    def set_context(self, client: str, context: Mapping[str, Any]) -> bool:
        """The client's context from now on; whether it differs from the one before."""
        with self._changing:
            return self._contexts.set(client, context) >= 0

    def _set_columns(self, clients: pa.Array, values: Mapping[str, pa.Array]) -> int:
        with self._changing:
            try:
                return len(self._contexts.set_many(clients, values))
            except NotSayable:
                rows = pa.table(dict(values)).to_pylist()
                return sum(map(self.set_context, clients.to_pylist(), rows))

    # Matching

    def match(self, event: Mapping[str, Any], **about: Any) -> set[str]:
        """The ids of the subscriptions that an event concerns; takes what `match_positions` takes."""
        register = self._register
        while True:
            reused = register.reused
            names = register.names
            found = {names[position] for position in self.match_positions(event, **about).tolist()}
            if register.reused == reused:  # else a position may have come to stand for another one meanwhile
                return found

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
        return self._positions(event, context, subscribers, subject, payload, publisher)

    def _positions(
        self,
        event: Mapping[str, Any],
        context: Mapping[str, Any] | None,
        subscribers: ContextFilter | None,
        subject: str | None,
        payload: bytes | None,
        publisher: str | None,
    ) -> Positions:
        columns = self._columns
        if columns.asks_system:
            encoded = self._encoded(self._everything(event, subject, payload, publisher))
        else:
            encoded = self._encoded(event)
        scratch = self._scratch()
        parts = [self._match(raw, scratch, *encoded) for raw in self._store.segments]
        found = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if self._has_residuals and (found < 0).any():
            found = self._confirmed(found, Scope(Attributes.of(event), {}, subject, payload, publisher))
        if subscribers is None and not (self._has_scopes and self._scoped(found).any()):
            return found
        return self._in_context(found, Context.of(context), subscribers)

    def _encoded(self, values: Mapping[str, Any]) -> tuple[Any, Any]:
        try:
            return self._columns.encode(values)
        except NotPlain:
            system = {name: value for name, value in values.items() if type(name) is str and name.startswith("$")}
            others = {name: value for name, value in values.items() if name not in system}
            return self._columns.encode({**Attributes.of(others), **system})

    def _everything(
        self, event: Mapping[str, Any], subject: str | None, payload: bytes | None, publisher: str | None
    ) -> Mapping[str, Any]:
        """The event's attributes, and what the system says of it as far as some filter asks."""
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
        parts = [self._match_ordered(raw, encoded, rows) for raw in self._store.segments]
        event, position = parts[0]
        if len(parts) > 1:
            event, position = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            order = np.argsort(event, kind="stable")
            event, position = event[order], position[order]
        if (
            (self._has_residuals and (position < 0).any())
            or (self._has_scopes and self._scoped(position).any())
            or tables.SUBSCRIBERS in table.column_names
        ):
            event, position = self._settled(event, position, row, table)
        ids = pa.DictionaryArray.from_arrays(pa.array(position), self._register.ids())
        return pa.table({"event": event, "subscription": ids})

    def _match_ordered(self, raw: Raw, encoded: Events, rows: int) -> tuple[Any, Positions]:
        """Events that meet the same cluster one after the other, so that its tables stay in the cache."""
        order = np.arange(rows)
        lead = _leading_attribute(layout.segment(raw))
        column = np.flatnonzero(encoded.attribute == lead)
        if len(column) and rows > 64:
            order = np.lexsort((encoded.f[column[0]], encoded.kind[column[0]]))
        position, ends = self._match_many(raw, encoded, order)
        return kernels.in_event_order(order, ends, position)  # type: ignore[no-any-return]

    def _match(self, raw: Raw, scratch: Raw, values: Any, tests: Any) -> Positions:
        while True:
            out: Positions = self._local.out
            count = kernels.match_event(raw, scratch, values, tests, _UNLIMITED, out)
            if count >= 0:
                return out[:count].copy()
            self._local.out = np.empty(2 * int(self._local.arrays.counters[NEEDED]), np.int32)

    def _match_many(self, raw: Raw, events: Events, order: Any) -> tuple[Positions, Any]:
        given = events.in_order(order)
        scratch, ends = self._scratch(), np.zeros(len(order), np.int64)
        out = np.empty(1 << 20, np.int32)
        parts: list[Positions] = []
        start = offset = 0
        while True:
            done = kernels.match_events(raw, scratch, *given, start, out, ends)
            filled = int(ends[done - 1]) if done > start else 0
            ends[start:done] += offset
            offset += filled
            if done == len(order) and not parts:
                return out[:filled], ends
            parts.append(out[:filled].copy())
            if done == len(order):
                return np.concatenate(parts), ends
            start = done
            needed = int(self._local.arrays.counters[NEEDED])
            if needed > len(out):
                out = np.empty(2 * needed, np.int32)

    def _scratch(self) -> Raw:
        """This thread's scratch memory, large enough for what the index holds."""
        local = self._local
        known: layout.Scratch | None = getattr(local, "arrays", None)
        attributes, tests, positions = len(self._columns), self._columns.test_count, self._register.size
        if (
            known is None
            or len(known.kind) < attributes
            or len(known.test_stamp) < tests
            or len(known.seen) < positions
        ):
            local.scratch = layout.scratch_of(2 * attributes + 64, 2 * tests + 64, 2 * positions + 64)
            local.arrays = layout.scratch(local.scratch)
            with self._changing:
                self._scratches = [one for one in self._scratches if one is not known] + [local.arrays]
            if known is None:
                local.out = np.empty(4096, np.int32)
            else:
                local.arrays.counters[:] = known.counters
        return local.scratch  # type: ignore[no-any-return]

    # What the kernels leave to the reference

    def _confirmed(self, found: Positions, scope: Scope) -> Positions:
        doubtful = found < 0
        sure = found[~doubtful]
        known = set(sure.tolist())
        asked = [position for position in dict.fromkeys((~found[doubtful]).tolist()) if position not in known]
        return np.concatenate([sure, np.array([p for p in asked if self._is_true(p, scope)], np.int32)])

    def _is_true(self, position: int, scope: Scope) -> bool:
        subscription = self._subscription(position)
        return (
            subscription is not None
            and passes_subject(subscription, scope.subject)
            and passes_structure(subscription, scope.subject, scope.attributes)
            and truth(subscription.content.expression, scope) is True
        )

    def _subscription(self, position: int) -> Subscription | None:
        """The one that stands there; none if it was removed a moment ago."""
        try:
            return self._register[position]
        except KeyError:
            return None

    def _scoped(self, found: Positions) -> npt.NDArray[np.bool_]:
        """Which of them have a `publishers` filter."""
        return self._register.programs[found] != NO_FILTER  # type: ignore[no-any-return]

    def _in_context(self, found: Positions, context: Context, subscribers: ContextFilter | None) -> Positions:
        with self._changing:
            answers = self._scopes.judge_publisher(found, self._register.programs, self._register.clients, context)
            found, answers = found[answers != programs.FALSE], answers[answers != programs.FALSE]
            if subscribers is not None:
                others = self._scopes.judge_subscribers(found, subscribers, self._register.clients, context)
                if others is None:
                    others = np.full(len(found), programs.UNSURE, np.uint8)
                answers = np.where((answers == programs.TRUE) | (others != programs.TRUE), others, answers)
        unsure = [self._is_in_context(p, context, subscribers) for p in found[answers == programs.UNSURE].tolist()]
        kept = answers == programs.TRUE
        kept[answers == programs.UNSURE] = unsure
        return found[kept]  # type: ignore[no-any-return]

    def _is_in_context(self, position: int, context: Context, subscribers: ContextFilter | None) -> bool:
        subscription = self._subscription(position)
        if subscription is None:
            return False
        own = self._contexts.get(subscription.subscriber)
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
            if wanted is not None or self._scoped(found).any():
                found = self._in_context(found, Context.of(contexts[e] if contexts else None), wanted)
            parts.append(found)
            events.append(np.full(len(found), e))
        if not parts:
            return event, position
        return np.concatenate(events), np.concatenate(parts)

    def _parse_context(self, text: str) -> ContextFilter:
        raise InvalidValueError(f"subscribers: {text!r} is text; tidings.Index reads it")

    # On disk

    def save(self, folder: str | Path) -> None:
        """Writes the index into a folder, in place of what was there: subscriptions, contexts, and all arrays."""
        with self._changing:
            segments = {f"segment{number:03}": raw for number, raw in enumerate(self._store.settled())}
            register, table = self._register.saved(self._written)
            contexts, facts = self._contexts.saved()
            facts = {
                "contexts": facts,
                "columns": self._columns.saved(),
                "scopes": self._scopes.saved(),
                "residuals": self._has_residuals,
                "tables": [kernels.BLOCK, kernels.BUCKETS, kernels.STRING_BUCKETS],
            }
            archive.write(Path(folder), {**segments, **register, **contexts}, {"subscriptions": table}, facts)

    @classmethod
    def load(cls, folder: str | Path, *, verify: bool = True) -> Self:
        """The index that a folder holds, mapped into memory: processes on a machine share one copy.

        A damaged folder is refused with an `IndexDamagedError`. Without `verify` only what is missing or cut off is
        noticed, and nothing is read before it is needed.
        """
        saved = archive.Archive(Path(folder), verify=verify)
        facts = saved.facts
        if facts["tables"] != [kernels.BLOCK, kernels.BUCKETS, kernels.STRING_BUCKETS]:
            raise IndexDamagedError(f"{folder}: was saved with tables of other sizes; save it anew")
        index = cls()
        index._columns = Columns.of(facts["columns"])
        segments = [saved.array(name) for name in saved.names("segment")]
        index._store = Store.of(segments, len(index._columns))
        index._register.restore(saved.array, saved.table("subscriptions"))
        index._contexts.restore(saved.array, facts["contexts"])
        index._scopes.restore(facts["scopes"])
        index._has_residuals = facts["residuals"]
        index._has_scopes = bool((index._register.programs != NO_FILTER).any())
        return index

    def _written(self, subscription: Subscription) -> dict[str, Any]:
        raise InvalidValueError("tidings.Index writes subscriptions as text")

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
        wanted = self._register[self._register.positions[subscription]]
        scope = Scope(Attributes.of(event), {}, subject, payload, publisher)
        here, there = Context.of(context), self._contexts.get(wanted.subscriber)
        return explained(wanted, scope, here, there, subscribers)

    def stats(self) -> Stats:
        segments = [layout.segment(raw) for raw in self._store.segments]
        counters = sum((one.counters for one in self._scratches), np.zeros(4, np.int64))
        return Stats(
            subscriptions=len(self),
            conjuncts=self._store.conjuncts,
            segments=len(segments),
            clusters=sum(len(arrays.key_attribute) for arrays in segments),
            blocks=sum(len(arrays.block_word) - 1 for arrays in segments),
            array_bytes=sum(raw.nbytes for raw in self._store.segments),
            dead_share=self._store.dead / max(1, self._store.conjuncts + self._store.dead),
            candidates_per_match=float(counters[CHECKED]) / max(1, int(counters[FOUND])),
        )


def _leading_attribute(arrays: layout.Segment) -> int:
    """The attribute through which the most conjuncts are reached, weighed by how often that happens."""
    if not len(arrays.key_attribute):
        return -1
    blocks = np.diff(arrays.cluster_block)[:-1].astype(float)
    return int(np.argmax(np.bincount(arrays.key_attribute, blocks**2)))
