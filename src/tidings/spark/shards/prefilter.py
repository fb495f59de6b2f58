"""Column expressions that drop events which no subscription of a shard can match, before they reach Python.

An event is dropped only if that changes no result. It passes if it might be rejected (the rejection must be reported),
if rules or schemas apply, or if its attributes are not plain columns.
"""

from typing import TYPE_CHECKING

from tidings.engine import meta_events
from tidings.engine.settings import Settings
from tidings.model.expression import PUBLISHER, SUBJECT
from tidings.model.limits import (
    MAX_ATTRIBUTES,
    MAX_NAME_CHARACTERS,
    MAX_STRING_CHARACTERS,
    MAX_SUBJECT_CHARACTERS,
)
from tidings.spark.events import KEY, PROBLEM, SYSTEM
from tidings.spark.shards.registry import Registry

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidings.engine.matcher import RequestedValues
    from tidings.spark.shards.trusted_keys import TrustedKeys

_PLAIN = ("bigint", "boolean", "double", "string")
_COLUMNS = {SUBJECT: "subject", PUBLISHER: "publisher"}


def shard_conditions(
    events: "DataFrame", registry: Registry, settings: Settings, trust: "TrustedKeys | None" = None
) -> "list[Column] | None":
    """Return for each shard a column that says whether an event may match there or be rejected.

    Returns None if every event must be processed.

    Args:
        events: Prepared events.
        registry: The shards, with the attribute values that their subscriptions need.
        settings: The engine's settings.
        trust: The keys with which sealed events are checked, or None.
    """
    from pyspark.sql import functions as f

    kinds = dict(events.dtypes)
    attribute_names = [name for name in events.columns if name not in (*SYSTEM, KEY, PROBLEM)]
    if settings.advertisements_required or not registry.is_plain or len(attribute_names) > MAX_ATTRIBUTES:
        return None
    if "attributes" in kinds or any(kinds[name] not in _PLAIN for name in attribute_names):
        return None
    if all(requested is None for requested in registry.requested_values):
        return None
    is_acceptable = _is_acceptable(kinds, attribute_names)
    if trust is not None:
        is_acceptable = f.when(_may_be_secure(kinds, trust), False).otherwise(is_acceptable)
    return [
        f.lit(True)
        if requested is None
        else f.when(is_acceptable, _has_requested_value(requested, kinds)).otherwise(True)
        for requested in registry.requested_values
    ]


def _may_be_secure(kinds: dict[str, str], trust: "TrustedKeys") -> "Column":
    """Return a column that says whether an event may be on a secure topic, and so be rejected; it is never null."""
    from pyspark.sql import functions as f

    may_be_secure = f.lit(False)
    for name, values in trust.gate().topics.required_values.items():
        column = name or "subject"
        if column in kinds:
            value = f.col(f"`{column}`")
            is_marked = value.isin(sorted(values)) if kinds[column] == "string" else value.isNotNull()
            may_be_secure = f.when(is_marked, True).otherwise(may_be_secure)
    return may_be_secure


def _has_requested_value(requested: "RequestedValues", kinds: dict[str, str]) -> "Column":
    """Return a column that says whether the event has an attribute value that the shard's subscriptions need."""
    from pyspark.sql import functions as f

    name = _COLUMNS.get(requested.name, requested.name)
    kind = kinds.get(name)
    column = f.col(f"`{name}`")
    if kind == "string" and requested.texts:
        is_requested = column.isin(requested.texts)
    elif kind in ("bigint", "double") and requested.numbers:
        is_requested = (column.cast("double") + 0.0).isin([number + 0.0 for number in requested.numbers])  # -0.0 is 0.0
    else:  # the attribute is missing, or has a type that matches none of the values
        is_requested = f.lit(False)
    return f.coalesce(is_requested, f.lit(False))


def _is_acceptable(kinds: dict[str, str], attribute_names: list[str]) -> "Column":
    """Return a column that says whether the engine certainly accepts the event; it is never null."""
    from pyspark.sql import functions as f

    checks = [f.col(KEY).isNotNull(), f.col("timestamp") >= 0, _has_length("publisher", MAX_NAME_CHARACTERS)]
    if PROBLEM in kinds:
        checks.append(f.col(f"`{PROBLEM}`").isNull())
    if "subject" in kinds:
        checks.append(f.col("subject").isNull() | _has_length("subject", MAX_SUBJECT_CHARACTERS))
    if "sequence" in kinds:
        checks.append(f.col("sequence").isNull() | (f.col("sequence") >= 0))
    unusual = [name for name in ("context", "subscribers", "policy", "payload", "token", "signature") if name in kinds]
    checks += [f.col(name).isNull() for name in unusual]
    doubles = [f.abs(f.col(f"`{name}`")) for name in attribute_names if kinds[name] == "double"]
    texts = [f.length(f.col(f"`{name}`")) for name in attribute_names if kinds[name] == "string"]
    if doubles:  # in Spark, NaN is greater than every number
        checks.append(f.coalesce(f.greatest(*doubles, f.lit(0.0)), f.lit(0.0)) < float("inf"))
    if texts:
        checks.append(f.coalesce(f.greatest(*texts, f.lit(0)), f.lit(0)) <= MAX_STRING_CHARACTERS)
    if kinds.get("class") == "string":
        checks.append(f.col("class").isNull() | ~f.col("class").isin(sorted(meta_events.RESERVED)))
    # Nested WHEN, not AND: Spark's optimiser reorders long chains of AND or + and does not come to an end.
    is_acceptable = f.lit(True)
    for check in checks:
        is_acceptable = f.when(check, is_acceptable).otherwise(False)
    return is_acceptable


def _has_length(name: str, max_length: int) -> "Column":
    from pyspark.sql import functions as f

    return f.length(name).between(1, max_length)
