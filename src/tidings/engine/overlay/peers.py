"""Membership: clients that connect and disconnect, and links to neighbours that go up and down."""

from typing import TYPE_CHECKING, Any

from tidings.engine.effects import Effect, Reject, Send
from tidings.engine.headers import Provenance
from tidings.engine.operations import Advertise, Connect, Join, Unadvertise, Unsubscribe
from tidings.engine.state.filters import FilterEntry
from tidings.engine.steps import contexts, emit
from tidings.filters import Filter
from tidings.model.advertisement import Advertisement
from tidings.model.expression import Attribute, Constant, In
from tidings.routing.advertisement_table import META

if TYPE_CHECKING:
    from tidings.engine.engine import Engine


def connect(engine: "Engine", operation: Connect) -> list[Effect]:
    """Note that a client has connected; if it moved here, make its former broker give it up."""
    client = operation.client
    if client in engine.neighbours or client in engine.topology.brokers:
        return [Reject("admit", f"{client} is the name of a broker; choose another one for a client")]
    if operation.session != 1:  # the client was connected before, here or elsewhere
        engine.convergence.note_reconnection(client)
    effects = contexts.client_arrived(engine, client, operation.session)
    if not operation.moved:
        return effects
    return effects + engine.convergence.claim_client(client) + contexts.resend_context(engine, client)


def disconnect(engine: "Engine", client: str) -> list[Effect]:
    """Remove a disconnected client's advertisements and its subscriptions that are not durable."""
    if client in engine.neighbours:
        return [Reject("admit", f"{client} is the name of a broker; a link that is gone is left")]
    effects = engine.deferred.forget(client)
    for subscription in [entry for entry in engine.subscriptions.of(client) if entry.hop == client]:
        if subscription.value.durable is None:
            effects += engine.run(Unsubscribe(client, subscription.id), client)
    for advertisement in [entry for entry in engine.advertisements.of(client) if entry.hop == client]:
        effects += engine.run(Unadvertise(client, advertisement.id), client)
    if not any(entry.is_client for entry in engine.subscriptions.of(client)):
        effects += contexts.forget_context(engine, client)
    return effects


def give_up(engine: "Engine", client: str) -> list[Effect]:
    """Remove everything of a client that is at another broker now, durable subscriptions included."""
    effects = engine.deferred.forget(client)
    for subscription in [entry for entry in engine.subscriptions.of(client) if entry.is_client]:
        effects += engine.run(Unsubscribe(client, subscription.id), client)
    for advertisement in [entry for entry in engine.advertisements.of(client) if entry.is_client]:
        effects += engine.run(Unadvertise(client, advertisement.id), client)
    return effects + contexts.forget_context(engine, client)


def join(engine: "Engine", operation: Join) -> list[Effect]:
    """Add a link to a neighbour. A broker of this sub-overlay starts convergence.

    A neighbour in another sub-overlay is treated like a client: it gets all advertisements at once.
    """
    neighbour = operation.neighbour
    if neighbour in engine.neighbours:
        return []
    own: list[FilterEntry[Any]] = [*engine.advertisements.of(neighbour), *engine.subscriptions.of(neighbour)]
    if neighbour == engine.name or any(subscription.is_client for subscription in own):
        return [Reject("admit", f"{neighbour} is the name of this broker or of a client")]
    if not engine.is_external(neighbour):
        return engine.convergence.join(neighbour, operation.cost, engine.now)
    # Another sub-overlay is treated like a client: it gets all advertisements, and its own attract subscriptions.
    engine.neighbours[neighbour] = None
    effects, _ = (
        engine.convergence.announcer.set_client_contexts(neighbour, None) if engine.strategy.announces else ([], [])
    )
    for entry in [advertisement for advertisement in engine.advertisements if not advertisement.id.startswith(META)]:
        effects += emit.forward_advertisement(engine, entry, neighbour)
    return effects + advertise_meta(engine)


def leave(engine: "Engine", neighbour: str) -> list[Effect]:
    """Remove a link to a neighbour, and everything that came from a neighbour in another sub-overlay."""
    if neighbour not in engine.neighbours:
        return []
    engine.settlement.forget_neighbour(neighbour)
    if not engine.is_external(neighbour):
        del engine.neighbours[neighbour]
        return engine.deferred.forget(neighbour) + engine.convergence.leave(neighbour, engine.now)
    effects = engine.deferred.forget(neighbour)
    for subscription in [other_entry for other_entry in engine.subscriptions if other_entry.hop == neighbour]:
        effects += engine.run(Unsubscribe(subscription.owner, subscription.id), neighbour)
    for advertisement in [other_entry for other_entry in engine.advertisements if other_entry.hop == neighbour]:
        effects += engine.run(Unadvertise(advertisement.owner, advertisement.id), neighbour)
    del engine.neighbours[neighbour]
    effects += engine.deferred.forget(neighbour)
    engine.convergence.drop_waiting(neighbour)
    for entry in [other_entry for other_entry in engine.entries() if other_entry.hop == neighbour]:
        engine.remove_filter(entry)  # a rule deferred its removal, but the link is gone
    engine.forget_sent_state_of(neighbour)
    if engine.strategy.announces:
        effects += engine.convergence.announcer.set_client_contexts(neighbour)[1]
    return [effect for effect in effects if not (isinstance(effect, Send) and effect.neighbour == neighbour)]


def advertise_meta(engine: "Engine") -> list[Effect]:
    """Advertise to each tree neighbour which meta-events can be published here and behind the other links.

    Subscriptions to meta-events follow these advertisements.
    """
    effects: list[Effect] = []
    for neighbour in engine.tree_neighbours():
        classes = engine.meta_classes(but=neighbour)
        if classes <= engine.meta_classes_sent.get(neighbour, frozenset()):
            continue
        engine.meta_classes_sent[neighbour] = classes
        said = In(Attribute("class"), tuple(Constant(class_name) for class_name in sorted(classes)))
        made = Advertisement(
            id=f"{META}{engine.name}", publisher=engine.name, content=Filter(said), publisher_context=()
        )
        provenance = Provenance(engine.name, (0, engine.version()), engine.digest_for(neighbour))
        effects.append(Send(neighbour, Advertise(made, provenance)))
    return effects
