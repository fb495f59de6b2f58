"""The clients of a hub: each publishes, subscribes, and has a context."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, overload
from uuid import UUID

import msgspec

from tidings.coerce import content_filter, context_filter, context_offer, policy_text
from tidings.engine.operations import (
    Advertise,
    Define,
    DelegateContext,
    Disconnect,
    Operation,
    SetPolicy,
    Unadvertise,
    Unsubscribe,
)
from tidings.hub.secure_clients import SecureClients
from tidings.hub.subscription import Callback, HubSubscription
from tidings.model.advertisement import Advertisement, checked_id
from tidings.model.errors import ClosedError, InvalidValueError, RefusedError
from tidings.model.event import Event, checked_client, checked_payload, checked_subject
from tidings.model.filter import ContextFilterValue, FilterValue
from tidings.model.notification import Notification
from tidings.model.receipt import Receipt
from tidings.model.schema import AttributeFilter, Schema
from tidings.model.subscription import Notify, Subscription
from tidings.model.values import Attributes, Context
from tidings.runtime.due_from_journal import Since
from tidings.runtime.inboxes import inbox_limit
from tidings.runtime.processor import Processor
from tidings.runtime.queries import explain_event, past_event, possible_event
from tidings.runtime.subscription_registry import EMPTY_CONTEXT

if TYPE_CHECKING:
    from tidings.model.explanation import Explanation
    from tidings.policy.policy import Policy
    from tidings.security.member import SealingMember

Text = str | FilterValue
ContextText = str | ContextFilterValue


class HubAdvertisement(msgspec.Struct, frozen=True):
    """An advertisement as the hub accepted it, with `findings`, the remarks on its policy."""

    advertisement: Advertisement
    findings: list[str] = []

    @property
    def id(self) -> str:
        return self.advertisement.id


class HasId(Protocol):
    """A subscription or an advertisement, which has an id."""

    @property
    def id(self) -> str: ...


class ClientPort(Protocol):
    """What a client needs of its hub."""

    processor: Processor[HubSubscription]
    members: SecureClients

    def control(self, operation: Operation) -> list[str]:
        """Process an operation, and wait until it is on disk; return the remarks on its policy."""
        ...

    def publish(
        self,
        publisher: str,
        attributes: Attributes,
        *,
        subscribers: ContextFilterValue | None = None,
        payload: bytes | None = None,
        subject: str | None = None,
        policy: str | None = None,
        id: UUID | None = None,  # noqa: A002
        sync: bool = True,
        must_seal: bool = False,
    ) -> Receipt:
        """Publish an event of these values."""
        ...

    def publish_event(self, event: Event, *, sync: bool = True) -> Receipt:
        """Publish a ready-made event."""
        ...

    def set_context(
        self, client: str, by: str | None, context: Context | None, changes: Mapping[str, Any], *, sync: bool
    ) -> None:
        """Set or, if `context` is None, change the context of a client, on behalf of `by`."""

    def subscribe(
        self,
        subscription: Subscription,
        id: str | None,  # noqa: A002
        limit: int | None,
        callback: Callback | None,
    ) -> HubSubscription:
        """Subscribe, or resume an existing subscription."""
        ...

    def replay(self, ids: list[str], since: Since) -> Iterator[Notification]:
        """Replay the journaled events to these subscriptions."""
        ...


class HubClient:
    """A client of a hub, created by `Hub.client`: publishes, subscribes, and sets its context.

    There is one object per name. Every method may be called from any thread.
    """

    def __init__(self, hub: ClientPort, name: str, clients: "HubClients | None" = None) -> None:
        self.name = name
        self._hub, self._processor = hub, hub.processor
        self._clients = clients
        self._closed = False

    # Context

    @property
    def context(self) -> Context:
        """The client's current context."""
        return self._processor.registry.contexts.get(self.name, EMPTY_CONTEXT)

    def set_context(
        self,
        mapping: Mapping[str, Any] | None = None,
        /,
        *,
        merge: bool = False,
        safe: str = "journaled",
        of: str | None = None,
        **values: Any,
    ) -> None:
        """Replace the client's context; with `merge`, change only the given values, where None removes one.

        An unchanged context costs nothing: no operation is processed.

        Args:
            mapping: Names and values of the context.
            merge: Whether to change only the given values.
            safe: "journaled" to wait for the disk, "accepted" not to.
            of: Another client, which let this one set its context by `let_set_context`.
            **values: More names and values.

        Raises:
            RefusedError: The client `of` has not allowed it.
        """
        self._check_open()
        client, sync = self.name if of is None else checked_client(of), waits_for_disk(safe)
        if mapping is not None and not isinstance(mapping, Mapping):
            raise InvalidValueError(f"a context is a mapping of names to values, not {type(mapping).__name__}")
        changes = {**(mapping or {}), **values}
        context = Context.of(changes) if not merge else None
        self._hub.set_context(client, None if client == self.name else self.name, context, changes, sync=sync)

    def let_set_context(self, other: "str | HubClient", allowed: bool = True) -> None:
        """Allow another client to set this client's context, or withdraw the permission."""
        self._check_open()
        name = other.name if isinstance(other, HubClient) else checked_client(other)
        self._hub.control(DelegateContext(self.name, name, allowed))

    # Publishing

    def advertise(
        self,
        content: Text = "",
        publisher_context: Iterable[str] | ContextText | None = None,
        subscriber_context: Iterable[str] | ContextText = (),
        policy: "str | Policy | None" = None,
        id: str | None = None,  # noqa: A002
        format: str = "sql",  # noqa: A002
    ) -> HubAdvertisement:
        """Advertise what this client will publish; an advertisement of this client with the same id is replaced.

        Args:
            content: Filter that the events will match.
            publisher_context: Context names, or a filter, that this client offers; None offers all names.
            subscriber_context: Context names, or a filter, of subscribers that this client will use.
            policy: Policy associated with the advertisement.
            id: The advertisement's id; a new one by default.
            format: The format of `content`.
        """
        self._check_open()
        advertisement = Advertisement.of(
            content_filter(content, format),
            id=self._processor.new_id(self.name) if id is None else id,
            publisher=self.name,
            publisher_context=context_offer(publisher_context),
            subscriber_context=context_offer(subscriber_context),
            policy=policy_text(policy),
        )
        return HubAdvertisement(advertisement, self._hub.control(Advertise(advertisement)))

    def unadvertise(self, id: "str | HasId", policy: "str | Policy | None" = None) -> None:  # noqa: A002
        """Withdraw an advertisement; `policy` holds the rules to run before the removal."""
        self._check_open()
        self._hub.control(Unadvertise(self.name, id_of(id), policy_text(policy)))

    def publish(
        self,
        attributes: Mapping[str, Any] | None = None,
        subscribers: ContextText | None = None,
        payload: bytes | None = None,
        subject: str | None = None,
        policy: "str | Policy | None" = None,
        safe: str = "journaled",
        id: UUID | str | None = None,  # noqa: A002
        sealed: bool = False,
    ) -> Receipt:
        """Publish an event; return its receipt once it has the requested durability and is in the subscribers' inboxes.

        The receipt's `safe` says how durable the event is: in a hub without a journal always "accepted". The receipt's
        `sealed` is the epoch of the key if the event was sealed.

        Args:
            attributes: The event's attributes.
            subscribers: Filter over subscribers' contexts, for whom the event is.
            payload: The event's payload; an empty one counts as none.
            subject: The event's subject.
            policy: Policy attached to the event.
            safe: "journaled" to wait for the disk, "accepted" not to.
            id: The event's UUIDv7; a new one by default.
            sealed: Whether to refuse an event that would not be sealed.

        Raises:
            PublishedBeforeError: An event of this id was published before, as far as the hub remembers.
            RefusedError: The hub refused the event.
        """
        self._check_open()
        return self._hub.publish(
            self.name,
            Attributes.of(attributes),
            subscribers=None if subscribers is None else context_filter(subscribers),
            payload=checked_payload(payload) if payload else None,
            subject=None if subject is None else checked_subject(subject),
            policy=None if policy is None else policy_text(policy),
            id=None if id is None else _event_id(id),
            sync=waits_for_disk(safe),
            must_seal=sealed,
        )

    def publish_event(self, event: Event, safe: str = "journaled") -> Receipt:
        """Publish a ready-made, possibly sealed event with its id and sequence; its timestamp is the acceptance time.

        A sealed event that is sent again gets its first receipt and is not delivered again; another event under its id
        is refused. The hub does not ask clients, which are in its own process, to prove their identity.
        """
        self._check_open()
        if not isinstance(event, Event):
            raise InvalidValueError(f"publish_event takes an Event, not {type(event).__name__}")
        if event.publisher != self.name:
            raise RefusedError("admit", f"the event is one of {event.publisher}, not of {self.name}")
        checked = Event.of(**{name: getattr(event, name) for name in Event.__struct_fields__})
        return self._hub.publish_event(checked, sync=waits_for_disk(safe))

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
        callback: Callback | None = None,
        limit: int | None = None,
        token: bytes | None = None,
    ) -> HubSubscription:
        """Subscribe from now on; notifications wait in the subscription's inbox, or are passed to `callback`.

        Args:
            content: Filter over the events' attributes.
            publishers: Filter over the publishers' contexts; `this.` is this client's context.
            policy: Policy associated with the subscription.
            durable: A name under which the subscription outlives this client, its process and the hub's. Subscribing
                again under the name resumes it, with the new filter if that differs.
            notify: "subscription" for a notification per subscription, "client" for one per client and event.
            subject: The subject of the events.
            structure: Attribute names that must be present or absent.
            format: The format of `content`.
            id: The subscription's id; a new one by default.
            callback: Called with each notification; returning acknowledges it.
            limit: Maximum number of notifications kept in memory.
            token: Token for a secure topic. The hub does not ask for a proof that the token is the client's. A member's
                own token is used if it subscribes to just a secure topic.

        Raises:
            InvalidValueError: An argument is invalid.
            RefusedError: The hub refused the subscription.
        """
        self._check_open()
        subscription = Subscription.of(
            content_filter(content, format),
            id="new" if id is None else checked_id(id),
            subscriber=self.name,
            subject=subject,
            structure=structure,
            publishers=context_filter(publishers),
            policy=policy_text(policy),
            durable=durable,
            notify=notify,
            token=token,
        )
        inbox_limit(limit)
        return self._hub.subscribe(subscription, id, limit, checked_callback(callback))

    def subscriptions(self) -> list[HubSubscription]:
        """Return this client's subscriptions, including durable ones from before it came back."""
        with self._processor.lock:
            return self._processor.registry.subscriptions_of(self.name)

    def unsubscribe(self, id: str | HasId, policy: "str | Policy | None" = None) -> None:  # noqa: A002
        """Remove a subscription; `policy` holds the rules to run before the removal."""
        self._check_open()
        self._hub.control(Unsubscribe(self.name, id_of(id), policy_text(policy)))

    def replay(self, since: Since = None) -> Iterator[Notification]:
        """Replay the journaled events from `since` on: yield the notifications that this client would get now."""
        self._check_open()
        return self._hub.replay([subscription.id for subscription in self.subscriptions()], since)

    # Policies, schemas, explanations

    def set_policy(
        self,
        id: str | HasId,  # noqa: A002
        policy: "str | Policy | None",
    ) -> list[str]:
        """Set the policy of this client's subscription or advertisement, None removes it; return the remarks on it."""
        self._check_open()
        return self._hub.control(SetPolicy(self.name, id_of(id), policy_text(policy)))

    def schema(self, schema: Schema | str) -> Schema:
        """Define a subject's schema, or extend it by a longer version; given a subject, return its schema.

        Raises:
            RefusedError: The subject has no schema, or the new schema does not extend the present one.
        """
        self._check_open()
        if isinstance(schema, Schema):
            self._hub.control(Define(self.name, schema))
            return schema
        if not isinstance(schema, str):
            raise InvalidValueError(f"schema: a Schema, or the subject of one, not {type(schema).__name__}")
        with self._processor.lock:
            stored = self._processor.registry.schemas.get(schema)
        if stored is None:
            raise RefusedError("admit", f"the subject {schema!r} has no schema")
        return stored

    @overload
    def explain(self, event: Any, subscription: str | HasId, **about: Any) -> "Explanation": ...

    @overload
    def explain(self, event: Any, subscription: None = None, **about: Any) -> "list[Explanation]": ...

    def explain(
        self, event: Any, subscription: str | HasId | None = None, **about: Any
    ) -> "Explanation | list[Explanation]":
        """Explain why an event does or does not reach a subscription; with None, each subscription of this client.

        The explanation shows only what this client may see of other clients' filters and policies.

        Args:
            event: A past event, by its id, receipt or notification; or the attributes of an event that this client
                could publish.
            subscription: The subscription to explain.
            **about: `subscribers`, `payload`, `subject` and `policy` of an event given by its attributes, as in
                `publish`.
        """
        self._check_open()
        past = past_event(self._processor, event)
        explained_event = possible_event(self._processor, self.name, event, **about) if past is None else past
        if subscription is None:
            return explain_event(
                self._processor, explained_event, None, self.name, viewer=self.name, is_past=past is not None
            )
        return explain_event(
            self._processor, explained_event, id_of(subscription), None, viewer=self.name, is_past=past is not None
        )[0]

    def close(self) -> None:
        """Disconnect: remove the client's subscriptions, except durable ones, which go on collecting; free the name."""
        if not self._closed:
            if self._clients is not None:
                self._clients.remove(self)
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<client {self.name} of {self._processor.name}>"

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the client {self.name} was closed; hub.client({self.name!r}) gives a new one")


