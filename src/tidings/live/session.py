"""A session: a client that is connected, and what it asks for."""

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.live.awaited import AwaitedError
from tidings.live.configuration.tables import DISCONNECT, Limits
from tidings.live.connection import Connection, Frame
from tidings.live.inbox import Wired
from tidings.live.inquiries import Inquiries
from tidings.live.logs import Log
from tidings.live.rates import Allowance
from tidings.live.service import Service, observer_refusal
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.model.notification import Notification
from tidings.protocol import answers, requests
from tidings.protocol.challenges import Proof
from tidings.protocol.frames import FramingError, Kind, frame
from tidings.protocol.handshake import Bye, Hello, Ping
from tidings.protocol.publications import Published, check_front, check_vector, publication_request_of, read_front
from tidings.protocol.unreadable import UNREADABLE

if TYPE_CHECKING:
    from tidings.live.broker import Broker

_LOG = Log("tidings.live")
_ENCODE = msgspec.msgpack.Encoder().encode
_PUBLISHED = msgspec.msgpack.Decoder(Published)
_DECODERS: dict[int, msgspec.msgpack.Decoder[Any]] = {
    Kind.SUBSCRIBE: msgspec.msgpack.Decoder(requests.Subscribe),
    Kind.UNSUBSCRIBE: msgspec.msgpack.Decoder(requests.Unsubscribe),
    Kind.ADVERTISE: msgspec.msgpack.Decoder(requests.AdvertiseAll),
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
        self.name, self.number, self.is_observer = hello.name, hello.session, hello.observer
        self.connection = connection
        self._broker, self._desk = broker, broker.desk
        self.service = Service(self, broker, hello, nonce)
        self._inquiries: Inquiries | None = None  # once it has asked something
        self._receipts: list[answers.Receipt] = []
        self._unanswered = 0
        self._is_throttled = False
        self.inbox = Wired(self)  # of all its subscriptions that are not durable
        self._lost: Counter[str] = Counter()  # notifications, by subscription
        self._lost_now: Counter[str] = Counter()  # since the client was told last
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
        self.limits = limits
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
        if self.is_observer:
            for published, _ in publications:
                self.refuse(published.request, observer_refusal(self.name), counts=False)
            return
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
        if self._kept_bytes > self.limits.queue_bytes:
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
            self.service.serve(message)
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

    def ask(self, asked: requests.Ask) -> None:
        """A question, answered after those before it."""
        if self._inquiries is None:
            self._inquiries = Inquiries(self, self._broker.questions)
        self._inquiries.put(asked)
        self._throttle()

    # What goes out

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

    def notify(self, note: Notification) -> None:
        connection = self.connection
        connection.send(self._broker.notes.frame(note), note.subscription)
        if connection.waiting_bytes and self._is_full:
            self._too_slow()

    @property
    def _is_full(self) -> bool:
        connection, limits = self.connection, self.limits
        is_full = connection.waiting_bytes > limits.queue_bytes or connection.waiting > limits.queue_notifications
        return is_full and connection.is_open

    def _too_slow(self) -> None:
        """More waits than may: the client loses the oldest of it, or its connection."""
        if self.limits.slow_consumer == DISCONNECT:
            self.disconnect_slow("more waits for it than queue_bytes or queue_notifications")
            return
        limits = self.limits
        lost = self.connection.lose_oldest(limits.queue_bytes * 3 // 4, limits.queue_notifications * 3 // 4)
        for subscription, count in lost.items():
            self._lose(str(subscription), count)

    def disconnect_slow(self, reason: str) -> None:
        """Without a word to the client, which does not read; others are told what it loses by that."""
        self._desk.metrics.slow_disconnected += 1
        _LOG.warning("a client is too slow, and disconnected", client=self.name, reason=reason)
        lost = self.connection.lose_oldest(0, 0)
        self.connection.abort(f"too slow: {reason}")
        for subscription, count in lost.items():
            self._lose(str(subscription), count)

    def _lose(self, subscription: str, count: int) -> None:
        before = self._lost[subscription]
        self._lost[subscription] = lost = before + count
        self._lost_now[subscription] += count
        self._desk.metrics.lost += count
        if before.bit_length() < lost.bit_length():  # at 1, 2, 4, 8, ...: noticed, and no flood of its own
            _LOG.warning("a client is too slow, and loses", client=self.name, subscription=subscription, lost=lost)
            self._desk.tell_lost(self.name, subscription, lost)

    def forget_lost(self, subscription: str) -> None:
        """It has ended."""
        for counted in (self._lost, self._lost_now):
            counted.pop(subscription, None)

    def ahead(self) -> list[bytes]:
        """Where notifications were lost, it says so: what is left of them comes after."""
        lost, self._lost_now = self._lost_now, Counter()
        return [
            frame(Kind.LOST, _ENCODE(answers.Lost(subscription, count, self._lost[subscription])))
            for subscription, count in lost.items()
        ]

    # How it goes

    def stalled(self) -> None:
        """Who does not read is not read either."""
        self._throttle()

    def relieved(self) -> None:
        self.service.wake_pumps()
        if self._inquiries is not None:
            self._inquiries.go_on()
        self._throttle()

    def _throttle(self) -> None:
        wanted = not (
            self.connection.is_stalled
            or self._is_resting
            or self._unanswered > self.limits.in_flight
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
        self.inbox.close()
        self.service.end()
        del self.service  # which holds this session: so both are let go at once, not when somebody looks for circles
        self._broker.left(self, reason)
        self._broker.trusting.left(self.connection)
        self._broker.examining.left(self.connection)


def _allowances(limits: Limits) -> tuple[Allowance | None, Allowance | None]:
    """Of publications and of bytes, where there are limits."""
    rate = limits.publications_per_second
    return (
        None if rate is None else Allowance(rate, limits.publications_burst),
        None if limits.bytes_per_second is None else Allowance(limits.bytes_per_second),
    )
