"""Fixed projections of subscriptions, as columns, so that subscriptions with a policy need not become objects."""

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.filter_rules import StaticProjection, compiled_text
from tidings.engine.state.filters import FilterEntry
from tidings.engine.state.registration import new_entry
from tidings.language.tokens import split
from tidings.model.limits import MAX_FILTER_CHARACTERS
from tidings.model.subscription import Subscription
from tidings.policy.ast import MessageType
from tidings.text_index import subscription_of

NO_PROJECTION = -1
_BY_SHAPE = MAX_FILTER_CHARACTERS // 8  # longer texts are parsed one by one


class StaticProjections(msgspec.Struct, frozen=True):
    """The projections of an index's subscriptions: for each position a number in `known`, or `NO_PROJECTION`.

    Each of `known` lists the attributes that it keeps (None: all that it does not remove) and those that it removes.
    """

    numbers: bytes
    known: list[tuple[list[str] | None, list[str]]]

    def columns(self) -> tuple[npt.NDArray[np.int32], list[StaticProjection]]:
        """Return the numbers as an array, and the projections."""
        cuts = [
            StaticProjection(None if kept is None else frozenset(kept), frozenset(removed))
            for kept, removed in self.known
        ]
        return np.frombuffer(self.numbers, np.int32), cuts


def static_projections_of(state: BrokerState, rows: pa.Table) -> StaticProjections:
    """Return the fixed projections of subscriptions that are rows of text.

    Policies are evaluated once for all subscriptions with the same policy that use the same attributes.
    """
    numbers = np.full(rows.num_rows, NO_PROJECTION, np.int32)
    chosen = np.flatnonzero(np.asarray(pc.is_valid(rows["policy"])))
    some = rows.take(pa.array(chosen))
    policies = np.asarray(pc.dictionary_encode(some["policy"].combine_chunks()).indices, np.int64)
    names = _name_sets(some)
    _, first, kind = np.unique(
        policies * (int(names.max(initial=0)) + 1) + names, return_index=True, return_inverse=True
    )
    known, given = list[tuple[list[str] | None, list[str]]](), []
    for row in some.take(pa.array(first)).to_pylist():
        cut = constant_projection(state, subscription_of(row))
        given.append(NO_PROJECTION if cut is None else len(known))
        if cut is not None:
            known.append((None if cut.kept is None else list(cut.kept), sorted(cut.removed)))
    numbers[chosen] = np.array(given, np.int32)[kind]
    plain = pc.and_(pc.is_null(rows["durable"]), pc.not_equal(rows["notify"], "client").fill_null(True))
    return StaticProjections(np.where(np.asarray(plain), numbers, NO_PROJECTION).astype(np.int32).tobytes(), known)


def constant_projection(state: BrokerState, subscription: Subscription) -> StaticProjection | None:
    """Return the fixed projection of a subscription's policy, for any ordinary subscriber; None if it has none."""
    if subscription.policy is None:
        return None
    anybody = msgspec.structs.replace(subscription, subscriber=f"{state.name}'s", notify="subscription", durable=None)
    entry: FilterEntry[Subscription] = new_entry(state, anybody, anybody.subscriber, compiled_text(subscription.policy))
    return entry.projection if entry.has_one_rule_on(MessageType.PUBLICATION) else None


def _name_sets(rows: pa.Table) -> npt.NDArray[np.int64]:
    """Return for each filter a number for the set of attributes it uses; filters of one shape use the same set."""
    shapes: dict[Any, int] = {}
    careful = np.zeros(rows.num_rows, bool)
    for name in ("format", "structure"):
        careful |= np.asarray(pc.is_valid(rows[name]))
    sets: dict[frozenset[str], int] = {}
    found = np.zeros(rows.num_rows, np.int64)
    for row, text in enumerate(rows["content"].to_pylist()):
        shape = None if careful[row] or text is None or len(text) > _BY_SHAPE else split(text)[0]
        number = shapes.get(shape) if shape is not None else None
        if number is None:
            one = subscription_of(rows.slice(row, 1).to_pylist()[0])
            names = one.content.names
            if one.structure is not None:
                names = names.union(one.structure.names, one.structure.absent)
            number = sets.setdefault(names, len(sets))
            if shape is not None:
                shapes[shape] = number
        found[row] = number
    return found
