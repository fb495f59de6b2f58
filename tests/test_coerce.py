"""JSON of columns is what JSON of the values would be, to the last digit and the last quotation mark."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings.engine.batch.json_text import JsonJoiner, members, members_of
from tidings.engine.batch.transformations import Transformation

_KINDS: dict[str, tuple[Any, Any]] = {
    "flag": (pa.bool_(), st.booleans()),
    "n": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.int8(), st.integers(-128, 127)),
    "x": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9).map(float)),
    'odd name " \\': (pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "word": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["a", "b,c", "{}", '"'])),
}
_ADDED: tuple[tuple[str, Any], ...] = (("n", True), ("new", 1.0))
_SHAPINGS = [
    Transformation(),
    Transformation(keeps=frozenset({"x", "word", "nowhere"})),
    Transformation(removes=frozenset({"x", 'odd name " \\'})),
    Transformation(keeps=frozenset({"n", "x"}), removes=frozenset({"x"}), added=_ADDED),
    Transformation(keeps=frozenset()),
]
_ROWS = st.lists(st.fixed_dictionaries({}, optional={name: values for name, (_, values) in _KINDS.items()}), max_size=6)


def left(row: dict[str, Any], shaping: Transformation) -> dict[str, Any]:
    kept = {name: value for name, value in row.items() if shaping.keeps is None or name in shaping.keeps}
    return {name: value for name, value in kept.items() if name not in shaping.removes} | dict(shaping.added)


@given(_ROWS, st.booleans(), st.data())
@examples(100, 2000)
def test_woven_texts_say_what_is_left(rows: list[dict[str, Any]], in_columns: bool, data: st.DataObject) -> None:
    if in_columns:
        arrays = {name: pa.array([row.get(name) for row in rows], kind) for name, (kind, _) in _KINDS.items()}
        weaver = JsonJoiner({name: members(name, array) for name, array in arrays.items()}, len(rows))
    else:
        weaver = JsonJoiner(members_of(rows), len(rows))
    pair = st.tuples(st.integers(0, max(0, len(rows) - 1)), st.integers(0, len(_SHAPINGS) - 1))
    pairs = data.draw(st.lists(pair, max_size=12)) if rows else []
    which = np.array(pairs, np.int64).reshape(-1, 2)
    texts = weaver.join(which[:, 0].copy(), which[:, 1].astype(np.int32), _SHAPINGS).to_pylist()
    for text, (row, shape) in zip(texts, pairs, strict=True):
        expected = left(rows[row], _SHAPINGS[shape])
        assert repr(sorted(json.loads(text).items())) == repr(sorted(expected.items()))
