"""What the brokers are compared on: every event matches exactly one of the subscriptions, and has about 100 bytes.

There are two variants: an equality and a range, and two equalities for brokers that know nothing else.
"""

import random
from enum import StrEnum
from typing import NamedTuple

EVENT_BYTES = 100
STAMP_BYTES = 8  # when it was published, at the beginning of every payload
_KINDS = 100  # values of the attribute that every subscription asks for
_DOMAIN = 100.0  # levels begin at zero and stay below it


class Variant(StrEnum):
    RANGES = "ranges"
    EQUALITY = "equalities"


class Interest(NamedTuple):
    """What one subscription asks for: a kind, and either a place or a level that is at least low and below high."""

    kind: str
    place: str = ""
    low: float = 0.0
    high: float = 0.0

    @property
    def text(self) -> str:
        """As a filter of ours, which is a selector of JMS too."""
        rest = f"place = '{self.place}'" if self.place else f"level >= {self.low!r} and level < {self.high!r}"
        return f"kind = '{self.kind}' and {rest}"


class Event(NamedTuple):
    attributes: dict[str, str | float]
    filling: bytes  # of the payload, behind the stamp


def interests(variant: Variant, count: int) -> list[Interest]:
    """So many that exclude each other."""
    slots = -(-count // _KINDS)
    width = _DOMAIN / slots
    made = []
    for number in range(count):
        slot, kind = divmod(number, _KINDS)
        if variant is Variant.EQUALITY:
            made.append(Interest(f"k{kind}", place=f"p{slot}"))
        else:
            made.append(Interest(f"k{kind}", low=round(slot * width, 3), high=round((slot + 1) * width, 3)))
    return made


def events(wanted: list[Interest], count: int, seed: int = 1) -> list[Event]:
    """Each is what one of the interests asks for, all of them equally likely."""
    draw = random.Random(seed)  # noqa: S311 - a workload is no secret
    return [_event(draw.choice(wanted), draw) for _ in range(count)]


def _event(wanted: Interest, draw: random.Random) -> Event:
    attributes: dict[str, str | float] = {"kind": wanted.kind}
    if wanted.place:
        attributes["place"] = wanted.place
    else:
        attributes["level"] = round(draw.uniform(wanted.low, wanted.high - (wanted.high - wanted.low) / 100), 4)
    taken = sum(len(name) + len(str(value)) for name, value in attributes.items())
    return Event(attributes, b"." * (EVENT_BYTES - STAMP_BYTES - taken))
