"""The index: which of very many subscriptions does an event concern, given everyone's context now?"""

import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa

from tidings.matching.documents import text_of
from tidings.matching.explaining import Explanation as Explanation
from tidings.matching.explaining import explained
from tidings.matching.index import archive, compiling, kernels, layout
from tidings.matching.index import weaving as weaving
from tidings.matching.index.batch import Batch, Pairs, joined
from tidings.matching.index.bulk import Bulk, Predicate
from tidings.matching.index.columns import Columns, Events, NotPlain
from tidings.matching.index.conjuncts import conjuncts_for
from tidings.matching.index.contexts import Contexts, is_plain
from tidings.matching.index.covers import Covers
from tidings.matching.index.grid import place_of
from tidings.matching.index.homes import Homes
from tidings.matching.index.layout import CHECKED, FOUND, Raw
from tidings.matching.index.matcher import NOBODY, UNLIMITED, Matcher
from tidings.matching.index.matcher import Positions as Positions
from tidings.matching.index.moves import Moves
from tidings.matching.index.neighbourhood import Neighbourhood
from tidings.matching.index.never import Never
from tidings.matching.index.programs import NotSayable
from tidings.matching.index.register import REST, Register
from tidings.matching.index.scopes import NO_FILTER, Scopes
from tidings.matching.index.store import Store
from tidings.matching.index.verdicts import Verdicts
from tidings.matching.reference import Scope
from tidings.model.errors import IndexDamagedError, InvalidValueError
from tidings.model.expression import PAYLOAD, PUBLISHER, SUBJECT
from tidings.model.filter import ContextFilter, Filter
from tidings.model.limits import MAX_CONTEXT_COLUMNS
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes, Context


class Rows(Protocol):
    """Subscriptions as text: a table, and what matching needs to know of its rows beside their content."""

    table: pa.Table
    names: list[str]
    subscribers: list[str]
    publishers: list[ContextFilter | None]


_SOME = 1 << 16  # words, below which none is forgotten
_AT_A_TIME = 256  # events of a batch
_MANY = 1024  # events for which it is worth the while to put everything in order first
_LOOK = 3  # conjuncts that are put in order in the time that an event takes to look at one more segment
_BEGIN = 2048  # conjuncts more that could be put in order in the time that it takes to begin with it


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
    candidates: int  # conjuncts that events met in tables and that were then checked, since the index was made
    matches: int  # subscriptions that the content of events concerned


class Parts(NamedTuple):
    """The data structures of an index at one moment: `Index.compact` replaces the columns and the store."""

    columns: Columns
    store: Store
    register: Register
    contexts: Contexts
    scopes: Scopes
    homes: Homes
    matcher: Matcher


