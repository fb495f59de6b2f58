"""Situations: the contexts of clients, who may set them, and which brokers hear of a change."""

from typing import TYPE_CHECKING

from tidings.engine import admission, placing
from tidings.engine.effects import Effect, Send
from tidings.engine.operations import Entrust, SetContext
from tidings.engine.refusal import Refused
from tidings.model.values import Context

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

_NOWHERE = Context()


def set_context(engine: "Engine", operation: SetContext, sender: str) -> list[Effect]:
    client = operation.client
    if sender in engine.neighbours:
        return _of_client_elsewhere(engine, operation, sender)
    admission.admit_client(engine, client, engine.name if client == engine.name else client)
    by = operation.by
    if by is not None and by != client and by not in engine.entrusted.get(client, ()):
        raise Refused("admit", f"{client} does not let {by} set its context")
    if engine.context(client) == operation.context:
        return []  # an unchanged value sends nothing
    engine.contexts[client] = operation.context
    engine.matcher.set_context(client, operation.context)
    engine.publishing.pop(client, None)
    engine.context_versions[client] = engine.version_of(client)
    return _followed(engine, client) if engine.neighbours or engine.strategy.binds else []


def _followed(engine: "Engine", client: str) -> list[Effect]:
    """Announced, where brokers do; then the client's subscriptions follow, where it is written into them; or it goes
    where they went."""
    effects, gone = _held(engine, client)
    if engine.strategy.binds:
        for filed in [one for one in engine.subscriptions.of(client) if one.is_local]:
            wanted = filed.value.publishers
            if engine.strategy.announces or (wanted is not None and wanted.own_names):
                engine.rebind(filed)
                effects += placing.again(engine, filed)
    return effects + _sent_after(engine, client, is_here=engine.is_here(client)) + gone


def _sent_after(engine: "Engine", client: str, *, is_here: bool = True) -> list[Effect]:
    names = sorted(engine.contexts_sent.get(client, ()))
    return [Send(name, placing.context_told(engine, client, name, is_here=is_here)) for name in names]


def _of_client_elsewhere(engine: "Engine", operation: SetContext, sender: str) -> list[Effect]:
    client, way = operation.client, operation.way
    if way is None:
        raise Refused("admit", "a broker says which version of a context it tells")
    admission.admit_from_broker(engine, client, sender, way.origin)
    if engine.is_here(client) or way.version < engine.transit.versions.get(client, (0, 0)):
        return []  # it is here now, or has another one since
    changed = engine.transit.context(client) != operation.context
    engine.transit.set_context(client, operation.context, way.version, sender)
    if not changed:
        return []
    if engine.leaves(sender):
        return _followed(engine, client)
    return _sent_after(engine, client, is_here=False)


def published_from(engine: "Engine", client: str, context: Context) -> list[Effect]:
    """An event has a context that its publisher did not set: as a publisher, it has it from now on."""
    if engine.publishing.get(client) == context:
        return []
    engine.publishing[client] = context
    new, gone = _held(engine, client)
    return new + gone


def _held(engine: "Engine", client: str) -> tuple[list[Effect], list[Effect]]:
    if not engine.strategy.announces:
        return [], []
    own = engine.context(client) if engine.is_here(client) else engine.transit.context(client)
    return engine.overlay.announcer.held(client, own, engine.publishing.get(client, own))


def arrived(engine: "Engine", client: str, session: int | None = None) -> list[Effect]:
    """A client is here: that counts as having the empty context, if it has set none."""
    engine.arrivals[client] = engine.version() if session is None else session
    engine.transit.forget_context(client)  # it tells itself from now on
    return _held(engine, client)[0]


def forget(engine: "Engine", client: str) -> list[Effect]:
    """Who comes back comes back without a context; brokers that knew it hear of that."""
    engine.entrusted.pop(client, None)
    engine.publishing.pop(client, None)
    session = engine.arrivals.pop(client, 0)
    effects: list[Effect] = []
    if engine.contexts.pop(client, None):
        engine.matcher.set_context(client, _NOWHERE)
        engine.context_versions[client] = session, engine.version()
        effects = _sent_after(engine, client)
    engine.contexts_sent.pop(client, None)
    engine.context_versions.pop(client, None)
    if engine.strategy.announces:
        effects += engine.overlay.announcer.held(client)[1]
    return effects


def entrust(engine: "Engine", operation: Entrust, sender: str) -> list[Effect]:
    admission.admit_client(engine, operation.client, sender)
    others = engine.entrusted.setdefault(operation.client, set())
    (others.add if operation.entrusted else others.discard)(operation.other)
    if not others:
        del engine.entrusted[operation.client]
    return []
