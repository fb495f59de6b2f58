"""What is told of a message: lines for the log, messages for a store, meta-events."""

from typing import TYPE_CHECKING

from tidings.engine import meta
from tidings.engine.effects import Effect, Log, Persist
from tidings.engine.governing import Governed
from tidings.engine.message import Message, PublicationMessage
from tidings.model.limits import MAX_TOLD_EVENTS
from tidings.model.values import Attributes

if TYPE_CHECKING:
    from tidings.engine.engine import Engine


def told(engine: "Engine", message: Message, governed: Governed) -> list[Effect]:
    """Lines for the log, messages for a store, meta-events; a meta-event causes no others. Of an event that is sent
    again nothing is told where it was told before."""
    if isinstance(message, PublicationMessage) and message.route.round and message.stays_out:
        return []
    news = said(engine, message, governed)
    effects = kept(message, governed)
    for place, attributes in enumerate(news):
        effects += engine.tell(attributes, message.id, str(place))
    return effects


def kept(message: Message, governed: Governed) -> list[Effect]:
    """Lines for the log, and messages for a store."""
    effects: list[Effect] = [Log(line) for line in governed.logs]
    event = message.event if isinstance(message, PublicationMessage) else None
    return effects + [Persist(store, message.situation.message, event) for store in governed.persists]


def said(engine: "Engine", message: Message, governed: Governed) -> list[Attributes]:
    """The meta-events that follow, in their order; of a meta-event, none. If there are too many, that is logged."""
    if isinstance(message, PublicationMessage) and message.journey.meta:
        return []
    said = list(governed.publishes)
    for failure in governed.failures:
        said.append(meta.exception(engine.name, str(failure), failure.outcome.failure or "", message.id))
    for link, one in governed.conflicts:
        if engine.is_news(link, one):
            said.append(meta.conflict(engine.name, link, one.one, one.other, one.reason, message.id))
    if len(said) > MAX_TOLD_EVENTS:
        left = len(said) - MAX_TOLD_EVENTS
        governed.logs.append(
            f"{left:,} meta-events about one message more than MAX_TOLD_EVENTS: they are not published"
        )
        del said[MAX_TOLD_EVENTS:]
    return said
