"""The asynchronous client of a broker: publishes, subscribes, sets a context, and reconnects by itself."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import msgspec

from tidings.client.api import ClientHandle, ContextText, Handle, Text
from tidings.client.callback_runner import Callback
from tidings.client.connection import ConnectionState
from tidings.client.publisher import EventPublisher
from tidings.client.request_sender import RequestSender, SessionState, time_limit
from tidings.client.session import ClientSession, ConnectionSettings
from tidings.client.subscription import ClientSubscription, OnRefused, SubscriptionTable
from tidings.coerce import content_filter, context_filter, context_offer, policy_text
from tidings.model.advertisement import Advertisement, checked_id, listed_offer
from tidings.model.errors import InvalidValueError
from tidings.model.event import Event, checked_client, checked_subject
from tidings.model.explanation import Explanation, ExplanationStep
from tidings.model.filter import ContextFilterValue
from tidings.model.limits import DEFAULT_INBOX_NOTIFICATIONS, MAX_INBOX_NOTIFICATIONS
from tidings.model.notification import Notification
from tidings.model.receipt import Receipt
from tidings.model.schema import AttributeFilter, Schema, schema_of, structure_text, versions_of
from tidings.model.subscription import Notify
from tidings.model.time_arguments import Since as Since
from tidings.model.time_arguments import checked_timeout
from tidings.model.values import Attributes, Context
from tidings.protocol import requests
from tidings.protocol.frames import FrameKind
from tidings.protocol.notifications import WireNotification, notification_from_wire

if TYPE_CHECKING:
    from tidings.client.secure.membership import Membership, SecureSubscriptions
    from tidings.client.secure.service_rpc import ReplyInbox, ServiceClient
    from tidings.policy.policy import Policy

Secured = Callable[["ServiceClient", "SecureSubscriptions"], "Membership"]  # makes the membership of a secure client


class ClientAdvertisement(msgspec.Struct, frozen=True):
    """An advertisement as the broker accepted it, with `findings`, the remarks on its policy."""

    advertisement: Advertisement
    findings: list[str] = []

    @property
    def id(self) -> str:
        return self.advertisement.id


class Client:
    """A client of a broker, created by `tidings.connect` and used in one event loop.

    After a reconnection the client restores its context, advertisements and subscriptions at the broker.

    Methods that wait for the broker take a `timeout` in seconds; by default the timeout given to `connect` applies.
    When it expires, they raise `RequestTimeoutError`, and the broker may still carry out the request. Without any
    timeout they wait until the broker answers, possibly on another connection, or the client is closed.
    """

    def __init__(
        self, settings: ConnectionSettings, secured: Secured | None = None, timeout: float | None = None
    ) -> None:
        self._session = session = ClientSession(settings)
        self._session_state: SessionState = session.session_state
        self._requests = RequestSender(session, timeout)
        self._publisher = EventPublisher(session)
        self._subscriptions = session.listener = SubscriptionTable(session, self._requests)
        self._ids_made = 0
        self._membership = None if secured is None else secured(self, self._subscriptions)
        if self._membership is not None:
            self._subscriptions.membership = self._membership
            session.seal_with(self._membership.sealing_queue(session), self._membership.member.prove)

    # Opening and closing

    async def __aenter__(self) -> Self:
        await self._session.open()
        if self._membership is not None:
            try:
                await self._membership.begin()
            except BaseException:
                await self.close()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, timeout: float | None = None) -> None:
        """Close the client, after waiting for the answers to its publications. Subscriptions end, except durable ones.

        `timeout` limits the wait, in seconds; the default is the `patience` of `connect`. Without a connection the
        client does not wait.
        """
        await self._session.close(checked_timeout(timeout))
        if self._membership is not None:
            await self._membership.end()

    async def until_closed(self, timeout: float | None = None) -> None:
        """Wait until the client is closed; raise `ClosedError` with the reason if the broker closed it for good.

        For programs, such as services, that have nothing else to wait for.
        """
        seconds = checked_timeout(timeout)
        async with time_limit(seconds, "until_closed", lambda: self.state, "the client is not closed"):
            await self._session.until_closed()

    @property
    def name(self) -> str:
        """The client's name."""
        return self._session.name

    @property
    def session(self) -> ClientSession:
        """The connection to the broker, across reconnections, and the requests in flight on it."""
        return self._session

    @property
    def membership(self) -> "Membership | None":
        """The keys, tokens and notices of a client that was created with a `Member`; None for any other client."""
        return self._membership

    @property
    def state(self) -> ConnectionState:
        """The current state of the connection."""
        return self._session.state

    async def states(self) -> AsyncIterator[ConnectionState]:
        """Yield the present state of the connection, then each later one, until the client is closed.

        A slow reader gets the latest state and misses those before it.
        """
        state: ConnectionState | None = None
        while state is None or state.state != "closed":
            state = await self.state_after(state)
            yield state

    async def state_after(self, seen: ConnectionState | None) -> ConnectionState:
        """Wait until the state of the connection differs from `seen`, and return it.

        A `closed` state returns at once.
        """
        return await self._session.state_after(seen)

    @property
    def broker(self) -> str:
        """The name of the broker that the client is, or was last, connected to."""
        return self._session.broker

    @property
    def is_connected(self) -> bool:
        """Whether the client is connected to a broker."""
        return self._session.is_connected

    @property
    def sequence(self) -> int:
        """The sequence number of the client's last publication, as its broker reported it at the last connection."""
        return self._session.sequence

    async def move(self, addresses: str | Iterable[str], timeout: float | None = None) -> None:
        """Connect to another broker, and restore the context, advertisements and subscriptions there.

        After the `timeout` the client keeps trying, the new addresses first.
        """
        async with self._requests.limit(timeout, "move"):
            await self._session.move(addresses)

    # Context

    @property
    def context(self) -> Context:
        """The client's current context."""
        return self._session_state.context

    async def set_context(
        self,
        mapping: Mapping[str, Any] | None = None,
        /,
        *,
        merge: bool = False,
        of: str | None = None,
        timeout: float | None = None,
        **values: Any,
    ) -> None:
        """Replace the client's context; with `merge`, change only the given values, where None removes one.

        An unchanged context sends nothing. A client that only publishes sends nothing either, since its context travels
        with its events. Values named `merge`, `of` or `timeout` must be in the mapping. After the `timeout` the new
        context is set all the same, and reaches the broker with the next connection at the latest.

        Args:
            mapping: Names and values of the context.
            merge: Whether to change only the given values.
            of: Another client, which let this one set its context by `let_set_context`.
            timeout: Seconds to wait for the broker.
            **values: More names and values.
        """
        if mapping is not None and not isinstance(mapping, Mapping):
            raise InvalidValueError(f"a context is a mapping of names to values, not {type(mapping).__name__}")
        changes = {**(mapping or {}), **values}
        limit = self._requests.limit(timeout, "set_context")
        if of is not None and checked_client(of) != self.name:
            if merge:
                raise InvalidValueError("merge: only one's own context is known here; give the whole context")
            async with limit:
                request = requests.SetContextRequest(0, Context.of(changes), of)
                await self._requests.request(FrameKind.SET_CONTEXT, request)
            return
        state = self._session_state
        context = state.context.merged(changes) if merge else Context.of(changes)
        if state.has_set_context and context == state.context:
            return
        state.set_context(context)
        if state.announces_context:
            async with limit:
                await self._requests.request(FrameKind.SET_CONTEXT, requests.SetContextRequest(0, context))

    async def let_set_context(
        self, other: str | ClientHandle, allowed: bool = True, timeout: float | None = None
    ) -> None:
        """Allow another client to set this client's context, or withdraw the permission."""
        name = checked_client(other if isinstance(other, str) else other.name)
        async with self._requests.limit(timeout, "let_set_context"):
            await self._requests.announce_context()
            await self._requests.request(FrameKind.ENTRUST, requests.DelegateContextRequest(0, name, allowed))
        self._session_state.delegates[name] = allowed

    # Publishing

    async def advertise(
        self,
        content: Text = "",
        publisher_context: Iterable[str] | ContextText | None = None,
        subscriber_context: Iterable[str] | ContextText = (),
        policy: "str | Policy | None" = None,
        id: str | None = None,  # noqa: A002
        format: str = "sql",  # noqa: A002
        timeout: float | None = None,
    ) -> ClientAdvertisement:
        """Advertise what this client will publish; an advertisement of this client with the same id is replaced.

        Args:
            content: Filter that the events will match.
            publisher_context: Context names, or a filter, that this client offers; None offers all names.
            subscriber_context: Context names, or a filter, of subscribers that this client will use.
            policy: Policy associated with the advertisement.
            id: The advertisement's id; a new one by default.
            format: The format of `content`.
            timeout: Seconds to wait for the broker.
        """
        advertisement = Advertisement.of(
            content_filter(content, format),
            id=self._new_id() if id is None else id,
            publisher=self.name,
            publisher_context=context_offer(publisher_context),
            subscriber_context=context_offer(subscriber_context),
            policy=policy_text(policy),
        )
        request = _advertise_request(advertisement)
        async with self._requests.limit(timeout, "advertise"):
            done = await self._requests.request(FrameKind.ADVERTISE, request)
        self._session_state.advertisements[advertisement.id] = request
        return ClientAdvertisement(advertisement, list(done.findings))

    async def unadvertise(
        self,
        id: str | Handle,  # noqa: A002
        policy: "str | Policy | None" = None,
        timeout: float | None = None,
    ) -> None:
        """Withdraw an advertisement; `policy` holds the rules to run before the removal."""
        advertisement_id = checked_id(id if isinstance(id, str) else id.id)
        request = requests.UnadvertiseRequest(0, advertisement_id, policy_text(policy))
        limit = self._requests.limit(timeout, "unadvertise")
        self._session_state.advertisements.pop(advertisement_id, None)
        async with limit:
            await self._requests.request(FrameKind.UNADVERTISE, request)

    async def publish(
        self,
        attributes: Mapping[str, Any] | None = None,
        subscribers: ContextText | None = None,
        payload: bytes | None = None,
        subject: str | None = None,
        policy: "str | Policy | None" = None,
        safe: str = "journaled",
        id: UUID | str | None = None,  # noqa: A002
        sequence: int | None = None,
        sealed: bool = False,
        timeout: float | None = None,
    ) -> Receipt:
        """Publish an event; return its receipt once the event has the requested durability.

        To publish many events without waiting for each, use `publish_many` or `publish_soon`: events published together
        travel together. A task for each event does the same, at a higher cost.

        On a secure topic the client seals the event, if it has an identity and the right to publish, and asks the
        topic's centre for keys when needed. The receipt's `sealed` is the epoch of the key, its `safe` the durability
        reached: a broker without a journal has the event in memory only.

        Args:
            attributes: The event's attributes.
            subscribers: Filter over subscribers' contexts, for whom the event is.
            payload: The event's payload.
            subject: The event's subject.
            policy: Policy attached to the event.
            safe: "accepted" (in the broker's memory), "journaled" (on its disk) or "settled" (arrived wherever it is
                due).
            id: The event's UUIDv7; a new one by default. After a timeout the event may be published again under the
                same id.
            sequence: The event's number among this client's events, higher than any before; counted by default.
            sealed: Whether to refuse, before sending it, an event that would not be sealed.
            timeout: Seconds to wait. After it, the event may still be published.

        Raises:
            SecurityError: The client lacks the right, token or key for a secure topic.
            PublishedBeforeError: An event of this id was published before.
            RefusedError: The broker refused the event.
        """
        arguments = attributes, subscribers, payload, subject, policy, safe, id, sequence, sealed
        if timeout is None and self._requests.timeout is None:  # called very often: skip the overhead of a limit
            return await (await self._publisher.publish_soon(*arguments))
        async with self._requests.limit(timeout, "publish"):
            return await (await self._publisher.publish_soon(*arguments))

    async def publish_soon(
        self,
        attributes: Mapping[str, Any] | None = None,
        subscribers: ContextText | None = None,
        payload: bytes | None = None,
        subject: str | None = None,
        policy: "str | Policy | None" = None,
        safe: str = "journaled",
        id: UUID | str | None = None,  # noqa: A002
        sequence: int | None = None,
        sealed: bool = False,
        timeout: float | None = None,
    ) -> "asyncio.Future[Receipt]":
        """Send an event; return a future of its receipt as soon as the event is in flight.

        It waits only while too many publications are in flight, so one task can publish many events.

        Args:
            attributes: The event's attributes.
            subscribers: Filter over subscribers' contexts, for whom the event is.
            payload: The event's payload.
            subject: The event's subject.
            policy: Policy attached to the event.
            safe: The durability to wait for, as in `publish`.
            id: The event's UUIDv7; a new one by default.
            sequence: The event's number among this client's events.
            sealed: Whether to refuse an event that would not be sealed.
            timeout: Seconds to wait until the event can be sent; after it, the event is not published.
        """
        arguments = attributes, subscribers, payload, subject, policy, safe, id, sequence, sealed
        if timeout is None and self._requests.timeout is None:
            return await self._publisher.publish_soon(*arguments)
        async with self._requests.limit(timeout, "publish_soon", "the event is not published"):
            return await self._publisher.publish_soon(*arguments)

    async def publish_many(
        self,
        /,
        events: Iterable[Mapping[str, Any]],
        safe: str = "journaled",
        timeout: float | None = None,
        **given: Any,
    ) -> list[Receipt]:
        """Publish events, each given as its attributes; return their receipts in order.

        If some are refused, the first error is raised once all are answered; the others are published.

        Args:
            events: The attributes of each event.
            safe: The durability to wait for, as in `publish`.
            timeout: Seconds for all events together; after it, any of them may have been published.
            **given: Further arguments of `publish`, the same for each event. Otherwise use `publish_soon`.
        """
        async with self._requests.limit(timeout, "publish_many"):
            return await self._publisher.publish_many(events, safe=safe, **given)

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
        limit: int | None = None,
        callback: Callback | None = None,
        on_lost: Callable[[int], Any] | None = None,
        topic: str | None = None,
        raw: bool = False,
        on_refused: OnRefused | None = None,
        timeout: float | None = None,
    ) -> ClientSubscription:
        """Create a subscription, which begins when it is entered by `async with` or awaited.

        A subscription of this client with the same durable name or id is replaced. Sealed events are decrypted if this
        client has an identity and the right to subscribe.

        Args:
            content: Filter over the events' attributes.
            publishers: Filter over the publishers' contexts; `this.` is this client's context.
            policy: Policy associated with the subscription.
            durable: A name under which the subscription outlives this client and its process.
            notify: "subscription" for a notification per subscription, "client" for one per client and event.
            subject: The subject of the events.
            structure: Attribute names that must be present or absent.
            format: The format of `content`.
            id: The subscription's id; a new one by default.
            limit: How many notifications may wait in this client before it stops reading from the broker.
            callback: Called with each notification; returning acknowledges it.
            on_lost: Called with the number of notifications that were lost.
            topic: Template of the secure topic to get a token for. Not needed if `subject` or `content` names the
                topic.
            raw: Whether to hand over sealed events as they are.
            on_refused: Called with each notification that cannot be decrypted, and the reason. `refused` counts them.
            timeout: Seconds to wait for the broker's answer.
        """
        if limit is not None and (type(limit) is not int or not 0 < limit <= MAX_INBOX_NOTIFICATIONS):
            raise InvalidValueError(f"limit: from 1 to MAX_INBOX_NOTIFICATIONS ({MAX_INBOX_NOTIFICATIONS:,})")
        if durable is not None:
            checked_id(durable)
        if notify not in ("subscription", "client"):
            raise InvalidValueError(f"notify: must be 'subscription' or 'client', not {notify!r}")
        scope = context_filter(publishers)
        request = requests.SubscribeRequest(
            0,
            self._subscription_id(durable) if id is None else checked_id(id),
            str(content_filter(content, format)),
            None if scope is None else str(scope),
            policy_text(policy),
            durable,
            notify,
            checked_subject(subject),
            None if structure is None else structure_text(structure),
            limit,
        )
        inbox_limit = limit or DEFAULT_INBOX_NOTIFICATIONS
        subscription = ClientSubscription(
            self._subscriptions, request, inbox_limit, callback, on_lost, topic=topic, raw=raw, on_refused=on_refused
        )
        subscription.timeout = checked_timeout(timeout)
        return subscription

    async def unsubscribe(
        self,
        id: str | Handle,  # noqa: A002
        policy: "str | Policy | None" = None,
        timeout: float | None = None,
    ) -> None:
        """Remove a subscription, even a durable one; `policy` holds the rules to run before the removal.

        After the `timeout`, the subscription has ended in this client.
        """
        await self._subscriptions.unsubscribe(id if isinstance(id, str) else id.id, policy, timeout)

    def subscriptions(self) -> list[ClientSubscription]:
        """Return this client's subscriptions."""
        return self._subscriptions.subscriptions()

    # Policies, schemas, queries

    async def set_policy(
        self,
        id: str | Handle,  # noqa: A002
        policy: "str | Policy | None",
        timeout: float | None = None,
    ) -> list[str]:
        """Set the policy of a subscription or an advertisement, None removes it; return the remarks on it."""
        owner_id, text = id if isinstance(id, str) else id.id, policy_text(policy)
        async with self._requests.limit(timeout, "set_policy"):
            request = requests.SetPolicyRequest(0, checked_id(owner_id), text)
            done = await self._requests.request(FrameKind.SET_POLICY, request)
        self._session_state.with_policy(owner_id, text)
        return list(done.findings)

    async def schema(self, schema: Schema | str, timeout: float | None = None) -> Schema:
        """Define a subject's schema, or extend it by a longer version.

        Given a subject, return the broker's schema of it.
        """
        if isinstance(schema, Schema):
            request = requests.DefineSchemaRequest(0, schema.subject, tuple(versions_of(schema)))
            async with self._requests.limit(timeout, "schema"):
                await self._requests.request(FrameKind.DEFINE, request)
            self._session_state.schemas[schema.subject] = schema
            return schema
        answer = await self.ask("schema", timeout=timeout, subject=checked_subject(schema) or "")
        return schema_of(answer["subject"], answer["versions"])

    async def topics(self, timeout: float | None = None) -> dict[str, Any]:
        """Return the `subjects` with their schemas, and the `advertisements`, that this client may subscribe to."""
        answer: dict[str, Any] = await self.ask("topics", timeout=timeout)
        return answer

    async def explain(
        self,
        event: Any,
        subscription: str | Handle | None = None,
        *,
        publisher: str | None = None,
        subscribers: ContextText | None = None,
        payload: bytes | None = None,
        subject: str | None = None,
        policy: "str | Policy | None" = None,
        client: str | None = None,
        timeout: float | None = None,
    ) -> "list[Explanation]":
        """Explain, step by step, why an event does or does not reach a subscription, or each subscription of a client.

        Args:
            event: A past event, by its receipt, notification or id; or the attributes of an event that could be
                published.
            subscription: The subscription to explain; None for each of the client's.
            publisher: The publisher of an event given by its attributes; this client by default.
            subscribers: Its filter over subscribers' contexts.
            payload: Its payload.
            subject: Its subject.
            policy: Its attached policy.
            client: Another client whose subscriptions to explain, as far as this one may see them.
            timeout: Seconds to wait for the broker.
        """
        about: dict[str, Any] = {"publisher": publisher or self.name}
        if isinstance(event, Receipt | Notification | Event):
            past = event if isinstance(event, Event) else event.event
            about["event"] = str(past.id)
        elif isinstance(event, UUID | str):
            about["event"] = str(event)
        else:
            about["event"] = Attributes.of(event)
        scope = context_filter(subscribers)
        about.update(
            subscription=subscription if subscription is None or isinstance(subscription, str) else subscription.id,
            subscribers=None if scope is None else str(scope),
            payload=payload,
            subject=subject,
            policy=policy_text(policy),
            client=client,
        )
        return [_explanation(answer) for answer in await self.ask("explain", timeout=timeout, **about)]

    def replay(
        self,
        since: Since = None,
        subscriptions: Iterable[str | Handle] | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[Notification]:
        """Replay the journaled events from `since` on: yield the notifications that subscriptions would get now.

        `since` is a time, a number of microseconds, or a receipt. By default all of this client's subscriptions are
        replayed. The `timeout` applies to each page of the broker's answer.
        """
        ids = None if subscriptions is None else [one if isinstance(one, str) else one.id for one in subscriptions]
        return self._subscriptions.replay(since, ids, timeout)

    async def ask(self, question: str, *, timeout: float | None = None, **about: Any) -> Any:
        """Send the broker a query, which changes nothing, and return its answer."""
        return await self._requests.ask(question, timeout=timeout, **about)

    @cached_property
    def mailbox(self) -> "ReplyInbox":
        """The inbox for answers of key management centres and discovery nodes (`tidings.client.secure.service_rpc`)."""
        from tidings.client.secure.service_rpc import ReplyInbox

        return ReplyInbox(self, self._session.expecting)

    def _subscription_id(self, durable: str | None) -> str:
        return self._new_id() if durable is None else f"{self.name[:120]}.durable.{durable[:120]}"

    def _new_id(self) -> str:
        """Return a new id: the client's name, the number of its connection, and a counter."""
        self._ids_made += 1
        return f"{self.name[:200]}.{self._session.number:x}.{self._ids_made}"

    def __repr__(self) -> str:
        return f"<client {self.name} at {self.broker or 'no broker yet'}>"


def _advertise_request(advertisement: Advertisement) -> requests.AdvertiseRequest:
    elements = (
        0,
        advertisement.id,
        str(advertisement.content),
        _offer(listed_offer(advertisement)),
        _offer(advertisement.subscriber_context),
        advertisement.policy,
    )
    if advertisement.publisher_context is None:
        return requests.AdvertiseAll(*elements, True)
    return requests.AdvertiseRequest(*elements)


def _offer(offer: tuple[str, ...] | ContextFilterValue) -> str | tuple[str, ...]:
    return str(offer) if isinstance(offer, ContextFilterValue) else offer


def _explanation(answer: dict[str, Any]) -> Explanation:
    notification = answer["notification"]
    return Explanation(
        subscription=answer["subscription"],
        delivered=answer["delivered"],
        step=answer["step"],
        reason=answer["reason"],
        steps=tuple(ExplanationStep(*step) for step in answer["steps"]),
        notification=None
        if notification is None
        else notification_from_wire(msgspec.convert(notification, WireNotification), answer["subscriber"]),
        rules=tuple(answer["rules"]),
    )
