"""A segment: an index of conjuncts that is built once; afterwards only the bits of removed conjuncts change.

Theory of operation:

1. Each conjunct belongs to the *cluster* of its access predicate, the equality or string test that the fewest events
   are expected to satisfy; conjuncts without one are in the last cluster. A hash table leads from a value, or from a
   test that a string passes, to its cluster.
2. A cluster is cut into *blocks* of BLOCK conjuncts, sorted so that the conjuncts of a block restrict the same
   attributes.
3. For each attribute that its predicates restrict, a block has a table (an *entry*): one row for each bucket of values,
   with a bit for each conjunct that a value of the bucket might satisfy, and a second half with a bit for each conjunct
   that every value of the bucket satisfies. ANDing the rows of an event's values leaves the candidates; those in the
   second half need no check. A block of few conjuncts has no tables: all are checked.
4. A cluster of many blocks has summaries: the same kind of tables with a bit for each block.

A thread that matches uses a segment as it is, whatever is added to the index meanwhile.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidings.matching.index.kernels import layout, segments
from tidings.matching.index.kernels.layout import PREDICATE, Raw, Segment
from tidings.matching.index.kernels.match import (
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

Array = npt.NDArray[Any]
COMMON = 0.5  # a predicate that a larger share of the values satisfies is not used for access
FEW = 24  # conjuncts in a block for which tables pay off
MANY = 8  # blocks in a cluster for which a summary pays off


class Conjuncts(NamedTuple):
    """Conjuncts as columns: the input of `build`, and what `live_conjuncts` returns."""

    owner: Array  # the subscription's position times 4, plus flags
    pred_first: Array
    pred: Array  # records of PREDICATE

    def select(self, selected: Array) -> "Conjuncts":
        """Return only the conjuncts that a boolean array chooses."""
        if selected.all():
            return self
        lengths = np.diff(self.pred_first)
        first = np.zeros(int(selected.sum()) + 1, np.int32)
        np.cumsum(lengths[selected], out=first[1:])
        return Conjuncts(self.owner[selected], first, self.pred[np.repeat(selected, lengths)])

    @property
    def attribute(self) -> Array:
        """The attribute's number of each predicate."""
        return self.pred["what"] >> 3

    @property
    def kind(self) -> Array:
        """The kind of each predicate."""
        return self.pred["what"] & 7


def build(conjuncts: Conjuncts, attributes: int) -> Raw:
    """Build a segment: sort the conjuncts into clusters and blocks, and fill the blocks' tables."""
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
    segments.hash_clusters(raw)
    segments.fill_tables(raw)
    segments.fill_summaries(raw)
    return raw