class Index:
    """Subscriptions by position, contexts by client. One thread may change it while others match."""

    def __init__(self) -> None:
        compiling.ready()
        self._columns = Columns()
        self._store = Store()
        self._register = Register(self._read)
        self._never = Never()
        self._contexts = Contexts()
        self._scopes = Scopes(self._contexts)
        self._homes = Homes(self._register, self._contexts)  # of subscriptions that concern only events nearby
        self._rehoused = 0  # how often a subscription came to stand elsewhere; odd while everything moves
        self._many_words = _SOME  # mentioned by filters; when to look which ones still are
        self._changing = threading.RLock()
        self._matcher = Matcher()
        self._verdicts = Verdicts(self._register, self._contexts, self._scopes, self._changing, self._parse_context)
        self._has_residuals = False
        self._looks = 0  # of events at more than one segment, since all was put in order

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
            rows = [(one.flags, self._columns.predicates(one)) for one in conjuncts]
            position = self._put(subscription.id, subscription, subscription.subscriber, subscription.publishers, rows)
            self._never.note(position, conjuncts)
            return position

    def _put(
        self,
        name: str,
        subscription: Subscription | dict[str, Any],
        subscriber: str,
        publishers: ContextFilter | None,
        conjuncts: list[tuple[int, list[Predicate]]],
    ) -> int:
        """One more: flags and predicates of each of its conjuncts."""
        replaced = self._register.positions.get(name)
        client, program = self._situation(subscriber, publishers)
        position = self._register.place(name, subscription, client, program)
        home, radius = self._homes.find(publishers, program) if publishers is not None else (0, 0.0)
        if home:
            self._homes.move_in(position, home)
            self._homes.put(position, conjuncts, len(self._columns), radius)
        else:
            for flags, predicates in conjuncts:
                self._store.add(position, flags, predicates, len(self._columns))
        if replaced is not None:
            self._rehoused += 2
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
                positions.append(self._register.place(one.id, one, *self._situation(one.subscriber, one.publishers)))
            self._load(bulk, np.array(positions, np.int32), [one.publishers for one in given], replaced)

    def _put_rows(self, rows: Rows, bulk: Bulk) -> None:
        replaced = self._replaced(rows.names)
        situations = [self._situation(*one) for one in zip(rows.subscribers, rows.publishers, strict=True)]
        clients, programs = np.array(situations, np.int32).reshape(-1, 2).T
        positions = self._register.place_many(rows.table, rows.names, clients, programs)
        self._load(bulk, positions, rows.publishers, replaced)

    def _replaced(self, names: list[str]) -> list[int]:
        known = self._register.positions
        return [known[name] for name in names if name in known]

    def _load(self, bulk: Bulk, positions: Positions, filters: list[ContextFilter | None], replaced: list[int]) -> None:
        """Lets many in: the common ones all at once, those of each neighbourhood likewise."""
        self._has_residuals |= bulk.has_residuals
        conjuncts = bulk.conjuncts(positions)
        self._never.note_many(positions.tolist(), conjuncts, self._columns.system())
        register, radii = self._register, {}
        for position, wanted in zip(positions.tolist(), filters, strict=True):
            if wanted is not None:
                number, radii[position] = self._homes.find(wanted, int(register.programs[position]))
                if number:
                    self._homes.move_in(position, number)
        self._store.add_many(conjuncts.those(register.homes[conjuncts.owner >> 2] == 0), len(self._columns))
        self._homes.put_many(positions, conjuncts, len(self._columns), radii)
        self._rehoused += 2 * bool(replaced)
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
        return self._contexts.enter(subscriber), self._scopes.enter(publishers)

    def _forget(self, position: int) -> None:
        self._never.forget(position)
        register = self._register
        if register.homes[position]:
            self._homes.remove(position)
        else:
            self._store.remove(position)
        self._contexts.leave(int(register.clients[position]))
        moved = self._scopes.leave(int(register.programs[position]))
        register.forget(position)
        if moved is not None:
            register.renumber_programs(moved)
        if self._columns.size > self._many_words:
            self.compact()

    def compact(self) -> None:
        """Forgets the names, strings and tests that no filter mentions any more. `remove` calls it when there are many;
        events may be matched meanwhile."""
        with self._changing:
            self._compact()

    def _compact(self) -> None:
        homes: list[Store] = [self._store, *(home.store for home in self._homes.values())]
        living = [store.living() for store in homes]
        columns, renewed = self._columns.renewed([one for one in living if one is not None])
        fresh, attributes = iter(renewed), len(columns)
        self._rehoused += 1  # whoever matches meanwhile starts again
        self._columns, self._store = columns, Store()
        if living[0] is not None:
            self._store.add_many(next(fresh), attributes)
        for home, one in zip(self._homes.values(), living[1:], strict=True):
            if one is not None:
                home.renew(next(fresh), attributes)
        self._rehoused += 1
        self._many_words = 2 * columns.size + _SOME

    def _read(self, row: dict[str, Any]) -> Subscription:
        raise InvalidValueError(f"{row['id']!r} is text; tidings.Index reads it")

    # Contexts

    def set_context(self, client: str, context: Mapping[str, Any]) -> bool:
        """The client's context from now on; whether it differs from the one before."""
        with self._changing:
            row = self._contexts.set(client, context)
            self._homes.moved(row)
            return row >= 0

    def _set_columns(self, clients: pa.Array, values: Mapping[str, pa.Array]) -> int:
        with self._changing:
            try:
                rows = self._contexts.set_many(clients, values)
            except NotSayable:
                each = pa.table(dict(values)).to_pylist()
                return sum(map(self.set_context, clients.to_pylist(), each))
            self._homes.moved_many(rows)
            return len(rows)

    def moves(self, clients: pa.Array, values: Mapping[str, Any], before: Any) -> Moves:
        """Changes of contexts, to be made later, so many of them `before` each event of a table: a column a name, or a
        list where values are of several kinds.

        `NotSayable` if these names would take too many of the columns, which are for those that filters ask about.
        """
        with self._changing:
            if len(self._contexts.columns.keys() | values.keys()) > MAX_CONTEXT_COLUMNS // 2:
                raise NotSayable
            return self._contexts.moves(clients, values, before)

    def move(self, moves: Moves, first: int, end: int) -> Any:
        """Makes some of the changes, those before them having been made; which ones changed something."""
        with self._changing:
            changed = self._contexts.write(moves, first, end)
            self._homes.moved_many(moves.rows[first:end][changed])
            return changed

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
        found = self._attempt(event, context, subscribers, subject, payload, publisher)
        if found is None:
            with self._changing:  # while nobody else can change anything
                found = self._attempt(event, context, subscribers, subject, payload, publisher)
        assert found is not None  # noqa: S101
        return found

    def _attempt(
        self,
        event: Mapping[str, Any],
        context: Mapping[str, Any] | None,
        subscribers: ContextFilter | None,
        subject: str | None,
        payload: bytes | None,
        publisher: str | None,
    ) -> Positions | None:
        """The positions; None if someone was rehoused meanwhile, who may have been seen nowhere."""
        rehoused = self._rehoused
        if rehoused & 1:
            return None
        if self._columns.asks_system:
            encoded = self._encoded(self._everything(event, subject, payload, publisher))
        else:
            encoded = self._encoded(event)
        segments, scratch = self._store.segments, self._scratch()
        if self._rehoused != rehoused:  # the event may have numbers for which the scratch has no room
            return None
        self._looks += self._store.detours
        parts: list[Positions] = [self._matcher.one(encoded, scratch, raw, UNLIMITED) for raw in segments]  # type: ignore[misc]
        nearby: list[Positions] = []
        if self._homes:
            context = context if context is None or is_plain(context) else Context.of(context)
            with self._changing:
                if self._rehoused != rehoused:
                    return None
                nearby = self._match_nearby(encoded, context)
            parts += nearby
        found = parts[0] if len(parts) == 1 else np.concatenate([NOBODY, *parts])
        if self._has_residuals and (found < 0).any():
            found = self._verdicts.confirmed(found, Scope(Attributes.of(event), {}, subject, payload, publisher))
        is_for_some = subscribers is not None or any(map(len, nearby))
        if is_for_some or self._verdicts.are_scoped(found):
            found = self._verdicts.in_context(found, context, subscribers)
        return found if self._rehoused == rehoused else None

    @property
    def is_untidy(self) -> bool:
        """Whether events have looked at so many segments that to put all in order would have cost less."""
        cost = self._looks * _LOOK
        return cost > _BEGIN and cost > _BEGIN + self._store.conjuncts

    def tidy(self) -> None:
        """Puts what came one by one in order, so that an event has but one segment to look at. It takes long where
        there are very many; others may match and change meanwhile."""
        with self._changing:
            self._looks = 0
            store = self._store
            shelves = store.scattered()
        if not shelves:
            return
        ordered: Raw | None = None
        try:
            ordered = store.one_shelf(shelves)
        finally:
            with self._changing:
                store.replace(shelves, ordered)

    def _match_nearby(self, encoded: tuple[Any, Any], context: Mapping[str, Any] | None) -> list[Positions]:
        """Whom the content may concern of those who look around themselves."""
        parts, scratch = [], self._scratch()
        match = partial(self._matcher.one, encoded, scratch)
        for home in self._homes.values():
            place = place_of(context, home.names)
            if place is not None:  # from nowhere, an event is near nobody
                parts.append(home.match(place, match, scratch, *encoded))
        return parts

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
        if table.num_rows >= _MANY:
            with self._changing:
                self._store.order_for(table.num_rows)  # what came last is unordered: every event would look at it all
        batch = Batch(table)
        found = self._attempt_batch(batch)
        if found is not None:
            return found
        parts, first = [], 0
        for some in batch.parts(_AT_A_TIME):
            with self._changing:  # while nobody else can change anything, and not for long
                found = self._attempt_batch(some, first)
            parts.append(found)
            first += some.size
        return pa.concat_tables(parts).unify_dictionaries()

    def _attempt_batch(self, batch: Batch, first: int = 0) -> pa.Table | None:
        """The pairs, of events that are numbered from the `first` on; None as above."""
        removed = self._register.removed
        pairs = self._attempt_pairs(batch)
        ids = self._register.ids()
        if pairs is None or self._register.removed > removed + REST:  # a position may be another's by now
            return None
        event, position = pairs
        named = pa.DictionaryArray.from_arrays(pa.array(position), ids)
        return pa.table({"event": event + first if first else event, "subscription": named})

    def _attempt_pairs(self, batch: Batch) -> Pairs | None:
        rehoused = self._rehoused
        if rehoused & 1:
            return None
        encoded = batch.encoded(self._columns)
        segments, scratch = self._store.segments, self._scratch()
        if self._rehoused != rehoused:
            return None
        self._looks += batch.size * self._store.detours
        parts = [self._matcher.many(encoded, scratch, raw, batch.size) for raw in segments]
        if self._homes and batch.has_contexts:
            nearby = self._match_all_nearby(encoded, batch, rehoused)
            if nearby is None:
                return None
            parts += nearby
        event, position = joined(parts)
        if (
            (self._has_residuals and (position < 0).any())
            or self._verdicts.are_scoped(position)
            or batch.has_subscribers
        ):
            event, position = self._verdicts.of_batch(event, position, batch)
        return (event, position) if self._rehoused == rehoused else None

    def match_moving(self, table: pa.Table, moves: Moves) -> Pairs:
        """Row numbers and positions: like `match_batch`, but each event as if the changes before it had been made. None
        of them is."""
        batch = Batch(table)
        with self._changing:
            if batch.size >= _MANY:
                self._store.order_for(batch.size)
            encoded, scratch = batch.encoded(self._columns), self._scratch()
            parts = [self._matcher.many(encoded, scratch, raw, batch.size) for raw in self._store.segments]
            if batch.has_contexts:
                for home in self._homes.values():
                    parts += self._match_moving_nearby(home, encoded, batch, moves)
            return self._verdicts.of_batch(*joined(parts), batch, moves)

    def _match_moving_nearby(self, home: Neighbourhood, events: Events, batch: Batch, moves: Moves) -> list[Pairs]:
        order, scratch = np.arange(batch.size), self._scratch()
        places = batch.places(self._scopes, self._contexts, home.names, order)
        sizes, positions = home.match_many(places, events.in_order(order), scratch, moves)
        parts = [(np.repeat(order, np.maximum(sizes, 0)), positions)]
        for at in np.flatnonzero(sizes < 0).tolist():
            found = home.by_content(partial(self._matcher.one, events.one(at), scratch))
            parts.append((np.full(len(found), at), found))
        return parts

    def _match_all_nearby(self, events: Events, batch: Batch, rehoused: int) -> list[Pairs] | None:
        """The same for many events: some at a time, so that nobody who wants to change something waits for long."""
        parts = []
        for first in range(0, batch.size, _AT_A_TIME):
            order = np.arange(first, min(first + _AT_A_TIME, batch.size))
            given = events.in_order(order)
            for home in self._homes.values():
                with self._changing:
                    if self._rehoused != rehoused:
                        return None
                    scratch = self._scratch()
                    places = batch.places(self._scopes, self._contexts, home.names, order)
                    sizes, positions = home.match_many(places, given, scratch)
                parts.append((np.repeat(order, np.maximum(sizes, 0)), positions))
                for at in np.flatnonzero(sizes < 0).tolist():
                    values, place = events.one(first + at), tuple(places[at].tolist())
                    with self._changing:
                        if self._rehoused != rehoused:
                            return None
                        scratch = self._scratch()
                        found = home.match(place, partial(self._matcher.one, values, scratch), scratch, *values)
                    parts.append((np.full(len(found), first + at), found))
        return parts

    def _scratch(self) -> Raw:
        """This thread's scratch memory, large enough for what the index holds."""
        return self._matcher.scratch(len(self._columns), self._columns.test_count, self._register.size)

    # Covering

    def covering(self, content: Filter) -> set[str]:
        """The ids of the subscriptions whose content covers this filter."""
        with self._changing:
            return self._covers().covering(content)

    def covered_by(self, content: Filter) -> set[str]:
        """The ids of the subscriptions whose content this filter covers."""
        with self._changing:
            return self._covers().covered_by(content)

    def _covers(self) -> Covers:
        stores = [self._store, *(home.store for home in self._homes.values())]
        segments = [raw for store in stores for raw in store.segments]
        return Covers(self._columns, self._register, segments, self._never)

    def _parse_context(self, text: str) -> ContextFilter:
        raise InvalidValueError(f"subscribers: {text!r} is text; tidings.Index reads it")

    # On disk

    def save(self, folder: str | Path) -> None:
        """Writes the index into a folder, in place of what was there: subscriptions, contexts, and all arrays."""
        with self._changing:
            segments = {f"segment{number:03}": raw for number, raw in enumerate(self._store.settled())}
            register, table = self._register.saved(self._written)
            contexts, facts = self._contexts.saved()
            homes, neighbourhoods = self._homes.saved()
            facts = {
                "contexts": facts,
                "columns": self._columns.saved(),
                "scopes": self._scopes.saved(),
                "residuals": self._has_residuals,
                "homes": neighbourhoods,
                "tables": [kernels.BLOCK, kernels.BUCKETS, kernels.STRING_BUCKETS],
            }
            archive.write(Path(folder), {**segments, **register, **contexts, **homes}, {"subscriptions": table}, facts)

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
        index._never = Never(unread=True)
        index._homes.restore(saved.array, saved.names, facts["homes"], len(index._columns))
        index._scopes.in_use = bool((index._register.programs != NO_FILTER).any())
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

    @property
    def parts(self) -> Parts:
        """The data structures of the index, to measure and to examine them. Their own methods change the index without
        its lock: call these only while no other thread uses the index."""
        return Parts(
            self._columns, self._store, self._register, self._contexts, self._scopes, self._homes, self._matcher
        )

    def stats(self) -> Stats:
        segments = [layout.segment(raw) for raw in self._store.segments]
        counters = self._matcher.counters
        return Stats(
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
