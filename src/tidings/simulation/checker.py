"""A checker: it watches what is done in a world, and judges what clients are told (the must, may and never of routing).

Time is cut into bursts by the moments at which the world has settled. What is done in a burst is concurrent with the
events in it: an event *must* be told that is due under every standing that its subscriber had in the burst, and may be
told if it is due under one of them, and only then. Nothing must be told where publisher or subscriber came, left or
moved in the burst; at another broker, where there was a moment without a way there before the event was published, or
where a link or a broker failed after that (what failed before and has been noticed, or comes back, is no excuse); nor
there, with advertisements leading the way, what was not advertised all the time. What a durable subscription must be
told while its client is away is owed to it: it has it when it is back and the network is whole, whatever has crashed
meanwhile. Always: nothing twice, and nothing behind a later event of its publisher, but for what waited for a durable
subscription at another broker, and has followed its client.

Where brokers send again what may have been lost, failures are no excuse for a durable subscription: what it must be
told is owed to it from when the event was accepted until the network is whole, as long as it stays. Till then it may
also be told what is due under how its client stands by then. There order is that of a subscription, not of all that a
client has. The one thing that may come late are events of a publisher that has gone to another broker: else they would
never come.
"""

from collections.abc import Iterable
from typing import NamedTuple, Self
from uuid import UUID

from tidings.matching.reference import due, matches
from tidings.model.advertisement import unoffered_names
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.routing.topology import Topology, links_of
from tidings.simulation.clock import SECOND
from tidings.simulation.disk import Key, key_of
from tidings.simulation.standing import Standings
from tidings.simulation.steps import Leaves, Moves, Publishes, Settles, Step
from tidings.simulation.violation import Kind, Violation
from tidings.simulation.world import World


class Network(NamedTuple):
    """How the network is at a moment."""

    incarnations: list[int]  # of the ends of links: another one when the link, or the broker at that end, fails
    parts: dict[str, frozenset[str]]  # the brokers that are up, each with those that it reaches

    @classmethod
    def of(cls, world: World) -> Self:
        ends = [end for link in world.links.values() for end in link.ends]
        up = [link for link in world.links.values() if all(end.is_up for end in link.ends)]
        links = links_of((link.ends[0].name, link.ends[1].name, link.cost) for link in up)
        reached = {name: Topology.of(links, name).brokers for name, one in world.brokers.items() if one.is_up}
        return cls([end.own for end in ends], reached)


class Published(NamedTuple):
    event: Event
    ingress: str
    reached: frozenset[str]  # the brokers to which there has been a way all the time since the burst began
    incarnations: list[int]  # as they were then


