"""Contexts of clients: who may set them, and which brokers get a change."""

from typing import TYPE_CHECKING

from tidings.engine.effects import Effect, Send
from tidings.engine.message import Refusal
from tidings.engine.operations import DelegateContext, SetContext
from tidings.engine.steps import admit, propagation
from tidings.model.values import Context

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

_NOWHERE = Context()


def set_context(engine: "Engine", operation: SetContext, sender: str) -> list[Effect]:
    """Set a client's context and send the change to the brokers that use it. Raises `Refusal`."""
    client = operation.client
    if sender in engine.neighbours:
        return _set_remote_context(engine, operation, sender)
    admit.admit_client(engine, client, engine.name if client == engine.name else client)
    by = operation.by
    if by is not None and by != client and by not in engine.context_delegates.get(client, ()):
        raise Refusal("admit", f"{client} does not let {by} set its context")
    if engine.context(client) == operation.context:
        return []  # an unchanged value sends nothing
    engine.contexts[client] = operation.context
    engine.matcher.set_context(client, operation.context)
    engine.publisher_contexts.pop(client, None)
    engine.context_versions[client] = engine.version_of(client)
    return _propagate_context(engine, client) if engine.neighbours or engine.strategy.binds else []


def _propagate_context(engine: "Engine", client: str) -> list[Effect]:
    """Send a changed context to the brokers that use it.

    The context is announced if the strategy does that. Subscriptions that are sent with the context written into them
    are sent again. Neighbours that match the client's subscriptions get the context itself.
    """
    effects, gone = _announce_contexts(engine, client)
    if engine.strategy.binds:
        for entry in [subscription for subscription in engine.subscriptions.of(client) if subscription.is_local]:
            wanted = entry.value.publishers
            if engine.strategy.announces or (wanted is not None and wanted.own_names):
                engine.rebind(entry)
                effects += propagation.repropagate(engine, entry)
    return effects + _send_to_holders(engine, client, is_here=engine.is_here(client)) + gone


def resend_context(engine: "Engine", client: str) -> list[Effect]:
    """Send the context that this broker has stored of a client that was connected elsewhere meanwhile.

    A broker on the way may have forgotten the context, and a client that sets an unchanged context sends nothing.
    """
    if client not in engine.contexts:
        return []
    engine.context_versions[client] = engine.version_of(client)
    return _send_to_holders(engine, client)


def _send_to_holders(engine: "Engine", client: str, *, is_here: bool = True) -> list[Effect]:
    """Send the client's context to each neighbour that has it already."""
    names = sorted(engine.contexts_sent.get(client, ()))
    return [Send(name, propagation.context_message(engine, client, name, is_here=is_here)) for name in names]


def _set_remote_context(engine: "Engine", operation: SetContext, sender: str) -> list[Effect]:
    """Store the context of another broker's client, and pass it on where it is used. Older versions are ignored."""
    client, provenance = operation.client, operation.way
    if provenance is None:
        raise Refusal("admit", "a broker says which version of a context it tells")
    admit.admit_from_broker(engine, client, sender, provenance.origin)
    if engine.is_here(client) or provenance.version < engine.remote_subscriptions.versions.get(client, (0, 0)):
        return []  # the client is here now, or a newer context is known
    is_new = engine.remote_subscriptions.context(client) != operation.context
    # A broker farther on may have forgotten the context, if the client was there between two sessions elsewhere.
    is_new |= provenance.version[0] > engine.remote_subscriptions.versions.get(client, (0, 0))[0]
    engine.remote_subscriptions.set_context(client, operation.context, provenance.version, sender)
    if not is_new:
        return []
    if engine.is_external(sender):
        return _propagate_context(engine, client)
    return _send_to_holders(engine, client, is_here=False)


def announce_publisher_context(engine: "Engine", client: str, context: Context) -> list[Effect]:
    """Announce the context that an event carries as the context of its publisher, if it has changed."""
    if engine.publisher_contexts.get(client) == context:
        return []
    engine.publisher_contexts[client] = context
    new, gone = _announce_contexts(engine, client)
    return new + gone


def _announce_contexts(engine: "Engine", client: str) -> tuple[list[Effect], list[Effect]]:
    """Set a client's announced contexts; return the effects to emit before and after its subscriptions are sent."""
    if not engine.strategy.announces:
        return [], []
    own = engine.context(client) if engine.is_here(client) else engine.remote_subscriptions.context(client)
    return engine.convergence.announcer.set_client_contexts(client, own, engine.publisher_contexts.get(client, own))


def client_arrived(engine: "Engine", client: str, session: int | None = None) -> list[Effect]:
    """Note that a client is here in this session; until it sets a context it counts as having the empty one."""
    engine.arrivals[client] = engine.version() if session is None else session
    engine.remote_subscriptions.forget_context(client)  # the client itself sets it from now on
    return _announce_contexts(engine, client)[0]


def forget_context(engine: "Engine", client: str) -> list[Effect]:
    """Forget a client's context, and tell the brokers that had it. The client comes back without a context."""
    engine.context_delegates.pop(client, None)
    engine.publisher_contexts.pop(client, None)
    session = engine.arrivals.pop(client, 0)
    effects: list[Effect] = []
    if engine.contexts.pop(client, None):
        engine.matcher.set_context(client, _NOWHERE)
        engine.context_versions[client] = session, engine.version()
        effects = _send_to_holders(engine, client)
    engine.contexts_sent.pop(client, None)
    engine.context_versions.pop(client, None)
    if engine.strategy.announces:
        effects += engine.convergence.announcer.set_client_contexts(client)[1]
    return effects


def delegate_context(engine: "Engine", operation: DelegateContext, sender: str) -> list[Effect]:
    """Let another client set the context of the client, or end that."""
    admit.admit_client(engine, operation.client, sender)
    others = engine.context_delegates.setdefault(operation.client, set())
    (others.add if operation.entrusted else others.discard)(operation.other)
    if not others:
        del engine.context_delegates[operation.client]
    return []