def _clusters(conjuncts: Conjuncts, owner: Array) -> tuple[Array, Array, Array]:
    """Choose the access predicate of each conjunct: of its equalities and string tests, the most selective one.

    Returns for each conjunct its cluster, the last for conjuncts without an access predicate; for each cluster the
    index of one such predicate; and for each conjunct the index of its access predicate, or -1.
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
    equal_count = np.bincount(group)[group]
    # The rarest one of each conjunct: sort by (conjunct, share), take the first. Ties go to the predicate that fewer
    # conjuncts have, then to the one that its letters make rarer.
    by_owner = np.lexsort((letters, equal_count, _shares(values, equal_count, letters), owner[places]))
    first = np.empty(len(by_owner), bool)
    owners = owner[places][by_owner]
    first[0], first[1:] = True, owners[1:] != owners[:-1]
    access_of_owner = by_owner[first]
    used_groups, cluster_of_chosen = np.unique(group[access_of_owner], return_inverse=True)
    cluster = np.full(len(conjuncts.owner), len(used_groups), np.int32)
    cluster[owner[places[access_of_owner]]] = cluster_of_chosen
    representative = np.empty(len(used_groups), np.int64)
    representative[cluster_of_chosen] = places[access_of_owner]
    access[owner[places[access_of_owner]]] = places[access_of_owner]
    return cluster, representative, access


def _shares(values: Array, equal_count: Array, letters: Array) -> Array:
    """The share of events that will meet each equality and string test, estimated from the filters.

    If a tenth of the predicates on an attribute ask for a value, a tenth of the events is expected to have it. The same
    holds for a string test, however rare its letters make it look. A value that most predicates on its attribute ask
    for is expected in every event.

    Args:
        values: The equalities and string tests.
        equal_count: For each of them, the number of predicates that are equal to it.
        letters: For each string test, the share of strings that pass it by its letters; 1 for an equality.
    """
    shares = equal_count / np.bincount(values["a"])[values["a"]]
    shares = np.where(values["k"] == TEST, np.maximum(shares, letters), shares)
    return np.where(shares < COMMON, shares, 1.0)


def _access(conjuncts: Conjuncts, keys: Array, attributes: int) -> Array:
    """Return how clusters are reached through each attribute: BY_VALUE, BY_TEST, both or neither.

    The additional entry at the end tells whether any cluster is reached through a test.
    """
    access = np.zeros(attributes + 1, np.uint8)
    tests = conjuncts.kind[keys] == TEST
    access[conjuncts.attribute[keys[tests]]] |= BY_TEST
    access[conjuncts.attribute[keys[~tests]]] |= BY_VALUE
    access[-1] = tests.any()
    return access


def _rows(conjuncts: Conjuncts, attributes: int) -> dict[str, Array]:
    """Return the layout of each attribute's tables.

    It names the rows that they need, and the edges between the buckets of numbers.
    """

    def has_kind(*kinds: int) -> Array:
        flags = np.zeros(attributes, bool)
        flags[conjuncts.attribute[np.isin(conjuncts.kind, kinds)]] = True
        return flags

    numeric, textual, boolean = has_kind(NUMBER), has_kind(STRING, TEST), has_kind(BOOLEAN)
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
    """Return the edges between buckets of numbers.

    They are quantiles of the bounds in predicates, so that buckets are narrow where filters are dense.
    """
    edges = np.full((count + 1, EDGES), np.inf)
    numeric = conjuncts.kind == NUMBER
    which = edge[conjuncts.attribute[numeric]]
    bounds = np.concatenate([conjuncts.pred["low"][numeric], conjuncts.pred["high"][numeric]])
    which = np.concatenate([which, which])
    order = np.lexsort((bounds, which))
    which, bounds = which[order], bounds[order]
    ends = np.searchsorted(which, np.arange(count + 2))
    for i in range(1, count + 1):
        attribute_bounds = bounds[ends[i] : ends[i + 1]]
        distinct = np.unique(attribute_bounds[:: max(1, len(attribute_bounds) // 4096)])
        if (
            len(distinct) <= EDGES // 2
            and np.isin(attribute_bounds, distinct).all()
            and (np.abs(distinct) < EXACT_FLOAT).all()
        ):
            # Few enough for a bucket of its own each, so that no candidate has to be checked.
            distinct = np.unique(np.concatenate([distinct, np.nextafter(distinct, np.inf)]))
        picks = np.unique(np.linspace(0, len(distinct) - 1, min(len(distinct), EDGES)).astype(int))
        edges[i, : len(picks)] = distinct[picks]
    return edges


def _order(conjuncts: Conjuncts, owner: Array, cluster: Array, meta: dict[str, Array]) -> Array:
    """Return an order of conjuncts: by cluster, then by the attribute and the start of the narrowest range."""
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
    leading = narrowest[first]
    lead, at = np.full(count, -1, np.int32), np.zeros(count, np.int32)
    lead[owner[numeric[leading]]] = attribute[leading]
    at[owner[numeric[leading]]] = low[leading]
    return np.lexsort((at, lead, cluster))


def _buckets(meta: dict[str, Array], attribute: Array, values: Array) -> Array:
    """Return the bucket of each number of an attribute."""
    buckets = np.empty(len(values), np.int32)
    order = np.argsort(attribute, kind="stable")
    ends = np.flatnonzero(np.diff(attribute[order], append=-1)) + 1
    begin = 0
    for end in ends.tolist():
        of_attribute = order[begin:end]
        edges = meta["edges"].reshape(-1, EDGES)[meta["edge"][attribute[of_attribute[0]]]]
        buckets[of_attribute] = np.searchsorted(edges, values[of_attribute], side="right")
        begin = end
    return buckets


def _reordered(conjuncts: Conjuncts, order: Array, access: Array) -> Conjuncts:
    """Return the conjuncts in the new order, without their access predicates, which the cluster implies."""
    is_kept = np.ones(len(conjuncts.pred), bool)
    is_kept[access[access >= 0]] = False
    lengths = (np.diff(conjuncts.pred_first) - (access >= 0))[order]
    first = np.zeros(len(order) + 1, np.int32)
    np.cumsum(lengths, out=first[1:])
    before = np.concatenate([[0], np.cumsum(is_kept)])[
        conjuncts.pred_first[:-1]
    ]  # where each conjunct starts in the filtered predicates
    places = np.repeat(before[order] - first[:-1], lengths) + np.arange(first[-1])
    return Conjuncts(conjuncts.owner[order], first, conjuncts.pred[is_kept][places])


def _blocks(cluster: Array, clusters: int) -> dict[str, Array]:
    """Cut the clusters into blocks; return where each cluster's blocks and each block's conjuncts and words begin."""
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
    """Return which attributes the predicates of each block restrict, those with the most predicates first."""
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
    """Lay out the summaries of clusters with many blocks.

    A summary has a table over blocks for each attribute that some block of the cluster has a table for.
    """
    sizes = np.diff(blocks["cluster_block"])
    attributes: list[Array] = []
    for cluster in np.flatnonzero(sizes >= MANY).tolist():
        first, last = blocks["cluster_block"][cluster], blocks["cluster_block"][cluster + 1]
        cluster_attributes = entries["entry_attribute"][entries["block_entry"][first] : entries["block_entry"][last]]
        attributes.append(np.unique(cluster_attributes).astype(np.int32))
    lengths = np.zeros(len(sizes), np.int64)
    lengths[sizes >= MANY] = [len(entries_of_cluster) for entries_of_cluster in attributes]
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
    """Return a set bit for each conjunct; the unused bits behind a block's last conjunct are 0."""
    words = blocks["block_word"]
    alive = np.full(int(words[-1]), ~np.uint64(0))
    sizes = np.diff(blocks["block_conjunct"])
    spare = (WORD - sizes % WORD) % WORD
    partial = spare > 0
    alive[words[1:][partial] - 1] >>= spare[partial].astype(np.uint64)
    return alive


