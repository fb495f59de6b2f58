"""A client of a hub: it publishes, subscribes, and has a context."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, overload
from uuid import UUID

import msgspec

from tidings.engine.operations import (
    Advertise,
    Define,
    Entrust,
    SetContext,
    SetPolicy,
    Subscribe,
    Unadvertise,
)
from tidings.hub.history import Since
from tidings.hub.inquiry import explained, past_event, possible_event
from tidings.hub.roster import LIMIT, NOTHING
from tidings.hub.subscription import Callback, HubSubscription
from tidings.hub.texts import checked_callback, inbox_limit, is_safe
from tidings.model.advertisement import Advertisement, checked_id
from tidings.model.errors import ClosedError, InvalidValueError, RefusedError
from tidings.model.event import Event, checked_client, checked_payload, checked_subject
from tidings.model.filter import ContextFilter, Filter
from tidings.model.notification import Notification
from tidings.model.receipt import Receipt
from tidings.model.schema import AttributeFilter, Schema
from tidings.model.subscription import Notify, Subscription
from tidings.model.values import Attributes, Context
from tidings.texts import content_filter, context_filter, context_offer, policy_text

if TYPE_CHECKING:
    from tidings.hub.desk import Desk
    from tidings.model.explanation import Explanation
    from tidings.policy.policy import Policy

Text = str | Filter
ContextText = str | ContextFilter


class HubAdvertisement(msgspec.Struct, frozen=True):
    """What was advertised; `findings` are remarks on the policy that was given with it."""

    advertisement: Advertisement
    findings: list[str] = []

    @property
    def id(self) -> str:
        return self.advertisement.id


class Client:
    """Made by `Hub.client`, one for each name. Every method may be called from any thread."""

    def __init__(self, desk: "Desk", name: str) -> None:
        self.name = name
        self._desk = desk
        self._closed = False

    # Situation

    @property
    def context(self) -> Context:
        return self._desk.roster.contexts.get(self.name, NOTHING)

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
        """The context from now on, whole; with `merge`, only the given values change, and None takes one away.

        `of` is another client that has let this one set its context. What changes nothing costs nothing.
        """
        self._check_open()
        whose, sync = self.name if of is None else checked_client(of), is_safe(safe)
        if mapping is not None and not isinstance(mapping, Mapping):
            raise InvalidValueError(f"a context is a mapping of names to values, not {type(mapping).__name__}")
        given = {**(mapping or {}), **values}
        changed = Context.of(given) if not merge else None
        desk = self._desk
        with desk.guard:
            present = desk.roster.contexts.get(whose, NOTHING)
            context = present.merged(given) if changed is None else changed
            by = None if whose == self.name else self.name
            if context == present and (by is None or by in desk.engine.entrusted.get(whose, ())):
                return
            _, end, outcome = desk.controlled(SetContext(whose, context, by))
        desk.finish(outcome, end if sync else 0)

    def let_set_context(self, other: "str | Client", allowed: bool = True) -> None:
        """Lets another client set this one's context, or does so no more."""
        self._check_open()
        name = other.name if isinstance(other, Client) else checked_client(other)
        self._desk.control(Entrust(self.name, name, allowed))

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
        """Says what will be published; under an id that this client has, another advertisement takes its place."""
        self._check_open()
        advertisement = Advertisement.of(
            content_filter(content, format),
            id=self._desk.new_id(self.name) if id is None else id,
            publisher=self.name,
            publisher_context=context_offer(publisher_context),
            subscriber_context=context_offer(subscriber_context),
            policy=policy_text(policy),
        )
        return HubAdvertisement(advertisement, self._desk.control(Advertise(advertisement)))

    def unadvertise(self, id: "str | HubAdvertisement", policy: "str | Policy | None" = None) -> None:  # noqa: A002
        self._check_open()
        self._desk.control(Unadvertise(self.name, given_id(id), policy_text(policy)))

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
        """Returns when the event is as safe as was asked, and is in the inboxes of those whom it concerns.

        With `safe="accepted"` it does not wait for the disk. The receipt's `safe` says how safe the event is: in a hub
        without a folder `accepted`, whatever was asked. An empty payload is none. An `id` (a UUIDv7) that was
        published before is refused, as far as the hub remembers. The receipt's `sealed` is the epoch of the key, where
        a member publishes on a secure topic; with `sealed=True`, an event that would go in the clear is refused.
        """
        self._check_open()
        return self._desk.publish(
            self.name,
            Attributes.of(attributes),
            subscribers=None if subscribers is None else context_filter(subscribers),
            payload=checked_payload(payload) if payload else None,
            subject=None if subject is None else checked_subject(subject),
            policy=None if policy is None else policy_text(policy),
            id=None if id is None else _event_id(id),
            sync=is_safe(safe),
            must_seal=sealed,
        )

    def publish_event(self, event: Event, safe: str = "journaled") -> Receipt:
        """Publishes an event that was made, and perhaps sealed, before: its id and its sequence stay, its timestamp is
        the time at which it is accepted.

        A sealed one that is sent again gets its first receipt, and goes nowhere; another one under its id is refused.
        Clients are in the hub's own process, so they need not prove who they are.
        """
        self._check_open()
        if not isinstance(event, Event):
            raise InvalidValueError(f"publish_event takes an Event, not {type(event).__name__}")
        if event.publisher != self.name:
            raise RefusedError("admit", f"the event is one of {event.publisher}, not of {self.name}")
        checked = Event.of(**{name: getattr(event, name) for name in Event.__struct_fields__})
        return self._desk.publish_event(checked, sync=is_safe(safe))

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
        """A subscription from now on; what comes waits in its inbox, or is handed to `callback`.

        `durable` is a name under which it outlives this client, its process and the hub's; subscribing again under it
        goes on where it was, with another filter if another is given. `limit` bounds what is kept in memory. `token` is
        for what is on a secure topic; in the hub's own process nobody has to prove that it is theirs. A member that
        asks for nothing but a secure topic need not give it.
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
        desk, size, called = self._desk, inbox_limit(limit), checked_callback(callback)
        with desk.guard:
            subscription = self._with_token(subscription)
            held = self._held(subscription, id)
            size = size if held is None or limit is not None else held.inbox.limit
            subscription = _named(subscription, held, desk.new_id(self.name) if id is None else id)
            if held is not None and held.subscription == subscription and held.inbox.limit == size:
                findings, end, outcome = None, 0, None
            else:
                findings, end, outcome = desk.controlled(Subscribe(subscription), {LIMIT: size})
            if outcome is None or outcome.refused is None:
                held = desk.roster.subscriptions[subscription.id]
                if findings is not None:
                    held.set_policy_findings(findings)
                held.attach(called)
        if outcome is not None:
            desk.finish(outcome, end)
        assert held is not None  # noqa: S101 - what was refused has raised
        desk.wake(held)
        return held

    def subscriptions(self) -> list[HubSubscription]:
        """All that this client has, those that were there before it came back included."""
        with self._desk.guard:
            return self._desk.roster.of(self.name)

    def unsubscribe(self, id: str | HubSubscription, policy: "str | Policy | None" = None) -> None:  # noqa: A002
        self._check_open()
        self._desk.unsubscribe(self.name, given_id(id), policy)

    def replay(self, since: Since = None) -> Iterator[Notification]:
        """What all of this client's subscriptions would get if the events since then came now, from the journal."""
        self._check_open()
        return self._desk.replay([held.id for held in self.subscriptions()], since)

    # Policies, schemas, reasons

    def set_policy(
        self,
        id: str | HubSubscription | HubAdvertisement,  # noqa: A002
        policy: "str | Policy | None",
    ) -> list[str]:
        """Sets the policy of a subscription or an advertisement of this client's, None takes it away; the findings."""
        self._check_open()
        return self._desk.control(SetPolicy(self.name, given_id(id), policy_text(policy)))

    def schema(self, schema: Schema | str) -> Schema:
        """Defines the schema of a subject, or a longer version of it; given a subject, the one that it has."""
        self._check_open()
        if isinstance(schema, Schema):
            self._desk.control(Define(self.name, schema))
            return schema
        if not isinstance(schema, str):
            raise InvalidValueError(f"schema: a Schema, or the subject of one, not {type(schema).__name__}")
        with self._desk.guard:
            found = self._desk.roster.schemas.get(schema)
        if found is None:
            raise RefusedError("admit", f"the subject {schema!r} has no schema")
        return found

    @overload
    def explain(self, event: Any, subscription: str | HubSubscription, **about: Any) -> "Explanation": ...

    @overload
    def explain(self, event: Any, subscription: None = None, **about: Any) -> "list[Explanation]": ...

    def explain(
        self, event: Any, subscription: str | HubSubscription | None = None, **about: Any
    ) -> "Explanation | list[Explanation]":
        """Why an event does, or does not, reach a subscription (None: each of this client's own).

        The event is a past one, by its id or receipt, or one that this client might publish: a mapping of attributes,
        with `subscribers`, `payload`, `subject` and `policy` as in `publish`. One sees only what one may: what belongs
        to others is not told.
        """
        self._check_open()
        past = past_event(self._desk, event)
        given = possible_event(self._desk, self.name, event, **about) if past is None else past
        if subscription is None:
            return explained(self._desk, given, None, self.name, viewer=self.name, is_past=past is not None)
        return explained(self._desk, given, given_id(subscription), None, viewer=self.name, is_past=past is not None)[0]

    def close(self) -> None:
        """Leaves: what is not durable goes, what is goes on collecting. The name can come back."""
        if not self._closed:
            self._desk.leave(self)
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<client {self.name} of {self._desk.name}>"

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the client {self.name} was closed; hub.client({self.name!r}) gives a new one")

    def _with_token(self, subscription: Subscription) -> Subscription:
        """Of a member that asks for nothing but a secure topic: with the token that it has."""
        assurance = self._desk.engine.assurance
        record = None if subscription.token is not None or assurance is None else assurance.confines.of(subscription)
        token = None if record is None else self._desk.members.token(self.name, record.id)
        return subscription if token is None else msgspec.structs.replace(subscription, token=token)

    def _held(self, subscription: Subscription, id: str | None) -> HubSubscription | None:  # noqa: A002
        """The subscription that is meant, if it is there: by its durable name, or by its id."""
        roster = self._desk.roster
        if subscription.durable is not None:
            held = roster.durable(self.name, subscription.durable)
            if held is not None and id is not None and held.id != id:
                raise InvalidValueError(f"durable: {subscription.durable!r} is the subscription {held.id}, not {id}")
            if held is not None:
                return held
        held = None if id is None else roster.subscriptions.get(id)
        return held if held is not None and held.subscriber == self.name else None


def _named(subscription: Subscription, held: HubSubscription | None, id: str) -> Subscription:  # noqa: A002
    """Under its id; coming back without a policy or a token leaves the one that was there."""
    if held is None:
        return msgspec.structs.replace(subscription, id=id)
    policy = held.subscription.policy if subscription.policy is None else subscription.policy
    token = held.subscription.token if subscription.token is None else subscription.token
    return msgspec.structs.replace(subscription, id=held.id, policy=policy, token=token)


def given_id(given: str | HubSubscription | HubAdvertisement) -> str:
    if isinstance(given, HubSubscription | HubAdvertisement):
        return given.id
    return checked_id(given)


def _event_id(id: Any) -> UUID:  # noqa: A002
    if isinstance(id, str):
        try:
            id = UUID(id)  # noqa: A001
        except ValueError:
            raise InvalidValueError(f"id: {id!r} is no UUID") from None
    if not isinstance(id, UUID) or id.version != 7:
        raise InvalidValueError("id: an event is named by a UUIDv7; uuid7() makes one")
    return id
