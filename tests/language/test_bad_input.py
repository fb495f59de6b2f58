"""Ten thousand mutants of each language: a filter or a `FilterError`, nothing else; and work that stays bounded."""

import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from random import Random
from types import FrameType
from typing import Any

import pytest

from tests.sizes import LONG, sized
from tidings import ContextFilter, Filter, FilterError
from tidings.model import limits

MUTANTS = sized(2_500, 40_000)

SEEDS: dict[str, list[str]] = {
    "sql": [
        "class = 'report' and d1 > 10",
        "a between 1 and 2.5e3 or not (b like 'x\\%y%' and c is not null)",
        "`odd name` in (1, 'it''s', TRUE, NULL) and -x * (y + 3) % 2 != .5",
        "topic('/Sports/*') and xpath('/a[@b>1]') or $payload rlike 'a(b|c)+' and flag",
    ],
    "context": [
        "x between this.x - 20 and this.x + 20 and this.`a b` <> role",
        "distance(x, y, this.x, this.y) < 5 or geo_distance(lat, lon, 48.1, -11.5) <= 1000",
    ],
    "topic": ["/Sports/Football", "/Sports/*/#", "*/b/#"],
    "tags": ["Sports=NBA,Team=*", "Floor=3 , `a b`='x,y', Open=true"],
    "regex": ["goal.*(Beckham|Zidane)", "^[a-z]{2,5}\\d+(?i:x)?$"],
    "xpath": ["/order/item[@price>10]", "count(//a[b='x' and not(@c)]/text()) >= 2 or contains(., \"y\")"],
    "padres": ["[class,eq,'stock'],[price,>,10]", "[s,str-prefix,'a'],[v,isPresent,0],[t,neq,\"x\"]"],
}
SIGNS = [
    *"'\"`()[]{},.=<>!%_\\/*#@$:;|&+-~^?0123456789eEaz \t\n\0ä€\U0001f600\ud800",
    *(" and ", " or ", "not ", "((", "))", "''", "//", "..", "::", "this.", "null", "1e999", "9" * 30, "&a;"),
]


def parser(language: str) -> Callable[[str], Any]:
    return ContextFilter.parse if language == "context" else lambda text: Filter.parse(text, format=language)


def mutant(random: Random, seeds: list[str]) -> str:
    text = random.choice(seeds)
    for _ in range(random.randint(1, 4)):
        at, end = sorted((random.randint(0, len(text)), random.randint(0, len(text))))
        match random.randrange(6):
            case 0:
                text = text[:at] + random.choice(SIGNS) + text[at:]
            case 1:
                text = text[:at] + text[min(end, at + 8) :]
            case 2:
                text = text[:at] + text[at:end] * 2 + text[end:]
            case 3:
                text = text[:at] + random.choice(SIGNS) + text[at + 1 :]
            case 4:
                other = random.choice(seeds)
                text = text[:at] + other[random.randint(0, len(other)) :]
            case _:
                text = text[:at]
    return text


@pytest.mark.parametrize("language", SEEDS)
def test_mutants_are_read_or_refused(language: str) -> None:
    random, parse = Random(f"mutants of {language}"), parser(language)
    read = refused = 0
    for _ in range(MUTANTS):
        text = mutant(random, SEEDS[language])
        try:
            parsed = parse(text)
        except FilterError as error:
            refused += 1
            assert 0 <= error.position <= len(error.text), (text, error.position)
            assert error.message
            assert "\n" not in error.message
            str(error)
        else:
            read += 1
            again = ContextFilter.parse(str(parsed)) if language == "context" else Filter.parse(str(parsed))
            assert again == parsed, text
    assert read > MUTANTS / 50, "hardly any mutant was read: the test has become blunt"
    assert refused > MUTANTS / 50, "hardly any mutant was refused: the test has become blunt"


REPEATED = {
    "sql": ["(", "not ", "- ", "a", "a ", "'", "''", "`", "1", "a=1 or ", "a+", "$", "in(", "a(", ".", "1e", "a.b "],
    "context": ["a in (1,", "this.", "this.`", "null,", "\0", " ", "distance("],
    "tags": ["=", ",", "a=", "'", " ", "a=1,"],
    "padres": ["[", "]", ",", "'", " ", "[a,eq,1],", "[a,"],
    "topic": ["/", "*", "#", "/*", " "],
    "regex": ["(", "a*", "(a|", "[", "a{1000}", "\\", "(?:", "x{2}"],
    "xpath": ["[", "(", "/", "//a", "a/", "a[", "not(", "1+", "-", "'", "a or ", "@", ".."],
}
HOSTILE = [
    (language, unit * (length // (1 if LONG else 4) // len(unit)))
    for language, units in REPEATED.items()
    for unit in units
    for length in [limits.MAX_PATTERN_CHARACTERS if language in ("regex", "xpath") else limits.MAX_FILTER_CHARACTERS]
] + [
    ("sql", "a in (" + "1," * 32_000),
    ("sql", "a = '" + "''" * 32_000),
    ("sql", "a " + " " * 60_000 + "("),
]


@pytest.mark.parametrize(("language", "text"), HOSTILE, ids=lambda one: repr(one[:12]))
def test_hostile_texts_cost_steps_and_memory_in_proportion(language: str, text: str) -> None:
    parse = parser(language)
    with suppress(FilterError):
        parse("warm")  # the grammar is loaded once, and not counted
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += 1

    tracemalloc.start()
    sys.setprofile(count)
    try:
        parse(text)
    except FilterError:
        pass
    finally:
        sys.setprofile(None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert calls < 200 * len(text) + 20_000
    assert peak < 1_500 * len(text) + 4_000_000
