"""The workload of the broker comparison: every event matches exactly one subscription, and has about 100 bytes.

There are two variants: an equality and a range; and two equalities, for brokers that match nothing else.
"""

import random
from enum import StrEnum
from typing import NamedTuple

EVENT_BYTES = 100
STAMP_BYTES = 8  # the time of publishing, at the beginning of every payload
_KINDS = 100  # number of values of the attribute `kind`
_DOMAIN = 100.0  # levels are at least zero and below this


class Variant(StrEnum):
    """The kind of subscriptions."""

    RANGES = "ranges"
    EQUALITY = "equalities"


class Interest(NamedTuple):
    """What one subscription matches: a kind, and either a place, or levels from `low` up to but excluding `high`."""

    kind: str
    place: str = ""
    low: float = 0.0
    high: float = 0.0

    @property
    def text(self) -> str:
        """The interest as a Tidings filter, which is also a JMS selector."""
        rest = f"place = '{self.place}'" if self.place else f"level >= {self.low!r} and level < {self.high!r}"
        return f"kind = '{self.kind}' and {rest}"


class BenchEvent(NamedTuple):
    """An event to publish."""

    attributes: dict[str, str | float]
    filling: bytes  # the rest of the payload after the stamp


def interests(variant: Variant, count: int) -> list[Interest]:
    """Return `count` interests that exclude each other."""
    slots = -(-count // _KINDS)
    width = _DOMAIN / slots
    result = []
    for number in range(count):
        slot, kind = divmod(number, _KINDS)
        if variant is Variant.EQUALITY:
            result.append(Interest(f"k{kind}", place=f"p{slot}"))
        else:
            result.append(Interest(f"k{kind}", low=round(slot * width, 3), high=round((slot + 1) * width, 3)))
    return result


def events(choices: list[Interest], count: int, seed: int = 1) -> list[BenchEvent]:
    """Return random events, each matching one of the interests, all equally likely."""
    draw = random.Random(seed)  # noqa: S311 - a workload is no secret
    return [_event(draw.choice(choices), draw) for _ in range(count)]


def _event(interest: Interest, draw: random.Random) -> BenchEvent:
    attributes: dict[str, str | float] = {"kind": interest.kind}
    if interest.place:
        attributes["place"] = interest.place
    else:
        attributes["level"] = round(draw.uniform(interest.low, interest.high - (interest.high - interest.low) / 100), 4)
    size = sum(len(name) + len(str(value)) for name, value in attributes.items())
    return BenchEvent(attributes, b"." * (EVENT_BYTES - STAMP_BYTES - size))
