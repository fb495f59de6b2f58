"""Membership: clients that come and go, and links to other brokers that do."""

from typing import TYPE_CHECKING, Any

from tidings.engine import routes, situations
from tidings.engine.effects import Effect, Reject, Send
from tidings.engine.journey import Way
from tidings.engine.operations import Advertise, Connect, Join, Unadvertise, Unsubscribe
from tidings.engine.tables import Filed
from tidings.filters import Filter
from tidings.model.advertisement import Advertisement
from tidings.model.expression import Attribute, Constant, In
from tidings.routing.offers import META

if TYPE_CHECKING:
    from tidings.engine.engine import Engine


def connect(engine: "Engine", operation: Connect) -> list[Effect]:
    client = operation.client
    if client in engine.neighbours or client in engine.topology.brokers:
        return [Reject("admit", f"{client} is the name of a broker; choose another one for a client")]
    if operation.session != 1:  # it was here before, or elsewhere
        engine.overlay.came_again(client)
    effects = situations.arrived(engine, client, operation.session)
    return effects + engine.overlay.reside(client) if operation.moved else effects


def disconnect(engine: "Engine", client: str) -> list[Effect]:
    """What is not durable goes with the client."""
    if client in engine.neighbours:
        return [Reject("admit", f"{client} is the name of a broker; a link that is gone is left")]
    effects = engine.held.forget(client)
    for subscription in [one for one in engine.subscriptions.of(client) if one.hop == client]:
        if subscription.value.durable is None:
            effects += engine.run(Unsubscribe(client, subscription.id), client)
    for advertisement in [one for one in engine.advertisements.of(client) if one.hop == client]:
        effects += engine.run(Unadvertise(client, advertisement.id), client)
    if not any(one.is_client for one in engine.subscriptions.of(client)):
        effects += situations.forget(engine, client)
    return effects


def give_up(engine: "Engine", client: str) -> list[Effect]:
    """A client is at another broker now: everything of it goes, durable or not."""
    effects = engine.held.forget(client)
    for subscription in [one for one in engine.subscriptions.of(client) if one.is_client]:
        effects += engine.run(Unsubscribe(client, subscription.id), client)
    for advertisement in [one for one in engine.advertisements.of(client) if one.is_client]:
        effects += engine.run(Unadvertise(client, advertisement.id), client)
    return effects + situations.forget(engine, client)


def join(engine: "Engine", operation: Join) -> list[Effect]:
    neighbour = operation.neighbour
    if neighbour in engine.neighbours:
        return []
    own: list[Filed[Any]] = [*engine.advertisements.of(neighbour), *engine.subscriptions.of(neighbour)]
    if neighbour == engine.name or any(one.is_client for one in own):
        return [Reject("admit", f"{neighbour} is the name of this broker or of a client")]
    if not engine.leaves(neighbour):
        return engine.overlay.join(neighbour, operation.cost, engine.now)
    # Another sub-overlay is to a broker what a client is: it learns of all advertisements, and its own attract.
    engine.neighbours[neighbour] = None
    effects, _ = engine.overlay.announcer.held(neighbour, None) if engine.strategy.announces else ([], [])
    for filed in [one for one in engine.advertisements if not one.id.startswith(META)]:
        effects += routes.forward_advertisement(engine, filed, neighbour)
    return effects + advertise_meta(engine)


def leave(engine: "Engine", neighbour: str) -> list[Effect]:
    if neighbour not in engine.neighbours:
        return []
    engine.settling.left(neighbour)
    if not engine.leaves(neighbour):
        del engine.neighbours[neighbour]
        return engine.held.forget(neighbour) + engine.overlay.leave(neighbour, engine.now)
    effects = engine.held.forget(neighbour)
    for subscription in [one for one in engine.subscriptions if one.hop == neighbour]:
        effects += engine.run(Unsubscribe(subscription.owner, subscription.id), neighbour)
    for advertisement in [one for one in engine.advertisements if one.hop == neighbour]:
        effects += engine.run(Unadvertise(advertisement.owner, advertisement.id), neighbour)
    del engine.neighbours[neighbour]
    effects += engine.held.forget(neighbour)
    engine.overlay.drop_waiting(neighbour)
    for filed in [one for one in engine.filed() if one.hop == neighbour]:
        engine.unfile(filed)  # a rule on its removal waits for an answer: the link is gone
    engine.forget_what_was_sent_to(neighbour)
    if engine.strategy.announces:
        effects += engine.overlay.announcer.held(neighbour)[1]
    return [one for one in effects if not (isinstance(one, Send) and one.neighbour == neighbour)]


def advertise_meta(engine: "Engine") -> list[Effect]:
    """Neighbours learn which meta-events there may be here and behind the other links, so that subscriptions to them
    find their way."""
    effects: list[Effect] = []
    for neighbour in engine.beside():
        classes = engine.meta_classes(but=neighbour)
        if classes <= engine.meta_told.get(neighbour, frozenset()):
            continue
        engine.meta_told[neighbour] = classes
        said = In(Attribute("class"), tuple(Constant(one) for one in sorted(classes)))
        made = Advertisement(
            id=f"{META}{engine.name}", publisher=engine.name, content=Filter(said), publisher_context=()
        )
        way = Way(engine.name, (0, engine.version()), engine.digest_for(neighbour))
        effects.append(Send(neighbour, Advertise(made, way)))
    return effects
