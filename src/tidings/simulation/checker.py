"""A checker: it watches what is done in a world, and judges what clients are told (the must, may and never of routing).

Time is cut into bursts by the moments at which the world has settled. What is done in a burst is concurrent with the
events in it: an event *must* be told that is due under every standing that its subscriber had in the burst, and may be
told if it is due under one of them, and only then. Nothing must be told where publisher or subscriber came, left or
moved in the burst; at another broker, where a link or a broker failed in it (what comes back is no excuse) or where no
way led there when it began; nor there, with advertisements leading the way, what was not advertised all the time. What a
durable subscription must be told while its client is away is owed to it: it has it when it is back and the network is
whole, whatever has crashed meanwhile. Always: nothing twice, and nothing behind a later event of its publisher.
"""

from collections.abc import Iterable
from uuid import UUID

from tidings.matching.reference import due, matches
from tidings.model.advertisement import offered_names
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.routing.topology import Topology, links_of
from tidings.simulation.clock import SECOND
from tidings.simulation.disk import Key, key_of
from tidings.simulation.standing import Standings
from tidings.simulation.steps import Leaves, Publishes, Settles, Step
from tidings.simulation.violation import Kind, Violation
from tidings.simulation.world import World


class Checker:
    """Of one world, all of whose clients are there. `take` does a step, and judges where a burst ends."""

    def __init__(self, world: World, strategy: str) -> None:
        self._world = world
        self._goes_by_advertisements = strategy == "advertisement"
        self.violations: list[Violation] = []
        self._standings = {name: Standings(client) for name, client in world.clients.items()}
        self._events: dict[UUID, Event] = {}
        self._burst: list[tuple[Event, str]] = []  # with the broker where each was published
        self._allowed: set[Key] = set()
        self._owed: dict[Key, str] = {}  # what has to reach a client when it is back
        self._got: set[Key] = set()
        self._read = dict.fromkeys(world.clients, 0)  # so many notifications have been looked at
        self._last: dict[tuple[str, str], int] = {}  # client, publisher -> the number of the last event
        self._incarnations, self._parts = self._network()

    def take(self, step: Step) -> None:
        if isinstance(step, Publishes):
            event = step.befall(self._world)
            if event is not None:
                self._events[event.id] = event
                self._burst.append((event, self._world.clients[step.client].broker))
        else:
            step.befall(self._world)
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
        before, parts = self._incarnations, self._parts
        self._incarnations, self._parts = self._network()
        required = self._required(parts if self._incarnations == before else {})
        for event, _ in self._burst:
            self._allow(event)
        self._look()
        for key, client in required.items():
            if key not in self._got:
                if self._standings[client].now.is_connected:
                    self._find("lost", f"{client} was not told of {self._named(key)}")
                else:
                    self._owed[key] = client
        is_whole = all(self._parts.get(name) == self._world.brokers.keys() for name in self._world.brokers)
        self._collect(is_whole=is_whole)
        self._burst = []
        for standings in self._standings.values():
            standings.settle(is_whole=is_whole)

    def _required(self, parts: dict[str, frozenset[str]]) -> dict[Key, str]:
        """What has to be told, and to whom; the parts are those of the network all the time."""
        found: dict[Key, str] = {}
        for event, ingress in self._burst:
            publisher = self._standings[event.publisher]
            if not publisher.is_steady:
                continue
            for name, standings in self._standings.items():
                egress = standings.now.broker
                if not standings.is_steady or egress not in parts.get(ingress, (ingress,)):
                    continue
                for wanted in standings.ids():
                    versions = standings.versions(wanted)
                    if all(
                        one is not None
                        and due(one, event, context)
                        and (egress == ingress or self._finds_its_way(one, event, publisher))
                        for one, context in versions
                    ):
                        found[wanted, event.id] = name
        return found

    def _finds_its_way(self, one: Subscription, event: Event, publisher: Standings) -> bool:
        """Whether an advertisement attracts the subscription; other strategies need none."""
        names = frozenset[str]() if one.publishers is None else one.publishers.names
        return not self._goes_by_advertisements or any(
            matches(said.content, event) and names <= offered_names(said.publisher_context)
            for said in publisher.lasting()
        )

    def _allow(self, event: Event) -> None:
        for standings in self._standings.values():
            for wanted in standings.ids():
                if any(due(one, event, context) for one, context in standings.mixtures(wanted)):
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
        pair = client, event.publisher
        if event.sequence < self._last.get(pair, 0):
            self._find("order", f"{client} was told of {self._named(key)} behind number {self._last[pair]}")
        self._last[pair] = max(event.sequence, self._last.get(pair, 0))

    def _collect(self, *, is_whole: bool) -> None:
        """What is owed to clients that were away, and are back."""
        for key, client in list(self._owed.items()):
            now = self._standings[client].now
            if key in self._got or key[0] not in now.subscriptions:
                del self._owed[key]
            elif is_whole and now.is_connected:
                del self._owed[key]
                self._find("lost", f"{client} came back and was not told of {self._named(key)}")

    # What is the case in the world

    def _network(self) -> tuple[list[int], dict[str, frozenset[str]]]:
        """The incarnations of links, which change when one of them, or a broker at an end of it, fails; and the brokers
        that are up, each with those that it reaches."""
        links, brokers = self._world.links.values(), self._world.brokers.items()
        up = [link for link in links if all(end.is_up for end in link.ends)]
        ways = links_of((link.ends[0].name, link.ends[1].name, link.cost) for link in up)
        parts = {name: Topology.of(ways, name).brokers for name, broker in brokers if broker.is_up}
        return [end.own for link in links for end in link.ends], parts

    def _find(self, kind: Kind, what: str) -> None:
        self.violations.append(Violation(kind, f"{what} (at {self._world.now / SECOND:g} s)"))

    def _named(self, key: Key) -> str:
        event = self._events[key[1]]
        whom = "" if event.subscribers is None else f" for {event.subscribers}"
        return f"{event.publisher}'s event {event.sequence} {dict(event.attributes)}{whom}, subscription {key[0]}"
