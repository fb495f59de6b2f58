"""The string workload: subscriptions with a class and with patterns (prefix, suffix or substring) of three strings.

The class is that of workload W: 100 values with a Zipf distribution. The strings are words of four syllables. A pattern
is one to three letters of such a word, so that each pattern matches some value. About 0.02 % of the subscriptions match
an event.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.workloads.workload import CLASSES, zipf

ATTRIBUTES, VALUES = 3, 10_000
_SYLLABLES = np.array([consonant + vowel for consonant in "bcdfghklmnprstvz" for vowel in "aeiou"])
_WORD = 4  # syllables of a word
_WORDS = len(_SYLLABLES) ** _WORD
_PATTERNS = "{}%", "%{}", "%{}%"


class StringSubscriptions(NamedTuple):
    """Subscriptions as columns: class, kind of pattern and letters of the pattern for each attribute."""

    classes: Any
    kinds: Any  # of each attribute's pattern: 0 prefix, 1 suffix, 2 substring
    parts: list[tuple[str, str, str]]  # the letters of each attribute's pattern


def subscriptions(count: int, seed: int = 1) -> StringSubscriptions:
    """Draw subscriptions."""
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
    return StringSubscriptions(classes, kinds, list(zip(*columns, strict=True)))


def texts(columns: StringSubscriptions) -> list[str]:
    """Return each subscription as a filter text."""
    rows = zip(columns.classes.tolist(), columns.kinds.tolist(), columns.parts, strict=True)
    return [
        f"class = 'c{class_number}' and "
        + " and ".join(
            f"s{i} like '{_PATTERNS[kind].format(part)}'"
            for i, (kind, part) in enumerate(zip(kinds, parts, strict=True))
        )
        for class_number, kinds, parts in rows
    ]


def events(count: int, seed: int = 1) -> pa.Table:
    """Draw events whose strings recur: each is one of 10,000 values."""
    draw = np.random.default_rng([seed, 5])
    return _table(draw, [words[draw.integers(0, VALUES, count)] for words in _vocabularies(seed)])


def distinct_events(count: int, seed: int = 1) -> pa.Table:
    """Draw events in which no string occurs twice."""
    draw = np.random.default_rng([seed, 6])
    return _table(draw, [_words(draw.choice(_WORDS, count, replace=False)) for _ in range(ATTRIBUTES)])


def answer(columns: StringSubscriptions, event: dict[str, str]) -> list[int]:
    """Return the positions of the subscriptions that match an event, found by testing all of its class."""
    tests = str.startswith, str.endswith, str.__contains__
    values = [event[f"s{i}"] for i in range(ATTRIBUTES)]
    return [
        position
        for position in np.flatnonzero(columns.classes == int(event["class"][1:])).tolist()
        if all(
            tests[kind](value, part)
            for kind, value, part in zip(columns.kinds[position], values, columns.parts[position], strict=True)
        )
    ]


def _table(draw: Any, columns: list[Any]) -> pa.Table:
    classes = draw.choice(CLASSES, len(columns[0]), p=zipf())
    named = {f"s{i}": pa.array(column.tolist()) for i, column in enumerate(columns)}
    return pa.table({"class": [f"c{number}" for number in classes.tolist()], **named})


def _vocabularies(seed: int) -> list[Any]:
    """Return the values of each attribute, all different."""
    draw = np.random.default_rng([seed, 7])
    return [_words(draw.choice(_WORDS, VALUES, replace=False)) for _ in range(ATTRIBUTES)]


def _words(numbers: Any) -> Any:
    """Return a word for each number; different numbers give different words."""
    digits = numbers[:, None] // len(_SYLLABLES) ** np.arange(_WORD) % len(_SYLLABLES)
    return np.strings.add(*(np.strings.add(*_SYLLABLES[digits[:, at : at + 2]].T) for at in (0, 2)))
