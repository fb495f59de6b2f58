"""A client of a broker: it publishes, subscribes, has a context, and finds its way back when a connection breaks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import msgspec

from tidings.client.calling import Callback
from tidings.client.connection_state import ConnectionState
from tidings.client.publishing import Publishing
from tidings.client.session import Session
from tidings.client.standing import Standing
from tidings.client.subscription import CANNOT_OPEN, OnRefused, Subscription
from tidings.client.time_limit import time_limit
from tidings.client.told import Told
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
from tidings.model.explanation import Explanation, Step
from tidings.model.filter import ContextFilter, Filter
from tidings.model.limits import DEFAULT_INBOX_NOTIFICATIONS, MAX_INBOX_NOTIFICATIONS
from tidings.model.notification import Notification
from tidings.model.receipt import Receipt
from tidings.model.schema import AttributeFilter, Schema
from tidings.model.schematext import schema_of, structure_text, versions_of
from tidings.model.since import Since as Since
from tidings.model.since import start_of
from tidings.model.subscription import Notify
from tidings.model.timeout import checked_timeout
from tidings.model.values import Attributes, Context
from tidings.protocol import answers, requests
from tidings.protocol.frames import Kind
from tidings.protocol.notes import Note, from_wire_note
from tidings.texts import content_filter, context_filter, context_offer, policy_text

if TYPE_CHECKING:
    from tidings.client.mailbox import Mailbox
    from tidings.client.membership import Membership
    from tidings.policy.policy import Policy

Text = str | Filter
ContextText = str | ContextFilter
_CONTEXT = Context()
_CLOSE_SECONDS = 5.0  # for the broker's answer to the end of a subscription


class Advertised(msgspec.Struct, frozen=True):
    """What was advertised; `findings` are remarks on the policy that was given with it."""

    advertisement: Advertisement
    findings: list[str] = []

    @property
    def id(self) -> str:
        return self.advertisement.id


class Client:
    """Made by `tidings.connect`, and used in one event loop. Whatever it says is said again where it connects next.

    The methods that wait for the broker take a `timeout` in seconds; without one, that of `connect` holds. When it is
    over, they raise a `RequestTimeoutError`: the broker may still carry out the request. Without any they wait until
    the broker answers, if need be on another connection, or the client is closed.
    """

    def __init__(
        self,
        session: Session,
        secured: "Callable[[Client], Membership] | None" = None,
        timeout: float | None = None,
    ) -> None:
        self.name = session.name
        self._session = session
        self._timeout = checked_timeout(timeout)  # of requests that have none of their own
        self._membership = None if secured is None else secured(self)
        self._standing: Standing = session.standing
        self._subscriptions: dict[str, Subscription] = {}
        self._told = Told()
        self._publishing = Publishing(session)
        self._made = 0
        self._over = asyncio.Event()
        self._reason: ClosedError | None = None  # why the broker has ended it
        session.notified, session.lost, session.context_set = self._notified, self._lost, self._context_set
        session.ended, session.connected_again = self._ended, self._connected_again
        if self._membership is not None:
            self._membership.join(session)

    # Beginning and end

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
        """What was published is answered first; what is not durable ends.

        `timeout` is for how many seconds the answers are waited for; None: the `patience` of `connect`. Without a
        connection nothing is waited for.
        """
        await self._session.close(checked_timeout(timeout))
        if self._membership is not None:
            await self._membership.end()

    async def until_closed(self, timeout: float | None = None) -> None:
        """Returns when the client is closed. If the broker has closed its connection for good, a `ClosedError` says
        why: for programs that serve others, and have nothing else to wait for."""
        seconds = checked_timeout(timeout)
        async with time_limit(seconds, "until_closed", lambda: self.state, "the client is not closed"):
            await self._over.wait()
        if self._reason is not None:
            raise self._reason

    @property
    def session(self) -> Session:
        """The connection to the broker, across reconnections, and the requests that are under way on it."""
        return self._session

    @property
    def membership(self) -> "Membership | None":
        """The keys, tokens and notices of a client that was made with a `Member`; None for any other."""
        return self._membership

    @property
    def state(self) -> ConnectionState:
        """The state of the connection since its last change."""
        return self._session.states.latest

    async def states(self) -> AsyncIterator[ConnectionState]:
        """The state of the connection now, then each later one, until the client is closed.

        An iterator that is slow gets the latest state and misses those before it.
        """
        state: ConnectionState | None = None
        while state is None or state.state != "closed":
            state = await self.state_after(state)
            yield state

    async def state_after(self, seen: ConnectionState | None) -> ConnectionState:
        """The latest state, as soon as it is another one than `seen`; `closed` at once, since no other one follows."""
        return await self._session.states.after(seen)

    @property
    def broker(self) -> str:
        """The name of the broker where it is, or was last."""
        return self._session.broker

    @property
    def is_connected(self) -> bool:
        return self._session.is_connected

    @property
    def sequence(self) -> int:
        """The number of the last publication that its broker had of this client when it connected."""
        return self._session.sequence

    async def move(self, addresses: str | Iterable[str], timeout: float | None = None) -> None:
        """Goes to another broker with all that it has: who it is, its situation, what it offers and wants.

        When the `timeout` is over, the client goes on trying, the new addresses first.
        """
        async with self._limit(timeout, "move"):
            await self._session.move(addresses)

    # Situation

    @property
    def context(self) -> Context:
        return self._standing.context

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
        """The context from now on, whole; with `merge`, only the given values change, and None takes one away.

        `of` is another client that has let this one set its context. What changes nothing costs nothing; who only
        publishes tells nobody, since its context goes with its events. A value that is called `merge`, `of` or
        `timeout` is given in the mapping. When the `timeout` is over, the client has the new context all the same,
        and tells its broker with the next connection at the latest.
        """
        if mapping is not None and not isinstance(mapping, Mapping):
            raise InvalidValueError(f"a context is a mapping of names to values, not {type(mapping).__name__}")
        given = {**(mapping or {}), **values}
        limit = self._limit(timeout, "set_context")
        if of is not None and checked_client(of) != self.name:
            if merge:
                raise InvalidValueError("merge: only one's own context is known here; give the whole context")
            async with limit:
                await self._request(Kind.SET_CONTEXT, requests.SetContext(0, Context.of(given), of))
            return
        standing = self._standing
        context = standing.context.merged(given) if merge else Context.of(given)
        if standing.has_set_context and context == standing.context:
            return
        standing.set_context(context)
        if standing.tells_context:
            async with limit:
                await self._request(Kind.SET_CONTEXT, requests.SetContext(0, context))

    async def let_set_context(self, other: "str | Client", allowed: bool = True, timeout: float | None = None) -> None:
        """Lets another client set this one's context, or does so no more."""
        name = other.name if isinstance(other, Client) else checked_client(other)
        async with self._limit(timeout, "let_set_context"):
            await self._tell_context()
            await self._request(Kind.ENTRUST, requests.Entrust(0, name, allowed))
        self._standing.entrusted[name] = allowed

    async def _tell_context(self) -> None:
        """From now on the broker has to know it."""
        if not self._standing.tells_context:
            self._standing.tells_context = True
            if self._standing.has_set_context:
                await self._request(Kind.SET_CONTEXT, requests.SetContext(0, self._standing.context))

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
    ) -> Advertised:
        """Says what will be published; under an id that this client has, another advertisement takes its place."""
        advertisement = Advertisement.of(
            content_filter(content, format),
            id=self._new_id() if id is None else id,
            publisher=self.name,
            publisher_context=context_offer(publisher_context),
            subscriber_context=context_offer(subscriber_context),
            policy=policy_text(policy),
        )
        wanted = _advertise_request(advertisement)
        async with self._limit(timeout, "advertise"):
            done = await self._request(Kind.ADVERTISE, wanted)
        self._standing.advertisements[advertisement.id] = wanted
        return Advertised(advertisement, list(done.findings))

    async def unadvertise(
        self,
        id: "str | Advertised",  # noqa: A002
        policy: "str | Policy | None" = None,
        timeout: float | None = None,
    ) -> None:
        wanted = checked_id(id.id if isinstance(id, Advertised) else id)
        request = requests.Unadvertise(0, wanted, policy_text(policy))
        limit = self._limit(timeout, "unadvertise")
        self._standing.advertisements.pop(wanted, None)
        async with limit:
            await self._request(Kind.UNADVERTISE, request)

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
        """Returns when the event is as safe as was asked: `accepted` (the broker has it in memory), `journaled` (it is
        on the broker's disk), `settled` (it has arrived wherever it is due). A broker without a journal has it in
        memory only, whatever was asked; the receipt's `safe` says how safe the event is.

        `sequence` is the event's number among those of this client, beyond all before it; it counts by itself.

        Publish many at once without waiting for each, by `publish_many` or `publish_soon`: what comes together goes
        together. A task for each does the same, and costs more.

        On a secure topic it is sealed, if this client has an identity and the right to publish there; keys are asked
        for when they are needed. A `SecurityError` says what is missing. The receipt's `sealed` is the epoch of the
        key. With `sealed=True`, an event that would go in the clear is refused instead, and does not leave this client.

        When the `timeout` is over, the event may still be published. Who gives it an `id` can publish it again under
        that id: a `PublishedBeforeError` says that it was.
        """
        given = attributes, subscribers, payload, subject, policy, safe, id, sequence, sealed
        if timeout is None and self._timeout is None:  # a limit costs time, and this is called very often
            return await (await self._publishing.publish_soon(*given))
        async with self._limit(timeout, "publish"):
            return await (await self._publishing.publish_soon(*given))

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
        """The same, but returns when the event is under way: as soon as there is room for it. What it returns can be
        waited for, and is the receipt then. So one task publishes many without waiting for each.

        The `timeout` is for the room: when it is over, the event is not under way, and is not published.
        """
        given = attributes, subscribers, payload, subject, policy, safe, id, sequence, sealed
        if timeout is None and self._timeout is None:
            return await self._publishing.publish_soon(*given)
        async with self._limit(timeout, "publish_soon", "the event is not published"):
            return await self._publishing.publish_soon(*given)

    async def publish_many(
        self,
        /,
        events: Iterable[Mapping[str, Any]],
        safe: str = "journaled",
        timeout: float | None = None,
        **given: Any,
    ) -> list[Receipt]:
        """Events, each as its attributes; they go together, and their receipts come in their order. Where some are
        refused, the error of the first is raised when all are answered; the others are published.

        `given` is said of each of them, as `publish` takes it. Where that is not the same, use `publish_soon`. The
        `timeout` is for all of them together; when it is over, any of them may have been published.
        """
        async with self._limit(timeout, "publish_many"):
            return await self._publishing.publish_many(events, safe=safe, **given)

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
    ) -> Subscription:
        """A subscription: `async with` it, or `await` it. Under a durable name or an id that this client has, it takes
        that one's place.

        `limit` is how many notifications may wait here before the broker is asked to wait. `callback` is called with
        each notification; returning acknowledges. `on_lost` is called with how many were lost, where some were.

        What comes sealed is opened, if this client has an identity and the right to subscribe. `topic` is the template
        of the secure topic that is meant; it need not be said if the subscription asks for its subject or its values.
        What cannot be opened is not given, but counted in `refused` and told to `on_refused`, with the reason; with
        `raw`, what is sealed is given as it is.
        """
        if limit is not None and (type(limit) is not int or not 0 < limit <= MAX_INBOX_NOTIFICATIONS):
            raise InvalidValueError(f"limit: from 1 to MAX_INBOX_NOTIFICATIONS ({MAX_INBOX_NOTIFICATIONS:,})")
        if durable is not None:
            checked_id(durable)
        if notify not in ("subscription", "client"):
            raise InvalidValueError(f"notify: must be 'subscription' or 'client', not {notify!r}")
        scope = context_filter(publishers)
        wanted = requests.Subscribe(
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
        size = limit or DEFAULT_INBOX_NOTIFICATIONS
        made = Subscription(self, wanted, size, callback, on_lost, topic=topic, raw=raw, on_refused=on_refused)
        made.timeout = checked_timeout(timeout)
        return made

    async def unsubscribe(
        self,
        id: "str | Subscription",  # noqa: A002
        policy: "str | Policy | None" = None,
        timeout: float | None = None,
    ) -> None:
        """Ends a subscription for good, a durable one too. When the `timeout` is over, it has ended here."""
        wanted = id.id if isinstance(id, Subscription) else checked_id(id)
        request = requests.Unsubscribe(0, wanted, policy_text(policy))
        limit = self._limit(timeout, "unsubscribe")
        self._standing.subscriptions.pop(wanted, None)
        try:
            async with limit:
                await self._request(Kind.UNSUBSCRIBE, request)
        except RequestTimeoutError:
            self._unsubscribed(wanted)
            raise
        self._unsubscribed(wanted)

    def _unsubscribed(self, id: str) -> None:  # noqa: A002
        held = self._subscriptions.pop(id, None)
        if held is not None:
            held.end()
            self.has_room()

    def subscriptions(self) -> list[Subscription]:
        return list(self._subscriptions.values())

    # Policies, schemas, questions

    async def set_policy(
        self,
        id: "str | Subscription | Advertised",  # noqa: A002
        policy: "str | Policy | None",
        timeout: float | None = None,
    ) -> list[str]:
        """The policy of a subscription or an advertisement; None takes it away. The findings."""
        wanted, text = id if isinstance(id, str) else id.id, policy_text(policy)
        async with self._limit(timeout, "set_policy"):
            done = await self._request(Kind.SET_POLICY, requests.SetPolicy(0, checked_id(wanted), text))
        self._standing.with_policy(wanted, text)
        return list(done.findings)

    async def schema(self, schema: Schema | str, timeout: float | None = None) -> Schema:
        """Defines the schema of a subject, or a longer version of it; given a name, the schema that the broker has."""
        if isinstance(schema, Schema):
            wanted = requests.Define(0, schema.subject, tuple(versions_of(schema)))
            async with self._limit(timeout, "schema"):
                await self._request(Kind.DEFINE, wanted)
            self._standing.schemas[schema.subject] = schema
            return schema
        found = await self.ask("schema", timeout=timeout, subject=checked_subject(schema) or "")
        return schema_of(found["subject"], found["versions"])

    async def topics(self, timeout: float | None = None) -> dict[str, Any]:
        """What can be subscribed to: `subjects` with their schemas, and `advertisements`."""
        found: dict[str, Any] = await self.ask("topics", timeout=timeout)
        return found

    async def explain(
        self,
        event: Any,
        subscription: "str | Subscription | None" = None,
        *,
        publisher: str | None = None,
        subscribers: ContextText | None = None,
        payload: bytes | None = None,
        subject: str | None = None,
        policy: "str | Policy | None" = None,
        client: str | None = None,
        timeout: float | None = None,
    ) -> "list[Explanation]":
        """Why an event does, or does not, reach a subscription, or each one that this client has: every step.

        The event is a past one (its receipt, notification or id), or one that might come: attributes, with its
        `publisher`, this client unless another is named.
        """
        about: dict[str, Any] = {"publisher": publisher or self.name}
        if isinstance(event, Receipt | Notification | Event):
            given = event if isinstance(event, Event) else event.event
            about["event"] = str(given.id)
        elif isinstance(event, UUID | str):
            about["event"] = str(event)
        else:
            about["event"] = Attributes.of(event)
        scope = context_filter(subscribers)
        about.update(
            subscription=subscription.id if isinstance(subscription, Subscription) else subscription,
            subscribers=None if scope is None else str(scope),
            payload=payload,
            subject=subject,
            policy=policy_text(policy),
            client=client,
        )
        return [_explanation(one) for one in await self.ask("explain", timeout=timeout, **about)]

    async def replay(
        self,
        since: Since = None,
        subscriptions: "Iterable[str | Subscription] | None" = None,
        timeout: float | None = None,
    ) -> AsyncIterator[Notification]:
        """What subscriptions of this client would get if the events since then (a time, microseconds, or a receipt)
        came now, from the broker's journal, in order. The `timeout` is for each page of the broker's answer."""
        chosen = self._subscriptions.values() if subscriptions is None else subscriptions
        ids = [one.id if isinstance(one, Subscription) else one for one in chosen]
        offset, timestamp = start_of(since)
        while True:
            found = await self.ask("replay", timeout=timeout, subscriptions=ids, since=timestamp, offset=offset)
            for one in msgspec.convert(found["notes"], list[Note]):
                note = await self._readable(from_wire_note(one, self.name))
                if note is not None:
                    yield note
            if found["next"] is None:
                return
            offset = found["next"]

    async def ask(self, question: str, *, timeout: float | None = None, **about: Any) -> Any:
        """A question to the broker that changes nothing."""
        async with self._limit(timeout, question):
            return await self._session.request(Kind.ASK, requests.Ask(0, question, about))

    @cached_property
    def mailbox(self) -> "Mailbox":
        """Where the answers of key management centres and discovery nodes come; see `tidings.client.asking`."""
        from tidings.client.mailbox import Mailbox

        return Mailbox(self)

    # For its subscriptions

    async def begin(self, subscription: Subscription) -> None:
        async with self._limit(subscription.timeout, "subscribe"):
            await self._begin(subscription)

    async def _begin(self, subscription: Subscription) -> None:
        await self._tell_context()
        wanted, held = subscription.wanted, self._subscriptions
        known = self._standing.subscriptions.get(wanted.id)
        if wanted.policy is None and known is not None:  # as the broker does: wherever this one goes, it has it
            subscription.wanted = wanted = msgspec.structs.replace(wanted, policy=known.policy)
        if self._membership is not None:
            await self._membership.secure(subscription)
        replaced = held.get(wanted.id)
        held[wanted.id] = subscription  # notifications may come together with the answer
        try:
            done = await self._subscribed(subscription)
        except BaseException as error:
            if held.get(wanted.id) is subscription:
                del held[wanted.id]
                if replaced is not None:
                    held[wanted.id] = replaced
                elif isinstance(error, asyncio.CancelledError) and wanted.durable is None:
                    self._session.withdraw(wanted.id)
            raise
        subscription.begun(done)
        if subscription.closed and subscription.durable is None:  # while the broker's answer was awaited
            self._session.withdraw(subscription.id)
            return
        if done.id != wanted.id:
            held.pop(wanted.id, None)
            replaced, held[done.id] = held.get(done.id), subscription
        if replaced is not None and replaced is not subscription:
            replaced.end()
        self._standing.subscriptions[subscription.id] = subscription.wanted

    async def _subscribed(self, subscription: Subscription) -> answers.Done:
        try:
            return await self._request(Kind.SUBSCRIBE, subscription.wanted)
        except (RefusedError, SecurityError):
            if self._membership is None or not await self._membership.reconsider(subscription):
                raise
        return await self._request(Kind.SUBSCRIBE, subscription.wanted)

    async def subscribe_anew(self, subscription: Subscription) -> None:
        """With another token, and else as it is."""
        if self._subscriptions.get(subscription.id) is subscription:
            await self._request(Kind.SUBSCRIBE, subscription.wanted)
            self._standing.subscriptions[subscription.id] = subscription.wanted

    def leave(self, subscription: Subscription) -> None:
        """A durable subscription is not listened to any more; the broker keeps what comes for it."""
        if self._subscriptions.get(subscription.id) is subscription:
            del self._subscriptions[subscription.id]
            self._standing.subscriptions.pop(subscription.id, None)
            self.has_room()

    def give_up(self, subscription: Subscription, error: TidingsError) -> None:
        """Nothing comes for it any more; whoever takes from it is told why."""
        self.leave(subscription)
        if subscription.durable is None:
            self._session.withdraw(subscription.id)
        subscription.end(error)

    async def retire(self, subscription: Subscription, timeout: float | None) -> None:
        """Tell the broker that a subscription that is not durable has ended, and wait for its answer: 5 seconds unless
        `timeout` says otherwise. Without a connection there is nothing to wait for."""
        if self._subscriptions.get(subscription.id) is not subscription:
            return
        self.leave(subscription)
        answer = self._session.withdraw(subscription.id)
        if answer is not None:
            await asyncio.wait([answer], timeout=_CLOSE_SECONDS if timeout is None else timeout)

    def acknowledge(self, subscription: Subscription, events: list[UUID]) -> None:
        if events:
            self._session.acknowledge(subscription.id, events)

    def expecting(self) -> AbstractContextManager[None]:
        """While the answer of a service is waited for, notifications are read."""
        return self._session.expecting()

    async def room(self, timeout: float | None = None) -> None:
        if self._session.is_full:
            async with self._limit(timeout, "acknowledge", "the broker will be told as soon as it can be"):
                await self._session.room()

    def has_room(self) -> None:
        """A subscription that was full is not any more."""
        if not any(one.is_full for one in self._subscriptions.values()):
            self._session.read(True)

    # What the session tells it

    def _notified(self, note: Notification) -> None:
        held = self._subscriptions.get(note.subscription)
        if held is None:
            return
        if held.durable is None and not self._told.note(note):
            return
        held.notified(note)
        self.look_at(held)

    def look_at(self, subscription: Subscription) -> None:
        """Something has come for it."""
        if subscription.is_full:
            self._session.read(False)

    @property
    def has_journal(self) -> bool:
        """Whether the broker has one where this client is, or was last."""
        return self._session.has_journal

    def policy_of(self, subscription: Subscription) -> str | None:
        """As it was set last."""
        return self._standing.subscriptions.get(subscription.id, subscription.wanted).policy

    async def _readable(self, note: Notification) -> Notification | None:
        """What is read from a journal, as the program gets to see it; None if that is nothing."""
        held = self._subscriptions.get(note.subscription)
        if held is not None and held.opening is not None:
            found = await held.opening.asked(note, again=True)
            if isinstance(found, Notification):
                return found
            held.told_refused(note, found)
            return None
        if note.event.signature is None or (held is not None and held.raw):
            return note
        if held is not None:
            held.told_refused(note, SecurityError("key", CANNOT_OPEN))
        return None

    def _connected_again(self) -> None:
        self._told.connected_again()
        if self._membership is not None:
            self._membership.connected_again()

    def _lost(self, lost: answers.Lost) -> None:
        held = self._subscriptions.get(lost.subscription)
        if held is not None:
            held.told_lost(lost.count)

    def _context_set(self, context: Context) -> None:
        self._standing.set_context(context)

    def _ended(self, error: ClosedError | None) -> None:
        self._reason = error
        self._over.set()
        for held in self._subscriptions.values():
            held.end(error)

    def _limit(self, timeout: float | None, request: str, *effect: str) -> AbstractAsyncContextManager[None]:
        """The time limit of a request; that of the client, if the request has none. `effect` is as in `time_limit`."""
        seconds = self._timeout if timeout is None else checked_timeout(timeout)
        return time_limit(seconds, request, lambda: self.state, *effect)

    async def _request(self, kind: Kind, message: msgspec.Struct) -> answers.Done:
        done: answers.Done = await self._session.request(kind, message)
        return done

    def _subscription_id(self, durable: str | None) -> str:
        return self._new_id() if durable is None else f"{self.name[:120]}.durable.{durable[:120]}"

    def _new_id(self) -> str:
        """The client's name, and what no other connection of that name has."""
        self._made += 1
        return f"{self.name[:200]}.{self._session.number:x}.{self._made}"

    def __repr__(self) -> str:
        return f"<client {self.name} at {self.broker or 'no broker yet'}>"


def _advertise_request(advertisement: Advertisement) -> requests.Advertise:
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
    return requests.Advertise(*elements)


def _offer(offer: tuple[str, ...] | ContextFilter) -> str | tuple[str, ...]:
    return str(offer) if isinstance(offer, ContextFilter) else offer


def _explanation(told: dict[str, Any]) -> Explanation:
    note = told["notification"]
    return Explanation(
        subscription=told["subscription"],
        delivered=told["delivered"],
        step=told["step"],
        reason=told["reason"],
        steps=tuple(Step(*one) for one in told["steps"]),
        notification=None if note is None else from_wire_note(msgspec.convert(note, Note), told["subscriber"]),
        rules=tuple(told["rules"]),
    )
