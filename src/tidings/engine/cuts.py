"""Subscriptions whose rule always cuts alike, as columns: of very many with a policy, none has to become an object."""

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.compiling import compiled_text
from tidings.engine.ruled import Cut
from tidings.engine.tables import Filed
from tidings.index.rows import read
from tidings.language.tokens import split
from tidings.model.limits import MAX_FILTER_CHARACTERS
from tidings.model.subscription import Subscription
from tidings.policy.statement import MessageType

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

NO_CUT = -1
_BY_SHAPE = MAX_FILTER_CHARACTERS // 8  # longer texts are read each


class Cuts(msgspec.Struct, frozen=True):
    """By position the number of its cut; of each cut what it keeps (None: all that it does not remove) and removes."""

    numbers: bytes
    known: list[tuple[list[str] | None, list[str]]]

    def columns(self) -> tuple[npt.NDArray[np.int32], list[Cut]]:
        cuts = [Cut(None if kept is None else frozenset(kept), frozenset(removed)) for kept, removed in self.known]
        return np.frombuffer(self.numbers, np.int32), cuts


def cuts_of(engine: "Engine", rows: pa.Table) -> Cuts:
    """Of subscriptions as rows of text. Rules that act on publications alike are decided once for all that mention the
    same names."""
    numbers = np.full(rows.num_rows, NO_CUT, np.int32)
    chosen = np.flatnonzero(np.asarray(pc.is_valid(rows["policy"])))
    some = rows.take(pa.array(chosen))
    policies = np.asarray(pc.dictionary_encode(some["policy"].combine_chunks()).indices, np.int64)
    names = _name_sets(some)
    _, first, kind = np.unique(
        policies * (int(names.max(initial=0)) + 1) + names, return_index=True, return_inverse=True
    )
    known, given = list[tuple[list[str] | None, list[str]]](), []
    for row in some.take(pa.array(first)).to_pylist():
        cut = always_cut(engine, read(row))
        given.append(NO_CUT if cut is None else len(known))
        if cut is not None:
            known.append((None if cut.kept is None else list(cut.kept), sorted(cut.removed)))
    numbers[chosen] = np.array(given, np.int32)[kind]
    plain = pc.and_(pc.is_null(rows["durable"]), pc.not_equal(rows["notify"], "client").fill_null(True))
    return Cuts(np.where(np.asarray(plain), numbers, NO_CUT).astype(np.int32).tobytes(), known)


def always_cut(engine: "Engine", subscription: Subscription) -> Cut | None:
    """The cut of all whose policy and names are these, if they belong to nobody in particular."""
    if subscription.policy is None:
        return None
    anybody = msgspec.structs.replace(subscription, subscriber=f"{engine.name}'s", notify="subscription", durable=None)
    filed: Filed[Subscription] = engine.new_filed(anybody, anybody.subscriber, compiled_text(subscription.policy))
    return filed.cut if filed.has_one_rule_on(MessageType.PUBLICATION) else None


def _name_sets(rows: pa.Table) -> npt.NDArray[np.int64]:
    """A number for the names that each filter mentions; filters of one shape mention the same."""
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
            one = read(rows.slice(row, 1).to_pylist()[0])
            names = one.content.names
            if one.structure is not None:
                names = names.union(one.structure.names, one.structure.absent)
            number = sets.setdefault(names, len(sets))
            if shape is not None:
                shapes[shape] = number
        found[row] = number
    return found
