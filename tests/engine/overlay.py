"""Several engines, wired in memory: a driver that carries out effects, and remembers what happened where.

Every link is FIFO. `run` goes on until nothing is under way. Trust questions are answered at once from a table of
groups, or held back for a test to look at what waits.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from tidings import ContextFilter, Filter, Policy
from tidings.engine import Engine, Settings
from tidings.engine.effects import (
    AskTrust,
    Deliver,
    Effect,
    LogMessage,
    MetaEventPublished,
    Persist,
    PolicyWarning,
    Reject,
    Send,
)
from tidings.engine.headers import Provenance
from tidings.engine.matcher import Matcher, NaiveMatcher
from tidings.engine.operations import (
    Advertise,
    Disconnect,
    Join,
    Leave,
    Operation,
    Publish,
    Receive,
    SetContext,
    SetLoad,
    SetPolicy,
    Subscribe,
    Tick,
    Travelling,
    Trust,
    Unadvertise,
    Unsubscribe,
)
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.security import Gate

Kind = TypeVar("Kind", bound=Travelling)
LINE = (("b1", "b2"), ("b2", "b3"), ("b3", "b4"))
FOREVER = 1 << 60


class Overlay:
    def __init__(
        self,
        links: Iterable[tuple[str, str] | tuple[str, str, int]] = (),
        *,
        brokers: Iterable[str] = (),
        trust: Mapping[str, Iterable[str]] | None = None,
        hold_answers: bool = False,
        expiry: int = FOREVER,
        matcher: type[Matcher] = NaiveMatcher,
        gates: Callable[[str], Gate | None] = lambda _: None,
        now: int = 1_700_000_000_000_000,
        **settings: Any,
    ) -> None:
        """A link may say its cost. `settings` are those of all brokers; `b1={...}` are those of one of them alone.
        `gates` are by the names of brokers."""
        links = tuple(links)
        settings.setdefault("advertisements_required", False)
        names = tuple(dict.fromkeys([*(name for link in links for name in link[:2]), *brokers])) or ("b1",)
        alone = {name: settings.pop(name) for name in names if name in settings}
        self.engines = {
            name: Engine(Settings(name=name, **{**settings, **alone.get(name, {})}), matcher(), gate=gates(name))
            for name in names
        }
        self.trust = {group: set(members) for group, members in (trust or {}).items()}
        self.hold_answers, self.expiry = hold_answers, expiry
        self.now, self._sequence = now, 0
        self.in_flight: dict[tuple[str, str], deque[Travelling]] = {}
        self.clear()
        for one, other, *cost in links:
            self.step(one, Join(other, *cost))
            self.step(other, Join(one, *cost))
        self.settle()
        self.clear()

    def clear(self) -> None:
        """Forgets what happened so far."""
        self.effects: list[tuple[str, Effect]] = []
        self.passed: dict[tuple[str, str], list[Travelling]] = {}
        self.questions: list[tuple[str, str, str]] = []  # broker, party, group

    # What is done

    def do(self, broker: str, operation: Operation) -> list[Effect]:
        """One operation at a broker, and everything that follows from it, everywhere; answers the effects there."""
        effects = self.step(broker, operation)
        self.run()
        return effects

    def step(self, broker: str, operation: Operation) -> list[Effect]:
        """One operation; what it sends is under way."""
        self.now += 1000
        effects = self.engines[broker].handle(operation, self.now)
        for effect in effects:
            self.effects.append((broker, effect))
            if isinstance(effect, Send):
                self.in_flight.setdefault((broker, effect.neighbour), deque()).append(effect.operation)
            elif isinstance(effect, AskTrust):
                self.questions.append((broker, effect.party, effect.group))
        return effects

    def run(self) -> None:
        answered = 0
        while True:
            if not self.hold_answers and answered < len(self.questions):
                broker, party, group = self.questions[answered]
                answered += 1
                if broker in self.engines:
                    self.answer(broker, party, group)
                continue
            link = min(self.waiting(), default=None)
            if link is None:
                if not self.hold_answers:
                    self.questions, self.asked = [], self.questions
                return
            self.arrive(*link)

    def arrive(self, one: str, other: str) -> list[Effect]:
        """What is first under way from one to the other arrives; what it causes is under way."""
        operation = self.in_flight[one, other].popleft()
        self.passed.setdefault((one, other), []).append(operation)
        return self.step(other, Receive(one, operation))

    def waiting(self) -> dict[tuple[str, str], list[Travelling]]:
        """What is under way."""
        return {link: list(queue) for link, queue in self.in_flight.items() if queue}

    def answer(
        self, broker: str, party: str, group: str, member: bool | None = None, expiry: int | None = None
    ) -> list[Effect]:
        if member is None:
            member = party in self.trust.get(group, ())
        until = self.now + 1000 + (self.expiry if expiry is None else expiry)
        return self.step(broker, Trust(party, group, member, until))

    def receive(self, broker: str, neighbour: str, operation: Any, origin: str | None = None) -> list[Effect]:
        """What a neighbour might tell a broker, true or not: as a client's of its own, or of that origin, and new."""
        engine = self.engines[broker]
        way = Provenance(origin or neighbour, (0, self.now + 1_000_000), engine.state.links.digest)
        if not isinstance(operation, Publish):
            operation = msgspec.structs.replace(operation, way=way)
        return self.do(broker, Receive(neighbour, operation))

    def join(self, one: str, other: str) -> None:
        self.step(one, Join(other))
        self.step(other, Join(one))
        self.settle()

    def settle(self) -> None:
        """Until all brokers have told each other anew what they have, as they do when links come and go."""
        self.run()
        while not all(engine.convergence.is_current for engine in self.engines.values()):
            self.now += 100_000
            for name in self.engines:
                self.step(name, Tick())
            self.run()

    def leave(self, one: str, other: str) -> None:
        self.step(one, Leave(other))
        self.step(other, Leave(one))
        self.settle()

    def advertise(
        self,
        broker: str,
        client: str,
        text: str = "true",
        *,
        id: str | None = None,  # noqa: A002
        policy: Any = None,
        **more: Any,
    ) -> list[Effect]:
        made = Advertisement.of(
            Filter.parse(text), id=id or f"a-{client}", publisher=client, policy=written(policy), **more
        )
        return self.do(broker, Advertise(made))

    def subscribe(
        self,
        broker: str,
        client: str,
        text: str = "true",
        *,
        id: str | None = None,  # noqa: A002
        policy: Any = None,
        publishers: str | None = None,
        **more: Any,
    ) -> list[Effect]:
        made = Subscription.of(
            Filter.parse(text),
            id=id or f"s-{client}",
            subscriber=client,
            policy=written(policy),
            publishers=None if publishers is None else ContextFilter.parse(publishers),
            **more,
        )
        return self.do(broker, Subscribe(made))

    def event(
        self,
        client: str,
        attributes: Mapping[str, Any],
        *,
        policy: Any = None,
        subscribers: str | None = None,
        **more: Any,
    ) -> Event:
        self._sequence += 1
        return Event.of(
            attributes,
            id=uuid7(self.now, self._sequence.to_bytes(10, "big")),
            publisher=client,
            timestamp=self.now,
            sequence=self._sequence,
            policy=written(policy),
            subscribers=None if subscribers is None else ContextFilter.parse(subscribers),
            **more,
        )

    def publish(self, broker: str, client: str, attributes: Mapping[str, Any], **more: Any) -> list[Effect]:
        return self.do(broker, Publish(self.event(client, attributes, **more)))

    def set_policy(self, broker: str, client: str, id: str, policy: Any) -> list[Effect]:  # noqa: A002
        return self.do(broker, SetPolicy(client, id, written(policy)))

    def set_context(self, broker: str, client: str, **context: Any) -> list[Effect]:
        return self.do(broker, SetContext(client, Context.of(context)))

    def unsubscribe(self, broker: str, client: str, id: str | None = None, policy: Any = None) -> list[Effect]:  # noqa: A002
        return self.do(broker, Unsubscribe(client, id or f"s-{client}", written(policy)))

    def unadvertise(self, broker: str, client: str, id: str | None = None, policy: Any = None) -> list[Effect]:  # noqa: A002
        return self.do(broker, Unadvertise(client, id or f"a-{client}", written(policy)))

    def disconnect(self, broker: str, client: str) -> list[Effect]:
        return self.do(broker, Disconnect(client))

    def load(self, broker: str, load: float) -> None:
        self.do(broker, SetLoad(load))

    # What happened

    def _of(self, kind: type[Any], broker: str | None) -> list[Any]:
        return [one for where, one in self.effects if isinstance(one, kind) and broker in (None, where)]

    def notifications(self, client: str, *, meta: bool = False) -> list[Notification]:
        """What the client was told, in order: of events, or of the meta-events that brokers made."""
        made = {one.event.id for one in self._of(MetaEventPublished, None)}
        found = [one.notification for one in self._of(Deliver, None) if one.notification.subscriber == client]
        return [one for one in found if (one.event.id in made) is meta]

    def received(self, client: str, *, meta: bool = False) -> list[dict[str, Any]]:
        """Their attributes."""
        return [dict(one.attributes) for one in self.notifications(client, meta=meta)]

    def told(self, broker: str | None = None) -> list[dict[str, Any]]:
        """The meta-events that brokers made."""
        return [dict(one.event.attributes) for one in self._of(MetaEventPublished, broker)]

    def told_classes(self, broker: str | None = None) -> list[Any]:
        return [one.get("class") for one in self.told(broker)]

    def logs(self, broker: str | None = None) -> list[str]:
        return [one.line for one in self._of(LogMessage, broker)]

    def persisted(self, broker: str | None = None) -> list[tuple[str, str]]:
        return [(one.store, one.message) for one in self._of(Persist, broker)]

    def rejected(self, broker: str | None = None) -> list[str]:
        return [one.reason for one in self._of(Reject, broker)]

    def remarks(self, broker: str | None = None) -> list[str]:
        return [one.finding for one in self._of(PolicyWarning, broker)]

    def on(self, one: str, other: str, kind: type[Kind]) -> list[Kind]:
        """What passed from one broker to the other."""
        return [operation for operation in self.passed.get((one, other), ()) if isinstance(operation, kind)]

    def ids(self, one: str, other: str, kind: type[Advertise] | type[Subscribe]) -> list[str]:
        """The ids of the filters that passed, without those that brokers make to announce meta-events."""
        found = [
            made.advertisement.id if isinstance(made, Advertise) else made.subscription.id
            for made in self.on(one, other, kind)
        ]
        return [one for one in found if not one.startswith("$")]

    def attributes_on(self, one: str, other: str) -> list[dict[str, Any]]:
        """What publications had when they passed; meta-events are left out."""
        return [dict(made.event.attributes) for made in self.on(one, other, Publish) if not made.journey.meta]

    def busy_links(self) -> set[str]:
        """The links over which publications passed, as `b1>b2`; meta-events are left out."""
        return {
            f"{one}>{other}"
            for (one, other), operations in self.passed.items()
            if any(isinstance(made, Publish) and not made.journey.meta for made in operations)
        }


def written(policy: Any) -> str | None:
    return str(policy) if isinstance(policy, Policy) else policy


def rule(
    on: str = "Forward, Publication",
    then: str = "",
    *,
    when: str = "",
    broker: str = "",
    matching: str = "",
    attach: str = "",
    yields: bool = False,
    on_exception: str | None = None,
) -> str:
    """The text of one rule: `If {when} Then {then}` under its qualifiers."""
    qualifiers = (("broker", broker), ("matching", matching), ("attach", attach), ("yield_attach", "True" * yields))
    said = " ".join(f"@{name}: {value}" for name, value in qualifiers if value)
    mended = "" if on_exception is None else f" OnException {{ {on_exception} }}"
    return f"On({on}) {{ {said} If {{{when}}} Then {{{then}}}{mended} }}"


def statement(*rules: str) -> str:
    return f"PolicyStatement {{ {' '.join(rules)} }}"


def on_publications(then: str, **more: Any) -> str:
    return statement(rule("Forward, Publication", then, **more))
