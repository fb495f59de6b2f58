"""The asynchronous client of a broker: publishes, subscribes, sets a context, and reconnects by itself."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import msgspec

from tidings.client.callback_runner import Callback
from tidings.client.connection_state import ConnectionState
from tidings.client.publisher import EventPublisher
from tidings.client.session import ClientSession
from tidings.client.session_state import SessionState
from tidings.client.subscription import CANNOT_OPEN, ClientSubscription, NotificationDedup, OnRefused
from tidings.client.time_limit import time_limit
from tidings.coerce import content_filter, context_filter, context_offer, policy_text
from tidings.model.advertisement import Advertisement, checked_id, listed_offer
from tidings.model.errors import (
    ClosedError,
    InvalidValueError,
    RefusedError,
    RequestTimeoutError,
    SecurityError,
    TidingsError,
)
from tidings.model.event import Event, checked_client, checked_subject
from tidings.model.explanation import Explanation, ExplanationStep
from tidings.model.filter import ContextFilterValue, FilterValue
from tidings.model.limits import DEFAULT_INBOX_NOTIFICATIONS, MAX_INBOX_NOTIFICATIONS
from tidings.model.notification import Notification
from tidings.model.receipt import Receipt
from tidings.model.schema import AttributeFilter, Schema, schema_of, structure_text, versions_of
from tidings.model.subscription import Notify
from tidings.model.time_arguments import Since as Since
from tidings.model.time_arguments import checked_timeout, start_of
from tidings.model.values import Attributes, Context
from tidings.protocol import answers, requests
from tidings.protocol.frames import FrameKind
from tidings.protocol.notifications import WireNotification, notification_from_wire

if TYPE_CHECKING:
    from tidings.client.secure.membership import Membership
    from tidings.client.secure.service_rpc import ReplyInbox
    from tidings.policy.policy import Policy

Text = str | FilterValue
ContextText = str | ContextFilterValue
_CONTEXT = Context()
_CLOSE_SECONDS = 5.0  # seconds to wait for the broker's answer when a subscription is closed


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
        self,
        session: ClientSession,
        secured: "Callable[[Client], Membership] | None" = None,
        timeout: float | None = None,
    ) -> None:
        self.name = session.name
        self._session = session
        self._timeout = checked_timeout(timeout)  # default for requests without a timeout
        self._membership = None if secured is None else secured(self)
        self._session_state: SessionState = session.session_state
        self._subscriptions: dict[str, ClientSubscription] = {}
        self._dedup = NotificationDedup()
        self._publisher = EventPublisher(session)
        self._ids_made = 0
        self._closed = asyncio.Event()
        self._close_error: ClosedError | None = None  # why the broker closed the connection for good
        session.notified, session.lost, session.context_set = self._dispatch, self._report_lost, self._update_context
        session.ended, session.connected_again = self._end_subscriptions, self._reconnected
        if self._membership is not None:
            self._membership.join(session)

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
            await self._closed.wait()
        if self._close_error is not None:
            raise self._close_error

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
        return self._session.states.latest

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
        return await self._session.states.after(seen)

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
        async with self._limit(timeout, "move"):
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
        limit = self._limit(timeout, "set_context")
        if of is not None and checked_client(of) != self.name:
            if merge:
                raise InvalidValueError("merge: only one's own context is known here; give the whole context")
            async with limit:
                await self._request(FrameKind.SET_CONTEXT, requests.SetContextRequest(0, Context.of(changes), of))
            return
        state = self._session_state
        context = state.context.merged(changes) if merge else Context.of(changes)
        if state.has_set_context and context == state.context:
            return
        state.set_context(context)
        if state.announces_context:
            async with limit:
                await self._request(FrameKind.SET_CONTEXT, requests.SetContextRequest(0, context))

    async def let_set_context(self, other: "str | Client", allowed: bool = True, timeout: float | None = None) -> None:
        """Allow another client to set this client's context, or withdraw the permission."""
        name = other.name if isinstance(other, Client) else checked_client(other)
        async with self._limit(timeout, "let_set_context"):
            await self._announce_context()
            await self._request(FrameKind.ENTRUST, requests.DelegateContextRequest(0, name, allowed))
        self._session_state.delegates[name] = allowed

    async def _announce_context(self) -> None:
        """Send the broker the context, now and whenever it changes from now on."""
        if not self._session_state.announces_context:
            self._session_state.announces_context = True
            if self._session_state.has_set_context:
                await self._request(FrameKind.SET_CONTEXT, requests.SetContextRequest(0, self._session_state.context))

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
        async with self._limit(timeout, "advertise"):
            done = await self._request(FrameKind.ADVERTISE, request)
        self._session_state.advertisements[advertisement.id] = request
        return ClientAdvertisement(advertisement, list(done.findings))

    async def unadvertise(
        self,
        id: "str | ClientAdvertisement",  # noqa: A002
        policy: "str | Policy | None" = None,
        timeout: float | None = None,
    ) -> None:
        """Withdraw an advertisement; `policy` holds the rules to run before the removal."""
        advertisement_id = checked_id(id.id if isinstance(id, ClientAdvertisement) else id)
        request = requests.UnadvertiseRequest(0, advertisement_id, policy_text(policy))
        limit = self._limit(timeout, "unadvertise")
        self._session_state.advertisements.pop(advertisement_id, None)
        async with limit:
            await self._request(FrameKind.UNADVERTISE, request)

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
        if timeout is None and self._timeout is None:  # without a limit, skip its overhead: this is called very often
            return await (await self._publisher.publish_soon(*arguments))
        async with self._limit(timeout, "publish"):
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
        if timeout is None and self._timeout is None:
            return await self._publisher.publish_soon(*arguments)
        async with self._limit(timeout, "publish_soon", "the event is not published"):
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
        async with self._limit(timeout, "publish_many"):
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
            self, request, inbox_limit, callback, on_lost, topic=topic, raw=raw, on_refused=on_refused
        )
        subscription.timeout = checked_timeout(timeout)
        return subscription

    async def unsubscribe(
        self,
        id: "str | ClientSubscription",  # noqa: A002
        policy: "str | Policy | None" = None,
        timeout: float | None = None,
    ) -> None:
        """Remove a subscription, even a durable one; `policy` holds the rules to run before the removal.

        After the `timeout`, the subscription has ended in this client.
        """
        subscription_id = id.id if isinstance(id, ClientSubscription) else checked_id(id)
        request = requests.UnsubscribeRequest(0, subscription_id, policy_text(policy))
        limit = self._limit(timeout, "unsubscribe")
        self._session_state.subscriptions.pop(subscription_id, None)
        try:
            async with limit:
                await self._request(FrameKind.UNSUBSCRIBE, request)
        except RequestTimeoutError:
            self._drop_subscription(subscription_id)
            raise
        self._drop_subscription(subscription_id)

    def _drop_subscription(self, id: str) -> None:  # noqa: A002
        subscription = self._subscriptions.pop(id, None)
        if subscription is not None:
            subscription.end()
            self.has_room()

    def subscriptions(self) -> list[ClientSubscription]:
        """Return this client's subscriptions."""
        return list(self._subscriptions.values())

    # Policies, schemas, queries

    async def set_policy(
        self,
        id: "str | ClientSubscription | ClientAdvertisement",  # noqa: A002
        policy: "str | Policy | None",
        timeout: float | None = None,
    ) -> list[str]:
        """Set the policy of a subscription or an advertisement, None removes it; return the remarks on it."""
        owner_id, text = id if isinstance(id, str) else id.id, policy_text(policy)
        async with self._limit(timeout, "set_policy"):
            done = await self._request(FrameKind.SET_POLICY, requests.SetPolicyRequest(0, checked_id(owner_id), text))
        self._session_state.with_policy(owner_id, text)
        return list(done.findings)

    async def schema(self, schema: Schema | str, timeout: float | None = None) -> Schema:
        """Define a subject's schema, or extend it by a longer version.

        Given a subject, return the broker's schema of it.
        """
        if isinstance(schema, Schema):
            request = requests.DefineSchemaRequest(0, schema.subject, tuple(versions_of(schema)))
            async with self._limit(timeout, "schema"):
                await self._request(FrameKind.DEFINE, request)
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
        subscription: "str | ClientSubscription | None" = None,
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
            subscription=subscription.id if isinstance(subscription, ClientSubscription) else subscription,
            subscribers=None if scope is None else str(scope),
            payload=payload,
            subject=subject,
            policy=policy_text(policy),
            client=client,
        )
        return [_explanation(answer) for answer in await self.ask("explain", timeout=timeout, **about)]

    async def replay(
        self,
        since: Since = None,
        subscriptions: "Iterable[str | ClientSubscription] | None" = None,
        timeout: float | None = None,
    ) -> AsyncIterator[Notification]:
        """Replay the journaled events from `since` on: yield the notifications that subscriptions would get now.

        `since` is a time, a number of microseconds, or a receipt. By default all of this client's subscriptions are
        replayed. The `timeout` applies to each page of the broker's answer.
        """
        replayed = self._subscriptions.values() if subscriptions is None else subscriptions
        ids = [item.id if isinstance(item, ClientSubscription) else item for item in replayed]
        offset, timestamp = start_of(since)
        while True:
            page = await self.ask("replay", timeout=timeout, subscriptions=ids, since=timestamp, offset=offset)
            for wire_notification in msgspec.convert(page["notes"], list[WireNotification]):
                notification = await self._decrypt_replayed(notification_from_wire(wire_notification, self.name))
                if notification is not None:
                    yield notification
            if page["next"] is None:
                return
            offset = page["next"]

    async def ask(self, question: str, *, timeout: float | None = None, **about: Any) -> Any:
        """Send the broker a query, which changes nothing, and return its answer."""
        async with self._limit(timeout, question):
            return await self._session.request(FrameKind.ASK, requests.QueryRequest(0, question, about))

    @cached_property
    def mailbox(self) -> "ReplyInbox":
        """The inbox for answers of key management centres and discovery nodes (`tidings.client.secure.service_rpc`)."""
        from tidings.client.secure.service_rpc import ReplyInbox

        return ReplyInbox(self)

    # Called by subscriptions

    async def begin(self, subscription: ClientSubscription) -> None:
        """Subscribe at the broker, within the subscription's timeout."""
        async with self._limit(subscription.timeout, "subscribe"):
            await self._subscribe_at_broker(subscription)

    async def _subscribe_at_broker(self, subscription: ClientSubscription) -> None:
        await self._announce_context()
        request, subscriptions = subscription.wanted, self._subscriptions
        earlier = self._session_state.subscriptions.get(request.id)
        if request.policy is None and earlier is not None:  # keep the policy, as the broker does
            subscription.wanted = request = msgspec.structs.replace(request, policy=earlier.policy)
        if self._membership is not None:
            await self._membership.secure(subscription)
        replaced = subscriptions.get(request.id)
        subscriptions[request.id] = subscription  # before the request: notifications may come together with the answer
        try:
            done = await self._send_subscribe(subscription)
        except BaseException as error:
            if subscriptions.get(request.id) is subscription:
                del subscriptions[request.id]
                if replaced is not None:
                    subscriptions[request.id] = replaced
                elif isinstance(error, asyncio.CancelledError) and request.durable is None:
                    self._session.withdraw(request.id)
            raise
        subscription.begun(done)
        if subscription.closed and subscription.durable is None:  # closed while this waited for the broker
            self._session.withdraw(subscription.id)
            return
        if done.id != request.id:
            subscriptions.pop(request.id, None)
            replaced, subscriptions[done.id] = subscriptions.get(done.id), subscription
        if replaced is not None and replaced is not subscription:
            replaced.end()
        self._session_state.subscriptions[subscription.id] = subscription.wanted

    async def _send_subscribe(self, subscription: ClientSubscription) -> answers.RequestDone:
        """Subscribe at the broker; if it refuses a secure subscription, get a new token and try once more."""
        try:
            return await self._request(FrameKind.SUBSCRIBE, subscription.wanted)
        except (RefusedError, SecurityError):
            if self._membership is None or not await self._membership.reconsider(subscription):
                raise
        return await self._request(FrameKind.SUBSCRIBE, subscription.wanted)

    async def subscribe_anew(self, subscription: ClientSubscription) -> None:
        """Subscribe again under the same id with the subscription's new token."""
        if self._subscriptions.get(subscription.id) is subscription:
            await self._request(FrameKind.SUBSCRIBE, subscription.wanted)
            self._session_state.subscriptions[subscription.id] = subscription.wanted

    def leave(self, subscription: ClientSubscription) -> None:
        """Detach from a subscription; a durable one goes on collecting at the broker."""
        if self._subscriptions.get(subscription.id) is subscription:
            del self._subscriptions[subscription.id]
            self._session_state.subscriptions.pop(subscription.id, None)
            self.has_room()

    def give_up(self, subscription: ClientSubscription, error: TidingsError) -> None:
        """End a subscription with an error, which its subscriber gets when it takes the next notification."""
        self.leave(subscription)
        if subscription.durable is None:
            self._session.withdraw(subscription.id)
        subscription.end(error)

    async def retire(self, subscription: ClientSubscription, timeout: float | None) -> None:
        """Tell the broker that a subscription that is not durable has ended, and wait for its answer.

        The wait is 5 seconds unless `timeout` says otherwise. Without a connection it returns at once.
        """
        if self._subscriptions.get(subscription.id) is not subscription:
            return
        self.leave(subscription)
        answer = self._session.withdraw(subscription.id)
        if answer is not None:
            await asyncio.wait([answer], timeout=_CLOSE_SECONDS if timeout is None else timeout)

    def acknowledge(self, subscription: ClientSubscription, events: list[UUID]) -> None:
        """Send the acknowledgement of events at the end of this turn of the event loop."""
        if events:
            self._session.acknowledge(subscription.id, events)

    def expecting(self) -> AbstractContextManager[None]:
        """Return a context manager that reads notifications even if subscriptions are full, for a service's answer."""
        return self._session.expecting()

    async def room(self, timeout: float | None = None) -> None:
        """Wait while the limit of publications in flight is reached."""
        if self._session.is_full:
            async with self._limit(timeout, "acknowledge", "the broker will be told as soon as it can be"):
                await self._session.wait_for_room()

    def has_room(self) -> None:
        """Resume reading notifications if no subscription is full."""
        if not any(subscription.is_full for subscription in self._subscriptions.values()):
            self._session.read(True)

    # Called by the session

    def _dispatch(self, notification: Notification) -> None:
        subscription = self._subscriptions.get(notification.subscription)
        if subscription is None:
            return
        if subscription.durable is None and not self._dedup.is_new(notification):
            return
        subscription.notified(notification)
        self.look_at(subscription)

    def look_at(self, subscription: ClientSubscription) -> None:
        """Stop reading notifications from the broker if the subscription is full."""
        if subscription.is_full:
            self._session.read(False)

    @property
    def has_journal(self) -> bool:
        """Whether the broker that the client is, or was last, connected to has a journal."""
        return self._session.has_journal

    def policy_of(self, subscription: ClientSubscription) -> str | None:
        """Return the policy of the subscription as it was set last."""
        return self._session_state.subscriptions.get(subscription.id, subscription.wanted).policy

    async def _decrypt_replayed(self, notification: Notification) -> Notification | None:
        """Decrypt a replayed notification; None, counted as refused, if it cannot be decrypted."""
        subscription = self._subscriptions.get(notification.subscription)
        if subscription is not None and subscription.opening is not None:
            decrypted = await subscription.opening.decrypt(notification, again=True)
            if isinstance(decrypted, Notification):
                return decrypted
            subscription.told_refused(notification, decrypted)
            return None
        if notification.event.signature is None or (subscription is not None and subscription.raw):
            return notification
        if subscription is not None:
            subscription.told_refused(notification, SecurityError("key", CANNOT_OPEN))
        return None

    def _reconnected(self) -> None:
        self._dedup.connected_again()
        if self._membership is not None:
            self._membership.connected_again()

    def _report_lost(self, lost: answers.NotificationsLost) -> None:
        subscription = self._subscriptions.get(lost.subscription)
        if subscription is not None:
            subscription.told_lost(lost.count)

    def _update_context(self, context: Context) -> None:
        self._session_state.set_context(context)

    def _end_subscriptions(self, error: ClosedError | None) -> None:
        self._close_error = error
        self._closed.set()
        for subscription in self._subscriptions.values():
            subscription.end(error)

    def _limit(self, timeout: float | None, request: str, *effect: str) -> AbstractAsyncContextManager[None]:
        """Return the time limit for a request, by default the client's; `effect` is as in `time_limit`."""
        seconds = self._timeout if timeout is None else checked_timeout(timeout)
        return time_limit(seconds, request, lambda: self.state, *effect)

    async def _request(self, kind: FrameKind, message: msgspec.Struct) -> answers.RequestDone:
        done: answers.RequestDone = await self._session.request(kind, message)
        return done

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
