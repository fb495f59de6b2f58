"""A broker in an overlay: what it knows of the network, and how all brokers come to have complete tables again.

Whenever the network has changed and been quiet for a moment, every broker tells its own anew, under the digest of the
network that it knows then: advertisements, subscriptions, contexts, schemas. What came under older digests serves until
all have done so: everyone reports up the shared tree when all below it have, and the root says so down the tree. Since
links are FIFO, what was told has arrived by then; what was not told again is dropped. So the tables after a change are
those of a fresh network. Until then events wait where they are published, for a while; then they go everywhere, and
none is handled twice.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidings.engine import announcing, membership, placing, routes, sealed
from tidings.engine.effects import (
    Arranged,
    Deliver,
    Effect,
    HandedOver,
    HandOver,
    Moved,
    Rearranging,
    Reject,
    RestoreContext,
    Send,
    Wake,
)
from tidings.engine.message import PublicationMessage
from tidings.engine.operations import Carried, Carry, Complete, Define, Done, Reside, TellLinks, Travelling
from tidings.model.errors import InvalidValueError
from tidings.model.limits import MAX_HELD_MESSAGES, MAX_RESIDENTS
from tidings.routing.linkstate import LinkState, LinkStates
from tidings.routing.offers import META
from tidings.routing.topology import Topology

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

GATHERING = 20_000  # microseconds: what is new about links within this time is told together
PATIENCE = 5_000_000  # so long publications wait for complete tables
ATTRACTING = 2_000_000  # so long subscriptions may be under way to a publisher that has come
KNOWN_NETWORKS = 4  # events of so many changes ago still find their way by the trees of then


class Overlay:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._name = engine.name
        self.states = LinkStates(engine.name)
        self.topology, self.digest = self.states.topology()
        self.recent: dict[str, Topology] = {self.digest: self.topology}
        self.is_complete = True
        self.announcer = announcing.Announcer(engine)
        self.residents: dict[str, int] = {}  # clients that have moved here, and with which session
        self._heard: dict[str, int] = {}  # what was told in this network of clients that have moved
        self._came: dict[str, int] = {}  # clients that have come again lately, and when; the oldest first
        self._changed = 0  # when the network changed last
        self._is_stirred = False  # whether it has, since it was looked at
        self._news: dict[str, dict[str, LinkState]] = {}  # by neighbour: what it is to be told, by broker
        self._told = -GATHERING  # when neighbours were told last
        self._is_awaited = False  # whether a tick will come to tell them
        self._phase = self._engine.strategy.phases
        self._ready = True  # whether this broker has told what is to be told in this phase
        self._begun = 0  # when the network changed last, or this broker began to tell everything anew
        self._waiting: list[tuple[Travelling, str]] = []  # publications, with who sent them
        self.has_missed = False  # whether publications have gone to no other broker, since tables are not complete
        self.lagging: tuple[str, ...] = ()  # brokers that new publications are not for, since older ones come first
        self._reported: set[str] = set()  # the children in the shared tree of which all have
        self._is_done = True  # whether that has been told up the tree

    # Links

    @property
    def is_current(self) -> bool:
        """Whether what is known of the network is what tables are made for."""
        return self.states.topology()[1] == self.digest

    @property
    def is_ready(self) -> bool:
        """Whether tables are complete, and the network has not changed since, as far as is known."""
        return self.is_complete and (not self._is_stirred or self.is_current)

    @property
    def is_settled(self) -> bool:
        return self.is_complete and self.is_current and self.announcer.is_settled and not self._waiting

    def join(self, neighbour: str, cost: int, now: int) -> list[Effect]:
        try:
            own = self.states.join(neighbour, cost, now)
        except InvalidValueError as error:
            return [Reject("admit", str(error))]
        self._engine.neighbours[neighbour] = None
        self._note(self.states.all(), [neighbour])
        self._note([own], self._inside())
        return self._changes(now)

    def leave(self, neighbour: str, now: int) -> list[Effect]:
        self._news.pop(neighbour, None)
        self.drop_waiting(neighbour)
        self._note([self.states.leave(neighbour, now)], self._inside())
        return self._changes(now)

    def take_links(self, told: TellLinks, sender: str, now: int) -> list[Effect]:
        news = self.states.take(told.states, now)
        if not news:
            return []
        inside = self._inside()
        self._note(news, [name for name in inside if name != sender])
        self._note([one for one in news if one.broker == self._name], inside)
        return self._changes(now)

    def tick(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._waiting and now - self._begun > PATIENCE and not self._engine.settings.resends:
            effects = self._released()
        if self._news and now - self._told >= GATHERING:
            effects += self._tell(now)
        if not self._is_stirred:
            return effects
        left = self._changed + self._engine.settings.settling_microseconds - now
        if left > 0:
            return [*effects, Wake(left)]
        self._is_stirred = False
        return effects + (self._as_it_was() if self.is_current else self._begin())

    def _as_it_was(self) -> list[Effect]:
        """The network has changed, and changed back."""
        effects: list[Effect] = []
        if self.has_missed and self.is_complete:
            effects = [Rearranging(self.topology.brokers), *self._arranged()]
        return effects + self._released()

    def _note(self, states: Iterable[LinkState], neighbours: Iterable[str]) -> None:
        """News for neighbours: the first is told at once, what comes soon after it together."""
        for name in neighbours:
            self._news.setdefault(name, {}).update((one.broker, one) for one in states)

    def _tell(self, now: int) -> list[Effect]:
        told, self._news, self._told, self._is_awaited = self._news, {}, now, False
        return [Send(name, TellLinks(tuple(news.values()))) for name, news in told.items() if news]

    def _changes(self, now: int) -> list[Effect]:
        was_stirred, self._is_stirred, self._changed = self._is_stirred, True, now
        self._begun = now
        if not self._inside():  # alone there is nobody to wait for
            self._news, self._is_stirred = {}, False
            return self._as_it_was() if self.is_current else self._begin()
        effects: list[Effect] = []
        if now - self._told >= GATHERING:
            effects = self._tell(now)
        elif self._news and not self._is_awaited:
            self._is_awaited = True
            effects = [Wake(self._told + GATHERING - now)]
        return effects if was_stirred else [*effects, Wake(self._engine.settings.settling_microseconds)]

    def takes(self, digest: str) -> tuple[bool, list[Effect]]:
        """Whether what is told under a digest counts here. Who told it may have begun anew before this broker did.

        What is told under another digest is told again: links are FIFO and news about them comes first, so this broker
        knows all that the sender knew, and the sender will know the rest.
        """
        if digest == self.digest:
            return True, []
        if digest == self.states.topology()[1]:
            return True, self._begin()
        return False, []

    def _inside(self) -> list[str]:
        """The neighbours that are in the same sub-overlay."""
        return [name for name in self._engine.neighbours if not self._engine.leaves(name)]

    # Telling everything anew

    def _begin(self) -> list[Effect]:
        engine = self._engine
        ahead = self._tell(engine.now)  # so that what is told under the digest is understood
        self.topology, self.digest = self.states.topology()
        if engine.settings.resends:
            ahead = [Rearranging(self.topology.brokers), *ahead]
        self.recent.pop(self.digest, None)
        self.recent[self.digest] = self.topology
        if len(self.recent) > KNOWN_NETWORKS:
            del self.recent[next(iter(self.recent))]
        self._begun = engine.now
        self.is_complete, self._is_done, self._phase = False, False, 1
        self._reported.clear()
        engine.forget_what_was_sent()
        beside = self.topology.shared.neighbours(self._name)
        effects = ahead + [Send(name, Define(self._name, one)) for name in beside for one in engine.subjects]
        self._heard.clear()
        if self.residents:
            told = Reside(self._name, self.digest, dict(self.residents))
            effects += (Send(name, told) for name in self._around())
        for advertisement in [one for one in engine.advertisements if one.is_local and not one.id.startswith(META)]:
            for name in beside:
                effects += routes.forward_advertisement(engine, advertisement, name)
        effects += membership.advertise_meta(engine)
        self._ready = not engine.strategy.announces
        effects += self.announcer.begin()
        for subscription in [one for one in engine.subscriptions if one.is_local]:
            effects += placing.place(engine, subscription)
        return effects + self.advance()

    def announced(self) -> list[Effect]:
        """What this broker has announced is known everywhere, and what it attracts is here."""
        self._ready = True
        return self.advance()

    def advance(self) -> list[Effect]:
        """Reports up the tree if there is nothing to wait for; at the root, goes on."""
        effects: list[Effect] = []
        tree = self.topology.shared
        while not self._is_done and self._ready and self._reported.issuperset(tree.children(self._name)):
            parent = tree.parent(self._name)
            self._is_done = True
            if parent is not None:
                return [*effects, Send(parent, Done(self.digest, self._phase))]
            effects += self._complete()
        return effects

    def take_done(self, told: Done, sender: str) -> list[Effect]:
        if told.phase == self._phase:
            self._reported.add(sender)
        return self.advance()

    def take_complete(self, told: Complete, sender: str) -> list[Effect]:
        if told.phase != self._phase or sender != self.topology.shared.parent(self._name):
            return []
        return [*self._complete(), *self.advance()]

    def _complete(self) -> list[Effect]:
        below = self.topology.shared.children(self._name)
        effects: list[Effect] = [Send(name, Complete(self.digest, self._phase)) for name in below]
        if self._phase < self._engine.strategy.phases:
            self._phase += 1
            self._is_done = False
            self._reported.clear()
            return effects
        self.is_complete = True
        return effects + self._engine.sweep() + self._arranged() + self._released()

    def _arranged(self) -> list[Effect]:
        self.has_missed = False
        return [Arranged(self.topology.brokers)] if self._engine.settings.resends else []

    def wait(self, message: PublicationMessage) -> bool:
        """Keeps a publication back until tables are complete; whether there is room and time for that."""
        if len(self._waiting) >= MAX_HELD_MESSAGES or self._engine.now - self._begun > PATIENCE:
            return False
        self._waiting.append((message.operation, message.sender))
        return True

    def queue(self, message: PublicationMessage) -> bool:
        """Keeps back what another broker has sent until tables are complete, and behind others that are kept back;
        whether it is to wait. Where there is no room for it, it comes to nothing."""
        if self.is_ready and not self._waiting:
            return False
        if len(self._waiting) < MAX_HELD_MESSAGES:
            self._waiting.append((message.operation, message.sender))
        return True

    def drop_waiting(self, neighbour: str) -> None:
        """What came over a link that is gone."""
        self._waiting = [one for one in self._waiting if one[1] != neighbour]

    def _released(self) -> list[Effect]:
        effects: list[Effect] = []
        waiting, self._waiting = self._waiting, []
        for operation, sender in waiting:
            effects += self._engine.run(operation, sender)
        return effects

    # Clients that move

    def came_again(self, client: str) -> None:
        now = self._engine.now
        self._came.pop(client, None)
        self._came[client] = now
        while now - self._came[first := next(iter(self._came))] > ATTRACTING:
            del self._came[first]

    def has_just_come(self, client: str) -> bool:
        """Whether what its advertisements attract may still be under way."""
        return self._engine.now - self._came.get(client, -ATTRACTING) < ATTRACTING

    def reside(self, client: str) -> list[Effect]:
        """A client that was elsewhere is here now; all hear of it."""
        self.residents.pop(client, None)
        self.residents[client] = self._engine.arrivals[client]
        if len(self.residents) > MAX_RESIDENTS:
            del self.residents[next(iter(self.residents))]  # whoever was away all the time does not hear of it
        told = Reside(self._name, self.digest, {client: self.residents[client]})
        effects: list[Effect] = [Send(name, told) for name in self._around()]
        return effects + self._moved(told)

    def _around(self) -> Iterable[str]:
        """Who is told of clients that have moved. Where events do not follow the shared tree it is told over every
        link: so the source of an event hears of it before that is settled by a broker that has heard of it."""
        if self._floods_moves:
            return [name for name in self._inside() if name in self.topology.brokers]
        return self.topology.shared.neighbours(self._name)

    @property
    def _floods_moves(self) -> bool:
        return self._engine.settings.resends and self._engine.strategy.by_source

    def _moved(self, told: Reside) -> list[Effect]:
        if not self._engine.settings.resends:
            return []
        return [Moved(client, told.origin, session) for client, session in told.clients.items()]

    def take_residents(self, told: Reside, sender: str) -> list[Effect]:
        engine = self._engine
        effects: list[Effect] = []
        if self._floods_moves:
            if told.origin == self._name or all(
                self._heard.get(client, 0) >= session for client, session in told.clients.items()
            ):
                return []
            self._heard |= told.clients
            while len(self._heard) > MAX_RESIDENTS:
                del self._heard[next(iter(self._heard))]
        for client, session in told.clients.items():
            if told.origin == self._name or self.residents.get(client, 0) >= session:
                continue
            if engine.is_here(client) and engine.arrivals.get(client, 0) < session:
                self.residents.pop(client, None)
                context = engine.context(client)
                effects += membership.give_up(engine, client)
                effects.append(HandOver(client, told.origin, context))
        onward = (name for name in self._around() if name != sender)
        return effects + self._moved(told) + [Send(name, told) for name in onward]

    def carry(self, told: Carry) -> list[Effect]:
        """Toward the broker that it is for, which says so when it has arrived."""
        if told.to != self._name:
            return self._toward(told.to, told)
        effects: list[Effect] = [
            Deliver(note, durable) for note, durable in told.notifications if sealed.may_keep(self._engine, note)
        ]
        effects += (
            RestoreContext(client, context)
            for client, context in told.contexts.items()
            if self._engine.is_here(client) and client not in self._engine.contexts
        )
        return effects + self.take_carried(Carried(told.origin, told.number))

    def take_carried(self, told: Carried) -> list[Effect]:
        return [HandedOver(told.number)] if told.to == self._name else self._toward(told.to, told)

    def _toward(self, broker: str, told: Carry | Carried) -> list[Effect]:
        if broker not in self.topology.brokers:
            return [Reject("route", f"{broker} cannot be reached from here")]
        step = self.topology.tree(self._name).below(self._name, broker)
        return [] if step is None else [Send(step, told)]
