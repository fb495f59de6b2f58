"""Cut a table of operations into spans of rows that can be processed together."""

from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.batch.json_text import Ints
from tidings.engine.batch.value_columns import Bools
from tidings.journal.record import PUBLISH
from tidings.matching.index.arrow_tables import whole

SET_CONTEXT, _SUBSCRIBE = "set_context", "subscribe"


class SpanKind(Enum):
    """The kind of operations in a span."""

    TRAFFIC = 0  # publications, and context changes between them
    SUBSCRIPTIONS = 1
    OTHER = 2  # a single operation


class RowSpan(NamedTuple):
    """The rows from `first` to before `end`."""

    kind: SpanKind
    first: int
    end: int
    is_event: Bools  # per row: whether it is a publication


def spans(table: pa.Table, name: str, *, seals_alone: bool = False) -> Iterator[RowSpan]:
    """Yield the spans of a table for the engine called `name`.

    These operations are spans of their own: a publication with a forwarding header (`journey`), which only a broker may
    send; the context and the filters of the engine itself, which affect every event; a subscription with a policy; and
    with `seals_alone` sealed events, where the replay check of one depends on the acceptance of the one before.
    """
    is_sealed = np.zeros(table.num_rows, bool)
    if seals_alone and "signature" in table.column_names:
        is_sealed = _bools(pc.is_valid(table["signature"]))
    if "kind" not in table.column_names or "body" not in table.column_names:
        kind = np.where(is_sealed, SpanKind.OTHER.value, SpanKind.TRAFFIC.value)
        yield from _cut(kind, np.ones(table.num_rows, bool))
        return
    kinds, bodies = (table[name].cast(pa.string()) for name in ("kind", "body"))
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
    kind = np.full(table.num_rows, SpanKind.OTHER.value)
    kind[is_event | is_context] = SpanKind.TRAFFIC.value
    kind[is_subscription] = SpanKind.SUBSCRIPTIONS.value
    kind[is_sealed] = SpanKind.OTHER.value
    yield from _cut(kind, is_event)


def _cut(kind: Ints, is_event: Bools) -> Iterator[RowSpan]:
    cuts = np.flatnonzero((np.diff(kind, prepend=-1) != 0) | (kind == SpanKind.OTHER.value)).tolist()
    for first, end in pairwise([*cuts, len(kind)]):
        yield RowSpan(SpanKind(kind[first]), first, end, is_event[first:end])


def _mention(bodies: pa.ChunkedArray, word: str) -> Bools:
    if bodies.null_count == len(bodies):
        return np.zeros(len(bodies), bool)
    return _bools(pc.match_substring(bodies, word))


def _bools(column: pa.ChunkedArray) -> Bools:
    return np.array(whole(column).fill_null(False), bool)
