"""What waits for an answer of the trust provider: copies, in the order of their link, and whole operations.

A link is held from its first copy that waits until the last one is gone, so that none overtakes another. An operation
of which not even the first step can be decided waits in the order of those who send.
"""

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from tidings.engine import governing, routes
from tidings.engine.effects import Ask, Decided, Effect, Reject, Undecided
from tidings.engine.governing import Governed
from tidings.engine.journey import Journey
from tidings.engine.message import Hop, Message, PublicationMessage
from tidings.engine.operations import Entrust, Judge, Travelling
from tidings.engine.ruled import Ruling
from tidings.model.limits import MAX_HELD_MESSAGES
from tidings.policy.situation import NeedsAnswer

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

Question = tuple[str, str]
Answers = dict[Question, bool]


class HeldCopy(NamedTuple):
    message: Message
    rulings: tuple[Ruling, ...]
    hop: Hop


class Held:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._copies: dict[str, deque[HeldCopy]] = {}  # by receiver
        self._operations: dict[str, deque[tuple[Travelling | Entrust, Answers]]] = {}  # by sender
        self._asked: dict[tuple[str, str], Question] = {}  # by (copies | operations, name): what its first one asks
        self._asking: set[Question] = set()

    def __bool__(self) -> bool:
        return bool(self._copies or self._operations)

    def holds(self, receiver: str) -> bool:
        return receiver in self._copies

    def last_held(self, message: Message) -> list[str]:
        """The receivers for which copies of the message that came last wait."""
        return [name for name, queue in self._copies.items() if queue[-1].message is message]

    def holds_sender(self, sender: str) -> bool:
        return sender in self._operations

    def hold(
        self, message: Message, rulings: tuple[Ruling, ...], waiting: list[tuple[Hop, NeedsAnswer | None]]
    ) -> list[Effect]:
        """Keeps copies back, and asks what the first of each link needs to know."""
        effects: list[Effect] = []
        for hop, question in waiting:
            queue = self._copies.setdefault(hop.receiver or "", deque())
            if len(queue) >= MAX_HELD_MESSAGES:
                reason = f"more than MAX_HELD_MESSAGES ({MAX_HELD_MESSAGES:,}) wait for an answer on {hop.receiver}"
                effects.append(Reject("govern", reason))
                continue
            queue.append(HeldCopy(message, rulings, hop))
            effects += _owed(message, hop)
            if question is not None:
                effects += self._ask(("copies", hop.receiver or ""), question)
        return effects

    def park(
        self,
        sender: str,
        operation: Travelling | Entrust,
        question: NeedsAnswer | None = None,
        answers: Answers | None = None,
    ) -> list[Effect]:
        """Keeps an operation back, as the first one of its sender or behind others, with the answers it has got."""
        queue = self._operations.setdefault(sender, deque())
        if len(queue) >= MAX_HELD_MESSAGES:
            return [Reject("govern", f"more than MAX_HELD_MESSAGES ({MAX_HELD_MESSAGES:,}) of {sender} wait already")]
        queue.append((operation, answers or {}))
        return [] if question is None else self._ask(("operations", sender), question)

    def take_back(self, sender: str) -> Question | None:
        """The operation of that sender that came last is not kept: whoever sent it sends it again, when it knows.

        What it waits for; None if it did not have to wait."""
        queue = self._operations.get(sender)
        if queue is None:
            return None
        queue.pop()
        place = "operations", sender
        question = self._asked[place]
        if not queue:
            del self._operations[sender], self._asked[place]
            self._asking &= set(self._asked.values())
        return question

    def answered(self, party: str, group: str, member: bool) -> list[Effect]:
        """Goes on with everything that waited for this answer, in order, up to the next question."""
        question = party, group
        self._asking.discard(question)
        effects: list[Effect] = []
        for place in [place for place, asked in self._asked.items() if asked == question]:
            del self._asked[place]
            kind, name = place
            go_on = self._go_on_sending if kind == "copies" else self._go_on_handling
            effects += go_on(name, question, member)
        return effects

    def forget(self, name: str) -> list[Effect]:
        """A party that is gone waits for nothing, and proves nothing to others that wait for its answer."""
        self._copies.pop(name, None)
        self._operations.pop(name, None)
        self._asked.pop(("copies", name), None)
        self._asked.pop(("operations", name), None)
        self._asking &= set(self._asked.values())  # what nobody waits for is asked anew, should somebody want to know
        effects: list[Effect] = []
        for party, group in sorted(self._asking):
            if party == name:
                effects += self.answered(party, group, member=False)
        return effects

    def withdraw(self) -> None:
        """Nothing waits any longer, and nothing has been asked."""
        self._copies, self._operations, self._asked, self._asking = {}, {}, {}, set()

    def _ask(self, place: tuple[str, str], question: NeedsAnswer) -> list[Effect]:
        asked = question.party, question.group
        self._asked[place] = asked
        if asked in self._asking:
            return []
        self._asking.add(asked)
        return [Ask(*asked)]

    def _go_on_sending(self, receiver: str, question: Question, member: bool) -> list[Effect]:
        queue = self._copies[receiver]
        queue[0].message.situation.facts.answers[question] = member  # for this one, whether or not it is remembered
        effects: list[Effect] = []
        while queue:
            message, rulings, hop = queue[0]
            governed = Governed()
            if isinstance(message, PublicationMessage):
                governing.govern_publication(message, rulings, hop, governed)
            else:
                governing.govern_filter(message, rulings, hop, governed)
            if governed.waiting:
                _, needed = governed.waiting[0]
                return effects + ([] if needed is None else self._ask(("copies", receiver), needed))
            queue.popleft()
            effects += routes.late(self._engine, message, governed)
            effects += [Decided(one.judge.event.id, one.judge.client) for one in _owed(message, hop)]
            if isinstance(message, PublicationMessage) and not governed.copies:  # a rule has stopped it here
                effects += self._engine.settling.settle((message.event.id, message.route.round), receiver)
            if governed.floods:
                more = Governed()
                governing.flood(self._engine, message, rulings, more)
                effects += self.hold(message, rulings, more.waiting)
                more.waiting = []
                effects += routes.late(self._engine, message, more)
        del self._copies[receiver]
        return effects

    def _go_on_handling(self, sender: str, question: Question, member: bool) -> list[Effect]:
        queue = self._operations.pop(sender)
        operation, answers = queue.popleft()
        effects = self._engine.run(operation, sender, {**answers, question: member})
        for waiting, _ in queue:  # if the first one waits again, they do so behind it
            effects += self._engine.run(waiting, sender)
        return effects


def _owed(message: Message, hop: Hop) -> list[Undecided]:
    """What a driver must not forget of a copy: that of an event for durable subscriptions of a client."""
    durable = tuple(one.id for one in hop.wanted if one.value.durable is not None) if hop.is_client else ()
    if not durable or not isinstance(message, PublicationMessage):
        return []
    journey, sender = message.journey, message.sender
    own = {name: shape for name, shape in journey.own.items() if name in durable}
    kept = Journey(journey.policy, journey.meta, journey.common, own)
    proved = [(group, member) for (one, group), member in message.situation.facts.answers.items() if one == sender]
    came_from = sender if message.from_broker else ""
    return [Undecided(Judge(message.event, hop.receiver or "", durable, kept, came_from, tuple(sorted(proved))))]
