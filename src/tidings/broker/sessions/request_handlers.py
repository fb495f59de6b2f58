"""Handlers for the requests of a connected client: decode a request, check its limits, operate, and reply in order."""

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import msgspec

from tidings.broker.config.tables import LimitsTable
from tidings.broker.net.channel import Channel
from tidings.broker.ports import OperationPort, Sessions
from tidings.broker.release_queue import ReleaseQueue
from tidings.broker.sessions.inboxes import DurableDelivery, SessionDurableInbox, SessionInbox, SessionSubscription
from tidings.coerce import content_filter, context_filter, context_offer, policy_text
from tidings.engine import operations
from tidings.engine.effects import Reject
from tidings.model.advertisement import Advertisement, checked_id
from tidings.model.errors import InvalidValueError, RefusedError, TidingsError
from tidings.model.event import checked_client
from tidings.model.notification import Notification
from tidings.model.schema import schema_of, structure_of
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.protocol import answers, requests
from tidings.protocol.frames import FrameKind
from tidings.protocol.handshake import Hello
from tidings.runtime.inboxes import inbox_limit
from tidings.runtime.subscription_registry import EMPTY_CONTEXT, LIMIT, RegisteredSubscription

_LOG = logging.getLogger("tidings.broker")


class RequestNode(OperationPort, Protocol):
    """What the request handlers need of the node."""

    @property
    def release_queue(self) -> ReleaseQueue:
        """The calls that wait for the disk."""
        ...

    @property
    def acknowledge(self) -> Callable[[RegisteredSubscription, Iterable[UUID]], int]:
        """Acknowledges events of a durable subscription; returns how many notifications are newly acknowledged."""
        ...

    def redecide_pending(self, client: str) -> None:
        """Have the engine decide whether `client` gets the events about which it is still owed a decision."""
        ...


class DeliverySplit(NamedTuple):
    """Stored notifications of a durable subscription, by whether they may be delivered."""

    deliverable: list[Notification]
    waiting: list[Notification]
    undeliverable: list[UUID]  # events that may never be delivered


class TokenChecks(Protocol):
    """What the request handlers need of the topic security."""

    def check_proof(self, request: requests.SubscribeRequest, nonce: bytes) -> None:
        """Raise a `SecurityError` unless a subscription with a token is signed by the token's holder."""
        ...

    def split_deliverable(self, subscription: Subscription, notifications: list[Notification]) -> DeliverySplit:
        """Split stored notifications of a durable subscription by whether they may be delivered now."""
        ...


class RequestingSession(Protocol):
    """What the request handlers need of their session."""

    inbox: SessionInbox
    limits: LimitsTable

    @property
    def connection(self) -> Channel:
        """The connection of the client."""
        ...

    @property
    def is_operator(self) -> bool:
        """Whether the client is an operator."""
        ...

    def forget_lost(self, subscription: str) -> None:
        """Forget the losses of a subscription that has ended."""
        ...

    def queue_query(self, query: requests.QueryRequest) -> None:
        """Answer a query, after the queries before it."""
        ...


