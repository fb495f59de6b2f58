"""Settlement: the ingress broker learns that a publication has reached everything that it can reach.

A broker that forwards a publication remembers which neighbours sent it and which have not settled it. When the last of
these has, the broker settles it toward its senders; a publication that is not forwarded is settled at once. If a link
goes down, what was in flight on it is never settled in that round: the topology has changed, and the ingress broker
sends the event again in another round.
"""

from collections.abc import Callable, Iterable
from uuid import UUID

from tidings.engine.effects import Effect, PublicationSettled, Send, Wake
from tidings.engine.message import Message, PublicationMessage
from tidings.engine.operations import Publish, Settle
from tidings.engine.state.broker_state import BrokerState
from tidings.model.limits import MAX_UNSETTLED_PUBLICATIONS

GATHERING = 2_000  # microseconds: settlements within this time are sent together
TOGETHER = 64  # so many are sent at once without waiting for more
_HERE = ""  # stands for the sender of a publication that entered here

Round = tuple[UUID, int]  # an event and the round of its transmission


class _ForwardedPublication:
    """A publication in flight: the neighbours that sent it, and those that have not settled it."""

    __slots__ = ("senders", "waiting")

    def __init__(self, sender: str, waiting: set[str]) -> None:
        self.senders, self.waiting = {sender}, waiting


class Settlement:
    """Tracks forwarded publications until all next hops have settled them.

    Args:
        state: The state of the broker.
        receivers_waiting_for: Returns for whom a copy of a message waits, which is not settled before it is sent.
    """

    def __init__(self, state: BrokerState, receivers_waiting_for: Callable[[Message], list[str]]) -> None:
        self._state, self._receivers_waiting_for = state, receivers_waiting_for
        self.lagging: tuple[str, ...] = ()  # brokers that get no new publications yet: see `redelivery`
        self._in_flight: dict[Round, _ForwardedPublication] = {}  # the oldest first
        self._unsent: dict[str, list[Round]] = {}  # settlements not sent yet, by neighbour

    @property
    def has_sent_all(self) -> bool:
        """Whether every settlement has been sent to the neighbours."""
        return not self._unsent

    def is_tracked(self, message: PublicationMessage) -> bool:
        """Whether a publication is stored in a journal whose broker waits for it to be settled."""
        return self._state.settings.resends and not message.operation.journey.meta

    def record_forwarding(self, message: PublicationMessage, effects: list[Effect]) -> list[Effect]:
        """Note the neighbours that a publication is forwarded to, and return the effects of handling it.

        If it is forwarded to none, the effects include its settlement. If it must not be forwarded before routing
        tables are complete, they lack the forwarding.
        """
        if not self.is_tracked(message):
            return effects
        event = message.event.id
        if message.routing.skips_neighbours:
            return [effect for effect in effects if not _is_forwarding_of(effect, event)]
        waiting = {
            effect.neighbour for effect in effects if isinstance(effect, Send) and _is_forwarding_of(effect, event)
        }
        waiting |= {name for name in self._receivers_waiting_for(message) if name in self._state.links.neighbours}
        made = event, message.routing.route.round
        if not waiting:
            return effects + self._settled(made, [_sender(message)])
        self._in_flight[made] = _ForwardedPublication(_sender(message), waiting)
        if len(self._in_flight) > MAX_UNSETTLED_PUBLICATIONS:
            del self._in_flight[next(iter(self._in_flight))]
        return effects

    def record_duplicate(self, message: PublicationMessage) -> list[Effect]:
        """Handle a duplicate: it is settled together with the first copy.

        A client's duplicate of an event that is not in flight here is settled at once: the broker that accepted the
        event first takes care of it.
        """
        if not self.is_tracked(message):
            return []
        made, sender = (message.event.id, message.routing.route.round), _sender(message)
        passed = self._in_flight.get(made)
        if passed is not None:
            passed.senders.add(sender)
            return []
        return self._settled(made, [sender]) if sender == _HERE else []

    def refused(self, made: Round, neighbour: str) -> list[Effect]:
        """Settle a publication of a neighbour that was refused, since it goes no further."""
        return self._settled(made, [neighbour]) if self._state.settings.resends else []

    def take(self, told: Settle, neighbour: str) -> list[Effect]:
        """Handle a neighbour's settlements."""
        effects: list[Effect] = []
        for event, round in told.passed:  # noqa: A001 - the route's word
            effects += self.settle((event, round), neighbour)
        return effects

    def settle(self, made: Round, neighbour: str) -> list[Effect]:
        """Note that everything behind a neighbour has a publication."""
        passed = self._in_flight.get(made)
        if passed is None or neighbour not in passed.waiting:
            return []
        passed.waiting.discard(neighbour)
        if passed.waiting:
            return []
        del self._in_flight[made]
        return self._settled(made, sorted(passed.senders))

    def forget_neighbour(self, neighbour: str) -> None:
        """Forget what was in flight on a link that is down."""
        self._unsent.pop(neighbour, None)
        self._in_flight = {
            made: publication for made, publication in self._in_flight.items() if neighbour not in publication.waiting
        }

    def tick(self) -> list[Effect]:
        """Send the settlements that were gathered."""
        untold, self._unsent = self._unsent, {}
        return [Send(name, Settle(tuple(passed))) for name, passed in untold.items()]

    def _settled(self, made: Round, senders: Iterable[str]) -> list[Effect]:
        effects: list[Effect] = []
        for name in senders:
            if name == _HERE:
                effects.append(PublicationSettled(*made))
            elif name in self._state.links.neighbours:
                if not self._unsent:
                    effects.append(Wake(GATHERING))
                gathered = self._unsent.setdefault(name, [])
                gathered.append(made)
                if len(gathered) >= TOGETHER:
                    effects.append(Send(name, Settle(tuple(self._unsent.pop(name)))))
        return effects


def _sender(message: PublicationMessage) -> str:
    return message.arrival.sender if message.arrival.from_broker else _HERE


def _is_forwarding_of(effect: Effect, event: UUID) -> bool:
    return isinstance(effect, Send) and isinstance(effect.operation, Publish) and effect.operation.event.id == event
