"""A segment: conjuncts that were put in order together, and never change but for dying.

An index is a few segments of growing size and a small unordered buffer. Building is one pass of sorting and one of
filling tables; whoever matches holds a segment as it is, whatever is added meanwhile.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidings.matching.index import building, layout
from tidings.matching.index.kernels import (
    BLOCK,
    BOOLEAN,
    BUCKETS,
    BY_TEST,
    BY_VALUE,
    EDGES,
    EXACT_FLOAT,
    NUMBER,
    ROW_FIRST,
    STRING,
    STRING_BUCKETS,
    TEST,
    WORD,
)
from tidings.matching.index.layout import PREDICATE, Raw, Segment

Array = npt.NDArray[Any]
COMMON = 0.5  # a predicate that a larger share of the values meets is no access predicate
FEW = 24  # conjuncts that are checked faster than looked up in tables
MANY = 8  # blocks that are worth a summary


class Conjuncts(NamedTuple):
    """Conjuncts as columns: what a segment is built from, and what it gives back when it is merged."""

    owner: Array  # the subscription's position times 4, plus flags
    pred_first: Array
    pred: Array  # records of PREDICATE

    def those(self, chosen: Array) -> "Conjuncts":
        """Only the chosen ones."""
        if chosen.all():
            return self
        lengths = np.diff(self.pred_first)
        first = np.zeros(int(chosen.sum()) + 1, np.int32)
        np.cumsum(lengths[chosen], out=first[1:])
        return Conjuncts(self.owner[chosen], first, self.pred[np.repeat(chosen, lengths)])

    @property
    def attribute(self) -> Array:
        return self.pred["what"] >> 3

    @property
    def kind(self) -> Array:
        return self.pred["what"] & 7


def build(conjuncts: Conjuncts, attributes: int) -> Raw:
    """Sorts conjuncts into clusters and blocks, and fills the blocks' tables."""
    owner = np.repeat(np.arange(len(conjuncts.owner), dtype=np.int32), np.diff(conjuncts.pred_first))
    cluster, keys, access = _clusters(conjuncts, owner)
    meta = _rows(conjuncts, attributes)
    order = _order(conjuncts, owner, cluster, meta)
    sorted_conjuncts = _reordered(conjuncts, order, access)
    cluster = cluster[order]
    blocks = _blocks(cluster, len(keys))
    entries = _entries(sorted_conjuncts, blocks, meta["rows"], attributes)
    size = 1 << max(4, int(2 * len(keys) + 1).bit_length())
    raw = layout.segment_of(
        Segment(
            **meta,
            access=_access(conjuncts, keys, attributes),
            keys=np.full(size, -1, np.int32),
            key_attribute=conjuncts.attribute[keys],
            key_kind=conjuncts.kind[keys].astype(np.uint8),
            key_f=conjuncts.pred["low"][keys] + 0.0,
            key_r=conjuncts.pred["low_rest"][keys],
            key_high=conjuncts.pred["high"][keys] + 0.0,
            **blocks,
            **entries,
            **_summaries(blocks, entries, meta["rows"]),
            alive=_alive(blocks),
            **sorted_conjuncts._asdict(),
        )
    )
    building.hash_clusters(raw)
    building.fill_tables(raw)
    building.fill_summaries(raw)
    return raw


def _clusters(conjuncts: Conjuncts, owner: Array) -> tuple[Array, Array, Array]:
    """For each conjunct the cluster of its access predicate, the last for none; for each cluster one such predicate;
    and for each conjunct its access predicate, -1 for none.

    Of the equalities and string tests of a conjunct, the access predicate is the one that events will most rarely meet.
    """
    pred, kind = conjuncts.pred, conjuncts.kind
    point = (pred["low"] == pred["high"]) & (pred["low_rest"] == pred["high_rest"])
    point &= (kind == NUMBER) | (kind == BOOLEAN) | ((kind == STRING) & (pred["low"] >= 0))
    places = np.flatnonzero(point | ((kind == TEST) & (pred["high"] < COMMON)))
    access = np.full(len(conjuncts.owner), -1, np.int64)
    if not len(places):
        return np.zeros(len(conjuncts.owner), np.int32), np.empty(0, np.int64), access
    values = np.empty(len(places), [("a", np.int32), ("k", np.uint8), ("f", np.float64), ("r", np.int16)])
    values["a"], values["k"] = conjuncts.attribute[places], kind[places]
    values["f"], values["r"] = pred["low"][places] + 0.0, pred["low_rest"][places]
    order = np.lexsort((values["r"], values["f"], values["k"], values["a"]))
    ordered = values[order]
    new = np.empty(len(order), bool)
    new[0], new[1:] = True, ordered[1:] != ordered[:-1]
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(new) - 1
    letters = np.where(values["k"] == TEST, pred["high"][places], 1.0)
    asking = np.bincount(group)[group]
    # The rarest one of each conjunct: sort by (conjunct, share), take the first. Of two alike, fewer ask for the rarer;
    # then letters tell.
    by_owner = np.lexsort((letters, asking, _shares(values, asking, letters), owner[places]))
    first = np.empty(len(by_owner), bool)
    owners = owner[places][by_owner]
    first[0], first[1:] = True, owners[1:] != owners[:-1]
    chosen = by_owner[first]
    used, cluster_of_chosen = np.unique(group[chosen], return_inverse=True)
    cluster = np.full(len(conjuncts.owner), len(used), np.int32)
    cluster[owner[places[chosen]]] = cluster_of_chosen
    representative = np.empty(len(used), np.int64)
    representative[cluster_of_chosen] = places[chosen]
    access[owner[places[chosen]]] = places[chosen]
    return cluster, representative, access


