"""Questions that a client may ask, and their answers: plain values, nothing is changed by asking."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from tidings._version import __version__
from tidings.hub.inquiry import explained, past_event, possible_event, replayed_from
from tidings.index.rows import written
from tidings.model.advertisement import Advertisement, listed_offer
from tidings.model.errors import InvalidValueError, RefusedError, TidingsError
from tidings.model.explanation import Explanation
from tidings.model.filter import ContextFilter
from tidings.model.schematext import versions_of
from tidings.protocol import requests
from tidings.protocol.notes import to_wire_note
from tidings.routing.offers import META

if TYPE_CHECKING:
    from tidings.live.broker import Broker
    from tidings.live.session import Session

_LOG = logging.getLogger("tidings.live")
_ENCODE = msgspec.msgpack.Encoder().encode
_PAGE = 500  # notifications of a replay, at most, in one answer
_PAGE_BYTES = 1024 * 1024  # which is full with the event that gets there
_LOOKED_AT = 50_000  # events, at most, for one answer


class Explained(msgspec.Struct):
    """What to explain: an event that was, by its id, or that might be; to a subscription, or to all of one's own."""

    event: str | dict[str, Any]
    subscription: str | None = None
    client: str | None = None
    publisher: str = "somebody"
    subscribers: str | None = None
    payload: bytes | None = None
    subject: str | None = None
    policy: str | None = None


class Replayed(msgspec.Struct):
    """What to replay: from a time (microseconds) or an offset on; `subscriptions` are the client's own."""

    subscriptions: list[str]
    since: int = 0
    offset: int = 0
    limit: int = _PAGE


class About(msgspec.Struct):
    subject: str


class Secured(msgspec.Struct):
    """On which secure topic something is: an event with these attributes, or, with `content`, all that a subscription
    asks for. `since`: and what the list of revocations has after so many entries."""

    subject: str | None = None
    attributes: dict[str, Any] = {}
    content: str | None = None
    since: int | None = None


class Gone(msgspec.Struct):
    broker: str


