"""Subscriptions with patterns: the beginning, the end or some part of three strings, and a class that is equal.

The class is that of workload W: 100 values, zipf. The strings are words of four syllables. A pattern is one to three
letters of such a word, so that each fits some value; about 0.02 % of the subscriptions match an event.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidings.cli.bench.workload import CLASSES, zipf

ATTRIBUTES, VALUES = 3, 10_000
_SYLLABLES = np.array([consonant + vowel for consonant in "bcdfghklmnprstvz" for vowel in "aeiou"])
_WORD = 4  # syllables
_WORDS = len(_SYLLABLES) ** _WORD
_PATTERNS = "{}%", "%{}", "%{}%"


class Subscriptions(NamedTuple):
    classes: Any
    kinds: Any  # of each attribute's pattern: 0 the beginning, 1 the end, 2 some part
    parts: list[tuple[str, str, str]]  # the letters of each attribute's pattern


def subscriptions(count: int, seed: int = 1) -> Subscriptions:
    draw = np.random.default_rng([seed, 4])
    classes = draw.choice(CLASSES, count, p=zipf())
    kinds = draw.integers(0, 3, (count, ATTRIBUTES))
    columns = []
    for attribute, words in enumerate(_vocabularies(seed)):
        chosen, length = words[draw.integers(0, VALUES, count)], draw.choice([1, 2, 3], count, p=[0.6, 0.2, 0.2])
        last = 2 * _WORD - length
        start = np.choose(kinds[:, attribute], [0, last, draw.integers(0, last + 1)])
        cuts = zip(chosen.tolist(), start.tolist(), (start + length).tolist(), strict=True)
        columns.append([word[begin:end] for word, begin, end in cuts])
    return Subscriptions(classes, kinds, list(zip(*columns, strict=True)))


def texts(given: Subscriptions) -> list[str]:
    """Each subscription as a filter."""
    rows = zip(given.classes.tolist(), given.kinds.tolist(), given.parts, strict=True)
    return [
        f"class = 'c{one}' and "
        + " and ".join(
            f"s{i} like '{_PATTERNS[kind].format(part)}'"
            for i, (kind, part) in enumerate(zip(kinds, parts, strict=True))
        )
        for one, kinds, parts in rows
    ]


def events(count: int, seed: int = 1) -> pa.Table:
    """Each string is one of 10,000."""
    draw = np.random.default_rng([seed, 5])
    return _table(draw, [words[draw.integers(0, VALUES, count)] for words in _vocabularies(seed)])


def distinct_events(count: int, seed: int = 1) -> pa.Table:
    """No string comes twice."""
    draw = np.random.default_rng([seed, 6])
    return _table(draw, [_words(draw.choice(_WORDS, count, replace=False)) for _ in range(ATTRIBUTES)])


def answer(given: Subscriptions, event: dict[str, str]) -> list[int]:
    """The positions of the subscriptions that an event concerns, found by looking at all of its class."""
    tests = str.startswith, str.endswith, str.__contains__
    values = [event[f"s{i}"] for i in range(ATTRIBUTES)]
    return [
        position
        for position in np.flatnonzero(given.classes == int(event["class"][1:])).tolist()
        if all(
            tests[kind](value, part)
            for kind, value, part in zip(given.kinds[position], values, given.parts[position], strict=True)
        )
    ]


def _table(draw: Any, columns: list[Any]) -> pa.Table:
    classes = draw.choice(CLASSES, len(columns[0]), p=zipf())
    named = {f"s{i}": pa.array(column.tolist()) for i, column in enumerate(columns)}
    return pa.table({"class": [f"c{one}" for one in classes.tolist()], **named})


def _vocabularies(seed: int) -> list[Any]:
    """The values of each attribute, all of them different."""
    draw = np.random.default_rng([seed, 7])
    return [_words(draw.choice(_WORDS, VALUES, replace=False)) for _ in range(ATTRIBUTES)]


def _words(numbers: Any) -> Any:
    """A word for each number, another one for another number."""
    digits = numbers[:, None] // len(_SYLLABLES) ** np.arange(_WORD) % len(_SYLLABLES)
    return np.strings.add(*(np.strings.add(*_SYLLABLES[digits[:, at : at + 2]].T) for at in (0, 2)))
