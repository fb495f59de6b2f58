"""Contexts of clients: who may set them, and which brokers get a change."""

from tidings.engine.effects import Effect, Send
from tidings.engine.message import Refusal
from tidings.engine.operations import DelegateContext, SetContext
from tidings.engine.state import contexts as client_contexts
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.registration import rebind
from tidings.engine.steps import admit, propagation
from tidings.engine.turn import Turn
from tidings.model.values import Context


def set_context(turn: Turn, operation: SetContext, sender: str) -> list[Effect]:
    """Set a client's context and send the change to the brokers that use it. Raises `Refusal`."""
    state = turn.state
    client = operation.client
    if sender in state.links.neighbours:
        return _set_remote_context(turn, operation, sender)
    admit.admit_client(state, client, state.name if client == state.name else client)
    by = operation.by
    if by is not None and by != client and by not in state.contexts.delegates.get(client, ()):
        raise Refusal("admit", f"{client} does not let {by} set its context")
    if state.contexts.context(client) == operation.context:
        return []  # an unchanged value sends nothing
    client_contexts.set_context(state.contexts, client, operation.context, turn.now)
    return _propagate_context(turn, client) if state.links.neighbours or state.strategy.binds else []


def _propagate_context(turn: Turn, client: str) -> list[Effect]:
    """Send a changed context to the brokers that use it.

    The context is announced if the strategy does that. Subscriptions that are sent with the context written into them
    are sent again. Neighbours that match the client's subscriptions get the context itself.
    """
    state = turn.state
    effects, gone = _announce_contexts(turn, client)
    if state.strategy.binds:
        for entry in [subscription for subscription in state.filters.subscriptions.of(client) if subscription.is_local]:
            wanted = entry.value.publishers
            if state.strategy.announces or (wanted is not None and wanted.own_names):
                rebind(state, entry, turn.now)
                effects += propagation.repropagate(turn, entry)
    return effects + _send_to_holders(state, client, is_here=state.contexts.is_here(client)) + gone


def resend_context(turn: Turn, client: str) -> list[Effect]:
    """Send the context that this broker has stored of a client that was connected elsewhere meanwhile.

    A broker on the way may have forgotten the context, and a client that sets an unchanged context sends nothing.
    """
    state = turn.state
    if client not in state.contexts.local:
        return []
    client_contexts.renew_version(state.contexts, client, turn.now)
    return _send_to_holders(state, client)


def _send_to_holders(state: BrokerState, client: str, *, is_here: bool = True) -> list[Effect]:
    """Send the client's context to each neighbour that has it already."""
    names = sorted(state.contexts.sent.neighbours(client))
    return [Send(name, propagation.context_message(state, client, name, is_here=is_here)) for name in names]


def _set_remote_context(turn: Turn, operation: SetContext, sender: str) -> list[Effect]:
    """Store the context of another broker's client, and pass it on where it is used. Older versions are ignored."""
    state = turn.state
    client, provenance = operation.client, operation.way
    if provenance is None:
        raise Refusal("admit", "a broker says which version of a context it tells")
    admit.admit_from_broker(state, client, sender, provenance.origin)
    if state.contexts.is_here(client) or provenance.version < state.filters.remote_subscriptions.versions.get(
        client, (0, 0)
    ):
        return []  # the client is here now, or a newer context is known
    is_new = state.filters.remote_subscriptions.context(client) != operation.context
    # A broker farther on may have forgotten the context, if the client was there between two sessions elsewhere.
    is_new |= provenance.version[0] > state.filters.remote_subscriptions.versions.get(client, (0, 0))[0]
    state.filters.remote_subscriptions.set_context(client, operation.context, provenance.version, sender)
    if not is_new:
        return []
    if state.links.is_external(sender):
        return _propagate_context(turn, client)
    return _send_to_holders(state, client, is_here=False)


def announce_publisher_context(turn: Turn, client: str, context: Context) -> list[Effect]:
    """Announce the context that an event carries as the context of its publisher, if it has changed."""
    if not client_contexts.note_published(turn.state.contexts, client, context):
        return []
    new, gone = _announce_contexts(turn, client)
    return new + gone


def _announce_contexts(turn: Turn, client: str) -> tuple[list[Effect], list[Effect]]:
    """Set a client's announced contexts; return the effects to emit before and after its subscriptions are sent."""
    state = turn.state
    if not state.strategy.announces:
        return [], []
    own = (
        state.contexts.context(client)
        if state.contexts.is_here(client)
        else state.filters.remote_subscriptions.context(client)
    )
    return turn.convergence.announcer.set_client_contexts(turn, client, own, state.contexts.published(client, own))


def client_arrived(turn: Turn, client: str, session: int | None = None) -> list[Effect]:
    """Note that a client is here in this session; until it sets a context it counts as having the empty one."""
    contexts = turn.state.contexts
    client_contexts.note_arrival(contexts, client, contexts.new_version(turn.now) if session is None else session)
    return _announce_contexts(turn, client)[0]


def forget_context(turn: Turn, client: str) -> list[Effect]:
    """Forget a client's context, and tell the brokers that had it. The client comes back without a context."""
    state = turn.state
    effects: list[Effect] = []
    if client_contexts.begin_leaving(state.contexts, client, turn.now):
        effects = _send_to_holders(state, client)
    client_contexts.finish_leaving(state.contexts, client)
    if state.strategy.announces:
        effects += turn.convergence.announcer.set_client_contexts(turn, client)[1]
    return effects


def delegate_context(turn: Turn, operation: DelegateContext, sender: str) -> list[Effect]:
    """Let another client set the context of the client, or end that."""
    state = turn.state
    admit.admit_client(state, operation.client, sender)
    client_contexts.delegate(state.contexts, operation.client, operation.other, is_entrusted=operation.entrusted)
    return []
