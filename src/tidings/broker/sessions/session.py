"""A session: the broker's side of a connected client, from its accepted HELLO to the end of its connection.

- Frames are handled in order. Publications that come together are accepted as one batch.
- If a publication or request must wait for a trust answer, it and all frames behind it are held back until the answer
  is there; proofs and heartbeats are handled meanwhile.
- The session stops reading its connection (`_throttle`) while the client does not read, exceeds its rate, has too many
  unanswered publications or queries, or the broker is full.
- Notifications that the client does not read wait in the connection. Above the limits the client loses the oldest of
  them, or its connection, as configured.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from tidings.broker.config.configuration import ActiveConfiguration
from tidings.broker.config.tables import DISCONNECT, LimitsTable
from tidings.broker.logs import Log
from tidings.broker.metrics import Metrics
from tidings.broker.net.channel import Channel, Frame
from tidings.broker.net.rate_limits import TokenBucket
from tidings.broker.ports import Scheduler, Sessions
from tidings.broker.publish_handler import PublishHandler
from tidings.broker.sessions.client_sessions import SubjectNumbers
from tidings.broker.sessions.inboxes import SessionInbox
from tidings.broker.sessions.queries import Queries, QueryQueue
from tidings.broker.sessions.request_handlers import RequestHandlers, RequestNode, TokenChecks, observer_refusal
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.model.notification import Notification
from tidings.protocol import answers, requests
from tidings.protocol.frames import UNREADABLE, FrameKind, FramingError, frame
from tidings.protocol.handshake import Bye, Hello, Ping, Proof
from tidings.protocol.publications import (
    WirePublication,
    check_prefix,
    check_vector,
    decode_prefix,
    publication_request_of,
)
from tidings.runtime.processor import TrustPendingError

_LOG = Log("tidings.broker")
_ENCODE = msgspec.msgpack.Encoder().encode
_PUBLICATION = msgspec.msgpack.Decoder(WirePublication)
_DECODERS: dict[int, msgspec.msgpack.Decoder[Any]] = {
    FrameKind.SUBSCRIBE: msgspec.msgpack.Decoder(requests.SubscribeRequest),
    FrameKind.UNSUBSCRIBE: msgspec.msgpack.Decoder(requests.UnsubscribeRequest),
    FrameKind.ADVERTISE: msgspec.msgpack.Decoder(requests.AdvertiseAll),
    FrameKind.UNADVERTISE: msgspec.msgpack.Decoder(requests.UnadvertiseRequest),
    FrameKind.SET_CONTEXT: msgspec.msgpack.Decoder(requests.SetContextRequest),
    FrameKind.ENTRUST: msgspec.msgpack.Decoder(requests.DelegateContextRequest),
    FrameKind.SET_POLICY: msgspec.msgpack.Decoder(requests.SetPolicyRequest),
    FrameKind.DEFINE: msgspec.msgpack.Decoder(requests.DefineSchemaRequest),
    FrameKind.ACKNOWLEDGE: msgspec.msgpack.Decoder(requests.AcknowledgeRequest),
    FrameKind.ASK: msgspec.msgpack.Decoder(requests.QueryRequest),
    FrameKind.PROOF: msgspec.msgpack.Decoder(Proof),
    FrameKind.PING: msgspec.msgpack.Decoder(Ping),
    FrameKind.BYE: msgspec.msgpack.Decoder(Bye),
}
_NEVER_DEFERRED = (FrameKind.PROOF, FrameKind.PING, FrameKind.PONG)


class SessionNode(RequestNode, Protocol):
    """What a session and its request handlers need of the node."""

    def report_loss(self, client: str, subscription: str, count: int) -> None:
        """Have a meta-event published: `client` has lost `count` notifications of `subscription` altogether."""
        ...


class TokenGuard(TokenChecks, Protocol):
    """What a session and its request handlers need of the topic security."""

    @property
    def attack_count(self) -> int:
        """How many checks have failed that an honest client does not fail by mistake."""
        ...

    def record_attacks(self, attacks_before: int, connection: Channel, name: str) -> None:
        """Count a refused attempt of the client for each attack since there were `attacks_before`."""
        ...


class TrustQuestions(Protocol):
    """What a session needs of the challenges of trust groups."""

    def wait_for(self, question: tuple[str, str], callback: Callable[[], None]) -> None:
        """Call `callback` once the question is answered."""
        ...

    def deny(self, party: str) -> None:
        """Deny every question about a party that waits for its answer."""
        ...

    def handle_proof(self, connection: Channel, proof: Proof) -> None:
        """Check the answer that a party has sent over its connection."""
        ...

    def connection_closed(self, connection: Channel) -> None:
        """End the challenges on a connection that is gone."""
        ...


class CertificateChallenges(Protocol):
    """What a session needs of the challenges of clients with a certificate."""

    def handle_proof(self, connection: Channel, client: str, proof: Proof) -> None:
        """Check a client's answer."""
        ...

    def connection_closed(self, connection: Channel) -> None:
        """Forget a connection that has ended."""
        ...


