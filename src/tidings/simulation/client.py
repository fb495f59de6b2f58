"""The simulated client and its library.

It remembers its context, advertisements and subscriptions, and registers them again when it connects.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import msgspec

from tidings.coerce import content_filter, context_filter, context_offer, policy_text
from tidings.engine.effects import Effect, PolicyWarning, Reject
from tidings.engine.operations import (
    Advertise,
    Define,
    DelegateContext,
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
from tidings.model.explanation import Explanation
from tidings.model.filter import ContextFilterValue, FilterValue
from tidings.model.identity import ENTROPY_BYTES, uuid7
from tidings.model.notification import Notification
from tidings.model.receipt import Receipt
from tidings.model.schema import AttributeFilter, Schema
from tidings.model.subscription import Notify, Subscription
from tidings.model.values import Attributes, Context
from tidings.security.gate import Gate
from tidings.simulation.clock import SimulatedClock
from tidings.simulation.disk import Key, key_of

if TYPE_CHECKING:
    from tidings.policy.policy import Policy

Text = str | FilterValue
ContextText = str | ContextFilterValue
_ACKNOWLEDGEMENT = 1_000  # microseconds after which the client acknowledges a durable notification


class SecurityMaterial(Protocol):
    """Provides the gates, tokens and seals of a world with secure topics."""

    begins: int  # microseconds: the world's initial time, at which certificates and tokens are valid

    def gate(self, broker: str) -> Gate:
        """Return a new gate, as a broker has it after its first start."""
        ...

    def token(self, client: str) -> bytes | None:
        """Return the token with which the client subscribes, or None if it has none."""
        ...

    def sealed(self, event: Event) -> Event:
        """Return the event as its publisher sends it: sealed, if it is on a secure topic and the publisher may
        publish there."""
        ...


class ClientBroker(Protocol):
    """What a client asks of its broker. `SimulatedBroker` says what each of these does."""

    name: str

    @property
    def is_there(self) -> bool: ...
    def do(self, operation: Operation, sender: str) -> list[Effect]: ...
    def connect(self, client: "SimulatedClient", session: int, *, moved: bool) -> None: ...
    def disconnect(self, client: str) -> None: ...
    def connect_on_return(self, client: "SimulatedClient") -> None: ...
    def unsubscribe(self, operation: Unsubscribe) -> list[Effect]: ...
    def acknowledged(self, client: "SimulatedClient", key: Key) -> None: ...


class ClientWorld(Protocol):
    """What a client asks of its world. `World` says what each of these does."""

    @property
    def now(self) -> int: ...
    @property
    def clock(self) -> SimulatedClock: ...
    @property
    def clients(self) -> "Mapping[str, SimulatedClient]": ...
    @property
    def secrecy(self) -> SecurityMaterial | None: ...
    def broker(self, name: str) -> ClientBroker: ...
    def new_event_id(self) -> UUID: ...
    def explain(self, client: str, event: Event, *, is_accepted: bool) -> list[Explanation]: ...
    def draw_reconnection_delay(self) -> int: ...


class SimulatedClient:
    """A client of a simulated broker, created by `World.client`.

    Its broker handles each call at once; what the broker sends to others takes time. While the broker is down,
    calls other than `publish` are remembered and sent when both are connected again; `publish` is refused. After
    `disconnect` all calls are refused until `connect`. A refusal raises `RefusedError`.
    """

    def __init__(self, world: ClientWorld, name: str, broker: ClientBroker) -> None:
        self.name = checked_client(name)
        self._world, self._broker = world, broker
        self.is_connected = False
        self._wants_connection = False  # whether it is connected, or connects as soon as the broker is there
        self._last_connected_to: str | None = None  # the broker that it was connected to last
        self._has_moved = False
        self.notifications: list[Notification] = []
        self.refused: list[Reject] = []  # refusals of operations that the library repeated after connecting
        self._seen: dict[Key, int] = {}  # received notifications -> session, to drop duplicates
        self._context = Context()
        self._advertisements: dict[str, Advertisement] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._pending_removals: list[Operation] = []  # removals that were requested while the broker was down
        self._delegates: dict[str, bool] = {}
        self._schemas: dict[str, Schema] = {}
        self._sequence = self._id_count = self._session = 0

    @property
    def broker(self) -> str:
        """The name of the broker that the client is at, or was at last."""
        return self._broker.name

    @property
    def published(self) -> int:
        """The number of its events that were accepted."""
        return self._sequence

    # Context

    @property
    def context(self) -> Context:
        """The client's own context, as it was set last."""
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
        """Set the whole context. With `merge`, change only the given values, and remove names whose value is None.

        `of` is another client that has permitted this one to set its context.
        """
        changes = {**(mapping or {}), **values}
        target = self if of is None or of == self.name else self._world.clients[checked_client(of)]
        context = target._context.merged(changes) if merge else Context.of(changes)
        self._send(SetContext(target.name, context, None if target is self else self.name))
        target._context = context

    def let_set_context(self, other: "str | SimulatedClient", allowed: bool = True) -> None:
        """Permit another client to set this client's context, or withdraw the permission."""
        name = other.name if isinstance(other, SimulatedClient) else checked_client(other)
        self._send(DelegateContext(self.name, name, allowed))
        self._delegates[name] = allowed

    # Publishing

    def advertise(
        self,
        content: Text = "",
        publisher_context: Iterable[str] | ContextText | None = None,
        subscriber_context: Iterable[str] | ContextText = (),
        policy: "str | Policy | None" = None,
        id: str | None = None,  # noqa: A002
        format: str = "sql",  # noqa: A002
    ) -> Advertisement:
        """Advertise what this client will publish, and return the advertisement.

        Args:
            content: The filter that the publications will match.
            publisher_context: The names of this client's context that it offers; None for all.
            subscriber_context: The names of subscribers' contexts that its publications will use.
            policy: A policy to associate with the advertisement.
            id: The advertisement's id; a new one by default.
            format: The format of `content`.
        """
        advertisement = Advertisement.of(
            content_filter(content, format),
            id=self._new_id() if id is None else id,
            publisher=self.name,
            publisher_context=context_offer(publisher_context),
            subscriber_context=context_offer(subscriber_context),
            policy=policy_text(policy),
        )
        self._send(Advertise(advertisement))
        self._advertisements[advertisement.id] = advertisement
        return advertisement

    def unadvertise(self, id: str, policy: "str | Policy | None" = None) -> None:  # noqa: A002
        """Remove an advertisement."""
        self._send_removal(Unadvertise(self.name, checked_id(id), policy_text(policy)))
        self._advertisements.pop(id, None)

    def publish(
        self,
        attributes: Mapping[str, Any] | None = None,
        subscribers: ContextText | None = None,
        payload: bytes | None = None,
        subject: str | None = None,
        policy: "str | Policy | None" = None,
        id: UUID | None = None,  # noqa: A002
    ) -> Receipt:
        """Publish an event; return a receipt with the event as the broker accepted it, at no offset (-1).

        Raises `RefusedError` if the client is not connected or the broker refuses the event.

        Args:
            attributes: The event's attributes.
            subscribers: A filter over the contexts of subscribers that the event is for.
            payload: The payload.
            subject: The subject.
            policy: A policy to attach.
            id: The event's id; a new one by default.
        """
        if not self.is_connected:
            raise RefusedError("admit", f"{self.name} is not connected: {self._disconnection_reason()}")
        event = self._new_event(
            Attributes.of(attributes),
            self._world.new_event_id() if id is None else id,
            subject=subject,
            payload=payload or None,
            subscribers=context_filter(subscribers),
            policy=policy_text(policy),
        )
        if self._world.secrecy is not None:
            event = self._world.secrecy.sealed(event)
        _raise_if_refused(self._broker.do(Publish(event), self.name))
        self._sequence += 1
        return Receipt(event, -1)

    def _new_event(self, attributes: Attributes, id: UUID, **fields: Any) -> Event:  # noqa: A002
        return Event.of(
            attributes,
            id=id,
            publisher=self.name,
            timestamp=self._world.now,
            sequence=self._sequence + 1,
            context=self._context,
            **fields,
        )

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
    ) -> Subscription:
        """Subscribe, and return the subscription.

        A durable name or an id that the client uses already replaces that subscription. Without a policy, the
        replaced subscription's policy remains.

        Args:
            content: The filter over events.
            publishers: A filter over the contexts of publishers.
            policy: A policy to associate with the subscription.
            durable: The name of a durable subscription.
            notify: Whether to notify once per subscription or once per client.
            subject: The subject of the events.
            structure: A filter over the names of attributes.
            format: The format of `content`.
            id: The subscription's id.
            token: The token for a secure topic; by default the one that the client holds, if any.
        """
        subscription_id = self._id_of(durable) if id is None else id
        replaced = self._subscriptions.get(subscription_id)
        if policy is None and replaced is not None:
            policy = replaced.policy
        if token is None and self._world.secrecy is not None:
            token = self._world.secrecy.token(self.name)
        subscription = Subscription.of(
            content_filter(content, format),
            id=subscription_id,
            subscriber=self.name,
            subject=subject,
            structure=structure,
            publishers=context_filter(publishers),
            policy=policy_text(policy),
            durable=durable,
            notify=notify,
            token=token,
        )
        self._send(Subscribe(subscription))
        self._subscriptions[subscription.id] = subscription
        return subscription

    def unsubscribe(self, id: str, policy: "str | Policy | None" = None) -> None:  # noqa: A002
        """Remove a subscription."""
        self._send_removal(Unsubscribe(self.name, checked_id(id), policy_text(policy)))
        self._subscriptions.pop(id, None)

    def subscriptions(self) -> list[Subscription]:
        """Return the client's subscriptions."""
        return list(self._subscriptions.values())

    def advertisements(self) -> list[Advertisement]:
        """Return the client's advertisements."""
        return list(self._advertisements.values())

    # Policies and schemas

    def set_policy(self, id: str, policy: "str | Policy | None") -> list[str]:  # noqa: A002
        """Set the policy of one of the client's subscriptions or advertisements; None removes it. Returns the
        policy's warnings."""
        text = policy_text(policy)
        findings = self._send(SetPolicy(self.name, checked_id(id), text))
        if id in self._subscriptions:
            self._subscriptions[id] = msgspec.structs.replace(self._subscriptions[id], policy=text)
        if id in self._advertisements:
            self._advertisements[id] = msgspec.structs.replace(self._advertisements[id], policy=text)
        return findings

    def schema(self, schema: Schema) -> Schema:
        """Define the schema of a subject, and return it."""
        self._send(Define(self.name, schema))
        self._schemas[schema.subject] = schema
        return schema

    def explain(self, event: Receipt | Notification | Event | Mapping[str, Any]) -> list[Explanation]:
        """Explain why an event does or does not reach each of this client's subscriptions at its broker now.

        The event is one that was published, or the attributes of one that this client could publish.
        """
        if isinstance(event, Receipt | Notification):
            return self._explain(event.event, is_past=True)
        if isinstance(event, Event):
            return self._explain(event, is_past=True)
        possible = self._new_event(Attributes.of(event), uuid7(self._world.now, bytes(ENTROPY_BYTES)))
        return self._explain(possible, is_past=False)

    def _explain(self, event: Event, *, is_past: bool) -> list[Explanation]:
        if not self.is_connected:
            raise RefusedError("admit", f"{self.name} is not connected: {self._disconnection_reason()}")
        return self._world.explain(self.name, event, is_accepted=is_past)

    # Connecting, disconnecting, moving

    def connect(self) -> None:
        """Connect to the client's broker; if that is down, as soon as it is back."""
        if self._wants_connection:
            return
        self._wants_connection = True
        if self._broker.is_there:
            self._connect()
        else:
            self._broker.connect_on_return(self)

    def disconnect(self) -> None:
        """Disconnect for good: subscriptions that are not durable and advertisements are removed.

        Durable subscriptions continue to collect notifications, and with them the context remains.
        """
        self._wants_connection = self.is_connected = False
        self._broker.disconnect(self.name)
        self._advertisements.clear()
        self._subscriptions = {
            name: subscription for name, subscription in self._subscriptions.items() if subscription.durable is not None
        }
        if not self._subscriptions:
            self._context = Context()
            self._delegates.clear()

    def move(self, broker: str) -> None:
        """Move to another broker, with context, advertisements and subscriptions."""
        new_broker = self._world.broker(broker)
        if new_broker is self._broker:
            return
        self._wants_connection = self.is_connected = False
        self._broker.disconnect(self.name)
        self._broker = new_broker
        self.connect()

    # Called by the broker

    def notified(self, note: Notification, *, durable: bool) -> None:
        """Receive a notification, acknowledge it if it is durable, and drop it if it is a duplicate."""
        key = key_of(note)
        if durable:
            self._world.clock.at(self._world.now + _ACKNOWLEDGEMENT, self._broker.acknowledged, self, key)
        # A durable notification may be repeated at any time. Another one may be repeated in a later session, if the
        # event was on its way to the broker that the client moved to.
        session = self._seen.get(key)
        if session is not None and (durable or session < self._session):
            return
        self._seen[key] = self._session
        self.notifications.append(note)

    def connection_lost(self) -> None:
        """The broker has lost the connection."""
        self.is_connected = False

    def broker_returned(self) -> None:
        """The broker is back; try to connect after a delay."""
        delay = self._world.draw_reconnection_delay()
        self._world.clock.at(self._world.now + delay, self._reconnect, self._broker)

    def _reconnect(self, broker: ClientBroker) -> None:
        if not self._wants_connection or self.is_connected or self._broker is not broker:
            return
        if broker.is_there:
            self._connect()
        else:
            broker.connect_on_return(self)

    def _connect(self) -> None:
        self.is_connected = True
        # A client that has moved once says so every time, because its new broker may crash before others hear of it.
        self._has_moved |= self._last_connected_to not in (None, self.broker)
        self._last_connected_to = self.broker
        self._session += 1
        self._broker.connect(self, self._session, moved=self._has_moved)
        removals, self._pending_removals = self._pending_removals, []
        for operation in removals:
            self._resend(operation)
        for schema in self._schemas.values():
            self._resend(Define(self.name, schema))
        if self._context or self._subscriptions:
            self._resend(SetContext(self.name, self._context))
        for other, allowed in self._delegates.items():
            self._resend(DelegateContext(self.name, other, allowed))
        for advertisement in self._advertisements.values():
            self._resend(Advertise(advertisement))
        for subscription in self._subscriptions.values():
            self._resend(Subscribe(subscription))

    # Sending operations

    def _send(self, operation: Operation) -> list[str]:
        """Send an operation and return the warnings about its policy. While the broker is down, `_connect` sends it
        later."""
        if self.is_connected:
            return _raise_if_refused(self._broker.do(operation, self.name))
        if not self._wants_connection:
            raise RefusedError("admit", f"{self.name} is not connected: {self._disconnection_reason()}")
        return []  # `_connect` sends it when the broker is back

    def _send_removal(self, operation: Unsubscribe | Unadvertise) -> None:
        """Send a removal, or remember it while the broker is down."""
        if self.is_connected and isinstance(operation, Unsubscribe):
            _raise_if_refused(self._broker.unsubscribe(operation))
        else:
            self._send(operation)
            if not self.is_connected:
                self._pending_removals.append(operation)

    def _resend(self, operation: Operation) -> None:
        """Send an operation after connecting; a refusal goes to `refused`."""
        if isinstance(operation, Unsubscribe):
            effects = self._broker.unsubscribe(operation)
        else:
            effects = self._broker.do(operation, self.name)
        self.refused += [effect for effect in effects if isinstance(effect, Reject)]

    def _disconnection_reason(self) -> str:
        return (
            f"its broker {self.broker} is down" if self._wants_connection else "it has left; connect() brings it back"
        )

    def _id_of(self, durable: str | None) -> str:
        ids = (
            subscription.id
            for subscription in self._subscriptions.values()
            if durable is not None and subscription.durable == durable
        )
        return next(ids, None) or self._new_id()

    def _new_id(self) -> str:
        self._id_count += 1
        return f"{self.name[:200]}.{self._id_count}"

    def __repr__(self) -> str:
        return f"<client {self.name} at {self.broker}>"


def _raise_if_refused(effects: list[Effect]) -> list[str]:
    """Raise `RefusedError` if an effect is a refusal, else return the warnings about policies."""
    for effect in effects:
        if isinstance(effect, Reject):
            raise RefusedError(effect.step, effect.reason)
    return [effect.finding for effect in effects if isinstance(effect, PolicyWarning)]
