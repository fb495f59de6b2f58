"""Placing: which neighbours have a subscription from here, in which form, and what has to be told when that changes.

Where it should be is the routing strategy's answer. On an acyclic overlay only the maximal ones of a link are told
(`tidings.routing.front`), unless rules have a say in how they are sent.
"""

from typing import TYPE_CHECKING

import msgspec

from tidings.engine import telling
from tidings.engine.effects import Effect, Send
from tidings.engine.governing import Governed, govern_filter
from tidings.engine.journey import Way
from tidings.engine.operations import SetContext, Subscribe, Unsubscribe
from tidings.engine.ruled import Ruling
from tidings.engine.tables import Filed
from tidings.model.subscription import Subscription
from tidings.policy.widening import without
from tidings.routing.front import Change

if TYPE_CHECKING:
    from tidings.engine.engine import Engine


def place(engine: "Engine", filed: Filed[Subscription]) -> list[Effect]:
    """Brings the neighbours up to date: new ones get it, others have it no more. First the former: there is no gap."""
    wanted = engine.toward(filed)
    effects: list[Effect] = []
    for name, scoped in wanted.items():
        if filed.toward.get(name) is not scoped:
            effects += _governed(engine, filed, name, scoped)
    for name in [name for name in filed.toward if name not in wanted and name not in filed.flooded]:
        effects += withdraw(engine, filed, name)
    return effects


def again(engine: "Engine", filed: Filed[Subscription]) -> list[Effect]:
    """It is another one now: all that should have it get it anew."""
    wanted = engine.toward(filed)
    effects: list[Effect] = []
    for name in [*wanted, *sorted(filed.flooded - wanted.keys())]:
        effects += _governed(engine, filed, name, wanted.get(name, False))
    for name in [name for name in filed.toward if name not in wanted and name not in filed.flooded]:
        effects += withdraw(engine, filed, name)
    return effects


def _governed(engine: "Engine", filed: Filed[Subscription], neighbour: str, scoped: bool) -> list[Effect]:
    """Under the rules that it meets."""
    message, rulings = engine.subscription_again(filed)
    if not rulings:
        return put(engine, filed, neighbour, scoped)
    governed = Governed()
    govern_filter(message, rulings, engine.hop(message, neighbour), governed)
    effects: list[Effect] = []
    for _, kept, removed in governed.filters:
        effects += put(engine, filed, neighbour, scoped, kept, removed, rulings)
    return effects + engine.held.hold(message, rulings, governed.waiting) + telling.told(engine, message, governed)


def put(
    engine: "Engine",
    filed: Filed[Subscription],
    neighbour: str,
    scoped: bool,
    kept: frozenset[str] | None = None,
    removed: frozenset[str] = frozenset(),
    rulings: tuple[Ruling, ...] = (),
    *,
    anew: bool = False,
) -> list[Effect]:
    """The neighbour should have it; rules have left only these predicates of it. `anew`: also if it has it."""
    before = filed.toward.get(neighbour, scoped)
    filed.toward = {**filed.toward, neighbour: scoped}
    given = _form(filed)
    gone = removed if kept is None else removed | (given.content.names - kept)
    if gone:
        given = msgspec.structs.replace(given, content=without(given.content, gone))
    front = engine.front(neighbour)
    if front is None:
        return _sent(engine, filed, given, neighbour, scoped)
    if rulings or filed.value.policy is not None:
        change = front.remove(filed.id)
        effects = _sent(engine, filed, given, neighbour, scoped)
        return effects + _changed(engine, neighbour, change, but=filed.id)
    change = front.put(given, scoped)
    effects = _changed(engine, neighbour, change)
    if neighbour not in filed.sent or given in change.sent:
        return effects
    if not front.carries(filed.id):
        return effects + _taken_back(engine, filed, neighbour)  # it was sent for itself, and now another stands for it
    if anew or before is not scoped:
        return _sent(engine, filed, given, neighbour, scoped) + effects  # the same, to be judged otherwise
    return effects


def withdraw(engine: "Engine", filed: Filed[Subscription], neighbour: str) -> list[Effect]:
    """The neighbour should not have it any more; what it stood for is told first."""
    filed.toward = {name: scoped for name, scoped in filed.toward.items() if name != neighbour}
    filed.flooded -= {neighbour}
    effects = uncover(engine, filed, neighbour)
    if neighbour in filed.sent:
        effects += _taken_back(engine, filed, neighbour)
    return effects