class Session:
    """Handles the frames of one connected client or observer, and sends it receipts, answers and notifications.

    `number` is the session number of the client's HELLO.

    Args:
        connection: The connection of the client, with the handshake completed.
        hello: The HELLO of the client.
        nonce: What the client signs together with a token.
        configuration: Has the limits of clients and the names of the operators.
        scheduler: The turns of the event loop.
        sessions: The sessions of the broker, this one among them.
        node: Handles the client's requests.
        publish_handler: Accepts the client's publications.
        queries: Answers the client's queries.
        trust: Challenges parties to prove that they belong to trust groups.
        certificates: Challenges clients to prove that they hold the keys of their certificates.
        security: Checks tokens; None if the broker has no identity.
        subject_numbers: The numbers of subjects in publications.
        metrics: The counters that the session increments.
        encode: Encodes a notification as a frame.
        is_full: Returns whether the broker reads nothing from its clients.
    """

    def __init__(
        self,
        connection: Channel,
        hello: Hello,
        nonce: bytes,
        *,
        configuration: ActiveConfiguration,
        scheduler: Scheduler,
        sessions: Sessions,
        node: SessionNode,
        publish_handler: PublishHandler,
        queries: Queries,
        trust: TrustQuestions,
        certificates: CertificateChallenges,
        security: TokenGuard | None,
        subject_numbers: SubjectNumbers,
        metrics: Metrics,
        encode: Callable[[Notification], bytes],
        is_full: Callable[[], bool],
    ) -> None:
        self.name, self.number, self.is_observer = hello.name, hello.session, hello.observer
        self.connection = connection
        self._configuration, self._scheduler, self._sessions, self._node = configuration, scheduler, sessions, node
        self._publish_handler, self._queries = publish_handler, queries
        self._trust, self._certificates, self._security = trust, certificates, security
        self._subject_numbers, self._metrics = subject_numbers, metrics
        self._encode, self._is_broker_full = encode, is_full
        self._handlers = RequestHandlers(
            self,
            hello,
            nonce,
            node=node,
            sessions=sessions,
            security=security,
            encode=encode,
            readers=scheduler.readers,
        )
        self._query_queue: QueryQueue | None = None  # created with the first query
        self._receipts: list[answers.PublicationReceipt] = []
        self._unanswered_count = 0
        self._is_throttled = False
        self.inbox = SessionInbox(self)  # shared by all non-durable subscriptions of the client
        self._lost: Counter[str] = Counter()  # lost notifications, by subscription
        self._unreported_lost: Counter[str] = Counter()  # of these, the ones that the client was not told of yet
        self._is_over_rate = False  # the client has exceeded its rate
        self._awaits_trust = False  # a trust answer, without which the next operation cannot be handled
        self._deferred_frames: list[Frame] = []
        self._deferred_bytes = 0
        # To be accepted before `_deferred_frames`: publications, each with its subject.
        self._deferred_publications: list[tuple[WirePublication, str | None]] = []
        self.set_limits(configuration.current.limits)

    @property
    def is_operator(self) -> bool:
        """Whether the client is an operator, by the broker's configuration."""
        return self.name in self._configuration.current.broker.operators

    @property
    def has_set_context(self) -> bool:
        """Whether the client has set its context over this connection."""
        return self._handlers.has_set_context

    def set_limits(self, limits: LimitsTable) -> None:
        """Apply other limits to this client from now on; its rate limits begin anew."""
        self.limits = limits
        self._publications, self._bytes = _token_buckets(limits)

    # Frames of the client

    def handle_frames(self, frames: list[Frame]) -> None:
        """Handle frames of the client, or hold them back while the session waits for a trust answer."""
        security = self._security
        attacks_before = 0 if security is None else security.attack_count
        if self._awaits_trust:
            self._defer(frames)
        else:
            self._handle_frames(frames)
        if security is not None:
            security.record_attacks(attacks_before, self.connection, self.name)
        self._scheduler.flush()

    def _handle_frames(self, frames: list[Frame]) -> None:
        """Handle frames in order; publications in a row are accepted together."""
        publications: list[tuple[WirePublication, str | None]] = []
        count = size = 0
        for position, (kind, body) in enumerate(frames):
            if kind == FrameKind.PUBLISH:
                count, size = count + 1, size + len(body)
                try:
                    publications.append(self._decode_publication(body))
                except UNREADABLE as error:
                    self._refuse_undecodable(error, publication_request_of(body))
                continue
            if publications:
                self._accept(publications)
                publications = []
            if not self._awaits_trust:
                self._handle_frame(kind, body)
            if self._awaits_trust:
                self._defer(frames[position:])
                break
        if publications:
            self._accept(publications)
        if size and (self._publications is not None or self._bytes is not None):
            self._charge_rate_limits(count, size)

    def _accept(self, publications: list[tuple[WirePublication, str | None]]) -> None:
        """Accept a batch of publications; hold back those that must wait for a trust answer."""
        if self.is_observer:
            for publication, _ in publications:
                self.refuse(publication.request, observer_refusal(self.name), counts=False)
            return
        self._unanswered_count += len(publications)
        deferred = self._publish_handler.accept(self, publications)
        if deferred is not None:
            self._unanswered_count -= len(deferred.publications)
            self._deferred_publications = deferred.publications
            self._wait_for_trust(deferred.question)
        self._throttle()

    # Waiting for a trust answer about the client or another party

    def _wait_for_trust(self, question: tuple[str, str]) -> None:
        """Hold back what comes from now on, until the trust question is answered."""
        self._awaits_trust = True
        self._trust.wait_for(question, self._handle_deferred)

    def _defer(self, frames: list[Frame]) -> None:
        """Keep frames for later, in order; handle proofs and heartbeats at once.

        If more than `queue_bytes` are kept, the client's own proof is given up: it would come behind all of them.
        """
        for kind, body in frames:
            if kind in _NEVER_DEFERRED:
                self._handle_frame(kind, body)
            else:
                self._deferred_frames.append((kind, body))
                self._deferred_bytes += len(body)
        if self._deferred_bytes > self.limits.queue_bytes:
            self._trust.deny(self.name)  # the client sends more than can wait for its proof

    def _handle_deferred(self) -> None:
        """Handle what was held back, after the trust question was answered."""
        if not self.connection.is_open:
            return
        self._awaits_trust = False
        publications, self._deferred_publications = self._deferred_publications, []
        frames, self._deferred_frames, self._deferred_bytes = self._deferred_frames, [], 0
        if publications:
            self._accept(publications)
        self.handle_frames(frames)

    def _charge_rate_limits(self, publications: int, size: int) -> None:
        """Charge publications to the client's rate limits, and pause reading for as long as it exceeds them."""
        now = self._scheduler.now()
        wait = 0.0 if self._publications is None else self._publications.take(publications, now)
        wait = max(wait, 0.0 if self._bytes is None else self._bytes.take(size, now))
        if wait > 0 and not self._is_over_rate:
            self._is_over_rate = True
            self._scheduler.call_later(wait, self._rate_recovered)
            self._throttle()

    def _rate_recovered(self) -> None:
        self._is_over_rate = False
        self._throttle()

    def _decode_publication(self, body: bytes) -> tuple[WirePublication, str | None]:
        """Decode a PUBLISH frame: the publication and its subject. Raises one of UNREADABLE if that fails."""
        front = decode_prefix(body)
        if not front.number:
            publication = _PUBLICATION.decode(memoryview(body)[front.end :])
            return publication, publication.subject
        schema = self._subject_numbers.schema(front.number)
        check_prefix(front, schema)
        publication = _PUBLICATION.decode(memoryview(body)[front.end :])
        check_vector(front, schema, publication.attributes)
        return publication, schema.subject

    def _handle_frame(self, kind: int, body: bytes) -> None:
        """Handle a frame that is not a publication; answer errors by the number of the request."""
        if kind == FrameKind.PONG:
            return
        decoder = _DECODERS.get(kind)
        if decoder is None:
            self._refuse_undecodable(FramingError(f"a client does not send frames of the kind {kind}"))
            return
        try:
            message = decoder.decode(body)
        except UNREADABLE as error:
            self._refuse_undecodable(error, requests.request_of(body))
            return
        if isinstance(message, Ping):
            self.connection.send_message(FrameKind.PONG, message)
            return
        if isinstance(message, Bye):
            self.connection.close("", send_bye=False)
            return
        if isinstance(message, Proof):
            self._handle_proof(message)
            return
        try:
            self._handlers.handle(message)
        except TrustPendingError as pending:
            self._wait_for_trust(pending.question)
        except TidingsError as error:
            self._metrics.operations.refuse(error)
            self.refuse(getattr(message, "request", 0), error, counts=False)

    def _handle_proof(self, proof: Proof) -> None:
        if proof.number > 0:
            self._trust.handle_proof(self.connection, proof)
        else:
            self._certificates.handle_proof(self.connection, self.name, proof)

    def _refuse_undecodable(self, error: Exception, request: int = 0) -> None:
        """Refuse a frame that cannot be decoded; `request` is 0 if the frame's request number is unknown, too.

        The connection stays usable, since the end of the frame is known.
        """
        self._metrics.traffic.misunderstood += 1
        if not isinstance(error, TidingsError) or isinstance(error, FramingError):
            error = InvalidValueError(f"a frame cannot be decoded: {error}")
        self.refuse(request, error, counts=False)

    def queue_query(self, query: requests.QueryRequest) -> None:
        """Answer a query, after the queries before it."""
        if self._query_queue is None:
            self._query_queue = QueryQueue(self, self._queries)
        self._query_queue.put(query)
        self._throttle()

    # Answers and notifications

    def answer(self, request: int, answer: Any) -> None:
        """Send the answer to a query."""
        self.connection.send_message(FrameKind.ANSWER, answers.QueryAnswer(request, answer))

    def receipt(self, request: int, offset: int, timestamp: int) -> None:
        """Send a receipt for a publication, together with others at the end of this turn of the event loop."""
        if not self._receipts:
            self._scheduler.defer_to_turn_end(self._send_receipts)
        self._receipts.append(answers.PublicationReceipt(request, offset, timestamp))

    def _send_receipts(self) -> None:
        receipts, self._receipts = self._receipts, []
        self.connection.send_message(FrameKind.RECEIPTS, answers.PublicationReceipts(tuple(receipts)))
        self._unanswered_count -= len(receipts)
        self._throttle()

    def refuse(self, request: int, error: TidingsError, *, counts: bool = True) -> None:
        """Send a refusal of a request or a publication.

        `counts` says whether it answers an accepted publication, which then is no longer in flight.
        """
        self.connection.send_message(FrameKind.REFUSED, answers.refusal(request, error))
        if counts:
            self._unanswered_count -= 1
            self._throttle()

    def notify(self, notification: Notification) -> None:
        """Send a notification; if too many wait in the connection then, apply the policy for slow consumers."""
        connection = self.connection
        connection.send(self._encode(notification), notification.subscription)
        if connection.flow.waiting_bytes and self._is_full:
            self._apply_slow_consumer_policy()

    @property
    def _is_full(self) -> bool:
        flow, limits = self.connection.flow, self.limits
        is_full = flow.waiting_bytes > limits.queue_bytes or flow.waiting_frames > limits.queue_notifications
        return is_full and self.connection.is_open

    def _apply_slow_consumer_policy(self) -> None:
        """Apply the policy for slow consumers: disconnect the client, or drop the oldest notifications."""
        if self.limits.slow_consumer == DISCONNECT:
            self.disconnect_slow("more waits for the client than queue_bytes or queue_notifications")
            return
        limits = self.limits
        lost = self.connection.flow.lose_oldest(limits.queue_bytes * 3 // 4, limits.queue_notifications * 3 // 4)
        for subscription, count in lost.items():
            self._count_lost(str(subscription), count)

    def disconnect_slow(self, reason: str) -> None:
        """Abort the connection of a client that does not read, and report the notifications that it loses thereby.

        The client is sent nothing, since it does not read; a meta-event reports the losses.
        """
        self._metrics.traffic.slow_disconnected += 1
        _LOG.warning("a slow client is disconnected", client=self.name, reason=reason)
        lost = self.connection.flow.lose_oldest(0, 0)
        self.connection.abort(f"too slow: {reason}")
        for subscription, count in lost.items():
            self._count_lost(str(subscription), count)

    def _count_lost(self, subscription: str, count: int) -> None:
        """Count lost notifications, and report them at 1, 2, 4, 8, ... losses of a subscription."""
        before = self._lost[subscription]
        self._lost[subscription] = lost = before + count
        self._unreported_lost[subscription] += count
        self._metrics.operations.lost += count
        if before.bit_length() < lost.bit_length():  # at 1, 2, 4, 8, ...: so reports do not flood the log
            _LOG.warning("a slow client loses notifications", client=self.name, subscription=subscription, lost=lost)
            self._node.report_loss(self.name, subscription, lost)

    def forget_lost(self, subscription: str) -> None:
        """Forget the losses of a subscription that has ended."""
        for counter in (self._lost, self._unreported_lost):
            counter.pop(subscription, None)

    def frames_first(self) -> list[bytes]:
        """Return LOST frames for notifications that were dropped, to go before the frames that wait."""
        lost, self._unreported_lost = self._unreported_lost, Counter()
        return [
            frame(FrameKind.LOST, _ENCODE(answers.NotificationsLost(subscription, count, self._lost[subscription])))
            for subscription, count in lost.items()
        ]

    # Backpressure and the end

    def on_stalled(self) -> None:
        """Stop reading from the client while it does not read."""
        self._throttle()

    def on_resumed(self) -> None:
        """Go on with durable deliveries, queries and reading, since the client reads again."""
        self.wake_deliveries()
        if self._query_queue is not None:
            self._query_queue.answer_next()
        self._throttle()

    def _throttle(self) -> None:
        """Read from the client, or pause, as its limits and the state of the broker require."""
        is_reading = not (
            self.connection.flow.is_stalled
            or self._is_over_rate
            or self._unanswered_count > self.limits.in_flight
            or (self._query_queue is not None and self._query_queue.is_full)
            or self._is_broker_full()
        )
        if is_reading == self._is_throttled:
            self._is_throttled = not is_reading
            self.connection.flow.set_reading(is_reading)

    def wake_deliveries(self) -> None:
        """Have every durable delivery of the client send what it can."""
        self._handlers.wake_pumps()

    def update_throttle(self) -> None:
        """Check again whether the client is to be read: the broker or its query queue has become full, or has room."""
        self._throttle()

    def on_closed(self, reason: str) -> None:
        """End the session, since its connection is closed."""
        self.inbox.close()
        self._handlers.stop()
        del self._handlers  # breaks the reference cycle, so that both are freed at once
        self._sessions.ended(self, reason)
        self._trust.connection_closed(self.connection)
        self._certificates.connection_closed(self.connection)


def _token_buckets(limits: LimitsTable) -> tuple[TokenBucket | None, TokenBucket | None]:
    """Return token buckets for publications and for bytes; None where there is no limit."""
    rate = limits.publications_per_second
    return (
        None if rate is None else TokenBucket(rate, limits.publications_burst),
        None if limits.bytes_per_second is None else TokenBucket(limits.bytes_per_second),
    )
