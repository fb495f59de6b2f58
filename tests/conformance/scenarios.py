"""What everybody has to agree on: steps of clients, each of which has settled before the next one is taken.

Every publisher advertises first, and offers the context that others ask for: so that nothing depends on whether
advertisements lead the way.
"""

from tests.conformance.drivers import KEEP_A, REMOVE_B, TRIM
from tidings.simulation.checking.steps import (
    Advertises,
    Leaves,
    Moves,
    Publishes,
    Returns,
    SetsContext,
    Step,
    Subscribes,
    Unadvertises,
    Unsubscribes,
)

OFFER = ("x", "y")


def advertised(*publishers: str) -> list[Step]:
    return [Advertises(name, f"{name}.ad", "", OFFER, OFFER) for name in publishers]


def published(publisher: str, *numbers: int, subscribers: str | None = None) -> list[Step]:
    return [Publishes(publisher, {"a": number, "b": number % 2}, subscribers) for number in numbers]


SCENARIOS: dict[str, list[Step]] = {
    "content decides who gets what": [
        *advertised("ann", "bob"),
        Subscribes("cyd", "low", "a < 2"),
        Subscribes("dan", "high", "a > 1"),
        Subscribes("eve", "odd", "b = 1"),
        Subscribes("eve", "all"),
        *published("ann", 0, 1, 2, 3),
        *published("bob", 3, 0),
    ],
    "a subscription that covers another leaves": [
        *advertised("ann"),
        Subscribes("cyd", "wide", "a > 0"),
        Subscribes("dan", "narrow", "a > 2"),
        *published("ann", 1, 3),
        Unsubscribes("cyd", "wide"),
        *published("ann", 1, 3),
        Subscribes("cyd", "wide", "a > 0"),
        *published("ann", 1, 3),
    ],
    "two clients share context and filter, and one unsubscribes": [
        *advertised("ann"),
        SetsContext("cyd", {"x": 1}),
        SetsContext("dan", {"x": 1}),
        SetsContext("ann", {"x": 1}),
        Subscribes("cyd", "one", "a > 0", "x = this.x"),
        Subscribes("dan", "other", "a > 0", "x = this.x"),
        *published("ann", 1),
        Unsubscribes("cyd", "one"),
        *published("ann", 2),
    ],
    "one content under two context filters": [
        *advertised("ann", "bob"),
        SetsContext("ann", {"x": 1}),
        SetsContext("bob", {"x": 2}),
        Subscribes("cyd", "first", "a > 0", "x = 1"),
        Subscribes("cyd", "second", "a > 0", "x = 2"),
        *published("ann", 1),
        *published("bob", 1),
        Unsubscribes("cyd", "first"),
        *published("ann", 1),
        *published("bob", 1),
    ],
    "a publisher publishes right after its context has changed": [
        *advertised("ann"),
        SetsContext("cyd", {"x": 2}),
        Subscribes("cyd", "near", "", "x between this.x - 1 and this.x + 1"),
        SetsContext("ann", {"x": 9}),
        *published("ann", 1),
        SetsContext("ann", {"x": 3}),
        *published("ann", 2),
        SetsContext("ann", {}),
        *published("ann", 3),
    ],
    "a publisher that never set a context": [
        *advertised("ann"),
        Subscribes("cyd", "anybody"),
        Subscribes("dan", "nowhere", "", "x is null"),
        Subscribes("eve", "somewhere", "", "x is not null"),
        *published("ann", 1),
    ],
    "publishers say for whom": [
        *advertised("ann"),
        SetsContext("ann", {"x": 1}),
        SetsContext("cyd", {"x": 1}),
        SetsContext("dan", {"x": 5}),
        *(Subscribes(name, f"{name}.s") for name in ("cyd", "dan", "eve")),
        *published("ann", 1, subscribers="x = this.x"),
        *published("ann", 2, subscribers="x > 1"),
        *published("ann", 3, subscribers="x is null"),
        SetsContext("dan", {"x": 1}),
        *published("ann", 4, subscribers="x = this.x"),
        SetsContext("dan", {}),
        *published("ann", 5, subscribers="x = this.x"),
    ],
    "a subscriber's context changes back and forth": [
        *advertised("ann", "bob"),
        SetsContext("ann", {"x": 1}),
        SetsContext("bob", {"x": 2}),
        Subscribes("cyd", "same", "", "x = this.x"),
        *(
            step
            for x in (1, 2, 1, 3)
            for step in (SetsContext("cyd", {"x": x}), *published("ann", x), *published("bob", x))
        ),
    ],
    "policies change what is told": [
        *advertised("ann"),
        Subscribes("cyd", "trimmed", "a > 0", None, TRIM),
        Subscribes("dan", "removed", "a > 0", None, REMOVE_B),
        Subscribes("eve", "kept", "b >= 0", None, KEEP_A),
        Subscribes("eve", "whole"),
        *published("ann", 1, 2),
        Subscribes("cyd", "trimmed", "b = 1", None, TRIM),
        Subscribes("dan", "removed", "a >= 0"),
        *published("ann", 1, 2),
        Unsubscribes("dan", "removed"),
        Subscribes("dan", "removed", "a >= 0"),
        *published("ann", 1, 2),
    ],
    "a subscription takes the place of another": [
        *advertised("ann"),
        Subscribes("cyd", "s", "a > 0"),
        *published("ann", 1, 2),
        Subscribes("cyd", "s", "a > 1", "x is null"),
        *published("ann", 1, 2),
        Subscribes("cyd", "s", "a < 1"),
        *published("ann", 0, 1),
    ],
    "clients leave and come back": [
        *advertised("ann"),
        SetsContext("cyd", {"x": 1}),
        SetsContext("dan", {"x": 1}),
        Subscribes("cyd", "kept", "a > 0", durable="kept"),
        Subscribes("cyd", "gone", "a > 0"),
        Subscribes("dan", "gone too", "a > 0"),
        Leaves("cyd"),
        Leaves("dan"),
        *published("ann", 1, 2, subscribers="x = 1"),
        *published("ann", 3, subscribers="x = 2"),
        Returns("cyd"),
        Returns("dan"),
        *published("ann", 4, subscribers="x = 1"),
        Subscribes("dan", "gone too", "a > 0"),
        *published("ann", 5, subscribers="x is null"),
    ],
    "a policy that was set stays when its subscriber moves": [
        *advertised("ann"),
        Subscribes("cyd", "s", "a > 1", policy=KEEP_A),
        Subscribes("cyd", "s", "b = 1"),
        *published("ann", 3),
        Moves("cyd", "b3"),
        *published("ann", 3),
    ],
    "clients move": [
        *advertised("ann"),
        SetsContext("ann", {"x": 1}),
        SetsContext("cyd", {"x": 1}),
        Subscribes("cyd", "s", "", "x = this.x"),
        Subscribes("dan", "d", "", durable="d"),
        *published("ann", 1),
        *(
            step
            for name in ("b3", "b1", "b5", "b2")
            for step in (Moves("cyd", name), *published("ann", 2, subscribers="x = this.x"))
        ),
        *(step for name in ("b4", "b2", "b1") for step in (Moves("ann", name), *published("ann", 3))),
        Leaves("dan"),
        *published("ann", 4),
        Moves("dan", "b5"),
        *published("ann", 5),
    ],
    "advertisements come and go": [
        Subscribes("cyd", "s", "a > 0"),
        *advertised("ann", "bob"),
        *published("ann", 1),
        Unadvertises("ann", "ann.ad"),
        Advertises("ann", "ann.other", "a > 1", OFFER, OFFER),
        *published("ann", 2),
        *published("bob", 1),
        Subscribes("dan", "late", "a > 1"),
        *published("ann", 3),
    ],
}
