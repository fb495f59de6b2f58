"""The index: which of very many subscriptions does an event concern, given everyone's context now?"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.matching.documents import text_of
from tidings.matching.explaining import Explanation as Explanation
from tidings.matching.explaining import explained
from tidings.matching.index import archive, compiling, kernels, layout, programs, tables
from tidings.matching.index.bulk import Bulk, Predicate
from tidings.matching.index.columns import Columns, Events, NotPlain
from tidings.matching.index.conjuncts import conjuncts_for
from tidings.matching.index.contexts import Contexts, is_plain
from tidings.matching.index.covers import Covers
from tidings.matching.index.grid import Place
from tidings.matching.index.layout import CHECKED, FOUND, NEEDED, Raw
from tidings.matching.index.neighbourhood import Neighbourhood
from tidings.matching.index.never import Never
from tidings.matching.index.programs import NotSayable
from tidings.matching.index.reach import reach_of
from tidings.matching.index.register import Register
from tidings.matching.index.scopes import NO_FILTER, Others, Scopes
from tidings.matching.index.store import Store
from tidings.matching.reference import Scope, matches_context, passes_structure, passes_subject, truth
from tidings.model.errors import IndexDamagedError, InvalidValueError
from tidings.model.expression import PAYLOAD, PUBLISHER, SUBJECT
from tidings.model.filter import ContextFilter, Filter
from tidings.model.limits import MAX_NEIGHBOURHOODS
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
_SOME = 1 << 16  # words, below which none is forgotten
_AT_A_TIME = 256  # events of a batch
_MANY = 1024  # events for which it is worth the while to put everything in order first
_NOBODY: Positions = np.empty(0, np.int32)
_DOUBT = bytes([programs.UNSURE])


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
        compiling.ready()
        self._columns = Columns()
        self._store = Store()
        self._register = Register(self._read)
        self._never = Never()
        self._contexts = Contexts()
        self._scopes = Scopes(self._contexts)
        self._homes: dict[int, Neighbourhood] = {}  # of subscriptions that concern only events nearby
        self._movers: Counter[int] = Counter()  # how many such subscriptions a client has, by its row
        self._rehoused = 0  # how often a subscription went to live elsewhere; odd while everything moves
        self._many_words = _SOME  # mentioned by filters; when to look which ones still are
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
        home, radius = self._home(publishers, program) if publishers is not None else (0, 0.0)
        if home:
            self._move_in(position, home)
            place = self._contexts.place(client, self._homes[home].names)
            self._homes[home].put(position, conjuncts, len(self._columns), client, radius, place)
        else:
            for flags, predicates in conjuncts:
                self._store.add(position, flags, predicates, len(self._columns))
        if replaced is not None:
            self._rehoused += 2 * (home != self._register.homes[replaced])
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
                number, radii[position] = self._home(wanted, int(register.programs[position]))
                if number:
                    self._move_in(position, number)
        home_of = register.homes[conjuncts.owner >> 2]
        self._store.add_many(conjuncts.those(home_of == 0), len(self._columns))
        for number in np.unique(register.homes[positions]).tolist():
            if number:
                home = self._homes[number]
                home.put_many(conjuncts.those(home_of == number), len(self._columns))
                for position in positions[register.homes[positions] == number].tolist():
                    client = int(register.clients[position])
                    home.settle(position, client, radii[position], self._contexts.place(client, home.names))
        self._rehoused += 2 * bool(self._homes and replaced)
        for position in replaced:
            self._forget(position)

    def _home(self, publishers: ContextFilter | None, program: int) -> tuple[int, float]:
        """The neighbourhood for subscriptions with such a filter, 0 for none, and how far they reach."""
        reach = None if publishers is None or program < 0 else reach_of(publishers)
        if reach is None:
            return 0, 0.0
        for number, home in self._homes.items():
            if (home.names, home.geo) == (reach.names, reach.geo):
                return number, reach.radius
        if len(self._homes) == MAX_NEIGHBOURHOODS:
            return 0, 0.0
        number = 1 + max(self._homes, default=0)
        self._homes = {**self._homes, number: Neighbourhood(reach.names, reach.geo)}
        return number, reach.radius

    def _move_in(self, position: int, home: int) -> None:
        self._register.homes[position] = home
        self._movers[int(self._register.clients[position])] += 1

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
        self._never.forget(position)
        register = self._register
        client, home = int(register.clients[position]), int(register.homes[position])
        if home:
            self._homes[home].remove(position)
            if not len(self._homes[home]):
                self._homes = {number: one for number, one in self._homes.items() if number != home}
            self._movers[client] -= 1
            if not self._movers[client]:
                del self._movers[client]
        else:
            self._store.remove(position)
        self._contexts.leave(client)
        moved = self._scopes.leave(int(register.programs[position]))
        register.forget(position)
        if moved is not None:
            register.renumber_programs(moved)
        if self._columns.size > self._many_words:
            self._renew()

    def _renew(self) -> None:
        """Forgets the names, strings and tests that no filter mentions any more."""
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
            if row in self._movers:
                for home in self._homes.values():
                    home.move(row, self._contexts.place(row, home.names))
            return row >= 0

    def _set_columns(self, clients: pa.Array, values: Mapping[str, pa.Array]) -> int:
        with self._changing:
            try:
                rows = self._contexts.set_many(clients, values)
            except NotSayable:
                each = pa.table(dict(values)).to_pylist()
                return sum(map(self.set_context, clients.to_pylist(), each))
            for home in self._homes.values():
                home.move_many(rows.astype(np.int32), self._contexts.places(rows, home.names))
            return len(rows)

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
        while True:
            rehoused = self._rehoused
            if rehoused & 1:
                with self._changing:  # until all are where they belong
                    continue
            if self._columns.asks_system:
                encoded = self._encoded(self._everything(event, subject, payload, publisher))
            else:
                encoded = self._encoded(event)
            parts = [self._match(raw, encoded) for raw in self._store.segments]
            nearby: list[Positions] = []
            if self._homes:
                context = context if context is None or is_plain(context) else Context.of(context)
                nearby = self._match_nearby(encoded, context)
                parts += nearby
            if self._rehoused == rehoused:  # else one that moved meanwhile may have been seen nowhere
                break
        found = parts[0] if len(parts) == 1 else np.concatenate([_NOBODY, *parts])
        if self._has_residuals and (found < 0).any():
            found = self._confirmed(found, Scope(Attributes.of(event), {}, subject, payload, publisher))
        is_for_some = subscribers is not None or any(map(len, nearby))
        if is_for_some or (self._has_scopes and self._scoped(found).any()):
            return self._in_context(found, context, subscribers)
        return found

    def _match_nearby(self, encoded: tuple[Any, Any], context: Mapping[str, Any] | None) -> list[Positions]:
        """Whom the content may concern of those who look around themselves."""
        parts = []
        with self._changing:
            scratch = self._scratch()
            for home in self._homes.values():
                place = _place(context, home.names)
                if place is not None:  # from nowhere, an event is near nobody
                    match = partial(self._match_few, encoded)
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
        contexts = _Contexts(table)
        if table.num_rows >= _MANY:
            with self._changing:
                self._store.settled()  # what has come in last is unordered: every event would look at all of it
        while True:
            rehoused = self._rehoused
            if rehoused & 1:
                with self._changing:  # until all are where they belong
                    continue
            encoded, row = self._encoded_batch(table)
            parts = [self._match_ordered(raw, encoded, table.num_rows) for raw in self._store.segments]
            if self._homes and tables.CONTEXT in table.column_names:
                parts += self._match_all_nearby(encoded, contexts, table.num_rows)
            if self._rehoused == rehoused:
                break
        event, position = parts[0] if parts else (np.empty(0, np.int64), _NOBODY)
        if len(parts) > 1:
            event, position = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            order = np.argsort(event, kind="stable")
            event, position = event[order], position[order]
        if (
            (self._has_residuals and (position < 0).any())
            or (self._has_scopes and self._scoped(position).any())
            or tables.SUBSCRIBERS in table.column_names
        ):
            event, position = self._settled(event, position, row, contexts, table)
        ids = pa.DictionaryArray.from_arrays(pa.array(position), self._register.ids())
        return pa.table({"event": event, "subscription": ids})

    def _encoded_batch(self, table: pa.Table) -> tuple[Events, Callable[[int], Mapping[str, Any]]]:
        """The events of a table for the kernels, and how to get at one of them for the reference."""
        if tables.has_rows_of_names(table):
            given = tables.attribute_rows(table)
            return self._columns.encode_rows([tables.with_text(one) for one in given]), given.__getitem__
        columns = tables.attribute_columns(table)
        texts = {PAYLOAD: tables.as_text(columns[PAYLOAD])} if PAYLOAD in columns else {}
        encoded = self._columns.encode_table({**columns, **texts}, table.num_rows)
        return encoded, lambda e: tables.row_of(columns, e)

    def _match_ordered(self, raw: Raw, encoded: Events, rows: int) -> tuple[Any, Positions]:
        """Events that meet the same cluster one after the other, so that its tables stay in the cache."""
        order = np.arange(rows)
        lead = _leading_attribute(layout.segment(raw))
        column = np.flatnonzero(encoded.attribute == lead)
        if len(column) and rows > 64:
            order = np.lexsort((encoded.f[column[0]], encoded.kind[column[0]]))
        position, ends = self._match_many(raw, encoded, order)
        return kernels.in_event_order(order, ends, position)  # type: ignore[no-any-return]

    def _match(self, raw: Raw, encoded: tuple[Any, Any]) -> Positions:
        return self._match_few(encoded, raw, _UNLIMITED)  # type: ignore[return-value]

    def _match_few(self, encoded: tuple[Any, Any], raw: Raw, limit: int) -> Positions | None:
        """Whom the content concerns; None if there are more candidates than the limit."""
        while True:
            scratch = self._scratch()
            out: Positions = self._local.out
            count = kernels.match_event(raw, scratch, *encoded, limit, out)
            if count >= 0:
                return out[:count].copy()
            if count == kernels.TOO_MANY:
                return None
            self._local.out = np.empty(2 * int(self._local.arrays.counters[NEEDED]), np.int32)

    def _match_all_nearby(self, events: Events, contexts: "_Contexts", rows: int) -> list[tuple[Any, Positions]]:
        """The same for many events: some at a time, so that nobody who wants to change something waits for long."""
        parts = []
        for first in range(0, rows, _AT_A_TIME):
            order = np.arange(first, min(first + _AT_A_TIME, rows))
            given = events.in_order(order)
            for home in self._homes.values():
                with self._changing:
                    places = contexts.places(self._scopes, self._contexts, home.names, order)
                    sizes, positions = home.match_many(places, given, self._scratch())
                parts.append((np.repeat(order, np.maximum(sizes, 0)), positions))
                for at in np.flatnonzero(sizes < 0).tolist():
                    values, place = events.one(first + at), tuple(places[at].tolist())
                    with self._changing:
                        found = home.match(place, partial(self._match_few, values), self._scratch(), *values)
                    parts.append((np.full(len(found), first + at), found))
        return parts

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

    def _in_context(
        self, found: Positions, context: Mapping[str, Any] | None, subscribers: ContextFilter | None
    ) -> Positions:
        """Those of whom both context filters are true, theirs and the event's."""
        if context is None or not is_plain(context):
            context = Context.of(context)
        if self._has_scopes:
            register = self._register
            with self._changing:
                answers = self._scopes.judge_publisher(found, register.programs, register.clients, context)
            found = found[self._settle_doubts(answers, lambda at: self._accepts_publisher(int(found[at]), context))]
        return found if subscribers is None else self._meant(found, subscribers, context)

    def _settle_doubts(self, answers: Any, ask: Callable[[int], bool]) -> Any:
        """Which answers are true; what the programs could not say is asked, by place."""
        kept = answers == programs.TRUE
        if _DOUBT in answers.tobytes():  # for the few that there mostly are, much faster than through an array
            for at in np.flatnonzero(answers == programs.UNSURE).tolist():
                kept[at] = ask(at)
        return kept

    def _accepts_publisher(self, position: int, context: Mapping[str, Any]) -> bool:
        subscription = self._subscription(position)
        if subscription is None:
            return False
        return matches_context(
            subscription.publishers, Context.of(context), self._contexts.get(subscription.subscriber)
        )

    def _meant(self, found: Positions, wanted: ContextFilter, given: Mapping[str, Any]) -> Positions:
        """Those of whose context the event's own filter is true."""
        context = Context.of(given)
        with self._changing:
            answers = self._scopes.judge_subscribers(found, wanted, self._register.clients, context)
            if answers is None:
                answers = np.full(len(found), programs.UNSURE, np.uint8)
            kept = answers == programs.TRUE
            for at in np.flatnonzero(answers == programs.UNSURE).tolist():
                own = self._contexts.at(int(self._register.clients[found[at]]))
                kept[at] = matches_context(wanted, own, context)
        return found[kept]  # type: ignore[no-any-return]

    def _settled(
        self, event: Any, position: Positions, row: Any, contexts: "_Contexts", table: pa.Table
    ) -> tuple[Any, Positions]:
        """What is left of a batch: doubtful candidates, and contexts in both directions."""
        if self._has_residuals and (position < 0).any():
            event, position = _each(event, position, lambda e, p: self._confirmed(p, tables.scope_of(row(e))))
        if self._has_scopes:
            register = self._register
            with self._changing:
                answers = self._scopes.judge_publishers(
                    position, event, register.programs, register.clients, contexts.encoded(self._scopes)
                )  # fmt: skip
            kept = self._settle_doubts(
                answers, lambda at: self._accepts_publisher(int(position[at]), contexts[int(event[at])])
            )
            event, position = event[kept], position[kept]
        if tables.SUBSCRIBERS in table.column_names:
            texts = table[tables.SUBSCRIBERS].to_pylist()

            def meant(e: int, found: Positions) -> Positions:
                text = texts[e]
                return found if text is None else self._meant(found, self._parse_context(text), contexts[e])

            event, position = _each(event, position, meant)
        return event, position

    def _parse_context(self, text: str) -> ContextFilter:
        raise InvalidValueError(f"subscribers: {text!r} is text; tidings.Index reads it")

    # On disk

    def save(self, folder: str | Path) -> None:
        """Writes the index into a folder, in place of what was there: subscriptions, contexts, and all arrays."""
        with self._changing:
            segments = {f"segment{number:03}": raw for number, raw in enumerate(self._store.settled())}
            register, table = self._register.saved(self._written)
            contexts, facts = self._contexts.saved()
            homes = {
                f"near{number}_{name}": array
                for number, one in self._homes.items()
                for name, array in one.saved().items()
            }
            facts = {
                "contexts": facts,
                "columns": self._columns.saved(),
                "scopes": self._scopes.saved(),
                "residuals": self._has_residuals,
                "homes": [[number, one.names, one.geo] for number, one in self._homes.items()],
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
        for number, names, geo in facts["homes"]:
            prefix = f"near{number}_"
            arrays = {name.removeprefix(prefix): saved.array(name) for name in saved.names(prefix)}
            index._homes[number] = Neighbourhood.of(tuple(names), geo, arrays, len(index._columns))
        index._movers.update(index._register.clients[index._register.homes > 0].tolist())
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


class _Contexts:
    """The publishers' contexts of a batch, read as far as someone asks."""

    def __init__(self, table: pa.Table) -> None:
        self._rows = table.num_rows
        self._column = table[tables.CONTEXT] if tables.CONTEXT in table.column_names else None
        self._mappings: list[dict[str, Any]] | None = None
        self._encoded: tuple[Any, Others] | None = None

    def __getitem__(self, event: int) -> Context:
        if self._column is None:
            return Context()
        if self._mappings is None:
            self._mappings = tables.mappings(self._column)
        return Context.of(self._mappings[event])

    def encoded(self, scopes: Scopes) -> Others:
        if self._encoded is None or self._encoded[0] != scopes.state:
            others = self._encode(scopes)
            self._encoded = scopes.state, others
        return self._encoded[1]

    def _encode(self, scopes: Scopes) -> Others:
        if self._column is None:
            return scopes.publishers_of({}, self._rows)
        if pa.types.is_struct(self._column.type):
            return scopes.publishers_of(tables.columns_of(pa.table({"": self._column}), ""), self._rows)
        return scopes.publishers([self[event] for event in range(self._rows)])

    def places(self, scopes: Scopes, everyone: Contexts, names: tuple[str, ...], events: Any) -> Any:
        """Where the publishers of some events are: two coordinates each, NaN where it does not say."""
        kinds, _, floats = (one[events] for one in self.encoded(scopes))
        found = np.zeros((len(events), 2))
        for at, name in enumerate(names):
            column = everyone.columns[name]
            is_number = (kinds[:, column] == programs.INT) | (kinds[:, column] == programs.FLOAT)
            found[:, at] = np.where(is_number, floats[:, column], np.nan)
        return found


def _each(event: Any, position: Positions, change: Callable[[int, Positions], Positions]) -> tuple[Any, Positions]:
    """The pairs, with the positions of each event changed."""
    if not len(event):
        return event, position
    starts = np.flatnonzero(np.diff(event, prepend=-1))
    numbers = event[starts]
    found = [change(e, one) for e, one in zip(numbers.tolist(), np.split(position, starts[1:]), strict=True)]
    return np.repeat(numbers, [len(one) for one in found]), np.concatenate([_NOBODY, *found])


def _place(context: Mapping[str, Any] | None, names: tuple[str, ...]) -> Place | None:
    """Where a publisher is; None if it does not say."""
    found = []
    for name in names:
        value = None if context is None else context.get(name)
        if type(value) is not float and (not isinstance(value, int | float) or isinstance(value, bool)):
            return None
        found.append(float(value))
    return tuple(found)


def _leading_attribute(arrays: layout.Segment) -> int:
    """The attribute through which the most conjuncts are reached, weighed by how often that happens."""
    if not len(arrays.key_attribute):
        return -1
    blocks = np.diff(arrays.cluster_block)[:-1].astype(float)
    return int(np.argmax(np.bincount(arrays.key_attribute, blocks**2)))