class Questions:
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

    def answer(self, session: "Session", asked: requests.Ask) -> "asyncio.Future[Any] | None":
        """Answers now, or says where the answer will be, for `answered`."""
        slow = self._slow.get(asked.question)
        if slow is not None:
            return asyncio.get_running_loop().run_in_executor(self._broker.readers, slow, session, asked.about)
        try:
            session.answer(asked.request, self._quickly(session, asked))
        except TidingsError as error:
            self._broker.metrics.refuse(error)
            session.refuse(asked.request, error, counts=False)
        return None

    @property
    def names(self) -> list[str]:
        """The questions that a broker answers."""
        return [*self._quick, *self._slow]

    def _quickly(self, session: "Session", asked: requests.Ask) -> Any:
        quick = self._quick.get(asked.question)
        if quick is None:
            known = ", ".join(self.names)
            raise InvalidValueError(f"{asked.question!r:.40} is no question; there are {known}")
        return quick(session, asked.about)

    @staticmethod
    def answered(session: "Session", request: int, answer: "asyncio.Future[Any]") -> None:
        error = answer.exception()
        if error is None:
            session.answer(request, answer.result())
            return
        if not isinstance(error, TidingsError):
            _LOG.error("a question of %s could not be answered", session.name, exc_info=error)
            error = TidingsError(f"the broker could not answer: {error!r:.200}")
        session.refuse(request, error, counts=False)

    # In the loop

    def _schema(self, _: "Session", about: Any) -> Any:
        schema = self._broker.desk.engine.subjects.schema(_read(about, About).subject)
        return {"subject": schema.subject, "versions": versions_of(schema)}

    def _topics(self, _: "Session", __: Any) -> Any:
        engine = self._broker.desk.engine
        offered = [one.value for one in engine.advertisements if not one.id.startswith(META)]
        return {
            "subjects": [{"subject": one.subject, "versions": versions_of(one)} for one in engine.subjects],
            "advertisements": [_advertised(one) for one in sorted(offered, key=lambda one: one.id)],
        }

    def _security(self, _: "Session", about: Any) -> Any:
        """All of it is signed, and nothing secret: a topic is told to who has named something on it."""
        asked, gatehouse = _read(about, Secured), self._broker.gatehouse
        if gatehouse is None:
            raise RefusedError("admit", f"{self._broker.name} has no identity, and knows no secure topics")
        update = None if asked.since is None else gatehouse.gate.credentials.revocations.since(asked.since)
        record = gatehouse.topic_of(asked.subject, asked.attributes, asked.content)
        return {
            "revocations": None if update is None else update.data,
            "records": [] if record is None else [record.data],
        }

    def _status(self, _: "Session", __: Any) -> Any:
        broker, engine = self._broker, self._broker.desk.engine
        archive = broker.desk.archive
        return {
            "broker": broker.name,
            "version": __version__,
            "address": str(broker.address),
            "uptime": round(time.monotonic() - broker.started, 3),
            "strategy": engine.settings.strategy,
            "settled": broker.is_settled,
            "under_way": broker.under_way(),
            "clients": len(broker.all_sessions()),
            "subscriptions": sum(one.is_client for one in engine.subscriptions),
            "links": {
                name: {"cost": link.cost, "sent": link.sent, "received": link.received}
                for name, link in sorted(broker.links.items())
            },
            "wanted_links": sorted(one.broker for one in broker.configuration.links),
            "brokers": sorted(engine.topology.brokers),
            "security": None if broker.gatehouse is None else broker.gatehouse.state(),
            "journal": None
            if archive is None
            else {"folder": str(archive.journal.folder), "next": archive.journal.next, "synced": archive.synced},
        }

    def _stats(self, _: "Session", __: Any) -> Any:
        broker = self._broker
        links = {name: {"sent": one.sent, "received": one.received} for name, one in sorted(broker.links.items())}
        return {"broker": broker.name, **broker.metrics.numbers(), "links": links}

    def _tables(self, session: "Session", _: Any) -> Any:
        _check_operator(session)
        tables = self._broker.desk.engine.tables()
        return {
            "broker": self._broker.name,
            "advertisements": [_advertised(one) for one in tables.advertisements],
            "subscriptions": [_said(written(one)) for one in tables.subscriptions],
            "contexts": {name: dict(one) for name, one in tables.contexts.items()},
            "policies": tables.policies,
            "operator_policies": tables.operator_policies,
            "schemas": {one.subject: versions_of(one) for one in tables.schemas},
            "hops": tables.hops,
            "sent": tables.sent,
        }

    def _forget(self, session: "Session", about: Any) -> Any:
        """The one question that changes something: a broker that will not come back is owed nothing any more."""
        _check_operator(session)
        broker, name = self._broker, _read(about, Gone).broker
        if name in broker.links:
            raise RefusedError("admit", f"{name} is there: there is a link to it")
        was_known = name in broker.resending.debts.known
        broker.resending.forget(name)
        return {"broker": broker.name, "forgotten": was_known}

    # In a thread: these may have to read the journal

    def _explain(self, session: "Session", about: Any) -> Any:
        given, desk = _read(about, Explained), self._broker.desk
        viewer = None if session.is_operator else session.name
        event = past = past_event(desk, given.event)
        if event is None:
            event = possible_event(
                desk,
                given.publisher,
                given.event,
                subscribers=given.subscribers,
                payload=given.payload,
                subject=given.subject,
                policy=given.policy,
            )
        client = given.client or session.name if given.subscription is None else None
        links_down = {link.broker for link in self._broker.configuration.links} - set(self._broker.links)
        found = explained(
            desk, event, given.subscription, client, viewer, is_past=past is not None, links_down=links_down
        )
        return [_explained(one) for one in found]

    def _replay(self, session: "Session", about: Any) -> Any:
        wanted, desk = _read(about, Replayed), self._broker.desk
        if session.is_observer:  # it may have a client's name without being that client
            raise RefusedError("admit", "replay is for clients, and not for observers")
        if desk.archive is None:
            raise InvalidValueError("this broker has no journal, and keeps no events to replay")
        with desk.guard:
            held = [desk.roster.subscriptions.get(one) for one in wanted.subscriptions]
        if any(one is None or one.subscriber != session.name for one in held):
            raise RefusedError("admit", f"replay is for subscriptions that {session.name} has")
        limit = max(1, min(wanted.limit, _PAGE))
        events = desk.archive.history.events_from(wanted.offset, wanted.since)
        notes: list[msgspec.Raw] = []
        size, following = 0, None
        for offset, found in islice(_by_event(desk, wanted.subscriptions, events), _LOOKED_AT):
            following = offset + 1
            written = [msgspec.Raw(_ENCODE(to_wire_note(one))) for one in found]
            notes += written
            size += sum(len(memoryview(one)) for one in written)
            if len(notes) >= limit or size >= _PAGE_BYTES:
                return {"notes": notes, "next": following}
        return {"notes": notes, "next": following}


def _check_operator(session: "Session") -> None:
    if not session.is_operator:
        raise RefusedError("admit", f"{session.name} is no operator; the broker's configuration names them")


def _by_event(desk: Any, ids: list[str], events: Iterator[Any]) -> Iterator[Any]:
    for offset, event in events:
        yield offset, list(replayed_from(desk, ids, event))


def _read(about: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(about, kind)
    except msgspec.ValidationError as error:
        raise InvalidValueError(f"about: {error}") from None


def _advertised(one: Advertisement) -> dict[str, Any]:
    def offer(names: Any) -> Any:
        return str(names) if isinstance(names, ContextFilter) else list(names)

    return {
        "id": one.id,
        "publisher": one.publisher,
        "content": str(one.content),
        "publisher_context": offer(listed_offer(one)),
        "publisher_context_all": one.publisher_context is None,
        "subscriber_context": offer(one.subscriber_context),
    }


def _explained(one: Explanation) -> dict[str, Any]:
    return {
        "subscription": one.subscription,
        "delivered": one.delivered,
        "step": one.step,
        "reason": one.reason,
        "steps": [[step.name, step.passed, step.reason] for step in one.steps],
        "notification": None if one.notification is None else to_wire_note(one.notification),
        "subscriber": None if one.notification is None else one.notification.subscriber,
        "rules": list(one.rules),
    }


def _said(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}