class RequestHandlers:
    """The request handlers of one session, and the durable deliveries of its client.

    Args:
        session: The session.
        hello: The client's HELLO.
        nonce: What the client signs together with a token when it subscribes to a secure topic.
        node: Handles the requests.
        sessions: The sessions of the broker.
        security: Checks tokens; None if the broker has no identity.
        encode: Encodes a notification as a frame.
        readers: The threads that read the journal.
    """

    def __init__(
        self,
        session: RequestingSession,
        hello: Hello,
        nonce: bytes,
        *,
        node: RequestNode,
        sessions: Sessions,
        security: TokenChecks | None,
        encode: Callable[[Notification], bytes],
        readers: Executor,
    ) -> None:
        self._session, self._name = session, hello.name
        self._hello, self._nonce = hello, nonce
        self._node, self._sessions, self._security = node, sessions, security
        self._encode, self._readers = encode, readers
        self._is_connected_as_moved = False
        self.has_set_context = False  # the client has set its context over this connection, maybe an empty one
        self._pumps: dict[str, DurableDelivery] = {}

    def handle(self, message: msgspec.Struct) -> None:
        """Handle a request of the client; the reply is queued behind what the client asked for before.

        Raises a `TidingsError` that the client is to be sent as a refusal, or a `TrustPendingError` if the request must
        wait for a trust answer. Observers may only send queries.
        """
        if self._hello.observer and not isinstance(message, requests.QueryRequest):
            raise observer_refusal(self._name)
        _HANDLERS[type(message)](self, message)

    def stop(self) -> None:
        """Stop the durable deliveries, since the connection is gone; their notifications stay in the inboxes."""
        self._pumps.clear()

    def _subscribe(self, request: requests.SubscribeRequest) -> None:
        registry = self._node.registry
        durable = None if request.durable is None else checked_id(request.durable)
        existing_durable = None if durable is None else registry.find_durable(self._name, durable)
        id = request.id if existing_durable is None else existing_durable.id  # noqa: A001
        policy = policy_text(request.policy)
        existing = registry.subscriptions.get(id)
        if policy is None and existing is not None and existing.subscriber == self._name:
            policy = existing.subscription.policy  # subscribing again without a policy keeps the policy that was set
        if existing is None:
            check_subscription(self._node, self._session.limits, self._name)
        subscription = Subscription.of(
            content_filter(request.content),
            id=id,
            subscriber=self._name,
            subject=request.subject,
            structure=None if request.structure is None else structure_of(request.structure),
            publishers=context_filter(request.publishers),
            policy=policy,
            durable=durable,
            notify=request.notify,
            token=request.token,
        )
        if self._security is not None:
            self._security.check_proof(request, self._nonce)
        if durable is not None:
            self._connect_as_moved()
        limit = inbox_limit(request.limit)
        outcome = self._node.operate(
            operations.Subscribe(subscription),
            lambda result: self._reply(request.request, result, id),
            {LIMIT: limit},
            sync=durable is not None,
        )
        if outcome.refused is None:
            self._attach(id)
            self._node.redecide_pending(self._name)

    def _connect_as_moved(self) -> None:
        """Connect the client as moved before its first durable subscription, if its HELLO named no last broker.

        A program that has just started does not know whether its durable subscriptions are at another broker; this
        makes such a broker hand them over.
        """
        if self._hello.last_broker or self._is_connected_as_moved or not self._node.engine.state.links.neighbours:
            return
        self._is_connected_as_moved = True
        self._node.operate(operations.Connect(self._name, moved=True, session=self._hello.session), sync=False)

    def _attach(self, id: str) -> None:  # noqa: A002
        """Let a subscription deliver to this session: by its inbox, or, if durable, by a `DurableDelivery`."""
        subscription = self._node.registry.subscriptions[id]
        inbox = subscription.inbox
        if isinstance(subscription, SessionSubscription):
            subscription.inbox = self._session.inbox
        elif isinstance(inbox, SessionDurableInbox):
            inbox.attach_listener()
            inbox.redeliver()

            def split(notifications: list[Notification]) -> tuple[list[Notification], list[Notification]]:
                """Split notifications into those to send now and those that must wait; acknowledge all others."""
                if self._security is None:
                    return notifications, []
                parts = self._security.split_deliverable(subscription.subscription, notifications)
                if parts.undeliverable:
                    self._node.acknowledge(subscription, parts.undeliverable)
                return parts.deliverable, parts.waiting

            pump = DurableDelivery(
                *(inbox, self._session.connection, split, self._encode, self._readers, self._close_on_backlog_error)
            )
            inbox.pump = self._pumps[id] = pump
            self._node.release_queue.add(0, pump.wake)

    def wake_pumps(self) -> None:
        """Have every durable delivery of the client send what it can."""
        for pump in self._pumps.values():
            pump.wake()

    def _unsubscribe(self, request: requests.UnsubscribeRequest) -> None:
        id = checked_id(request.id)  # noqa: A001
        subscription = self._node.registry.subscriptions.get(id)
        is_durable = subscription is not None and subscription.durable is not None
        operation = operations.Unsubscribe(self._name, id, policy_text(request.policy))
        outcome = self._node.operate(
            operation, lambda result: self._reply(request.request, result, id), sync=is_durable
        )
        if outcome.refused is None:
            self._pumps.pop(id, None)
            self._session.forget_lost(id)

    def _advertise(self, request: requests.AdvertiseAll) -> None:
        advertisement = Advertisement.of(
            content_filter(request.content),
            id=request.id,
            publisher=self._name,
            publisher_context=None if request.publisher_context_all else context_offer(request.publisher_context),
            subscriber_context=context_offer(request.subscriber_context),
            policy=policy_text(request.policy),
        )
        check_advertisement(self._node, self._session.limits, self._name, request.id)
        self._operate(request, operations.Advertise(advertisement), request.id)

    def _unadvertise(self, request: requests.UnadvertiseRequest) -> None:
        self._operate(
            request, operations.Unadvertise(self._name, checked_id(request.id), policy_text(request.policy)), request.id
        )

    def _set_context(self, request: requests.SetContextRequest) -> None:
        client = self._name if request.of is None else checked_client(request.of)
        context, present = Context(request.context), self._node.registry.contexts.get(client, EMPTY_CONTEXT)
        self.has_set_context |= client == self._name
        if client == self._name and context == present:
            self._node.release_queue.add(0, self._reply, request.request, [], "")
            return
        by = None if client == self._name else self._name
        outcome = self._operate(request, operations.SetContext(client, context, by))
        session = self._sessions.get(client)
        if outcome.refused is None and by is not None and session is not None:
            session.connection.send_message(FrameKind.CONTEXT, answers.ContextChanged(dict(context)))

    def _delegate_context(self, request: requests.DelegateContextRequest) -> None:
        other = checked_client(request.other)
        if request.allowed:
            check_delegation(self._node, self._session.limits, self._name, other)
        self._operate(request, operations.DelegateContext(self._name, other, request.allowed))

    def _set_policy(self, request: requests.SetPolicyRequest) -> None:
        """Set a policy. An operator's policy on another client's object is the broker's own, beside the owner's."""
        id = checked_id(request.id)  # noqa: A001
        engine = self._node.engine
        filed = engine.state.filters.subscriptions.get(id) or engine.state.filters.advertisements.get(id)
        owner = self._name
        if self._session.is_operator and filed is not None and filed.owner != self._name:
            owner = self._node.engine.state.settings.name
        self._operate(request, operations.SetPolicy(owner, id, policy_text(request.policy)), sync=True)

    def _define(self, request: requests.DefineSchemaRequest) -> None:
        schema = schema_of(request.subject, list(request.versions))
        check_subject(self._node, self._session.limits, schema.subject)
        outcome = self._operate(request, operations.Define(self._name, schema), sync=True)
        if outcome.refused is None:
            self._sessions.announce_subject(schema.subject)

    def _acknowledge(self, acknowledgement: requests.AcknowledgeRequest) -> None:
        subscription = self._node.registry.subscriptions.get(acknowledgement.subscription)
        if subscription is None or subscription.subscriber != self._name:
            return  # the subscription has ended meanwhile
        if not isinstance(subscription.inbox, SessionDurableInbox):
            raise InvalidValueError(f"{acknowledgement.subscription} is not durable: there is nothing to acknowledge")
        self._node.acknowledge(subscription, [_event_id(event) for event in acknowledgement.events])
        if (pump := self._pumps.get(subscription.id)) is not None:
            pump.wake()

    def _operate(self, request: Any, operation: operations.Operation, id: str = "", *, sync: bool = False) -> Any:  # noqa: A002
        """Operate, and reply to the request once the operation is done or refused."""
        return self._node.operate(operation, lambda result: self._reply(request.request, result, id), sync=sync)

    def _query(self, query: requests.QueryRequest) -> None:
        self._session.queue_query(query)

    def _reply(self, request: int, result: list[str] | Reject, id: str) -> None:  # noqa: A002
        connection = self._session.connection
        if isinstance(result, Reject):
            connection.send_message(
                FrameKind.REFUSED, answers.RequestRefused(request, "RefusedError", result.reason, result.step)
            )
        else:
            connection.send_message(FrameKind.DONE, answers.RequestDone(request, tuple(result), id))

    def _close_on_backlog_error(self, error: TidingsError) -> None:
        """Close the connection, since the client's durable backlog cannot be read from the journal."""
        _LOG.error("the durable backlog of %s cannot be read: %s", self._name, error)
        self._session.connection.close(f"your durable backlog cannot be read: {error}")


