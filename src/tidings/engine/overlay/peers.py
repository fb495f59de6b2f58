"""Membership: clients that connect and disconnect, and links to neighbours that go up and down."""

from typing import Any, Protocol

from tidings.engine.effects import Effect, Reject, Send
from tidings.engine.operations import Connect, Join, Unadvertise, Unsubscribe
from tidings.engine.overlay import resumption
from tidings.engine.state import registration
from tidings.engine.state.filters import FilterEntry
from tidings.engine.state.links import add_neighbour, remove_neighbour
from tidings.engine.state.registration import forget_sent_state_of
from tidings.engine.steps import contexts, emit, propagation
from tidings.engine.turn import Turn
from tidings.routing.advertisement_table import META


class OverlayChanges(Protocol):
    """What changes of clients and links ask of convergence."""

    def join(self, turn: Turn, neighbour: str, cost: int) -> list[Effect]:
        """Add a link to a neighbour of this sub-overlay."""
        ...

    def leave(self, turn: Turn, neighbour: str) -> list[Effect]:
        """Remove a link to a neighbour of this sub-overlay."""
        ...

    def drop_waiting(self, neighbour: str) -> None:
        """Drop the waiting publications of a neighbour whose link is down."""
        ...

    def note_reconnection(self, client: str, now: int) -> None:
        """Note that a client has connected that was connected before, here or elsewhere."""
        ...

    def claim_client(self, client: str) -> list[Effect]:
        """Claim a client that has moved here: tell the other brokers."""
        ...


def connect(turn: Turn, overlay: OverlayChanges, operation: Connect) -> list[Effect]:
    """Note that a client has connected; if it moved here, make its former broker give it up."""
    state = turn.state
    client = operation.client
    if client in state.links.neighbours or client in state.links.topology.brokers:
        return [Reject("admit", f"{client} is the name of a broker; choose another one for a client")]
    if operation.session != 1:  # the client was connected before, here or elsewhere
        overlay.note_reconnection(client, turn.now)
    effects = contexts.client_arrived(turn, client, operation.session)
    if not operation.moved:
        return effects
    return effects + overlay.claim_client(client) + contexts.resend_context(turn, client)


def disconnect(turn: Turn, client: str) -> list[Effect]:
    """Remove a disconnected client's advertisements and its subscriptions that are not durable."""
    state = turn.state
    if client in state.links.neighbours:
        return [Reject("admit", f"{client} is the name of a broker; a link that is gone is left")]
    effects = resumption.forget(turn, client)
    for subscription in [entry for entry in state.filters.subscriptions.of(client) if entry.hop == client]:
        if subscription.value.durable is None:
            effects += turn.run(Unsubscribe(client, subscription.id), client)
    for advertisement in [entry for entry in state.filters.advertisements.of(client) if entry.hop == client]:
        effects += turn.run(Unadvertise(client, advertisement.id), client)
    if not any(entry.is_client for entry in state.filters.subscriptions.of(client)):
        effects += contexts.forget_context(turn, client)
    return effects


def give_up(turn: Turn, client: str) -> list[Effect]:
    """Remove everything of a client that is at another broker now, durable subscriptions included."""
    state = turn.state
    effects = resumption.forget(turn, client)
    for subscription in [entry for entry in state.filters.subscriptions.of(client) if entry.is_client]:
        effects += turn.run(Unsubscribe(client, subscription.id), client)
    for advertisement in [entry for entry in state.filters.advertisements.of(client) if entry.is_client]:
        effects += turn.run(Unadvertise(client, advertisement.id), client)
    return effects + contexts.forget_context(turn, client)


def join(turn: Turn, overlay: OverlayChanges, operation: Join) -> list[Effect]:
    """Add a link to a neighbour. A broker of this sub-overlay starts convergence.

    A neighbour in another sub-overlay is treated like a client: it gets all advertisements at once.
    """
    state = turn.state
    neighbour = operation.neighbour
    if neighbour in state.links.neighbours:
        return []
    own: list[FilterEntry[Any]] = [
        *state.filters.advertisements.of(neighbour),
        *state.filters.subscriptions.of(neighbour),
    ]
    if neighbour == state.name or any(subscription.is_client for subscription in own):
        return [Reject("admit", f"{neighbour} is the name of this broker or of a client")]
    if not state.links.is_external(neighbour):
        return overlay.join(turn, neighbour, operation.cost)
    # Another sub-overlay is treated like a client: it gets all advertisements, and its own attract subscriptions.
    add_neighbour(state.links, neighbour)
    effects, _ = (
        turn.convergence.announcer.set_client_contexts(turn, neighbour, None) if state.strategy.announces else ([], [])
    )
    for entry in [
        advertisement for advertisement in state.filters.advertisements if not advertisement.id.startswith(META)
    ]:
        effects += emit.forward_advertisement(turn, entry, neighbour)
    return effects + propagation.advertise_meta(turn)


def leave(turn: Turn, overlay: OverlayChanges, neighbour: str) -> list[Effect]:
    """Remove a link to a neighbour, and everything that came from a neighbour in another sub-overlay."""
    state = turn.state
    if neighbour not in state.links.neighbours:
        return []
    turn.settlement.forget_neighbour(neighbour)
    if not state.links.is_external(neighbour):
        remove_neighbour(state.links, neighbour)
        return resumption.forget(turn, neighbour) + overlay.leave(turn, neighbour)
    effects = resumption.forget(turn, neighbour)
    for subscription in [entry for entry in state.filters.subscriptions if entry.hop == neighbour]:
        effects += turn.run(Unsubscribe(subscription.owner, subscription.id), neighbour)
    for advertisement in [entry for entry in state.filters.advertisements if entry.hop == neighbour]:
        effects += turn.run(Unadvertise(advertisement.owner, advertisement.id), neighbour)
    remove_neighbour(state.links, neighbour)
    effects += resumption.forget(turn, neighbour)
    overlay.drop_waiting(neighbour)
    for entry in [entry for entry in state.filters.entries() if entry.hop == neighbour]:
        registration.remove_filter(state, entry)  # a rule deferred its removal, but the link is gone
    forget_sent_state_of(state, neighbour)
    if state.strategy.announces:
        effects += turn.convergence.announcer.set_client_contexts(turn, neighbour)[1]
    return [effect for effect in effects if not (isinstance(effect, Send) and effect.neighbour == neighbour)]