def _shares(values: Array, asking: Array, letters: Array) -> Array:
    """The share of events that will meet each equality and string test, estimated from the filters.

    If a tenth of the predicates on an attribute ask for a value, a tenth of the events is expected to have it. The same
    holds for a string test, however rare its letters make it look. A value that most predicates on its attribute ask
    for is expected in every event.

    Args:
        values: The equalities and string tests.
        asking: For each of them, the number of predicates that are equal to it.
        letters: For each string test, the share of strings that pass it by its letters; 1 for an equality.
    """
    shares = asking / np.bincount(values["a"])[values["a"]]
    shares = np.where(values["k"] == TEST, np.maximum(shares, letters), shares)
    return np.where(shares < COMMON, shares, 1.0)


def _access(conjuncts: Conjuncts, keys: Array, attributes: int) -> Array:
    """How clusters are reached through each attribute; at the end, whether any is reached through a test."""
    access = np.zeros(attributes + 1, np.uint8)
    tests = conjuncts.kind[keys] == TEST
    access[conjuncts.attribute[keys[tests]]] |= BY_TEST
    access[conjuncts.attribute[keys[~tests]]] |= BY_VALUE
    access[-1] = tests.any()
    return access


def _rows(conjuncts: Conjuncts, attributes: int) -> dict[str, Array]:
    """Which rows the tables of each attribute need, and the edges between its buckets of numbers."""

    def asked(*kinds: int) -> Array:
        found = np.zeros(attributes, bool)
        found[conjuncts.attribute[np.isin(conjuncts.kind, kinds)]] = True
        return found

    numeric, textual, boolean = asked(NUMBER), asked(STRING, TEST), asked(BOOLEAN)
    rows = np.full(attributes, ROW_FIRST, np.int32)
    starts = {}
    for name, has, size in (
        ("number_row", numeric, BUCKETS),
        ("string_row", textual, STRING_BUCKETS + 1),
        ("boolean_row", boolean, 2),
    ):
        starts[name] = np.where(has, rows, 0).astype(np.int32)
        rows += np.where(has, size, 0).astype(np.int32)
    edge = np.zeros(attributes, np.int32)
    edge[numeric] = np.arange(1, numeric.sum() + 1)
    return {"rows": rows, **starts, "edge": edge, "edges": _edges(conjuncts, edge, int(numeric.sum()))}


