"""Transformations: what rules change in a copy, independent of the event, so that many copies share one."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa

from tidings.engine.headers import PLAIN, CopyChanges
from tidings.engine.state.filter_rules import StaticProjection
from tidings.engine.steps.decisions import Decision, final_attributes
from tidings.model.event import Event
from tidings.model.notification import Notification, Trace
from tidings.model.values import Value
from tidings.policy.evaluation import rendering
from tidings.policy.evaluation.evaluation import Conversion, OutgoingPublication

_CONVERSIONS: dict[str, Conversion] = {"xml": rendering.xml, "json": rendering.json}
_WORDS = {conversion: word for word, conversion in _CONVERSIONS.items()}


class Transformation(msgspec.Struct, frozen=True):
    """What rules change in a copy: attributes kept, removed and added, the trace, and the conversion of the payload.

    `keeps` None keeps all of the event's attributes. `conversion` names a conversion that is made with the copy;
    `payload` is the result of a conversion that is known for this copy only.
    """

    keeps: frozenset[str] | None = None
    removes: frozenset[str] = frozenset()
    added: tuple[tuple[str, Value], ...] = ()
    trace: tuple[Trace, ...] = ()
    conversion: str | None = None
    payload: bytes | None = None

    def trimmed(self, names: frozenset[str]) -> "Transformation":
        """Return the transformation that in addition keeps only these attributes."""
        return msgspec.structs.replace(self, keeps=names if self.keeps is None else self.keeps & names)

    def changes_of(self, event: Event) -> CopyChanges:
        """Return the changes of the copy of an event."""
        if self == AS_PUBLISHED:
            return PLAIN
        removed = self.removes & event.attributes.keys()
        if self.keeps is not None:
            removed |= event.attributes.keys() - self.keeps
        changes = CopyChanges(False, frozenset(removed), self.added, self.trace, self.payload)
        if self.conversion is None or event.signature is not None:  # a sealed payload is not converted
            return changes
        publication = OutgoingPublication(
            final_attributes(event, changes), event.payload, event.subject, event.publisher, changes.trace
        )
        return msgspec.structs.replace(changes, payload=_CONVERSIONS[self.conversion](publication))


AS_PUBLISHED = Transformation()


def transformation_of(decisions: Iterable[Decision], broker: str) -> tuple[Transformation, bool]:
    """Return the transformation that decisions make of any event, and whether the subscription trims it further.

    It equals `decisions.apply_decisions` for one event. Its conversions are the built-in ones. A trimming subscription
    keeps only the attributes that its own filter names.
    """
    keeps: frozenset[str] | None = None
    removes: set[str] = set()
    added: dict[str, Value] = {}
    trace: dict[str, Any] = {}
    conversion, trims = None, False
    for _, source, outcome in decisions:
        removes |= outcome.removes
        name_sets = [] if outcome.keeps is None else [outcome.keeps]
        if outcome.trims and source.kind != "subscription":
            name_sets.append(source.names)
        trims |= outcome.trims and source.kind == "subscription"
        for names in name_sets:
            keeps = names if keeps is None else keeps & names
        added.update(outcome.added)
        trace |= outcome.trace
        if conversion is None and outcome.conversions:
            conversion = _WORDS[outcome.conversions[0]]
    hops = (Trace(broker, **trace),) if trace else ()
    return Transformation(keeps, frozenset(removes), tuple(added.items()), hops, conversion), trims


def transformation_of_changes(changes: CopyChanges) -> Transformation:
    """Return the transformation with the changes of a single copy."""
    return Transformation(None, changes.removed, changes.added, changes.trace, None, changes.payload)


def transformation_of_projection(projection: StaticProjection) -> Transformation:
    """Return the transformation of a projection that a subscription's rule always makes."""
    return (
        Transformation(removes=projection.removed)
        if projection.kept is None
        else Transformation(frozenset(projection.kept))
    )


def transformation_between(event: Event, notification: Notification) -> Transformation:
    """Return the transformation that turns an event into its notification."""
    before, after = event.attributes, notification.attributes
    added = tuple((name, value) for name, value in after.items() if name not in before or before[name] is not value)
    payload = None if notification.payload == event.payload else notification.payload
    return Transformation(None, frozenset(before.keys() - after.keys()), added, notification.trace, None, payload)


class Transformations:
    """The distinct transformations of a batch, numbered; 0 is the event as published."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {(AS_PUBLISHED,): 0}
        self.distinct: list[Transformation] = [AS_PUBLISHED]

    def number(self, transformation: Transformation) -> int:
        """Return the number of a transformation; a new one is added."""
        key = transformation, *(type(value) for _, value in transformation.added)  # 1, 1.0 and True are equal in Python
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.distinct)
            self.distinct.append(transformation)
        return number

    def table(self) -> pa.Table:
        """Return a row per transformation: names kept (null: all) and removed, what is added, trace and conversion."""
        text, names = pa.string(), pa.list_(pa.string())
        schema = pa.schema(
            [
                ("shape", pa.int32()),
                ("keeps", names),
                ("removes", names),
                ("added", text),
                ("trace", text),
                ("conversion", text),
                ("payload", pa.binary()),
            ]
        )
        rows = [
            {
                "shape": number,
                "keeps": None if transformation.keeps is None else sorted(transformation.keeps),
                "removes": sorted(transformation.removes),
                "added": msgspec.json.encode(dict(transformation.added)).decode(),
                "trace": trace_text(transformation.trace),
                "conversion": transformation.conversion,
                "payload": transformation.payload,
            }
            for number, transformation in enumerate(self.distinct)
        ]
        return pa.Table.from_pylist(rows, schema)


def trace_text(trace: tuple[Trace, ...]) -> str | None:
    """Return a trace as JSON: for each broker the values that it added. None for an empty trace."""
    if not trace:
        return None
    hops = [{name: getattr(hop, name) for name in hop.__struct_fields__} for hop in trace]
    return msgspec.json.encode(
        [{name: value for name, value in values.items() if value is not None} for values in hops]
    ).decode()
