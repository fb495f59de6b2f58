"""Publishers' contexts, for events that do not bring their own: what the publisher's was at that time."""

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine import Engine
from tidings.journal.record import PUBLISH

_NONE = -1


def with_contexts(table: pa.Table, engine: Engine) -> pa.Table:
    """Rows in their order, every event with a `context`: the last that its publisher set before, here or earlier."""
    is_event = np.asarray(pc.equal(table["kind"], PUBLISH))
    is_context = np.asarray(pc.equal(table["kind"], "set_context"))
    owners = pc.if_else(pa.array(is_event), table["publisher"], table["client"]).combine_chunks().dictionary_encode()
    codes = np.asarray(owners.indices.fill_null(len(owners.dictionary)))
    # By owner, each in the order of time: the place of the last change at or before a row is the greatest so far.
    order = np.argsort(codes, kind="stable")
    first = np.flatnonzero(np.diff(codes[order], prepend=_NONE))
    begins = np.repeat(first, np.diff(np.append(first, len(order))))
    places = np.where(is_context[order], np.arange(len(order)), _NONE)
    last = np.maximum.accumulate(places)
    source = np.full(len(order), _NONE)
    source[order] = np.where(last >= begins, order[last], _NONE)
    before = _known(owners.dictionary.to_pylist(), engine)
    set_here = table["body"].combine_chunks().take(pa.array(source, mask=source == _NONE))
    context = pc.coalesce(set_here, before.take(owners.indices))
    made = pc.if_else(pa.array(is_event), context, pa.scalar(None, pa.string()))
    return table.append_column("context", made)


def _known(owners: list[str | None], engine: Engine) -> pa.Array:
    """Their contexts before the first of these rows."""
    found = [engine.contexts.get(one) if one is not None else None for one in owners]
    return pa.array([None if one is None else msgspec.json.encode(one).decode() for one in found], pa.string())
