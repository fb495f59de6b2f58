"""Queries of clients and their answers, as plain values. Queries change nothing, except `forget`.

Quick queries are answered in the event loop. `explain` and `replay` may read the journal, and run in another thread.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol

import msgspec

from tidings.broker.metrics import Metrics
from tidings.broker.net.channel import Channel
from tidings.broker.ports import Links, Scheduler
from tidings.engine import Engine
from tidings.model.advertisement import Advertisement, listed_offer
from tidings.model.errors import InvalidValueError, RefusedError, TidingsError
from tidings.model.event import Event
from tidings.model.explanation import Explanation
from tidings.model.filter import ContextFilterValue
from tidings.model.notification import Notification
from tidings.model.schema import versions_of
from tidings.protocol import requests
from tidings.protocol.notifications import notification_to_wire
from tidings.routing.advertisement_table import META
from tidings.runtime.journal_store import JournalStore
from tidings.runtime.subscription_registry import RegisteredSubscription, SubscriptionRegistry
from tidings.security.ca.revocation import RevocationUpdate
from tidings.security.topic_record import TopicRecord
from tidings.text_index import row_of

_LOG = logging.getLogger("tidings.broker")
_ENCODE = msgspec.msgpack.Encoder().encode
_MAX_PAGE = 500  # notifications of a replay, at most, in one answer
_MAX_PAGE_BYTES = 1024 * 1024  # bytes of a page; the event that reaches them is the last of the page
_MAX_EXAMINED_EVENTS = 50_000  # events that are examined, at most, for one answer


class ExplainQuery(msgspec.Struct):
    """What to explain: why an event is, or would be, delivered to a subscription or not.

    `event` is the id of a past event, or the attributes of a possible one; without `subscription`, the answer covers
    all subscriptions of `client`, which is the asking client by default.
    """

    event: str | dict[str, Any]
    subscription: str | None = None
    client: str | None = None
    publisher: str = "somebody"
    subscribers: str | None = None
    payload: bytes | None = None
    subject: str | None = None
    policy: str | None = None


class ReplayQuery(msgspec.Struct):
    """What to replay to which of the client's own subscriptions: events since a time (microseconds), from an offset."""

    subscriptions: list[str]
    since: int = 0
    offset: int = 0
    limit: int = _MAX_PAGE


class SubjectQuery(msgspec.Struct):
    """The subject whose schema is asked for."""

    subject: str


class SecureTopicQuery(msgspec.Struct):
    """Which secure topic an event with these attributes is on, or, with `content`, all that a subscription can match.

    With `since`, the answer has the entries of the revocation list after the first `since` ones, too.
    """

    subject: str | None = None
    attributes: dict[str, Any] = {}
    content: str | None = None
    since: int | None = None


class ForgetBrokerQuery(msgspec.Struct):
    """The broker to which nothing is owed any more."""

    broker: str


class QueryNode(Protocol):
    """What queries need of the node."""

    @property
    def engine(self) -> Engine:
        """The engine; a rebuild replaces it."""
        ...

    @property
    def registry(self) -> SubscriptionRegistry[RegisteredSubscription]:
        """The subscriptions and the state of the clients."""
        ...

    @property
    def journal_store(self) -> JournalStore | None:
        """The journal; None if the broker has none."""
        ...

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held while another thread than that of the event loop reads the state."""
        ...


class EventQueries(NamedTuple):
    """The queries about events that a hub answers, too; see `runtime.queries`."""

    past_event: Callable[[Any], Event | None]
    possible_event: Callable[..., Event]
    explain_event: Callable[..., list[Explanation]]
    preview_event: Callable[[list[str], Event], Iterator[Notification]]


class TopicQueries(Protocol):
    """What queries need of the topic security."""

    def topic_of(self, subject: str | None, attributes: dict[str, Any], content: str | None) -> TopicRecord | None:
        """Return the secure topic that an event is on, or, if `content` is given, all events of a subscription."""
        ...

    def revocations_since(self, version: int) -> RevocationUpdate | None:
        """Return the entries of the revocation list after the first `version` ones; None if there is no list."""
        ...


class StatusReport(Protocol):
    """What queries need of the health of the broker."""

    def status(self) -> dict[str, Any]:
        """Return the state of the broker, its links and its journal."""
        ...

    def links_down(self) -> Collection[str]:
        """Return the neighbours whose links are configured but down."""
        ...


class QueryingSession(Protocol):
    """The session of a client that sends queries."""

    @property
    def name(self) -> str:
        """The client's name."""
        ...

    @property
    def is_operator(self) -> bool:
        """Whether the client is an operator."""
        ...

    @property
    def is_observer(self) -> bool:
        """Whether it is the session of an observer, which may have the name of a client."""
        ...

    @property
    def connection(self) -> Channel:
        """The client's connection."""
        ...

    def answer(self, request: int, answer: Any) -> None:
        """Send the answer to a query."""
        ...

    def refuse(self, request: int, error: TidingsError, *, counts: bool = True) -> None:
        """Send a refusal of a query."""
        ...

    def update_throttle(self) -> None:
        """Read from the client, or pause, since its queries wait or are answered."""
        ...