_HANDLERS: dict[Any, Callable[[RequestHandlers, Any], None]] = {
    requests.SubscribeRequest: RequestHandlers._subscribe,
    requests.UnsubscribeRequest: RequestHandlers._unsubscribe,
    requests.AdvertiseAll: RequestHandlers._advertise,
    requests.UnadvertiseRequest: RequestHandlers._unadvertise,
    requests.SetContextRequest: RequestHandlers._set_context,
    requests.DelegateContextRequest: RequestHandlers._delegate_context,
    requests.SetPolicyRequest: RequestHandlers._set_policy,
    requests.DefineSchemaRequest: RequestHandlers._define,
    requests.AcknowledgeRequest: RequestHandlers._acknowledge,
    requests.QueryRequest: RequestHandlers._query,
}


def observer_refusal(name: str) -> RefusedError:
    """Return the error for an operation of an observer, which may only send queries."""
    return RefusedError("admit", f"{name} is connected as an observer, and may only send queries")


def _event_id(data: bytes) -> UUID:
    if len(data) != 16:
        raise InvalidValueError("an event is named by the 16 bytes of its id")
    return UUID(bytes=data)


def check_subscription(node: OperationPort, limits: LimitsTable, client: str) -> None:
    """Raise a `RefusedError` if the client, or all clients together, may not have another subscription."""
    registry = node.registry
    _check_client_limit(client, "subscriptions", registry.count(client), limits.subscriptions_per_client)
    _check_broker_limit("subscriptions", len(registry.subscriptions), limits.subscriptions)


