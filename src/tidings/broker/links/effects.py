"""Carry out the engine's effects on other brokers: send operations, resend publications, hand clients over."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from tidings.broker.links.handover import Destination, Handover
from tidings.broker.links.links import NeighbourLinks
from tidings.broker.links.resender import Resender
from tidings.broker.ports import NodePort, Scheduler, Sessions
from tidings.broker.release_queue import Task
from tidings.engine.effects import (
    ClientMoved,
    Effect,
    HandOver,
    HandoverDone,
    PublicationSettled,
    RestoreContext,
    Send,
    Wake,
)
from tidings.engine.operations import SetContext, Tick
from tidings.engine.overlay.redelivery import RedeliveryTracker
from tidings.model.errors import JournalError
from tidings.model.event import Event
from tidings.model.values import Context


class EffectsNode(NodePort, Protocol):
    """What the remote effects need of the node."""

    def client_connected(self, client: str) -> None:
        """Have the engine make the pending decisions about events for `client`."""
        ...

    def resume_after_rebuild(self) -> None:
        """Accept operations again, after the engine was rebuilt."""
        ...


class EffectParts(NamedTuple):
    """The parts of a broker that carry out its remote effects."""

    node: EffectsNode
    links: NeighbourLinks
    sessions: Sessions
    resender: Resender
    handover: Handover
    trust_answer: Callable[[str, str], tuple[bool, int] | None]
    read_event: Callable[[Event], None]  # called with each event of a client


class RemoteEffects:
    """The `LinksPort` of a broker's node: carries out effects that concern other brokers and parties.

    The node is made with it, and the parts are made with the node; so they are given to `begin` afterwards, before the
    first operation.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._parts: EffectParts

    def begin(self, parts: EffectParts) -> None:
        """Carry out effects with these parts from now on."""
        self._parts = parts

    def tasks_for(self, effects: list[Effect]) -> list[Task]:
        """Return the calls that carry out effects, for the release queue.

        A `Send` is bound to the link that is up now: a later link to the same neighbour begins with a full exchange.
        Effects about redelivery are given to the resender at once, not queued: the next publication must already see
        them.
        """
        links, resender, handover = self._parts.links, self._parts.resender, self._parts.handover
        tasks: list[Task] = []
        for effect in effects:
            if isinstance(effect, Send):
                link = links.get(effect.neighbour)
                if link is not None:
                    tasks.append((link.send, (effect.operation,)))
            elif resender.apply_effect(effect):
                self._scheduler.defer_to_turn_end(resender.send_next)
                if isinstance(effect, PublicationSettled):
                    self._scheduler.defer_to_turn_end(partial(handover.publication_settled, effect))
                elif isinstance(effect, ClientMoved):
                    tasks.append((self._carry_out, (effect,)))  # behind a `HandOver` that is still queued
            else:
                tasks.append((self._carry_out, (effect,)))
        return tasks

    def _carry_out(self, effect: Effect) -> None:
        """Carry out an effect of the engine that is neither sent to a neighbour nor about redelivery."""
        handover = self._parts.handover
        match effect:
            case Wake(microseconds):
                self._scheduler.call_later(microseconds / 1_000_000, self.tick)
            case HandOver(client, broker, context, session):
                handover.hand_over(client, Destination(broker, session), context)
            case ClientMoved(client, broker, session):
                handover.client_moved(client, Destination(broker, session))
            case RestoreContext(client, context):
                self._restore_context(client, context)
            case HandoverDone(number):
                handover.parcel_stored(number)

    def _restore_context(self, client: str, context: Context) -> None:
        """Set the context that a client had at its former broker, unless the client has set one here."""
        session = self._parts.sessions.get(client)
        if session is None or not session.has_set_context:
            self._parts.node.operate(SetContext(client, context), sync=False)

    def tick(self) -> None:
        """Tell the engine that time has passed."""
        if self._scheduler.is_stopping:
            return
        try:
            self._parts.node.drive(Tick())
        except JournalError as error:
            self._parts.node.log_line(f"the effects of a timer could not be journaled: {error}")
        self._scheduler.flush()

    def on_published(self, event: Event, offset: int) -> None:
        """Note that a client's event was accepted at this offset of the journal."""
        self._parts.resender.on_published(event, offset)
        self._parts.read_event(event)

    def trust_answer(self, party: str, group: str) -> tuple[bool, int] | None:
        """Return whether `party` belongs to the trust group, and until when; None if the party is challenged now."""
        return self._parts.trust_answer(party, group)

    def is_unsettled(self, offset: int) -> bool:
        """Return whether the publication at this offset is not settled yet."""
        return self._parts.resender.is_unsettled(offset)

    def before_sync(self) -> None:
        """Append the redelivery state to the journal, which is about to be synced."""
        self._parts.resender.before_sync()

    @property
    def redelivery(self) -> RedeliveryTracker:
        """Knows what other brokers have yet to be sent."""
        return self._parts.resender.tracker

    def flush(self) -> None:
        """End a turn of the event loop."""
        self._scheduler.flush()

    # After the engine was rebuilt

    def relink_all(self) -> None:
        """Close every link at the end of this turn, since the engine was rebuilt and knows no neighbours."""
        self._scheduler.defer_to_turn_end(self._close_all_links)
        self._scheduler.call_later(0, self._scheduler.flush)

    def _close_all_links(self) -> None:
        """Accept operations again, have pending decisions made again, and close every link; dialers connect again."""
        node = self._parts.node
        node.resume_after_rebuild()
        for client in self._parts.sessions.client_names():
            node.client_connected(client)  # the rebuilt engine no longer waits for the client's proof
        self._parts.links.close_all("broker state was rebuilt from its journal; reconnect to resynchronise")