class Queries:
    """Answers the queries of a broker's clients.

    Args:
        name: The broker's name.
        scheduler: Has the threads that read the journal.
        node: The engine, the subscriptions and the journal.
        events: Answers queries about events.
        health: Reports the state of the broker.
        links: The links that are up.
        security: Knows the secure topics; None if the broker has no identity.
        metrics: The broker's counters.
        forget_broker: Owes nothing more to a broker; returns whether something might have been owed to it.
    """

    def __init__(
        self,
        name: str,
        *,
        scheduler: Scheduler,
        node: QueryNode,
        events: EventQueries,
        health: StatusReport,
        links: Links,
        security: TopicQueries | None,
        metrics: Metrics,
        forget_broker: Callable[[str], bool],
    ) -> None:
        self._name, self._scheduler, self._node, self._events = name, scheduler, node, events
        self._health, self._links, self._security = health, links, security
        self._metrics, self._forget_broker = metrics, forget_broker

    def answer(self, session: QueryingSession, query: requests.QueryRequest) -> "asyncio.Future[Any] | None":
        """Send the answer at once and return None, or return a future whose result goes to `send_answer`."""
        slow_handler = _SLOW.get(query.question)
        if slow_handler is not None:
            call = partial(slow_handler, self, session, query.about)
            return asyncio.get_running_loop().run_in_executor(self._scheduler.readers, call)
        try:
            session.answer(query.request, self._answer_quickly(session, query))
        except TidingsError as error:
            self._metrics.operations.refuse(error)
            session.refuse(query.request, error, counts=False)
        return None

    def _answer_quickly(self, session: QueryingSession, query: requests.QueryRequest) -> Any:
        handler = _QUICK.get(query.question)
        if handler is None:
            raise InvalidValueError(f"{query.question!r:.40} is no question; there are {', '.join(QUERY_NAMES)}")
        return handler(self, session, query.about)

    @staticmethod
    def send_answer(session: QueryingSession, request: int, answer: "asyncio.Future[Any]") -> None:
        """Send the answer that a thread has found, or its error as a refusal."""
        error = answer.exception()
        if error is None:
            session.answer(request, answer.result())
            return
        if not isinstance(error, TidingsError):
            _LOG.error("a query of %s has failed", session.name, exc_info=error)
            error = TidingsError(f"the broker could not answer: {error!r:.200}")
        session.refuse(request, error, counts=False)

    # In the event loop

    def _schema(self, _: QueryingSession, arguments: Any) -> Any:
        """Answer `schema`: all versions of a subject's schema."""
        schema = self._node.engine.state.subjects.schema(_read(arguments, SubjectQuery).subject)
        return {"subject": schema.subject, "versions": versions_of(schema)}

    def _topics(self, _: QueryingSession, __: Any) -> Any:
        """Answer `topics`: subjects with schemas, and advertisements."""
        engine = self._node.engine
        advertisements = [entry.value for entry in engine.state.filters.advertisements if not entry.id.startswith(META)]
        return {
            "subjects": [
                {"subject": schema.subject, "versions": versions_of(schema)} for schema in engine.state.subjects
            ],
            "advertisements": [_advertised(value) for value in sorted(advertisements, key=lambda value: value.id)],
        }

    def _security_answer(self, _: QueryingSession, arguments: Any) -> Any:
        """Answer `security`: the record of a secure topic, and new entries of the revocation list.

        Both are signed and not secret. A topic's record is only sent to clients that name something on the topic.
        """
        topic_query, security = _read(arguments, SecureTopicQuery), self._security
        if security is None:
            raise RefusedError("admit", f"{self._name} has no identity, and knows no secure topics")
        update = None if topic_query.since is None else security.revocations_since(topic_query.since)
        record = security.topic_of(topic_query.subject, topic_query.attributes, topic_query.content)
        return {
            "revocations": None if update is None else update.data,
            "records": [] if record is None else [record.data],
        }

    def _status(self, _: QueryingSession, __: Any) -> Any:
        """Answer `status`: the state of the broker, its links and its journal."""
        return self._health.status()

    def _stats(self, _: QueryingSession, __: Any) -> Any:
        """Answer `stats`: the broker's counters."""
        links = sorted(self._links.all(), key=lambda link: link.name)
        counts = {link.name: {"sent": link.sent, "received": link.received} for link in links}
        return {"broker": self._name, **self._metrics.numbers(), "links": counts}

    def _tables(self, session: QueryingSession, _: Any) -> Any:
        """Answer `tables`, for operators: the engine's tables."""
        _check_operator(session)
        tables = self._node.engine.tables()
        return {
            "broker": self._name,
            "advertisements": [_advertised(advertisement) for advertisement in tables.advertisements],
            "subscriptions": [_without_unset(row_of(subscription)) for subscription in tables.subscriptions],
            "contexts": {name: dict(context) for name, context in tables.contexts.items()},
            "policies": tables.policies,
            "operator_policies": tables.operator_policies,
            "schemas": {schema.subject: versions_of(schema) for schema in tables.schemas},
            "hops": tables.hops,
            "sent": tables.sent,
        }

    def _forget(self, session: QueryingSession, arguments: Any) -> Any:
        """Answer `forget`, for operators: owe nothing more to a broker that will not come back. It changes state."""
        _check_operator(session)
        name = _read(arguments, ForgetBrokerQuery).broker
        if self._links.get(name) is not None:
            raise RefusedError("admit", f"there is a link to {name}; forget only a broker that will not come back")
        return {"broker": self._name, "forgotten": self._forget_broker(name)}

    # In a thread, since these may read the journal

    def _explain(self, session: QueryingSession, arguments: Any) -> Any:
        """Answer `explain`: why an event is delivered to subscriptions or not. An operator may see all of it."""
        query = _read(arguments, ExplainQuery)
        viewer = None if session.is_operator else session.name
        event = past_published = self._events.past_event(query.event)
        if event is None:
            event = self._events.possible_event(
                query.publisher,
                query.event,
                subscribers=query.subscribers,
                payload=query.payload,
                subject=query.subject,
                policy=query.policy,
            )
        client = query.client or session.name if query.subscription is None else None
        explanations = self._events.explain_event(
            event,
            query.subscription,
            client,
            viewer,
            is_past=past_published is not None,
            links_down=self._health.links_down(),
        )
        return [_explained(explanation) for explanation in explanations]

    def _replay(self, session: QueryingSession, arguments: Any) -> Any:
        """Answer `replay`: a page of notifications from the journal, and the offset of the next page or None."""
        query, node = _read(arguments, ReplayQuery), self._node
        if session.is_observer:  # an observer may use the name of a client
            raise RefusedError("admit", "replay is for clients, and not for observers")
        if node.journal_store is None:
            raise InvalidValueError("this broker has no journal, and keeps no events to replay")
        with node.lock:
            subscriptions = [node.registry.subscriptions.get(subscription) for subscription in query.subscriptions]
        if any(subscription is None or subscription.subscriber != session.name for subscription in subscriptions):
            raise RefusedError("admit", f"replay is for subscriptions that {session.name} has")
        limit = max(1, min(query.limit, _MAX_PAGE))
        events = node.journal_store.history.events_from(query.offset, query.since)
        notifications: list[msgspec.Raw] = []
        size, next_offset = 0, None
        for offset, event in islice(events, _MAX_EXAMINED_EVENTS):
            matching = list(self._events.preview_event(query.subscriptions, event))
            next_offset = offset + 1
            encoded = [msgspec.Raw(_ENCODE(notification_to_wire(notification))) for notification in matching]
            notifications += encoded
            size += sum(len(memoryview(data)) for data in encoded)
            if len(notifications) >= limit or size >= _MAX_PAGE_BYTES:
                return {"notes": notifications, "next": next_offset}
        return {"notes": notifications, "next": next_offset}