def uncover(engine: "Engine", filed: Filed[Subscription], neighbour: str) -> list[Effect]:
    """What it stood for on a link is told, since it is going."""
    front = engine.front(neighbour)
    return [] if front is None else _changed(engine, neighbour, front.remove(filed.id), but=filed.id)


def governed_anew(engine: "Engine", filed: Filed[Subscription]) -> list[Effect]:
    """It has another policy: with one it stands for itself alone, without one it may stand for others."""
    effects: list[Effect] = []
    for name, scoped in filed.toward.items():
        front = engine.front(name)
        if front is None:
            continue
        if filed.value.policy is None:
            effects += _changed(engine, name, front.put(_form(filed), scoped))
            continue
        effects += _changed(engine, name, front.remove(filed.id), but=filed.id)
        if name not in filed.sent:
            effects += _sent(engine, filed, _form(filed), name, scoped)
    return effects


def _changed(engine: "Engine", neighbour: str, change: Change, but: str = "") -> list[Effect]:
    """What is told on a link of an acyclic overlay has changed."""
    effects: list[Effect] = []
    for one in change.sent:
        filed = engine.subscriptions.get(one.id)
        if filed is None:
            way = Way(engine.name, (0, engine.version()), engine.digest_for(neighbour))
            effects.append(Send(neighbour, Subscribe(one, way)))  # several in one, of the broker's own making
        else:
            effects += _sent(engine, filed, one, neighbour, filed.toward.get(neighbour, False))
    for name in change.withdrawn:
        if name == but:
            continue
        filed = engine.subscriptions.get(name)
        if filed is not None:
            effects += _taken_back(engine, filed, neighbour)
        else:
            way = Way(engine.name, (0, engine.version()), engine.digest_for(neighbour))
            effects.append(Send(neighbour, Unsubscribe(engine.name, name, way=way)))
    return effects


def _sent(
    engine: "Engine", filed: Filed[Subscription], given: Subscription, neighbour: str, scoped: bool
) -> list[Effect]:
    effects: list[Effect] = []
    if scoped:
        effects = _context_ahead(engine, filed, neighbour)
    else:
        forget_context(engine, filed.owner, neighbour)
    filed.sent |= {neighbour}
    return [*effects, Send(neighbour, Subscribe(given, way(engine, filed, neighbour, scoped)))]


def _taken_back(engine: "Engine", filed: Filed[Subscription], neighbour: str) -> list[Effect]:
    filed.sent -= {neighbour}
    forget_context(engine, filed.owner, neighbour)
    return [Send(neighbour, Unsubscribe(filed.owner, filed.id, way=way(engine, filed, neighbour)))]


def forget_context(engine: "Engine", client: str, neighbour: str) -> None:
    """A context is told as long as a subscription is judged by it."""
    if not any(neighbour in one.sent and one.toward.get(neighbour) for one in engine.subscriptions.of(client)):
        engine.contexts_sent.get(client, set()).discard(neighbour)


def _context_ahead(engine: "Engine", filed: Filed[Subscription], neighbour: str) -> list[Effect]:
    """The subscriber's context goes before its first subscription that is judged by it."""
    known = engine.contexts_sent.setdefault(filed.owner, set())
    if neighbour in known:
        return []
    known.add(neighbour)
    return [Send(neighbour, context_told(engine, filed.owner, neighbour, is_here=filed.is_client))]


def context_told(engine: "Engine", client: str, neighbour: str, *, is_here: bool) -> SetContext:
    """What a neighbour is told of a client's context."""
    if is_here:
        # Who has set none in this session has none: that is newer than what it had in the one before.
        version = engine.context_versions.get(client, (engine.arrivals.get(client, 0), 0))
        context = engine.context(client)
    else:
        context, version = engine.transit.context(client), engine.transit.versions.get(client, (0, 0))
    return SetContext(client, context, way=Way(engine.name, version, engine.digest_for(neighbour)))


def way(engine: "Engine", filed: Filed[Subscription], neighbour: str, scoped: bool = False) -> Way:
    return Way(filed.origin, filed.version, engine.digest_for(neighbour), scoped, filed.context)


def _form(filed: Filed[Subscription]) -> Subscription:
    if filed.bound is filed.value.publishers:
        return filed.value
    return msgspec.structs.replace(filed.value, publishers=filed.bound)
