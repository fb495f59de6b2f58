"""A client with its library: it knows what it has advertised, subscribed to and said of itself, and says it again
wherever it connects."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from tidings.engine.effects import Effect, Reject, Remark
from tidings.engine.operations import (
    Advertise,
    Define,
    Entrust,
    Operation,
    Publish,
    SetContext,
    SetPolicy,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from tidings.model.advertisement import Advertisement, checked_id
from tidings.model.errors import RefusedError
from tidings.model.event import Event, checked_client
from tidings.model.filter import ContextFilter, Filter
from tidings.model.notification import Notification
from tidings.model.schema import AttributeFilter, Schema
from tidings.model.subscription import Notify, Subscription
from tidings.model.values import Attributes, Context
from tidings.simulation.broker import Broker
from tidings.simulation.disk import Key, key_of
from tidings.texts import content_filter, context_filter, context_offer, policy_text

if TYPE_CHECKING:
    from tidings.policy.policy import Policy
    from tidings.simulation.world import World

Text = str | Filter
ContextText = str | ContextFilter
_ACKNOWLEDGEMENT = 1_000  # microseconds until a durable notification is acknowledged


class Client:
    """Made by `World.client`. What it says is heard by its broker at once; what follows from it takes its time.

    While its broker is down, it can still say what it wants: the broker hears of it when both are back. Publishing is
    refused meanwhile. What was refused raises a `RefusedError`.
    """

    def __init__(self, world: "World", name: str, broker: Broker) -> None:
        self.name = checked_client(name)
        self._world, self._broker = world, broker
        self.is_connected = False
        self._is_wanted = False  # whether it is, or will be, connected
        self._known_at: str | None = None  # the broker where it was connected last
        self._has_moved = False
        self.notifications: list[Notification] = []
        self.refused: list[Reject] = []  # of what its library has said again
        self._seen: dict[Key, int] = {}  # what it was told, and in which session: some of it may come once more
        self._context = Context()
        self._advertisements: dict[str, Advertisement] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._unsaid: list[Operation] = []  # what was taken back while the broker was down
        self._entrusted: dict[str, bool] = {}
        self._schemas: dict[str, Schema] = {}
        self._sequence = self._made = self._session = 0

    @property
    def broker(self) -> str:
        """The name of the broker where it is, or was last."""
        return self._broker.name

    @property
    def published(self) -> int:
        """How many of its events were accepted."""
        return self._sequence

    # Situation

    @property
    def context(self) -> Context:
        return self._context

    def set_context(
        self,
        mapping: Mapping[str, Any] | None = None,
        /,
        *,
        merge: bool = False,
        of: str | None = None,
        **values: Any,
    ) -> None:
        """The context from now on, whole; with `merge`, only the given values change, and None takes one away.

        `of` is another client that has let this one set its context.
        """
        given = {**(mapping or {}), **values}
        whose = self if of is None or of == self.name else self._world.clients[checked_client(of)]
        context = whose._context.merged(given) if merge else Context.of(given)
        self._say(SetContext(whose.name, context, None if whose is self else self.name))
        whose._context = context

    def let_set_context(self, other: "str | Client", allowed: bool = True) -> None:
        name = other.name if isinstance(other, Client) else checked_client(other)
        self._say(Entrust(self.name, name, allowed))
        self._entrusted[name] = allowed

    # Publishing

    def advertise(
        self,
        content: Text = "",
        publisher_context: Iterable[str] | ContextText | None = None,
        subscriber_context: Iterable[str] | ContextText = (),
        policy: "str | Policy | None" = None,
        id: str | None = None,  # noqa: A002
        format: str = "sql",  # noqa: A002
    ) -> str:
        """Says what will be published; the advertisement's id."""
        advertisement = Advertisement.of(
            content_filter(content, format),
            id=self._new_id() if id is None else id,
            publisher=self.name,
            publisher_context=context_offer(publisher_context),
            subscriber_context=context_offer(subscriber_context),
            policy=policy_text(policy),
        )
        self._say(Advertise(advertisement))
        self._advertisements[advertisement.id] = advertisement
        return advertisement.id

    def unadvertise(self, id: str, policy: "str | Policy | None" = None) -> None:  # noqa: A002
        self._take_back(Unadvertise(self.name, checked_id(id), policy_text(policy)))
        self._advertisements.pop(id, None)

    def publish(
        self,
        attributes: Mapping[str, Any] | None = None,
        subscribers: ContextText | None = None,
        payload: bytes | None = None,
        subject: str | None = None,
        policy: "str | Policy | None" = None,
        id: UUID | None = None,  # noqa: A002
    ) -> Event:
        """The event as its broker has accepted it; a `RefusedError` if the broker is not there."""
        if not self.is_connected:
            raise RefusedError("admit", f"{self.name} is not connected: {self._why_not()}")
        event = Event.of(
            Attributes.of(attributes),
            id=self._world.new_event_id() if id is None else id,
            publisher=self.name,
            timestamp=self._world.now,
            sequence=self._sequence + 1,
            subject=subject,
            payload=payload or None,
            context=self._context,
            subscribers=context_filter(subscribers),
            policy=policy_text(policy),
        )
        if self._world.secrecy is not None:
            event = self._world.secrecy.sealed(event)
        _checked(self._broker.do(Publish(event), self.name))
        self._sequence += 1
        return event

    # Subscribing

    def subscribe(
        self,
        content: Text = "",
        publishers: ContextText | None = None,
        policy: "str | Policy | None" = None,
        durable: str | None = None,
        notify: Notify = "subscription",
        subject: str | None = None,
        structure: AttributeFilter | None = None,
        format: str = "sql",  # noqa: A002
        id: str | None = None,  # noqa: A002
        token: bytes | None = None,
    ) -> str:
        """A subscription from now on; its id. Under a durable name or an id that this client has, it takes that one's
        place; coming back without a policy leaves the one that was set, as in a hub. It has the client's token, if the
        client holds one and no other is given."""
        name = self._id_of(durable) if id is None else id
        held = self._subscriptions.get(name)
        if policy is None and held is not None:
            policy = held.policy
        if token is None and self._world.secrecy is not None:
            token = self._world.secrecy.token(self.name)
        subscription = Subscription.of(
            content_filter(content, format),
            id=name,
            subscriber=self.name,
            subject=subject,
            structure=structure,
            publishers=context_filter(publishers),
            policy=policy_text(policy),
            durable=durable,
            notify=notify,
            token=token,
        )
        self._say(Subscribe(subscription))
        self._subscriptions[subscription.id] = subscription
        return subscription.id

    def unsubscribe(self, id: str, policy: "str | Policy | None" = None) -> None:  # noqa: A002
        self._take_back(Unsubscribe(self.name, checked_id(id), policy_text(policy)))
        self._subscriptions.pop(id, None)

    def subscriptions(self) -> list[Subscription]:
        return list(self._subscriptions.values())

    def advertisements(self) -> list[Advertisement]:
        return list(self._advertisements.values())

    # Policies and schemas

    def set_policy(self, id: str, policy: "str | Policy | None") -> list[str]:  # noqa: A002
        """The policy of a subscription or an advertisement of this client's, None takes it away; the findings."""
        text = policy_text(policy)
        findings = self._say(SetPolicy(self.name, checked_id(id), text))
        if id in self._subscriptions:
            self._subscriptions[id] = msgspec.structs.replace(self._subscriptions[id], policy=text)
        if id in self._advertisements:
            self._advertisements[id] = msgspec.structs.replace(self._advertisements[id], policy=text)
        return findings

    def schema(self, schema: Schema) -> None:
        self._say(Define(self.name, schema))
        self._schemas[schema.subject] = schema

    # Coming and going

    def connect(self) -> None:
        """To the broker where it was; if that is down, as soon as it is back."""
        if self._is_wanted:
            return
        self._is_wanted = True
        if self._broker.is_there:
            self._connect()
        else:
            self._broker.strand(self)

    def disconnect(self) -> None:
        """Leaves: what is not durable is gone, what is goes on collecting. The context stays with what is durable."""
        self._is_wanted = self.is_connected = False
        self._broker.disconnect(self.name)
        self._advertisements.clear()
        self._subscriptions = {name: one for name, one in self._subscriptions.items() if one.durable is not None}
        if not self._subscriptions:
            self._context = Context()
            self._entrusted.clear()

    def move(self, broker: str) -> None:
        """Goes to another broker with all that it has: who it is, its situation, what it offers and wants."""
        there = self._world.broker(broker)
        if there is self._broker:
            return
        self._is_wanted = self.is_connected = False
        self._broker.disconnect(self.name)
        self._broker = there
        self.connect()

    # What its broker tells it

    def notified(self, note: Notification, *, durable: bool) -> None:
        key = key_of(note)
        if durable:
            self._world.clock.at(self._world.now + _ACKNOWLEDGEMENT, self._broker.acknowledged, self, key)
        # What is durable may come again at any time; all else, if an event was under way to where the client has moved.
        told = self._seen.get(key)
        if told is not None and (durable or told < self._session):
            return
        self._seen[key] = self._session
        self.notifications.append(note)

    def cut_off(self) -> None:
        self.is_connected = False

    def come_back(self) -> None:
        """The broker is there again; the client finds that out when it next tries."""
        delay = self._world.draw_reconnection_delay()
        self._world.clock.at(self._world.now + delay, self._try_again, self._broker)

    def _try_again(self, broker: Broker) -> None:
        if not self._is_wanted or self.is_connected or self._broker is not broker:
            return
        if broker.is_there:
            self._connect()
        else:
            broker.strand(self)

    def _connect(self) -> None:
        self.is_connected = True
        # Its broker may crash before others have heard that it has moved there: who has moved once says so every time.
        self._has_moved |= self._known_at not in (None, self.broker)
        self._known_at = self.broker
        self._session += 1
        self._broker.connect(self, self._session, moved=self._has_moved)
        unsaid, self._unsaid = self._unsaid, []
        for operation in unsaid:
            self._say_again(operation)
        for schema in self._schemas.values():
            self._say_again(Define(self.name, schema))
        if self._context or self._subscriptions:
            self._say_again(SetContext(self.name, self._context))
        for other, allowed in self._entrusted.items():
            self._say_again(Entrust(self.name, other, allowed))
        for advertisement in self._advertisements.values():
            self._say_again(Advertise(advertisement))
        for subscription in self._subscriptions.values():
            self._say_again(Subscribe(subscription))

    # Saying things

    def _say(self, operation: Operation) -> list[str]:
        """The findings on the policy that came with it."""
        if self.is_connected:
            return _checked(self._broker.do(operation, self.name))
        if not self._is_wanted:
            raise RefusedError("admit", f"{self.name} is not connected: {self._why_not()}")
        return []  # it is said when the broker is back

    def _take_back(self, operation: Unsubscribe | Unadvertise) -> None:
        if self.is_connected and isinstance(operation, Unsubscribe):
            _checked(self._broker.unsubscribe(operation))
        else:
            self._say(operation)
            if not self.is_connected:
                self._unsaid.append(operation)

    def _say_again(self, operation: Operation) -> None:
        if isinstance(operation, Unsubscribe):
            effects = self._broker.unsubscribe(operation)
        else:
            effects = self._broker.do(operation, self.name)
        self.refused += [one for one in effects if isinstance(one, Reject)]

    def _why_not(self) -> str:
        return f"its broker {self.broker} is down" if self._is_wanted else "it has left; connect() brings it back"

    def _id_of(self, durable: str | None) -> str:
        known = (one.id for one in self._subscriptions.values() if durable is not None and one.durable == durable)
        return next(known, None) or self._new_id()

    def _new_id(self) -> str:
        self._made += 1
        return f"{self.name[:200]}.{self._made}"

    def __repr__(self) -> str:
        return f"<client {self.name} at {self.broker}>"


def _checked(effects: list[Effect]) -> list[str]:
    for effect in effects:
        if isinstance(effect, Reject):
            raise RefusedError(effect.step, effect.reason)
    return [effect.finding for effect in effects if isinstance(effect, Remark)]