def check_advertisement(node: OperationPort, limits: LimitsTable, client: str, id: str) -> None:  # noqa: A002
    """Raise a `RefusedError` if a new advertisement would exceed the limit of the client or of all clients.

    Args:
        node: The node of the broker.
        limits: The limits to check.
        client: The client that advertises.
        id: The advertisement's id; one that exists already is replaced, and is within the limits.
    """
    table = node.engine.state.filters.advertisements
    if table.get(id) is None:
        _check_client_limit(client, "advertisements", table.count(client), limits.advertisements_per_client)
        _check_broker_limit("advertisements", len(table), limits.advertisements)


def check_subject(node: OperationPort, limits: LimitsTable, subject: str) -> None:
    """Raise a `RefusedError` if there are too many subjects with schemas for a new one."""
    subjects = node.engine.state.subjects
    if subjects.find(subject) is None:
        _check_broker_limit("subjects with schemas", len(subjects), limits.subjects)


def check_delegation(node: OperationPort, limits: LimitsTable, client: str, other: str) -> None:
    """Raise a `RefusedError` if a client lets too many other clients set its context to add another one.

    Args:
        node: The node of the broker.
        limits: The limits to check.
        client: The client whose context is set.
        other: The client that may set it from now on; a client that may already is within the limits.
    """
    delegates = node.engine.state.contexts.delegates.get(client, set())
    if other not in delegates:
        _check_client_limit(client, "others that may set its context", len(delegates), limits.entrusted_per_client)


def _check_client_limit(client: str, what: str, count: int, limit: int) -> None:
    if count >= limit:
        raise RefusedError("admit", f"{client} has {limit:,} {what}, the most that this broker allows")


def _check_broker_limit(what: str, count: int, limit: int) -> None:
    if count >= limit:
        raise RefusedError("admit", f"there are {limit:,} {what}, the most that this broker allows all its clients")