class HubClients:
    """The clients of a hub, by name. Thread-safe."""

    def __init__(self, hub: ClientPort) -> None:
        self._hub, self._processor = hub, hub.processor
        self._clients: dict[str, HubClient] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def client(self, name: str, member: "SealingMember | None" = None) -> HubClient:
        """Return the client of that name, created if needed, and attach it to its durable subscriptions."""
        processor = self._processor
        with processor.lock:
            processor.check_open()
            if member is not None:
                self._hub.members.put(name, member)
            client = self._clients.get(name)
            if client is None:
                client = self._clients[name] = HubClient(self._hub, name, self)
                for subscription in processor.registry.subscriptions_of(name):
                    subscription.attach(None)  # durable subscriptions stay when their client leaves
            return client

    def remove(self, client: HubClient) -> None:
        """Disconnect a client and free its name; its subscriptions are removed, except durable ones."""
        if not self._processor.closed:
            self._hub.control(Disconnect(client.name))
        with self._processor.lock:
            if self._clients.get(client.name) is client:
                del self._clients[client.name]
                self._hub.members.forget(client.name)


def checked_callback(callback: Any) -> Any:
    """Return the callback; raise `InvalidValueError` if it is not callable."""
    if callback is not None and not callable(callback):
        raise InvalidValueError(f"callback: a function of a notification, not {type(callback).__name__}")
    return callback


def waits_for_disk(safe: Any) -> bool:
    """Return whether the caller waits for the disk: True for "journaled", False for "accepted"."""
    if safe not in ("journaled", "accepted"):
        raise InvalidValueError(f"safe: must be 'journaled' or 'accepted', not {safe!r}")
    return bool(safe == "journaled")


def id_of(id_or_handle: str | HasId) -> str:
    """Return the id of a subscription or an advertisement, which may be given as its id or as its handle."""
    if isinstance(id_or_handle, HubSubscription | HubAdvertisement):
        return id_or_handle.id
    return checked_id(id_or_handle)


def _event_id(id: Any) -> UUID:  # noqa: A002
    if isinstance(id, str):
        try:
            id = UUID(id)  # noqa: A001
        except ValueError:
            raise InvalidValueError(f"id: {id!r} is no UUID") from None
    if not isinstance(id, UUID) or id.version != 7:
        raise InvalidValueError("id: an event is named by a UUIDv7; uuid7() makes one")
    return id
