"""A session: a client that is connected, and what it asks for."""

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from tidings.engine import operations
from tidings.engine.effects import Reject
from tidings.hub.roster import LIMIT, NOTHING
from tidings.hub.subscription import HubSubscription
from tidings.hub.texts import inbox_limit
from tidings.live import ration
from tidings.live.awaited import AwaitedError
from tidings.live.configuration.tables import DISCONNECT, Limits
from tidings.live.connection import Connection, Frame
from tidings.live.inbox import Kept, Wired
from tidings.live.inquiries import Inquiries
from tidings.live.pump import InboxPump
from tidings.live.rates import Allowance
from tidings.model.advertisement import Advertisement, checked_id
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.model.event import checked_client
from tidings.model.notification import Notification
from tidings.model.schematext import schema_of, structure_of
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.protocol import answers, requests
from tidings.protocol.challenges import Proof
from tidings.protocol.frames import FramingError, Kind, frame
from tidings.protocol.handshake import Bye, Hello, Ping
from tidings.protocol.publications import Published, check_front, check_vector, publication_request_of, read_front
from tidings.protocol.unreadable import UNREADABLE
from tidings.texts import content_filter, context_filter, context_offer, policy_text

if TYPE_CHECKING:
    from tidings.live.broker import Broker

_LOG = logging.getLogger("tidings.live")
_ENCODE = msgspec.msgpack.Encoder().encode
_PUBLISHED = msgspec.msgpack.Decoder(Published)
_DECODERS: dict[int, msgspec.msgpack.Decoder[Any]] = {
    Kind.SUBSCRIBE: msgspec.msgpack.Decoder(requests.Subscribe),
    Kind.UNSUBSCRIBE: msgspec.msgpack.Decoder(requests.Unsubscribe),
    Kind.ADVERTISE: msgspec.msgpack.Decoder(requests.Advertise),
    Kind.UNADVERTISE: msgspec.msgpack.Decoder(requests.Unadvertise),
    Kind.SET_CONTEXT: msgspec.msgpack.Decoder(requests.SetContext),
    Kind.ENTRUST: msgspec.msgpack.Decoder(requests.Entrust),
    Kind.SET_POLICY: msgspec.msgpack.Decoder(requests.SetPolicy),
    Kind.DEFINE: msgspec.msgpack.Decoder(requests.Define),
    Kind.ACKNOWLEDGE: msgspec.msgpack.Decoder(requests.Acknowledge),
    Kind.ASK: msgspec.msgpack.Decoder(requests.Ask),
    Kind.PROOF: msgspec.msgpack.Decoder(Proof),
    Kind.PING: msgspec.msgpack.Decoder(Ping),
    Kind.BYE: msgspec.msgpack.Decoder(Bye),
}
_AT_ONCE = (Kind.PROOF, Kind.PING, Kind.PONG)


