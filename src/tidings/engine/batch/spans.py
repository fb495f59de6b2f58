"""Where a table of operations is cut: what stands between two cuts can be taken together."""

from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.batch.named import Bools
from tidings.engine.batch.texts import Ints
from tidings.journal.record import PUBLISH
from tidings.matching.index.tables import whole

SET_CONTEXT, _SUBSCRIBE = "set_context", "subscribe"


class Kind(Enum):
    """What a span is made of."""

    TRAFFIC = 0  # publications, and contexts that change between them
    SUBSCRIPTIONS = 1
    OTHER = 2  # one operation


class Span(NamedTuple):
    kind: Kind
    first: int
    end: int
    is_event: Bools  # by row


def spans(table: pa.Table, name: str, *, seals_alone: bool = False) -> Iterator[Span]:
    """The spans of a table for an engine of that name.

    A publication that says what happened to it on its way, which only a broker may, stands alone. So do the engine's
    own context and filters, which have a say in everything, and subscriptions with a policy. So do sealed events where
    each has to know whether the one before was accepted (`seals_alone`).
    """
    is_sealed = np.zeros(table.num_rows, bool)
    if seals_alone and "signature" in table.column_names:
        is_sealed = _bools(pc.is_valid(table["signature"]))
    if "kind" not in table.column_names or "body" not in table.column_names:
        kind = np.where(is_sealed, Kind.OTHER.value, Kind.TRAFFIC.value)
        yield from _cut(kind, np.ones(table.num_rows, bool))
        return
    kinds, bodies = (table[one].cast(pa.string()) for one in ("kind", "body"))
    is_event, is_context = _bools(pc.equal(kinds, PUBLISH)), _bools(pc.equal(kinds, SET_CONTEXT))
    is_subscription = _bools(pc.equal(kinds, _SUBSCRIBE))
    if is_event.any():
        is_event &= ~_mention(bodies, '"journey"')
    if is_subscription.any():
        is_subscription &= ~_mention(bodies, '"policy"')
    if "client" in table.column_names:
        is_own = _bools(pc.equal(table["client"].cast(pa.string()), name))
        is_context &= ~is_own
        is_subscription &= ~is_own
    kind = np.full(table.num_rows, Kind.OTHER.value)
    kind[is_event | is_context] = Kind.TRAFFIC.value
    kind[is_subscription] = Kind.SUBSCRIPTIONS.value
    kind[is_sealed] = Kind.OTHER.value
    yield from _cut(kind, is_event)


def _cut(kind: Ints, is_event: Bools) -> Iterator[Span]:
    cuts = np.flatnonzero((np.diff(kind, prepend=-1) != 0) | (kind == Kind.OTHER.value)).tolist()
    for first, end in pairwise([*cuts, len(kind)]):
        yield Span(Kind(kind[first]), first, end, is_event[first:end])


def _mention(bodies: pa.ChunkedArray, word: str) -> Bools:
    if bodies.null_count == len(bodies):
        return np.zeros(len(bodies), bool)
    return _bools(pc.match_substring(bodies, word))


def _bools(given: pa.ChunkedArray) -> Bools:
    return np.array(whole(given).fill_null(False), bool)