def _edges(conjuncts: Conjuncts, edge: Array, count: int) -> Array:
    """Quantiles of the bounds that predicates name: where filters are dense, buckets are narrow."""
    edges = np.full((count + 1, EDGES), np.inf)
    numeric = conjuncts.kind == NUMBER
    which = edge[conjuncts.attribute[numeric]]
    bounds = np.concatenate([conjuncts.pred["low"][numeric], conjuncts.pred["high"][numeric]])
    which = np.concatenate([which, which])
    order = np.lexsort((bounds, which))
    which, bounds = which[order], bounds[order]
    ends = np.searchsorted(which, np.arange(count + 2))
    for i in range(1, count + 1):
        given = bounds[ends[i] : ends[i + 1]]
        mine = np.unique(given[:: max(1, len(given) // 4096)])
        if len(mine) <= EDGES // 2 and np.isin(given, mine).all() and (np.abs(mine) < EXACT_FLOAT).all():
            # Few enough that each can have a bucket of its own, which leaves nothing to be checked.
            mine = np.unique(np.concatenate([mine, np.nextafter(mine, np.inf)]))
        picks = np.unique(np.linspace(0, len(mine) - 1, min(len(mine), EDGES)).astype(int))
        edges[i, : len(picks)] = mine[picks]
    return edges


def _order(conjuncts: Conjuncts, owner: Array, cluster: Array, meta: dict[str, Array]) -> Array:
    """By cluster, then by what is asked: those of a block should share attributes, and lie close in the narrowest."""
    count = len(conjuncts.owner)
    pred = conjuncts.pred
    numeric = np.flatnonzero((conjuncts.kind == NUMBER) & (pred["low"] != pred["high"]))
    attribute = conjuncts.attribute[numeric]
    low = _buckets(meta, attribute, pred["low"][numeric])
    width = _buckets(meta, attribute, pred["high"][numeric]) - low
    narrowest = np.lexsort((width, owner[numeric]))
    owners = owner[numeric][narrowest]
    first = np.ones(len(narrowest), bool)
    first[1:] = owners[1:] != owners[:-1]
    chosen = narrowest[first]
    lead, at = np.full(count, -1, np.int32), np.zeros(count, np.int32)
    lead[owner[numeric[chosen]]] = attribute[chosen]
    at[owner[numeric[chosen]]] = low[chosen]
    return np.lexsort((at, lead, cluster))


def _buckets(meta: dict[str, Array], attribute: Array, values: Array) -> Array:
    found = np.empty(len(values), np.int32)
    order = np.argsort(attribute, kind="stable")
    ends = np.flatnonzero(np.diff(attribute[order], append=-1)) + 1
    begin = 0
    for end in ends.tolist():
        mine = order[begin:end]
        edges = meta["edges"].reshape(-1, EDGES)[meta["edge"][attribute[mine[0]]]]
        found[mine] = np.searchsorted(edges, values[mine], side="right")
        begin = end
    return found


def _reordered(conjuncts: Conjuncts, order: Array, access: Array) -> Conjuncts:
    """In the new order, and without the predicates that their cluster says already."""
    kept = np.ones(len(conjuncts.pred), bool)
    kept[access[access >= 0]] = False
    lengths = (np.diff(conjuncts.pred_first) - (access >= 0))[order]
    first = np.zeros(len(order) + 1, np.int32)
    np.cumsum(lengths, out=first[1:])
    before = np.concatenate([[0], np.cumsum(kept)])[
        conjuncts.pred_first[:-1]
    ]  # where each conjunct starts among those kept
    places = np.repeat(before[order] - first[:-1], lengths) + np.arange(first[-1])
    return Conjuncts(conjuncts.owner[order], first, conjuncts.pred[kept][places])


def _blocks(cluster: Array, clusters: int) -> dict[str, Array]:
    sizes = np.bincount(cluster, minlength=clusters + 1)
    per_cluster = (sizes + BLOCK - 1) // BLOCK
    cluster_block = np.zeros(clusters + 2, np.int32)
    np.cumsum(per_cluster, out=cluster_block[1:])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    owner = np.repeat(np.arange(clusters + 1), per_cluster)
    within = np.arange(len(owner)) - cluster_block[:-1][owner]
    block_conjunct = np.append(starts[owner] + within * BLOCK, len(cluster)).astype(np.int32)
    block_word = np.zeros(len(owner) + 1, np.int32)
    np.cumsum((np.diff(block_conjunct) + WORD - 1) // WORD, out=block_word[1:])
    return {"cluster_block": cluster_block, "block_conjunct": block_conjunct, "block_word": block_word}


def _entries(conjuncts: Conjuncts, blocks: dict[str, Array], rows: Array, attributes: int) -> dict[str, Array]:
    """Which attributes the predicates of each block speak of; those asked by the most come first."""
    block_conjunct, block_word = blocks["block_conjunct"], blocks["block_word"]
    block = np.repeat(
        np.arange(len(block_word) - 1),
        conjuncts.pred_first[block_conjunct[1:]] - conjuncts.pred_first[block_conjunct[:-1]],
    )
    tabled = np.diff(block_conjunct)[block] >= FEW
    pairs, counts = np.unique((block * np.int64(attributes) + conjuncts.attribute)[tabled], return_counts=True)
    block, attribute = pairs // attributes, (pairs % attributes).astype(np.int32)
    order = np.lexsort((-counts, block))
    block, attribute = block[order], attribute[order]
    block_entry = np.searchsorted(block, np.arange(len(block_word))).astype(np.int32)
    sizes = 2 * rows[attribute].astype(np.int64) * np.diff(block_word)[block]
    table = np.concatenate([[0], np.cumsum(sizes)])
    return {
        "block_entry": block_entry,
        "entry_attribute": attribute,
        "entry_table": table[:-1],
        "bits": np.empty(int(table[-1]), np.uint64),
    }


def _summaries(blocks: dict[str, Array], entries: dict[str, Array], rows: Array) -> dict[str, Array]:
    """For clusters of many blocks, a table over blocks for each attribute that some of them have a table for."""
    sizes = np.diff(blocks["cluster_block"])
    attributes: list[Array] = []
    for cluster in np.flatnonzero(sizes >= MANY).tolist():
        first, last = blocks["cluster_block"][cluster], blocks["cluster_block"][cluster + 1]
        mine = entries["entry_attribute"][entries["block_entry"][first] : entries["block_entry"][last]]
        attributes.append(np.unique(mine).astype(np.int32))
    lengths = np.zeros(len(sizes), np.int64)
    lengths[sizes >= MANY] = [len(one) for one in attributes]
    attribute = np.concatenate([np.empty(0, np.int32), *attributes])
    across = np.repeat((sizes + WORD - 1) // WORD, lengths)
    table = np.concatenate([[0], np.cumsum(rows[attribute].astype(np.int64) * across)])
    return {
        "cluster_entry": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        "summary_attribute": attribute,
        "summary_table": table[:-1],
        "summary": np.empty(int(table[-1]), np.uint64),
    }


def _alive(blocks: dict[str, Array]) -> Array:
    """All of them; the lanes behind a block's last conjunct are not there."""
    words = blocks["block_word"]
    alive = np.full(int(words[-1]), ~np.uint64(0))
    sizes = np.diff(blocks["block_conjunct"])
    spare = (WORD - sizes % WORD) % WORD
    partial = spare > 0
    alive[words[1:][partial] - 1] >>= spare[partial].astype(np.uint64)
    return alive


def taken_apart(segment: Segment) -> Conjuncts:
    """The living conjuncts of a segment, with their access predicates, as they came in."""
    words = np.diff(segment.block_word)
    lanes = np.unpackbits(segment.alive.view(np.uint8), bitorder="little").astype(bool)
    block = np.repeat(np.arange(len(words)), np.diff(segment.block_conjunct))
    lane = np.arange(len(block)) - segment.block_conjunct[:-1][block]
    alive = lanes[segment.block_word[:-1][block].astype(np.int64) * WORD + lane]
    cluster = np.searchsorted(segment.cluster_block, block, side="right") - 1
    keyed = cluster < len(segment.key_attribute)
    lengths = np.diff(segment.pred_first) + keyed
    first = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=first[1:])
    pred = np.empty(int(first[-1]), segment.pred.dtype)
    is_key = np.zeros(len(pred), bool)
    is_key[first[:-1][keyed]] = True
    pred[~is_key] = segment.pred
    key = cluster[keyed]
    pred["low"][is_key], pred["high"][is_key] = segment.key_f[key], segment.key_high[key]
    pred["low_rest"][is_key] = pred["high_rest"][is_key] = segment.key_r[key]
    pred["what"][is_key] = segment.key_attribute[key] * 8 + segment.key_kind[key]
    kept = np.repeat(alive, lengths)
    lengths = lengths[alive]
    starts = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=starts[1:])
    return Conjuncts(segment.owner[alive], starts, pred[kept])


def joined(parts: list[Conjuncts]) -> Conjuncts:
    lengths = np.concatenate([np.diff(part.pred_first) for part in parts])
    first = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=first[1:])
    return Conjuncts(
        np.concatenate([part.owner for part in parts]),
        first,
        np.concatenate([part.pred for part in parts]),
    )


def unordered(capacity: int, predicates: int, attributes: int) -> Raw:
    """A segment without tables that can be filled one by one: every living conjunct is a candidate."""
    nothing = np.zeros(attributes, np.int32)
    blocks = capacity // BLOCK
    return layout.segment_of(Segment(
            rows=nothing, number_row=nothing, string_row=nothing, boolean_row=nothing, edge=nothing,
            edges=np.full(EDGES, np.inf), access=np.zeros(attributes + 1), keys=[],
            key_attribute=[], key_kind=[], key_f=[], key_r=[], key_high=[],
            cluster_block=[0, blocks], cluster_entry=[0, 0], summary_attribute=[], summary_table=[], summary=[],
            block_conjunct=np.arange(0, capacity + 1, BLOCK),
            block_word=np.arange(0, capacity // WORD + 1, BLOCK // WORD),
            block_entry=np.zeros(blocks + 1),
            entry_attribute=[], entry_table=[], bits=[], alive=np.zeros(capacity // WORD),
            owner=np.zeros(capacity), pred_first=np.zeros(capacity + 1), pred=np.zeros(predicates, PREDICATE),
        )
    )  # fmt: skip
