"""Which events can concern a shard at all: a plain column expression, so that the others never reach Python.

What is not certain goes on: an event that might be refused has to be told why, and where rules may act on events that
concern nobody, or rows bring their own names, nothing is held back.
"""

from typing import TYPE_CHECKING

from tidings.engine import meta
from tidings.engine.settings import Settings
from tidings.model.expression import PUBLISHER, SUBJECT
from tidings.model.limits import (
    MAX_ATTRIBUTES,
    MAX_NAME_CHARACTERS,
    MAX_STRING_CHARACTERS,
    MAX_SUBJECT_CHARACTERS,
)
from tidings.spark.events import KEY, PROBLEM, SYSTEM
from tidings.spark.registry import Registry

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidings.engine.matcher import Asked
    from tidings.spark.trust import Trust

_PLAIN = ("bigint", "boolean", "double", "string")
_COLUMNS = {SUBJECT: "subject", PUBLISHER: "publisher"}


def possible(
    events: "DataFrame", registry: Registry, settings: Settings, trust: "Trust | None" = None
) -> "list[Column] | None":
    """Of prepared events, by shard whether one may concern somebody there or be refused; None: that cannot be told."""
    from pyspark.sql import functions as f

    kinds = dict(events.dtypes)
    named = [name for name in events.columns if name not in (*SYSTEM, KEY, PROBLEM)]
    if settings.advertisements_required or not registry.is_plain or len(named) > MAX_ATTRIBUTES:
        return None
    if "attributes" in kinds or any(kinds[name] not in _PLAIN for name in named):
        return None
    if all(one is None for one in registry.asked):
        return None
    sound = _sound(kinds, named)
    if trust is not None:
        sound = f.when(_may_be_secure(kinds, trust), False).otherwise(sound)
    return [
        f.lit(True) if one is None else f.when(sound, _wanted(one, kinds)).otherwise(True) for one in registry.asked
    ]


def _may_be_secure(kinds: dict[str, str], trust: "Trust") -> "Column":
    """Whether an event may be on a secure topic, and so be refused: true or false, never null."""
    from pyspark.sql import functions as f

    found = f.lit(False)
    for name, values in trust.gate().topics.marks.items():
        column = name or "subject"
        if column in kinds:
            given = f.col(f"`{column}`")
            is_one = given.isin(sorted(values)) if kinds[column] == "string" else given.isNotNull()
            found = f.when(is_one, True).otherwise(found)
    return found


def _wanted(asked: "Asked", kinds: dict[str, str]) -> "Column":
    from pyspark.sql import functions as f

    name = _COLUMNS.get(asked.name, asked.name)
    kind = kinds.get(name)
    column = f.col(f"`{name}`")
    if kind == "string" and asked.texts:
        found = column.isin(asked.texts)
    elif kind in ("bigint", "double") and asked.numbers:
        found = (column.cast("double") + 0.0).isin([one + 0.0 for one in asked.numbers])  # -0.0 is 0.0
    else:  # it is missing, or of a kind that none of them compares with
        found = f.lit(False)
    return f.coalesce(found, f.lit(False))


def _sound(kinds: dict[str, str], named: list[str]) -> "Column":
    """Whether the event is certainly let in: true or false, never null."""
    from pyspark.sql import functions as f

    checks = [f.col(KEY).isNotNull(), f.col("timestamp") >= 0, _short("publisher", MAX_NAME_CHARACTERS)]
    if PROBLEM in kinds:
        checks.append(f.col(f"`{PROBLEM}`").isNull())
    if "subject" in kinds:
        checks.append(f.col("subject").isNull() | _short("subject", MAX_SUBJECT_CHARACTERS))
    if "sequence" in kinds:
        checks.append(f.col("sequence").isNull() | (f.col("sequence") >= 0))
    unusual = [name for name in ("context", "subscribers", "policy", "payload", "token", "signature") if name in kinds]
    checks += [f.col(name).isNull() for name in unusual]
    doubles = [f.abs(f.col(f"`{name}`")) for name in named if kinds[name] == "double"]
    texts = [f.length(f.col(f"`{name}`")) for name in named if kinds[name] == "string"]
    if doubles:  # NaN is greater than all
        checks.append(f.coalesce(f.greatest(*doubles, f.lit(0.0)), f.lit(0.0)) < float("inf"))
    if texts:
        checks.append(f.coalesce(f.greatest(*texts, f.lit(0)), f.lit(0)) <= MAX_STRING_CHARACTERS)
    if kinds.get("class") == "string":
        checks.append(f.col("class").isNull() | ~f.col("class").isin(sorted(meta.RESERVED)))
    # Not as one conjunction: long chains of AND or + make Spark's optimiser try their orders, and never end.
    sound = f.lit(True)
    for check in checks:
        sound = f.when(check, sound).otherwise(False)
    return sound


def _short(name: str, most: int) -> "Column":
    from pyspark.sql import functions as f

    return f.length(name).between(1, most)