_Handler = Callable[[Queries, QueryingSession, Any], Any]
_QUICK: dict[str, _Handler] = {
    "schema": Queries._schema,
    "topics": Queries._topics,
    "status": Queries._status,
    "stats": Queries._stats,
    "tables": Queries._tables,
    "forget": Queries._forget,
    "security": Queries._security_answer,
}
_SLOW: dict[str, _Handler] = {"explain": Queries._explain, "replay": Queries._replay}
QUERY_NAMES = (*_QUICK, *_SLOW)


def _check_operator(session: QueryingSession) -> None:
    if not session.is_operator:
        raise RefusedError("admit", f"{session.name} is no operator; the broker's configuration names them")


def _read(arguments: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(arguments, kind)
    except msgspec.ValidationError as error:
        raise InvalidValueError(f"about: {error}") from None


def _advertised(advertisement: Advertisement) -> dict[str, Any]:
    def offer(names: Any) -> Any:
        return str(names) if isinstance(names, ContextFilterValue) else list(names)

    return {
        "id": advertisement.id,
        "publisher": advertisement.publisher,
        "content": str(advertisement.content),
        "publisher_context": offer(listed_offer(advertisement)),
        "publisher_context_all": advertisement.publisher_context is None,
        "subscriber_context": offer(advertisement.subscriber_context),
    }


def _explained(explanation: Explanation) -> dict[str, Any]:
    return {
        "subscription": explanation.subscription,
        "delivered": explanation.delivered,
        "step": explanation.step,
        "reason": explanation.reason,
        "steps": [[step.name, step.passed, step.reason] for step in explanation.steps],
        "notification": None if explanation.notification is None else notification_to_wire(explanation.notification),
        "subscriber": None if explanation.notification is None else explanation.notification.subscriber,
        "rules": list(explanation.rules),
    }


def _without_unset(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


_MAX_QUEUED = 64  # queries that wait, above which the client is not read


class QueryQueue:
    """The queries of one session, answered one after the other.

    It stops while the client does not read its answers. The session stops reading from the client while the queue
    `is_full`.
    """

    def __init__(self, session: QueryingSession, queries: Queries) -> None:
        self._session, self._queries = session, queries
        self._waiting: deque[requests.QueryRequest] = deque()
        self._is_busy = False  # a thread is answering a query

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= _MAX_QUEUED

    def put(self, query: requests.QueryRequest) -> None:
        self._waiting.append(query)
        self.answer_next()

    def answer_next(self) -> None:
        """Answer the next queries, unless one is being answered in a thread or the client does not read."""
        connection = self._session.connection
        while self._waiting and not self._is_busy and connection.is_open and not connection.flow.is_stalled:
            query = self._waiting.popleft()
            done = self._queries.answer(self._session, query)
            if done is not None:
                self._is_busy = True
                done.add_done_callback(lambda answer, request=query.request: self._answer_found(request, answer))  # type: ignore[misc]

    def _answer_found(self, request: int, answer: "asyncio.Future[Any]") -> None:
        self._is_busy = False
        self._queries.send_answer(self._session, request, answer)
        self.answer_next()
        self._session.update_throttle()
