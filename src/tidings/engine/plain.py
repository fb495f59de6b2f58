"""The short way of a publication: of a client, at a broker without neighbours, where nothing governs.

It comes to what the long way comes to, see `pipeline`; what is not so plain is left to that.
"""

from typing import TYPE_CHECKING

from tidings.engine import admission, routes
from tidings.engine.effects import Deliver
from tidings.engine.refusal import Refused
from tidings.model.event import Event
from tidings.security.exchange import SERVICE_TOPIC

if TYPE_CHECKING:
    from tidings.engine.engine import Engine


def is_open(engine: "Engine", publisher: str) -> bool:
    """Whether there is nobody but clients that get each notification as the event was published, and it may publish.

    What goes the short way changes nothing: it stays open until something else is done.
    """
    if (
        engine.neighbours
        or engine.rules
        or engine.particular
        or engine.held
        or engine.gate is not None
        or engine.strategy.announces
    ):
        return False
    try:
        admission.admit_client(engine, publisher, publisher)
    except Refused:
        return False
    return True


def publish(engine: "Engine", event: Event) -> list[Deliver] | None:
    """What follows from it where the way is open; None: it has to go the long way, on which it is refused, too, if it
    is."""
    if event.policy is not None or SERVICE_TOPIC in event.attributes:
        return None
    try:
        admission.admit_event(engine, event)
    except Refused:
        return None
    concerned = engine.matcher.concerned(event)
    return routes.copies(event, engine.subscriptions.those(sorted(concerned))) if concerned else []