def live_conjuncts(segment: Segment) -> Conjuncts:
    """Return the conjuncts of a segment that were not removed, in the form that `build` takes.

    Their access predicates, which a segment has only once for each cluster, are among their predicates again.
    """
    words = np.diff(segment.block_word)
    lanes = np.unpackbits(segment.alive.view(np.uint8), bitorder="little").astype(bool)
    block = np.repeat(np.arange(len(words)), np.diff(segment.block_conjunct))
    lane = np.arange(len(block)) - segment.block_conjunct[:-1][block]
    is_alive = lanes[segment.block_word[:-1][block].astype(np.int64) * WORD + lane]
    cluster = np.searchsorted(segment.cluster_block, block, side="right") - 1
    has_key = cluster < len(segment.key_attribute)
    lengths = np.diff(segment.pred_first) + has_key
    first = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=first[1:])
    pred = np.empty(int(first[-1]), segment.pred.dtype)
    is_key = np.zeros(len(pred), bool)
    is_key[first[:-1][has_key]] = True
    pred[~is_key] = segment.pred
    key = cluster[has_key]
    pred["low"][is_key], pred["high"][is_key] = segment.key_f[key], segment.key_high[key]
    pred["low_rest"][is_key] = pred["high_rest"][is_key] = segment.key_r[key]
    pred["what"][is_key] = segment.key_attribute[key] * 8 + segment.key_kind[key]
    is_live = np.repeat(is_alive, lengths)
    lengths = lengths[is_alive]
    starts = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=starts[1:])
    return Conjuncts(segment.owner[is_alive], starts, pred[is_live])


def joined(parts: list[Conjuncts]) -> Conjuncts:
    """Concatenate several sets of conjuncts."""
    lengths = np.concatenate([np.diff(part.pred_first) for part in parts])
    first = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=first[1:])
    return Conjuncts(
        np.concatenate([part.owner for part in parts]),
        first,
        np.concatenate([part.pred for part in parts]),
    )


def unordered(capacity: int, predicates: int, attributes: int) -> Raw:
    """Return an empty segment without tables that is filled one by one: every conjunct in it is a candidate."""
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
