"""Queries of clients and their answers, as plain values. Queries change nothing, except `forget`.

Quick queries are answered in the event loop. `explain` and `replay` may read the journal, and run in another thread.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from tidings._version import __version__
from tidings.model.advertisement import Advertisement, listed_offer
from tidings.model.errors import InvalidValueError, RefusedError, TidingsError
from tidings.model.explanation import Explanation
from tidings.model.filter import ContextFilterValue
from tidings.model.schema import versions_of
from tidings.protocol import requests
from tidings.protocol.notifications import notification_to_wire
from tidings.routing.advertisement_table import META
from tidings.runtime.queries import QueriedState, explain_event, past_event, possible_event, preview_event
from tidings.text_index import row_of

if TYPE_CHECKING:
    from tidings.broker.broker import Broker
    from tidings.broker.sessions.session import Session

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


class Queries:
    """Answers the queries of a broker's clients."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._quick: dict[str, Callable[[Session, Any], Any]] = {
            "schema": self._schema,
            "topics": self._topics,
            "status": self._status,
            "stats": self._stats,
            "tables": self._tables,
            "forget": self._forget,
            "security": self._security,
        }
        self._slow: dict[str, Callable[[Session, Any], Any]] = {"explain": self._explain, "replay": self._replay}

    def answer(self, session: "Session", query: requests.QueryRequest) -> "asyncio.Future[Any] | None":
        """Send the answer at once and return None, or return a future whose result goes to `send_answer`."""
        slow_handler = self._slow.get(query.question)
        if slow_handler is not None:
            return asyncio.get_running_loop().run_in_executor(self._broker.readers, slow_handler, session, query.about)
        try:
            session.answer(query.request, self._answer_quickly(session, query))
        except TidingsError as error:
            self._broker.metrics.refuse(error)
            session.refuse(query.request, error, counts=False)
        return None

    @property
    def names(self) -> list[str]:
        """The names of all queries that a broker answers."""
        return [*self._quick, *self._slow]

    def _answer_quickly(self, session: "Session", query: requests.QueryRequest) -> Any:
        handler = self._quick.get(query.question)
        if handler is None:
            names = ", ".join(self.names)
            raise InvalidValueError(f"{query.question!r:.40} is no question; there are {names}")
        return handler(session, query.about)

    @staticmethod
    def send_answer(session: "Session", request: int, answer: "asyncio.Future[Any]") -> None:
        """Send the answer that a thread has found, or its error as a refusal."""
        error = answer.exception()
        if error is None:
            session.answer(request, answer.result())
            return
        if not isinstance(error, TidingsError):
            _LOG.error("a question of %s could not be answered", session.name, exc_info=error)
            error = TidingsError(f"the broker could not answer: {error!r:.200}")
        session.refuse(request, error, counts=False)

    # In the event loop

    def _schema(self, _: "Session", arguments: Any) -> Any:
        """Answer `schema`: all versions of a subject's schema."""
        schema = self._broker.node.engine.subjects.schema(_read(arguments, SubjectQuery).subject)
        return {"subject": schema.subject, "versions": versions_of(schema)}

    def _topics(self, _: "Session", __: Any) -> Any:
        """Answer `topics`: subjects with schemas, and advertisements."""
        engine = self._broker.node.engine
        advertisements = [entry.value for entry in engine.advertisements if not entry.id.startswith(META)]
        return {
            "subjects": [{"subject": schema.subject, "versions": versions_of(schema)} for schema in engine.subjects],
            "advertisements": [_advertised(value) for value in sorted(advertisements, key=lambda value: value.id)],
        }

    def _security(self, _: "Session", arguments: Any) -> Any:
        """Answer `security`: the record of a secure topic, and new entries of the revocation list.

        Both are signed and not secret. A topic's record is only sent to clients that name something on the topic.
        """
        topic_query, topic_security = _read(arguments, SecureTopicQuery), self._broker.topic_security
        if topic_security is None:
            raise RefusedError("admit", f"{self._broker.name} has no identity, and knows no secure topics")
        update = (
            None if topic_query.since is None else topic_security.gate.credentials.revocations.since(topic_query.since)
        )
        record = topic_security.topic_of(topic_query.subject, topic_query.attributes, topic_query.content)
        return {
            "revocations": None if update is None else update.data,
            "records": [] if record is None else [record.data],
        }

    def _status(self, _: "Session", __: Any) -> Any:
        """Answer `status`: the state of the broker, its links and its journal."""
        broker, engine = self._broker, self._broker.node.engine
        journal_store = broker.node.journal_store
        return {
            "broker": broker.name,
            "version": __version__,
            "address": str(broker.address),
            "uptime": round(time.monotonic() - broker.started, 3),
            "strategy": engine.settings.strategy,
            "settled": broker.is_settled,
            "under_way": broker.pending_work(),
            "clients": len(broker.all_sessions()),
            "subscriptions": sum(entry.is_client for entry in engine.subscriptions),
            "links": {
                name: {"cost": link.cost, "sent": link.sent, "received": link.received}
                for name, link in sorted(broker.links.items())
            },
            "wanted_links": sorted(link.broker for link in broker.configuration.links),
            "brokers": sorted(engine.topology.brokers),
            "security": None if broker.topic_security is None else broker.topic_security.state(),
            "journal": None
            if journal_store is None
            else {
                "folder": str(journal_store.journal.folder),
                "next": journal_store.journal.next,
                "synced": journal_store.synced,
            },
        }

    def _stats(self, _: "Session", __: Any) -> Any:
        """Answer `stats`: the broker's counters."""
        broker = self._broker
        links = {name: {"sent": link.sent, "received": link.received} for name, link in sorted(broker.links.items())}
        return {"broker": broker.name, **broker.metrics.numbers(), "links": links}

    def _tables(self, session: "Session", _: Any) -> Any:
        """Answer `tables`, for operators: the engine's tables."""
        _check_operator(session)
        tables = self._broker.node.engine.tables()
        return {
            "broker": self._broker.name,
            "advertisements": [_advertised(advertisement) for advertisement in tables.advertisements],
            "subscriptions": [_without_unset(row_of(subscription)) for subscription in tables.subscriptions],
            "contexts": {name: dict(context) for name, context in tables.contexts.items()},
            "policies": tables.policies,
            "operator_policies": tables.operator_policies,
            "schemas": {schema.subject: versions_of(schema) for schema in tables.schemas},
            "hops": tables.hops,
            "sent": tables.sent,
        }

    def _forget(self, session: "Session", arguments: Any) -> Any:
        """Answer `forget`, for operators: owe nothing more to a broker that will not come back. It changes state."""
        _check_operator(session)
        broker, name = self._broker, _read(arguments, ForgetBrokerQuery).broker
        if name in broker.links:
            raise RefusedError("admit", f"{name} is there: there is a link to it")
        was_known = name in broker.resender.tracker.known
        broker.resender.forget(name)
        return {"broker": broker.name, "forgotten": was_known}

    # In a thread, since these may read the journal

    def _explain(self, session: "Session", arguments: Any) -> Any:
        """Answer `explain`: why an event is delivered to subscriptions or not. An operator may see all of it."""
        query, state = _read(arguments, ExplainQuery), self._broker.node.processor
        viewer = None if session.is_operator else session.name
        event = past_published = past_event(state, query.event)
        if event is None:
            event = possible_event(
                state,
                query.publisher,
                query.event,
                subscribers=query.subscribers,
                payload=query.payload,
                subject=query.subject,
                policy=query.policy,
            )
        client = query.client or session.name if query.subscription is None else None
        links_down = {link.broker for link in self._broker.configuration.links} - set(self._broker.links)
        explanations = explain_event(
            state, event, query.subscription, client, viewer, is_past=past_published is not None, links_down=links_down
        )
        return [_explained(explanation) for explanation in explanations]

    def _replay(self, session: "Session", arguments: Any) -> Any:
        """Answer `replay`: a page of notifications from the journal, and the offset of the next page or None."""
        query, node = _read(arguments, ReplayQuery), self._broker.node
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
        for offset, matching in islice(_by_event(node.processor, query.subscriptions, events), _MAX_EXAMINED_EVENTS):
            next_offset = offset + 1
            encoded = [msgspec.Raw(_ENCODE(notification_to_wire(notification))) for notification in matching]
            notifications += encoded
            size += sum(len(memoryview(data)) for data in encoded)
            if len(notifications) >= limit or size >= _MAX_PAGE_BYTES:
                return {"notes": notifications, "next": next_offset}
        return {"notes": notifications, "next": next_offset}


def _check_operator(session: "Session") -> None:
    if not session.is_operator:
        raise RefusedError("admit", f"{session.name} is no operator; the broker's configuration names them")


def _by_event(state: QueriedState, ids: list[str], events: Iterator[Any]) -> Iterator[Any]:
    for offset, event in events:
        yield offset, list(preview_event(state, ids, event))


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

    def __init__(self, session: "Session", queries: "Queries") -> None:
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
        while self._waiting and not self._is_busy and connection.is_open and not connection.is_stalled:
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
