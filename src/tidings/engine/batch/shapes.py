"""Shapes of many copies at once: what rules decided for them, whichever event it is."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa

from tidings.engine.deciding import Decision, final_attributes
from tidings.engine.journey import PLAIN, Shape
from tidings.engine.ruled import Cut
from tidings.model.event import Event
from tidings.model.notification import Notification, Trace
from tidings.model.values import Value
from tidings.policy import rendering
from tidings.policy.situation import Conversion, Shaped

_CONVERSIONS: dict[str, Conversion] = {"xml": rendering.xml, "json": rendering.json}
_WORDS = {conversion: word for word, conversion in _CONVERSIONS.items()}


class Shaping(msgspec.Struct, frozen=True):
    """`keeps`: of the event's own attributes only these; None: all. `payload` is what a conversion gave that is known
    for one copy only; `conversion` is the word for one that is carried out when the copy is made."""

    keeps: frozenset[str] | None = None
    removes: frozenset[str] = frozenset()
    added: tuple[tuple[str, Value], ...] = ()
    trace: tuple[Trace, ...] = ()
    conversion: str | None = None
    payload: bytes | None = None

    def trimmed(self, names: frozenset[str]) -> "Shaping":
        """The same, and of the attributes only those that the subscription names."""
        return msgspec.structs.replace(self, keeps=names if self.keeps is None else self.keeps & names)

    def of(self, event: Event) -> Shape:
        """The shape of a copy of that event."""
        if self == AS_PUBLISHED:
            return PLAIN
        gone = self.removes & event.attributes.keys()
        if self.keeps is not None:
            gone |= event.attributes.keys() - self.keeps
        shape = Shape(False, frozenset(gone), self.added, self.trace, self.payload)
        if self.conversion is None or event.signature is not None:  # what is sealed stays as it is
            return shape
        seen = Shaped(final_attributes(event, shape), event.payload, event.subject, event.publisher, shape.trace)
        return msgspec.structs.replace(shape, payload=_CONVERSIONS[self.conversion](seen))


AS_PUBLISHED = Shaping()


def shaping_of(decisions: Iterable[Decision], broker: str) -> tuple[Shaping, bool]:
    """What decisions make of any event; whether, beside it, it is trimmed to what the subscription names.

    As `deciding.shaped` does it for one event; the conversions among them are the built-in ones.
    """
    keeps: frozenset[str] | None = None
    removes: set[str] = set()
    added: dict[str, Value] = {}
    trace: dict[str, Any] = {}
    conversion, trims = None, False
    for _, source, outcome in decisions:
        removes |= outcome.removes
        kept = [] if outcome.keeps is None else [outcome.keeps]
        if outcome.trims and source.kind != "subscription":
            kept.append(source.names)
        trims |= outcome.trims and source.kind == "subscription"
        for names in kept:
            keeps = names if keeps is None else keeps & names
        added.update(outcome.added)
        trace |= outcome.trace
        if conversion is None and outcome.conversions:
            conversion = _WORDS[outcome.conversions[0]]
    hops = (Trace(broker, **trace),) if trace else ()
    return Shaping(keeps, frozenset(removes), tuple(added.items()), hops, conversion), trims


def shaping_in(shape: Shape) -> Shaping:
    """The same of a shape that was made for one event."""
    return Shaping(None, shape.removed, shape.added, shape.trace, None, shape.payload)


def shaping_by(cut: Cut) -> Shaping:
    return Shaping(removes=cut.removed) if cut.kept is None else Shaping(frozenset(cut.kept))


def shaping_between(event: Event, notification: Notification) -> Shaping:
    """What must have been decided for a notification of that event."""
    before, after = event.attributes, notification.attributes
    added = tuple((name, value) for name, value in after.items() if name not in before or before[name] is not value)
    payload = None if notification.payload == event.payload else notification.payload
    return Shaping(None, frozenset(before.keys() - after.keys()), added, notification.trace, None, payload)


class Shapes:
    """The distinct ones, by number; 0 is the event as it was published."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {(AS_PUBLISHED,): 0}
        self.known: list[Shaping] = [AS_PUBLISHED]

    def number(self, shaping: Shaping) -> int:
        key = shaping, *(type(value) for _, value in shaping.added)  # 1, 1.0 and True are equal to Python
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.known)
            self.known.append(shaping)
        return found

    def table(self) -> pa.Table:
        """One row a shape: names kept (null: all) and removed, what is added, trace and conversion."""
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
                "keeps": None if one.keeps is None else sorted(one.keeps),
                "removes": sorted(one.removes),
                "added": msgspec.json.encode(dict(one.added)).decode(),
                "trace": trace_text(one.trace),
                "conversion": one.conversion,
                "payload": one.payload,
            }
            for number, one in enumerate(self.known)
        ]
        return pa.Table.from_pylist(rows, schema)


def trace_text(trace: tuple[Trace, ...]) -> str | None:
    """JSON: of each broker what it told of itself."""
    if not trace:
        return None
    told = [{name: getattr(one, name) for name in one.__struct_fields__} for one in trace]
    return msgspec.json.encode(
        [{name: value for name, value in one.items() if value is not None} for one in told]
    ).decode()