class Session:
    """Made when a client has said hello, gone when its connection is."""

    def __init__(self, broker: "Broker", connection: Connection, hello: Hello, nonce: bytes) -> None:
        self.name, self.number = hello.name, hello.session
        self.connection = connection
        self._broker, self._desk = broker, broker.desk
        self._hello, self._nonce = hello, nonce
        self._moved = False
        self._pumps: dict[str, InboxPump] = {}
        self._inquiries: Inquiries | None = None  # once it has asked something
        self._receipts: list[answers.Receipt] = []
        self._unanswered = 0
        self._is_throttled = False
        self._lost_now: Counter[Wired] = Counter()  # since the client was told last
        self._is_resting = False  # it has sent more than it may
        self._awaits = False  # an answer on trust, without which the next operation cannot be handled
        self._kept: list[Frame] = []
        self._kept_bytes = 0
        self._kept_publications: list[tuple[Published, str | None]] = []  # before the frames
        self.limit(broker.configuration.limits)

    @property
    def is_operator(self) -> bool:
        return self.name in self._broker.configuration.broker.operators

    def limit(self, limits: Limits) -> None:
        """From now on it may do so much."""
        self._limits = limits
        self._publications, self._bytes = _allowances(limits)

    # What comes

    def take(self, frames: list[Frame]) -> None:
        gatehouse = self._broker.gatehouse
        before = 0 if gatehouse is None else gatehouse.forged
        if self._awaits:
            self._keep_back(frames)
        else:
            self._take(frames)
        if gatehouse is not None:
            for _ in range(gatehouse.forged - before):
                self._broker.reception.bogus(self.connection, self.name)
        self._broker.flush()

    def _take(self, frames: list[Frame]) -> None:
        publications: list[tuple[Published, str | None]] = []
        count = size = 0
        for place, (kind, body) in enumerate(frames):
            if kind == Kind.PUBLISH:
                count, size = count + 1, size + len(body)
                try:
                    publications.append(self._published(body))
                except UNREADABLE as error:
                    self._misunderstood(error, publication_request_of(body))
                continue
            if publications:
                self._accept(publications)
                publications = []
            if not self._awaits:
                self._take_other(kind, body)
            if self._awaits:
                self._keep_back(frames[place:])
                break
        if publications:
            self._accept(publications)
        if size and (self._publications is not None or self._bytes is not None):
            self._account(count, size)

    def _accept(self, publications: list[tuple[Published, str | None]]) -> None:
        self._unanswered += len(publications)
        waiting = self._desk.acceptance.accept(self, publications)
        if waiting is not None:
            self._unanswered -= len(waiting.publications)
            self._kept_publications = waiting.publications
            self._await(waiting.question)
        self._throttle()

    # What has to wait until the client, or another one, has proved to what group it belongs

    def _await(self, question: tuple[str, str]) -> None:
        self._awaits = True
        self._broker.trusting.wait_for(question, self._go_on)

    def _keep_back(self, frames: list[Frame]) -> None:
        """In their order; what is no operation is taken at once, the proof that is waited for among it."""
        for kind, body in frames:
            if kind in _AT_ONCE:
                self._take_other(kind, body)
            else:
                self._kept.append((kind, body))
                self._kept_bytes += len(body)
        if self._kept_bytes > self._limits.queue_bytes:
            self._broker.trusting.give_up(self.name)  # a proof would come behind all that it sends

    def _go_on(self) -> None:
        if not self.connection.is_open:
            return
        self._awaits = False
        publications, self._kept_publications = self._kept_publications, []
        frames, self._kept, self._kept_bytes = self._kept, [], 0
        if publications:
            self._accept(publications)
        self.take(frames)

    def _account(self, publications: int, size: int) -> None:
        """Who has sent more than it may is not read for as long as that is too much."""
        now = self._broker.now()
        wait = 0.0 if self._publications is None else self._publications.take(publications, now)
        wait = max(wait, 0.0 if self._bytes is None else self._bytes.take(size, now))
        if wait > 0 and not self._is_resting:
            self._is_resting = True
            self._broker.later(wait, self._rested)
            self._throttle()

    def _rested(self) -> None:
        self._is_resting = False
        self._throttle()

    def _published(self, body: bytes) -> tuple[Published, str | None]:
        """A publication and its subject; None if it was refused."""
        ahead = read_front(body)
        if not ahead.number:
            published = _PUBLISHED.decode(memoryview(body)[ahead.end :])
            return published, published.subject
        schema = self._broker.bindings.schema(ahead.number)
        check_front(ahead, schema)
        published = _PUBLISHED.decode(memoryview(body)[ahead.end :])
        check_vector(ahead, schema, published.attributes)
        return published, schema.subject

    def _take_other(self, kind: int, body: bytes) -> None:
        if kind == Kind.PONG:
            return
        decoder = _DECODERS.get(kind)
        if decoder is None:
            self._misunderstood(FramingError(f"a client does not send frames of the kind {kind}"))
            return
        try:
            message = decoder.decode(body)
        except UNREADABLE as error:
            self._misunderstood(error, requests.request_of(body))
            return
        if isinstance(message, Ping):
            self.connection.pong(message)
            return
        if isinstance(message, Bye):
            self.connection.close("", say=False)
            return
        if isinstance(message, Proof):
            self._proved(message)
            return
        try:
            _HANDLERS[type(message)](self, message)
        except AwaitedError as waiting:
            self._await(waiting.question)
        except TidingsError as error:
            self._desk.metrics.refuse(error)
            self.refuse(getattr(message, "request", 0), error, counts=False)

    def _proved(self, proof: Proof) -> None:
        if proof.number > 0:
            self._broker.trusting.proved(self.connection, proof)
        else:
            self._broker.examining.proved(self, proof)

    def _misunderstood(self, error: Exception, request: int = 0) -> None:
        """The frame was whole, so the next one can be read; this one may have no number by which it could be
        answered."""
        self._desk.metrics.misunderstood += 1
        if not isinstance(error, TidingsError) or isinstance(error, FramingError):
            error = InvalidValueError(f"a frame that cannot be read: {error}")
        self.refuse(request, error, counts=False)

    # Requests

    def _subscribe(self, wanted: requests.Subscribe) -> None:
        roster = self._desk.roster
        durable = None if wanted.durable is None else checked_id(wanted.durable)
        known = None if durable is None else roster.durable(self.name, durable)
        id = wanted.id if known is None else known.id  # noqa: A001
        policy = policy_text(wanted.policy)
        held = roster.subscriptions.get(id)
        if policy is None and held is not None and held.subscriber == self.name:
            policy = held.subscription.policy  # coming back without one leaves the one that was set
        if held is None:
            ration.check_subscription(self._desk, self._limits, self.name)
        subscription = Subscription.of(
            content_filter(wanted.content),
            id=id,
            subscriber=self.name,
            subject=wanted.subject,
            structure=None if wanted.structure is None else structure_of(wanted.structure),
            publishers=context_filter(wanted.publishers),
            policy=policy,
            durable=durable,
            notify=wanted.notify,
            token=wanted.token,
        )
        if self._broker.gatehouse is not None:
            self._broker.gatehouse.check_proof(wanted, self._nonce)
        if durable is not None:
            self._reside()
        limit = inbox_limit(wanted.limit)
        outcome = self._desk.operate(
            operations.Subscribe(subscription),
            lambda result: self._reply(wanted.request, result, id),
            {LIMIT: limit},
            safe=durable is not None,
        )
        if outcome.refused is None:
            self._attach(id)

    def _reside(self) -> None:
        """A program that has just started cannot know whether its durable subscriptions are at another broker."""
        if self._hello.last_broker or self._moved or not self._desk.engine.neighbours:
            return
        self._moved = True
        self._desk.operate(operations.Connect(self.name, moved=True, session=self.number), safe=False)

    def _attach(self, id: str) -> None:  # noqa: A002
        held = self._desk.roster.subscriptions[id]
        inbox = held.inbox
        if isinstance(inbox, Wired):
            inbox.outlet = self
        elif isinstance(inbox, Kept):
            held.attach(None)
            pump = InboxPump(
                *(inbox, self.connection, partial(self._handed_out, held)),
                *(self._broker.notes.frame, self._broker.readers, self._complain),
            )
            inbox.pump = self._pumps[id] = pump
            self._desk.outgoing.add(0, pump.wake)

    def _handed_out(
        self, held: HubSubscription, notes: list[Notification]
    ) -> tuple[list[Notification], list[Notification]]:
        """Of what waited, what may be handed out now, and what later."""
        gatehouse = self._broker.gatehouse
        return (notes, []) if gatehouse is None else gatehouse.handed_out(held, notes)

    def wake_pumps(self) -> None:
        """What had to wait may go out now."""
        for pump in self._pumps.values():
            pump.wake()

    def _unsubscribe(self, wanted: requests.Unsubscribe) -> None:
        id = checked_id(wanted.id)  # noqa: A001
        held = self._desk.roster.subscriptions.get(id)
        is_durable = held is not None and held.durable is not None
        operation = operations.Unsubscribe(self.name, id, policy_text(wanted.policy))
        outcome = self._desk.operate(operation, lambda result: self._reply(wanted.request, result, id), safe=is_durable)
        if outcome.refused is None:
            self._pumps.pop(id, None)

    def _advertise(self, wanted: requests.Advertise) -> None:
        advertisement = Advertisement.of(
            content_filter(wanted.content),
            id=wanted.id,
            publisher=self.name,
            publisher_context=context_offer(wanted.publisher_context),
            subscriber_context=context_offer(wanted.subscriber_context),
            policy=policy_text(wanted.policy),
        )
        ration.check_advertisement(self._desk, self._limits, self.name, wanted.id)
        self._operate(wanted, operations.Advertise(advertisement), wanted.id)

    def _unadvertise(self, wanted: requests.Unadvertise) -> None:
        self._operate(
            wanted, operations.Unadvertise(self.name, checked_id(wanted.id), policy_text(wanted.policy)), wanted.id
        )

    def _set_context(self, wanted: requests.SetContext) -> None:
        whose = self.name if wanted.of is None else checked_client(wanted.of)
        context, present = Context(wanted.context), self._desk.roster.contexts.get(whose, NOTHING)
        if whose == self.name and context == present:
            self._desk.outgoing.add(0, self._reply, wanted.request, [], "")
            return
        by = None if whose == self.name else self.name
        outcome = self._operate(wanted, operations.SetContext(whose, context, by))
        other = self._broker.sessions.get(whose)
        if outcome.refused is None and by is not None and other is not None:
            other.connection.say(Kind.CONTEXT, answers.Context(dict(context)))

    def _entrust(self, wanted: requests.Entrust) -> None:
        other = checked_client(wanted.other)
        if wanted.allowed:
            ration.check_entrusted(self._desk, self._limits, self.name, other)
        self._operate(wanted, operations.Entrust(self.name, other, wanted.allowed))

    def _set_policy(self, wanted: requests.SetPolicy) -> None:
        """An operator's policy is the broker's own, beside the owner's."""
        id = checked_id(wanted.id)  # noqa: A001
        engine = self._desk.engine
        filed = engine.subscriptions.get(id) or engine.advertisements.get(id)
        whose = self.name
        if self.is_operator and filed is not None and filed.owner != self.name:
            whose = self._desk.name
        self._operate(wanted, operations.SetPolicy(whose, id, policy_text(wanted.policy)), safe=True)

    def _define(self, wanted: requests.Define) -> None:
        schema = schema_of(wanted.subject, list(wanted.versions))
        ration.check_subject(self._desk, self._limits, schema.subject)
        outcome = self._operate(wanted, operations.Define(self.name, schema), safe=True)
        if outcome.refused is None:
            self._broker.subject_defined(schema.subject)

    def _acknowledge(self, done: requests.Acknowledge) -> None:
        held = self._desk.roster.subscriptions.get(done.subscription)
        if held is None or held.subscriber != self.name:
            return  # it has ended meanwhile
        if not isinstance(held.inbox, Kept):
            raise InvalidValueError(f"{done.subscription} is not durable: there is nothing to acknowledge")
        self._desk.acknowledge(held, [_event_id(one) for one in done.events])
        if (pump := self._pumps.get(held.id)) is not None:
            pump.wake()

    def _ask(self, asked: requests.Ask) -> None:
        if self._inquiries is None:
            self._inquiries = Inquiries(self, self._broker.questions)
        self._inquiries.put(asked)
        self._throttle()

    def _operate(self, wanted: Any, operation: operations.Operation, id: str = "", *, safe: bool = False) -> Any:  # noqa: A002
        return self._desk.operate(operation, lambda result: self._reply(wanted.request, result, id), safe=safe)

    # What goes out

    def _reply(self, request: int, result: list[str] | Reject, id: str) -> None:  # noqa: A002
        if isinstance(result, Reject):
            self.connection.say(Kind.REFUSED, answers.Refused(request, "RefusedError", result.reason, result.step))
        else:
            self.connection.say(Kind.DONE, answers.Done(request, tuple(result), id))

    def answer(self, request: int, answer: Any) -> None:
        self.connection.say(Kind.ANSWER, answers.Answer(request, answer))

    def receipt(self, request: int, offset: int, timestamp: int) -> None:
        if not self._receipts:
            self._broker.at_the_end(self._tell_receipts)
        self._receipts.append(answers.Receipt(request, offset, timestamp))

    def _tell_receipts(self) -> None:
        receipts, self._receipts = self._receipts, []
        self.connection.say(Kind.RECEIPTS, answers.Receipts(tuple(receipts)))
        self._unanswered -= len(receipts)
        self._throttle()

    def refuse(self, request: int, error: TidingsError, *, counts: bool = True) -> None:
        self.connection.say(Kind.REFUSED, answers.refusal(request, error))
        if counts:
            self._unanswered -= 1
            self._throttle()

    def notify(self, note: Notification, inbox: Wired) -> None:
        connection = self.connection
        connection.send(self._broker.notes.frame(note), inbox)
        if connection.waiting_bytes and self._is_full:
            self._too_slow()

    @property
    def _is_full(self) -> bool:
        connection, limits = self.connection, self._limits
        is_full = connection.waiting_bytes > limits.queue_bytes or connection.waiting > limits.queue_notifications
        return is_full and connection.is_open

    def _too_slow(self) -> None:
        """More waits than may: the client loses the oldest of it, or its connection."""
        if self._limits.slow_consumer == DISCONNECT:
            self._desk.metrics.slow_disconnected += 1
            self.connection.abort("too slow: more waits for it than queue_bytes or queue_notifications")
            return
        limits = self._limits
        lost = self.connection.lose_oldest(limits.queue_bytes * 3 // 4, limits.queue_notifications * 3 // 4)
        for inbox, count in lost.items():
            if isinstance(inbox, Wired):
                self._lost(inbox, count)

    def _lost(self, inbox: Wired, count: int) -> None:
        before, inbox.lost = inbox.lost, inbox.lost + count
        self._lost_now[inbox] += count
        self._desk.metrics.lost += count
        if before.bit_length() < inbox.lost.bit_length():  # at 1, 2, 4, 8, ...: noticed, and no flood of its own
            self._desk.tell_lost(self.name, inbox.id, inbox.lost)

    def ahead(self) -> list[bytes]:
        """Where notifications were lost, it says so: what is left of them comes after."""
        lost, self._lost_now = self._lost_now, Counter()
        return [frame(Kind.LOST, _ENCODE(answers.Lost(inbox.id, count, inbox.lost))) for inbox, count in lost.items()]

    def _complain(self, error: TidingsError) -> None:
        _LOG.error("what waits for %s cannot be read: %s", self.name, error)
        self.connection.close(f"what waits for you cannot be read: {error}")

    # How it goes

    def stalled(self) -> None:
        """Who does not read is not read either."""
        self._throttle()

    def relieved(self) -> None:
        self.wake_pumps()
        if self._inquiries is not None:
            self._inquiries.go_on()
        self._throttle()

    def _throttle(self) -> None:
        wanted = not (
            self.connection.is_stalled
            or self._is_resting
            or self._unanswered > self._limits.in_flight
            or (self._inquiries is not None and self._inquiries.is_full)
            or self._broker.is_full
        )
        if wanted == self._is_throttled:
            self._is_throttled = not wanted
            self.connection.read(wanted)

    def look_again(self) -> None:
        """The broker may have room again, or none."""
        self._throttle()

    def gone(self, reason: str) -> None:
        self._pumps.clear()
        self._broker.left(self, reason)
        self._broker.trusting.left(self.connection)
        self._broker.examining.left(self.connection)


_HANDLERS: dict[Any, Callable[[Session, Any], None]] = {
    requests.Subscribe: Session._subscribe,
    requests.Unsubscribe: Session._unsubscribe,
    requests.Advertise: Session._advertise,
    requests.Unadvertise: Session._unadvertise,
    requests.SetContext: Session._set_context,
    requests.Entrust: Session._entrust,
    requests.SetPolicy: Session._set_policy,
    requests.Define: Session._define,
    requests.Acknowledge: Session._acknowledge,
    requests.Ask: Session._ask,
}


def _allowances(limits: Limits) -> tuple[Allowance | None, Allowance | None]:
    """Of publications and of bytes, where there are limits."""
    rate = limits.publications_per_second
    return (
        None if rate is None else Allowance(rate, limits.publications_burst),
        None if limits.bytes_per_second is None else Allowance(limits.bytes_per_second),
    )


def _event_id(data: bytes) -> UUID:
    if len(data) != 16:
        raise InvalidValueError("an event is named by the 16 bytes of its id")
    return UUID(bytes=data)