class Checker:
    """Of one world, all of whose clients are there. `take` does a step, and judges where a burst ends."""

    def __init__(self, world: World, strategy: str) -> None:
        self._world = world
        self._goes_by_advertisements = strategy == "advertisement"
        self.violations: list[Violation] = []
        self._standings = {name: Standings(client) for name, client in world.clients.items()}
        self._events: dict[UUID, Event] = {}
        self._burst: list[Published] = []
        self._allowed: set[Key] = set()
        self._owed: dict[Key, str] = {}  # what has to reach a client when it is back
        self._resends = world.resends
        self._recent: list[Event] = []  # published since the network was whole
        self._due: dict[Key, str] = {}  # what has to reach a durable subscription when it is
        self._promised: set[Key] = set()  # the same, and what has reached it
        self._movers: set[str] = set()  # clients of which not all brokers may know where they are
        self._got: set[Key] = set()
        self._read = dict.fromkeys(world.clients, 0)  # so many notifications have been looked at
        self._last: dict[tuple[str, str], int] = {}  # client or subscription, publisher -> the number of the last event
        self._moved: dict[str, int] = {}  # when clients moved last
        self._joined = Network.of(world).parts  # the brokers between which there was a way all through the burst
        self._acquainted: dict[str, set[str]] = {name: {name} for name in world.brokers}  # that ever knew each other

    def take(self, step: Step) -> None:
        if isinstance(step, Publishes):
            event = step.befall(self._world)
            if event is not None:
                self._events[event.id] = event
                ingress = self._world.clients[step.client].broker
                reached = self._joined.get(ingress, frozenset())
                self._burst.append(Published(event, ingress, reached, Network.of(self._world).incarnations))
        else:
            step.befall(self._world)
            self._joined = _met(self._joined, Network.of(self._world).parts)
        if isinstance(step, Moves):
            self._moved[step.client] = self._world.now
            self._movers.add(step.client)
        for name, standings in self._standings.items():
            standings.observe(leaves=isinstance(step, Leaves) and step.client == name)
        if isinstance(step, Settles):
            self._judge()

    def take_all(self, steps: Iterable[Step]) -> list[Violation]:
        """Steps until something is found wrong; what was found."""
        for step in steps:
            if self.violations:
                break
            self.take(step)
        return self.violations

    def unheard(self) -> list[str]:
        """The clients that have said things that no broker has heard."""
        return [name for name, standings in self._standings.items() if not standings.is_heard]

    # Judging a burst

    def _judge(self) -> None:
        network = Network.of(self._world)
        self._joined = network.parts
        required = self._required(network.incarnations)
        if self._resends:
            self._promise()
            self._moved |= dict.fromkeys(self._movers, self._world.now)
        self._recent += (one.event for one in self._burst)
        for event in self._recent:
            self._allow(event)
        self._look()
        for key, client in required.items():
            if key in self._got:
                continue
            if self._standings[client].now.is_connected:
                self._find("lost", f"{client} was not told of {self._named(key)}")
            else:
                self._owed[key] = client
        is_whole = all(network.parts.get(name) == self._world.brokers.keys() for name in self._world.brokers)
        self._collect(is_whole=is_whole)
        self._collect_promised(is_whole=is_whole)
        for name, part in network.parts.items():
            self._acquainted[name] |= part
        if is_whole or not self._resends:
            self._recent, self._movers = [], set()
        self._burst = []
        for standings in self._standings.values():
            standings.settle(is_whole=is_whole)

    def _required(self, now: list[int]) -> dict[Key, str]:
        """What has to be told, and to whom; the incarnations of links are those of now."""
        found: dict[Key, str] = {}
        for event, ingress, joined, incarnations in self._burst:
            reached = joined if incarnations == now else {ingress}
            publisher = self._standings[event.publisher]
            if not publisher.is_steady:
                continue
            for name, standings in self._standings.items():
                egress = standings.now.broker
                if not standings.is_steady or egress not in reached:
                    continue
                for wanted in standings.ids():
                    versions = standings.versions(wanted)
                    if all(
                        one is not None
                        and _is_due(one, event, context)
                        and (egress == ingress or self._finds_its_way(one, event, publisher))
                        for one, context in versions
                    ):
                        found[wanted, event.id] = name
        return found

    def _promise(self) -> None:
        """What durable subscriptions that were there will get, whatever fails; from brokers that theirs has met."""
        for event, ingress, _, _ in self._burst:
            publisher = self._standings[event.publisher]
            for name, standings in self._standings.items():
                if not self._acquainted[ingress].issuperset(one.broker for one in standings.all):
                    continue
                for wanted in standings.ids():
                    if all(
                        one is not None
                        and one.durable is not None
                        and _is_due(one, event, context)
                        and (standings.now.broker == ingress or self._finds_its_way(one, event, publisher))
                        for one, context in standings.versions(wanted)
                    ):
                        self._due[wanted, event.id] = name
                        self._promised.add((wanted, event.id))

    def _collect_promised(self, *, is_whole: bool) -> None:
        for key, client in list(self._due.items()):
            standings, event = self._standings[client], self._events[key[1]]
            stays = all(one is not None and _is_due(one, event, context) for one, context in standings.versions(key[0]))
            if key in self._got or not stays:
                del self._due[key]
            elif is_whole and standings.now.is_connected:
                del self._due[key]
                self._find("lost", f"{client} was promised {self._named(key)}, and was not told of it")

    def _finds_its_way(self, one: Subscription, event: Event, publisher: Standings) -> bool:
        """Whether an advertisement attracts the subscription; other strategies need none."""
        names = frozenset[str]() if one.publishers is None else one.publishers.names
        return not self._goes_by_advertisements or any(
            matches(said.content, event) and not unoffered_names(said, names) for said in publisher.lasting()
        )

    def _allow(self, event: Event) -> None:
        for standings in self._standings.values():
            for wanted in standings.ids():
                if any(_is_due(one, event, context) for one, context in standings.mixtures(wanted)):
                    self._allowed.add((wanted, event.id))

    def _look(self) -> None:
        """At what clients have been told since the last time."""
        for name, client in self._world.clients.items():
            for note in client.notifications[self._read[name] :]:
                self._look_at(name, note)
            self._read[name] = len(client.notifications)

    def _look_at(self, client: str, note: Notification) -> None:
        key, event = key_of(note), self._events.get(note.event.id)
        if event is None:
            self._find("undue", f"{client} was told of an event that nobody published: {note.event}")
            return
        if key not in self._allowed:
            self._find("undue", f"{client} was told of {self._named(key)}")
        if key in self._got:
            self._find("twice", f"{client} was told of {self._named(key)}")
        self._got.add(key)
        if not note.attributes.items() <= event.attributes.items():
            self._find("altered", f"{client} was told of {self._named(key)} as {dict(note.attributes)}")
        pair = note.subscription if self._resends else client, event.publisher
        if self._may_be_late(client, note):
            return
        if event.sequence < self._last.get(pair, 0):
            self._find("order", f"{client} was told of {self._named(key)} behind number {self._last[pair]}")
        self._last[pair] = max(event.sequence, self._last.get(pair, 0))

    def _may_be_late(self, client: str, note: Notification) -> bool:
        """Whether it may have waited where the client, or its publisher, was before; or was published while others
        had not heard yet that it is wanted, and was sent again."""
        if self._resends and self._has_moved_since(note.event.publisher, note.event):
            return True
        versions = (one for one, _ in self._standings[client].versions(note.subscription) if one is not None)
        if all(one.durable is None for one in versions):
            return False
        return self._has_moved_since(client, note.event) or (self._resends and key_of(note) not in self._promised)

    def _has_moved_since(self, client: str, event: Event) -> bool:
        return self._moved.get(client, -1) >= event.timestamp

    def _collect(self, *, is_whole: bool) -> None:
        """What is owed to clients that were away, and are back."""
        for key, client in list(self._owed.items()):
            now = self._standings[client].now
            if key in self._got or key[0] not in now.subscriptions:
                del self._owed[key]
            elif is_whole and now.is_connected:
                del self._owed[key]
                self._find("lost", f"{client} came back and was not told of {self._named(key)}")

    # Saying so

    def _find(self, kind: Kind, what: str) -> None:
        self.violations.append(Violation(kind, f"{what} (at {self._world.now / SECOND:g} s)"))

    def _named(self, key: Key) -> str:
        event = self._events[key[1]]
        whom = "" if event.subscribers is None else f" for {event.subscribers}"
        return f"{event.publisher}'s event {event.sequence} {dict(event.attributes)}{whom}, subscription {key[0]}"


def _is_due(one: Subscription, event: Event, context: Context) -> bool:
    """What is sealed is for those who have a token."""
    return (event.signature is None or one.token is not None) and due(one, event, context)


def _met(before: dict[str, frozenset[str]], now: dict[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """The brokers that reached each other before, and do so now."""
    return before if before == now else {name: found & before.get(name, frozenset()) for name, found in now.items()}
