"""Forwarding: why a subscription was, or was not, forwarded toward a publisher at another broker.

Nothing is changed by asking. The answer is that of one broker, which knows the advertisements that have reached it, its
own links and the rules in its tables; what brokers farther on have decided is not known here.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from tidings.engine.deciding import Decision
from tidings.engine.governing import Governed, govern_filter
from tidings.engine.tables import Filed
from tidings.matching.reference import matches
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.subscription import Subscription
from tidings.routing.offers import overlaps_content, unoffered

if TYPE_CHECKING:
    from tidings.engine.engine import Engine


class Forwarding(NamedTuple):
    """Whether a subscription was forwarded, and why; `decision` is that of the rule which blocked it."""

    succeeded: bool
    reason: str
    decision: Decision | None = None


def forwarding(
    engine: "Engine", event: Event, subscription: Filed[Subscription], links_down: Collection[str] = ()
) -> Forwarding | None:
    """Whether the subscription was forwarded toward the publisher of the event; None where no other broker needs it.

    Args:
        engine: The engine of the broker that is asked.
        event: The event whose publisher may be at another broker.
        subscription: A subscription in the broker's table.
        links_down: The neighbours whose links are configured and down.
    """
    publisher = event.publisher
    if publisher == engine.name or engine.is_here(publisher) or not (engine.neighbours or links_down):
        return None
    advertisements = [filed for filed in engine.advertisements.of(publisher) if not filed.is_client]
    if engine.strategy.name != "advertisement" and not any(engine.leaves(filed.hop) for filed in advertisements):
        return _by_announcements(engine, subscription)
    if not advertisements:
        return Forwarding(False, _no_advertisement(engine, publisher, links_down))
    found = [_toward(engine, event, filed, subscription) for filed in advertisements]
    chosen = next((one for one in found if one.succeeded), None) or next((one for one in found if one.decision), None)
    return chosen or Forwarding(False, "; ".join(one.reason for one in found))


def _by_announcements(engine: "Engine", subscription: Filed[Subscription]) -> Forwarding | None:
    """The same for strategies without advertisements. They forward a subscription to every broker, or to the brokers
    that have announced a context which its filter of publishers selects."""
    if not engine.strategy.announces or engine.toward(subscription):
        return None
    return Forwarding(False, "no other broker has announced a context that the filter of publishers selects")


def _no_advertisement(engine: "Engine", publisher: str, links_down: Collection[str]) -> str:
    reasons = [f"{engine.name} knows no advertisement of {publisher}"]
    reasons += (f"the link to {name} is down" for name in sorted(links_down))
    if not engine.overlay.is_settled:
        reasons.append("the routing tables are not complete yet")
    return "; ".join(reasons)


def _toward(
    engine: "Engine", event: Event, advertisement: Filed[Advertisement], subscription: Filed[Subscription]
) -> Forwarding:
    name = f"the advertisement {advertisement.id} of {advertisement.owner}"
    if not matches(advertisement.value.content, event):
        return Forwarding(False, f"{name} does not announce such an event")
    if not overlaps_content(advertisement.value, subscription.value):
        return Forwarding(False, f"{name} does not overlap the subscription")
    missing = unoffered(advertisement.value, subscription.value)
    if missing:
        return Forwarding(False, f"{name} does not offer {', '.join(sorted(missing))} of its publisher's context")
    return _on_link(engine, advertisement.hop, subscription)


def _on_link(engine: "Engine", neighbour: str, subscription: Filed[Subscription]) -> Forwarding:
    """Whether the subscription was forwarded to a neighbour from which an advertisement came that attracts it."""
    if neighbour == subscription.hop:
        return Forwarding(True, f"came from {neighbour}, as the advertisement did")
    if neighbour in subscription.sent:
        return Forwarding(True, f"forwarded to {neighbour}")
    if neighbour in subscription.toward:
        front = engine.front(neighbour)
        covering = "" if front is None else ", ".join(front.covering(subscription.id))
        return Forwarding(True, f"covered on the link to {neighbour}" + (f": by {covering}" if covering else ""))
    message, rulings = engine.subscription_again(subscription)
    governed = Governed()
    govern_filter(message, rulings, engine.hop(message, neighbour), governed)
    for _, decision in governed.stopped:
        return Forwarding(False, f"the subscription is blocked on the way to {neighbour}", decision)
    for _, question in governed.waiting:
        return Forwarding(False, f"waits for an answer before it is forwarded to {neighbour}: {question}")
    return Forwarding(False, f"not forwarded to {neighbour} yet: the routing tables are not complete")
