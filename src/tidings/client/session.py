"""A client's session: a sequence of connections, to one of several brokers, that works like a single connection.

Rules:

1. Every request and publication is answered once, or fails when the session ends.
2. What is in flight when a connection breaks is sent again on the next one, in its order. Publications keep their ids,
   so the broker does not publish them twice.
3. At most as many publications are in flight as the broker's welcome allows; further publishers wait in turn.

Theory of operation. `open` makes the first connection; a task (`_reconnect_forever`) watches it by heartbeats, and
reconnects with exponential backoff and jitter. Each attempt (`_try`) opens a socket, sends a hello, and waits for the
welcome; `_start_connection` then restores the client's state (`SessionState`) and sends what is in flight (`InFlight`).
Frames from the broker arrive in `_handle_frames`; answers resolve the futures in `InFlight`, notifications go to the
`listener`. While subscriptions are full, the session stops reading from the socket, unless an answer is awaited, since
answers and notifications share it.
"""

import asyncio
import contextlib
import logging
import random
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

import msgspec

from tidings._version import __version__
from tidings.client.connection import BrokerAddress, ConnectionState, ConnectionStates, OnState, read_addresses
from tidings.client.identity import ChallengeResponder, TlsIdentity
from tidings.client.in_flight import FairGate, InFlight, PendingPublication, PendingRequest, fail
from tidings.client.request_sender import SessionState
from tidings.client.transport import CLOSED, FrameEncoder, Transport
from tidings.model.errors import (
    ClosedError,
    InvalidValueError,
    TidingsError,
    UnreachableError,
)
from tidings.model.event import Event, checked_client
from tidings.model.limits import MAX_RECORD_BYTES
from tidings.model.notification import Notification
from tidings.model.receipt import Receipt
from tidings.model.time_arguments import checked_seconds
from tidings.model.values import Context
from tidings.protocol import answers, requests
from tidings.protocol.frames import UNREADABLE, FrameKind
from tidings.protocol.handshake import MAGIC, VERSION, Bye, Challenge, Hello, Ping, SubjectBound, Welcome
from tidings.protocol.notifications import decode_notification
from tidings.protocol.publications import Safety
from tidings.security.trust_group import TrustGroup

if TYPE_CHECKING:
    from tidings.client.secure.sealing_queue import SealingQueue

_LOG = logging.getLogger("tidings.client")
_RANDOM = random.Random()  # noqa: S311 - of its own: programs that use this library may seed the common one
_RETRY_SECONDS_MIN, _RETRY_SECONDS_MAX = 0.05, 5.0  # seconds between two attempts to connect
_DECODERS: dict[int, msgspec.msgpack.Decoder[Any]] = {
    FrameKind.WELCOME: msgspec.msgpack.Decoder(Welcome),
    FrameKind.PING: msgspec.msgpack.Decoder(Ping),
    FrameKind.CHALLENGE: msgspec.msgpack.Decoder(Challenge),
    FrameKind.BYE: msgspec.msgpack.Decoder(Bye),
    FrameKind.BOUND: msgspec.msgpack.Decoder(SubjectBound),
    FrameKind.DONE: msgspec.msgpack.Decoder(answers.RequestDone),
    FrameKind.REFUSED: msgspec.msgpack.Decoder(answers.RequestRefused),
    FrameKind.RECEIPTS: msgspec.msgpack.Decoder(answers.PublicationReceipts),
    FrameKind.LOST: msgspec.msgpack.Decoder(answers.NotificationsLost),
    FrameKind.CONTEXT: msgspec.msgpack.Decoder(answers.ContextChanged),
    FrameKind.ANSWER: msgspec.msgpack.Decoder(answers.QueryAnswer),
}


class ConnectionSettings(NamedTuple):
    """Where and as whom a client connects; the fields are the arguments of `connect`."""

    addresses: str | Iterable[str]
    name: str
    identity: TlsIdentity | None
    patience: float  # seconds
    groups: Sequence[TrustGroup] = ()
    on_state: OnState | None = None
    observer: bool = False


class SessionOwner(Protocol):
    """Gets what comes from the broker: the table of the client's subscriptions."""

    def notified(self, notification: Notification) -> None: ...
    def notifications_lost(self, lost: answers.NotificationsLost) -> None: ...
    def connected_again(self) -> None: ...
    def ended(self, error: ClosedError | None) -> None: ...


class FrameSender(Protocol):
    """What starting a connection needs of its transport."""

    def welcome(self, limit: int) -> None: ...
    def send(self, data: bytes) -> None: ...
    def send_message(self, kind: FrameKind, message: msgspec.Struct) -> None: ...


class ClientSession:
    """The connection of one client to a broker, across reconnections and moves, and the requests in flight on it.

    `listener`, which must be set before `open`, gets what comes from the broker.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self.name = checked_client(settings.name)
        self._observer = settings.observer
        self.session_state = session_state = SessionState()
        self.listener: SessionOwner
        self._addresses = read_addresses(settings.addresses)
        self._states = ConnectionStates(self.name, str(self._addresses[0]), settings.on_state)
        self._attempt = 0  # attempts since the last connection
        self._identity = settings.identity
        self.challenge_responder = ChallengeResponder(settings.name, settings.identity, settings.groups)
        self._patience = checked_seconds(settings.patience, "patience")  # seconds for the first connection
        self.number = 0  # the number of this connection, rising with each, at any broker
        self.connections = 0
        self.broker = ""
        self._greeting_broker = ""  # the broker whose welcome came last
        self.transport: Transport | None = None  # the transport of the present connection
        self._welcomed: asyncio.Future[Welcome] | None = None
        self._welcome: Welcome | None = None
        self._connection_gone: asyncio.Event = asyncio.Event()
        self._reconnect_task: asyncio.Task[None] | None = None
        self.in_flight = InFlight()
        self._sequence = 0
        self._publish_gate = FairGate(lambda: self._error is not None or not self._has_no_room)
        self._wants_notifications = True
        self._awaited_replies = 0  # how many answers of services are awaited, which come as notifications
        self.sealing_queue: SealingQueue | None = None  # seals publications of a secure client
        self._sign_subscription: Callable[[bytes, bytes], bytes] | None = None  # see `Member.prove`
        self.sent_sequence = 0  # the highest sequence number that was sent
        self._acknowledged: dict[str, list[bytes]] = {}
        self.framing = FrameEncoder(session_state)
        self._error: ClosedError | None = None
        self._is_close_wanted = False
        self._closed = asyncio.Event()
        self._connected = asyncio.Event()
        self._last_bye: Bye | None = None
        self._address: BrokerAddress | None = None

    # Opening and closing

    @property
    def state(self) -> ConnectionState:
        """The current state of the connection."""
        return self._states.latest

    async def state_after(self, seen: ConnectionState | None) -> ConnectionState:
        """Wait until the state of the connection differs from `seen`; a `closed` state returns at once."""
        return await self._states.after(seen)

    async def until_closed(self) -> None:
        """Wait until the session has ended; raise the reason if the broker, or an error, ended it."""
        await self._closed.wait()
        if self._error is not None and not self._is_close_wanted:
            raise self._error

    @property
    def is_connected(self) -> bool:
        """Whether the client is connected to a broker."""
        return self._connected.is_set() and self._error is None

    @property
    def is_quiet(self) -> bool:
        """Whether the client is connected and at most one publication, the one just accepted, has no answer yet."""
        return self.is_connected and len(self.in_flight.publications) <= 1

    async def open(self) -> None:
        """Connect for the first time: try the addresses in order until a broker accepts the client.

        Raises:
            UnreachableError: No broker accepted the client within `patience` seconds.
        """
        if self._reconnect_task is not None:
            raise InvalidValueError(f"the client {self.name} is open already")
        self._loop = asyncio.get_running_loop()
        until = self._loop.time() + self._patience
        reasons: dict[str, str] = {}
        delay = _RETRY_SECONDS_MIN
        while True:
            for address in self._addresses:
                reason = await self._try(address, max(0.1, until - self._loop.time()))
                if reason is None:
                    self._reconnect_task = self._loop.create_task(self._reconnect_forever())
                    self._reconnect_task.add_done_callback(self._reconnect_task_done)
                    return
                reasons[str(address)] = reason
                if self._error is not None:
                    raise self._error
                self._set_disconnected(address, reason, delay if address == self._addresses[-1] else 0.0)
            if self._loop.time() + delay > until:
                failures = "; ".join(f"{address}: {reason}" for address, reason in reasons.items())
                hint = "start one with `tidings broker`, or connect to another address"
                error = UnreachableError(f"no broker could be reached: {failures}; {hint}")
                self._set_closed(str(error))
                raise error
            await asyncio.sleep(delay)
            delay = min(2 * delay, 1.0)

    async def close(self, timeout: float | None = None) -> None:
        """Close the session, after waiting for the answers to publications in flight.

        `timeout` limits the wait, in seconds; the default is `patience`.
        """
        if self._reconnect_task is None:
            return
        if self._error is None and self.is_connected:
            waiting = [publication.answer for publication in self.in_flight.publications.values()]
            if waiting:
                await asyncio.wait(waiting, timeout=self._patience if timeout is None else timeout)
            self._send_acknowledgements()
        self._reconnect_task.cancel()
        await asyncio.wait([self._reconnect_task])
        self._connected.clear()  # so that losing the connection from now on is not an error
        if self.transport is not None:
            self.transport.close("the client has closed")
            await self._connection_gone.wait()
        self._end(ClosedError(f"the client {self.name} is closed"), is_wanted=True)

    async def move(self, addresses: str | Iterable[str]) -> None:
        """Connect to another broker, and return once the client's state is restored there.

        Raises:
            UnreachableError: The broker cannot be reached; the client is back at one that can.
        """
        self._check_open()
        new_addresses = read_addresses(addresses)
        self._addresses = [*new_addresses, *(address for address in self._addresses if address not in new_addresses)]
        self._address_index = 0
        if self._connected.is_set():
            self._connected.clear()
            self._set_disconnected(self._address, "the client moves", 0.0)
        if self.transport is not None:
            self.transport.close("the client moves")
        await self._connected.wait()
        self._check_open()
        pending = [request.answer for request in self.in_flight.requests.values()]
        if pending:
            await asyncio.wait(pending)
        if self._address not in new_addresses:
            failed = ", ".join(map(str, new_addresses))
            raise UnreachableError(f"no broker could be reached at {failed}; the client is at {self.broker}")

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        if self._reconnect_task is None:
            raise ClosedError(f"the client {self.name} is not open: use it with 'async with'")

    # Requests and publications

    async def request(self, kind: FrameKind, message: msgspec.Struct) -> Any:
        """Send a request to the broker, and return its answer; raise the error if the broker refuses it."""
        self._check_open()
        answer = self._send_request(kind, message)
        try:
            return await answer
        finally:
            if answer.cancelled() and not self._connected.is_set():
                self.in_flight.drop_abandoned_requests()

    def _send_request(self, kind: FrameKind, message: msgspec.Struct) -> "asyncio.Future[Any]":
        number = self.in_flight.next_number()
        numbered = msgspec.structs.replace(message, request=number)
        answer: asyncio.Future[Any] = self._loop.create_future()
        data = self.framing.request(kind, self._signed(numbered))
        self.in_flight.requests[number] = PendingRequest(kind, numbered, answer)
        if self.transport is not None and self._connected.is_set():
            self.transport.send(data)
        self._update_reading()
        return answer

    def _signed(self, message: msgspec.Struct) -> msgspec.Struct:
        """Sign a subscription that has a token, for this connection; return other messages unchanged."""
        if (
            self._sign_subscription is None
            or self._welcome is None
            or not isinstance(message, requests.SubscribeRequest)
        ):
            return message
        if message.token is None or not self._welcome.nonce:
            return message
        proof = self._sign_subscription(requests.signed_request_bytes(message, self.broker), self._welcome.nonce)
        return msgspec.structs.replace(message, proof=proof)

    def withdraw(self, subscription: str) -> "asyncio.Future[Any] | None":
        """Tell the broker that a subscription that is not durable has ended.

        Return its answer, which need not be awaited. None without a connection: the subscription ended at the broker
        when the connection did.
        """
        if not self.is_connected or self._reconnect_task is None:
            return None
        answer = self._send_request(FrameKind.UNSUBSCRIBE, requests.UnsubscribeRequest(0, subscription))
        answer.add_done_callback(_consume_error)
        return answer

    def seal_with(self, sealing_queue: "SealingQueue", prove: Callable[[bytes, bytes], bytes]) -> None:
        """From now on, publish through `sealing_queue`, which seals, and sign subscriptions with `prove`."""
        self.sealing_queue, self._sign_subscription = sealing_queue, prove
        self.in_flight.retry_after_refusal = sealing_queue.retry_after_refusal

    @property
    def has_journal(self) -> bool:
        """Whether the client's present or last broker has a journal; True before the first welcome."""
        return self._welcome is None or self._welcome.is_durable

    @property
    def sequence(self) -> int:
        """The sequence number of the client's last publication, as its broker reported it at the last connection."""
        return 0 if self._welcome is None else self._welcome.sequence

    def next_sequence(self, chosen: int | None = None) -> int:
        """Return the next sequence number, or record the one that the publisher chose.

        Raises:
            InvalidValueError: The number does not rise.
        """
        if chosen is not None and chosen <= self._sequence:
            raise InvalidValueError(f"sequence: {chosen} does not come after {self._sequence}, the last of {self.name}")
        self._sequence = self._sequence + 1 if chosen is None else chosen
        return self._sequence

    def publish(
        self, event: Event, safe: Safety, *, is_numbered: bool = False, must_seal: bool = False
    ) -> "asyncio.Future[Receipt]":
        """Send an event, sealed if need be; return the future of its receipt.

        Args:
            event: The event to publish.
            safe: The durability to wait for.
            is_numbered: Whether the publisher chose the event's sequence number.
            must_seal: Whether the event must not be sent unsealed.
        """
        self._check_open()
        number = self.in_flight.next_number()
        answer: asyncio.Future[Receipt] = self._loop.create_future()
        publication = PendingPublication(event, safe, answer, is_numbered=is_numbered, must_seal=must_seal)
        if self.sealing_queue is None:
            self.send_publication(number, publication)
        else:
            self.in_flight.publications[number] = publication
            self.sealing_queue.put(number, publication)
        if not self._wants_notifications:
            self._update_reading()
        return answer

    def send_publication(self, number: int, publication: PendingPublication) -> None:
        """Put a publication in flight: send it now, or with the next connection."""
        data = self._framed(number, publication)
        self.in_flight.publications[number] = publication
        self.sent_sequence = max(self.sent_sequence, publication.event.sequence)
        if self.transport is not None and self._connected.is_set():
            publication.note_sent(has_journal=self.has_journal)
            self.transport.send(data)

    def forget(self, number: int) -> None:
        """Drop a publication that will not be sent."""
        self.in_flight.publications.pop(number, None)
        self._publish_gate.call()

    def _framed(self, number: int, publication: PendingPublication) -> bytes:
        return self.framing.publication(number, publication, is_connected=self._connected.is_set())

    def acknowledge(self, subscription: str, events: list[UUID]) -> None:
        """Collect acknowledgements, and send them together at the end of this turn of the event loop."""
        if not self._acknowledged:
            self._loop.call_soon(self._send_acknowledgements)
        self._acknowledged.setdefault(subscription, []).extend(event.bytes for event in events)

    def _send_acknowledgements(self) -> None:
        if self.transport is None or not self._connected.is_set():
            return  # the next connection sends them
        acknowledged, self._acknowledged = self._acknowledged, {}
        for subscription, events in acknowledged.items():
            self.transport.send_message(FrameKind.ACKNOWLEDGE, requests.AcknowledgeRequest(subscription, tuple(events)))

    @property
    def is_full(self) -> bool:
        """Whether a publication has to wait: the limit of publications in flight is reached, or others wait already."""
        return bool(self._publish_gate) or self._has_no_room

    @property
    def _has_no_room(self) -> bool:
        limit = self._welcome.in_flight if self._welcome is not None else 1
        return len(self.in_flight.publications) + self._publish_gate.called >= limit or (
            self.transport is not None and self.transport.is_full
        )

    async def wait_for_room(self) -> None:
        """Wait until there is room for a publication, in the order of arrival."""
        await self._publish_gate.wait()

    def read(self, wants_notifications: bool) -> None:
        """Start or stop reading notifications from the socket.

        The session still reads while a request waits for its answer, since answers and notifications share the socket.
        """
        self._wants_notifications = wants_notifications
        self._update_reading()

    @contextlib.contextmanager
    def expecting(self) -> Iterator[None]:
        """In this context, read notifications even if subscriptions are full: an answer comes as a notification."""
        self._awaited_replies += 1
        self._update_reading()
        try:
            yield
        finally:
            self._awaited_replies -= 1
            self._update_reading()

    def _update_reading(self) -> None:
        """Pause or resume the socket, as needed now."""
        if self.transport is not None:
            self.transport.read(self._wants_notifications or bool(self.in_flight) or bool(self._awaited_replies))

    # Reconnecting

    async def _reconnect_forever(self) -> None:
        """Wait until the connection is lost and connect again, until the session is closed or fails."""
        delay = _RETRY_SECONDS_MIN
        while self._error is None:
            await self._watch()
            self._connected.clear()
            while self._error is None:
                address = self._addresses[self._address_index % len(self._addresses)]
                reason = await self._try(address, self._patience)
                if reason is None:
                    delay = _RETRY_SECONDS_MIN
                    break
                self._address_index += 1
                # With jitter, so that clients that lost a broker together do not reconnect together.
                pause = delay * _RANDOM.uniform(0.5, 1.0)
                if self._error is None:
                    self._set_disconnected(address, reason, pause)
                await asyncio.sleep(pause)
                delay = min(2 * delay, _RETRY_SECONDS_MAX)

    def _reconnect_task_done(self, task: "asyncio.Task[None]") -> None:
        """End the session if the task that reconnects has failed: no request would be answered any more."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _LOG.error("the client %s cannot go on", self.name, exc_info=error)
            self._end(ClosedError(f"the client {self.name} cannot go on: {error!r}"))

    # The state of the connection

    def _set_state(self, state: ConnectionState, level: int = logging.INFO) -> None:
        self._states.set(
            msgspec.structs.replace(state, broker=self.broker, attempt=self._attempt, connections=self.connections),
            level,
        )

    def _set_disconnected(self, address: BrokerAddress | None, reason: str, retry_seconds: float) -> None:
        state = ConnectionState(
            state="disconnected", address=self._address_text(address), reason=reason, retry_seconds=retry_seconds
        )
        is_lost = self._states.latest.state == "connected"
        self._set_state(state, logging.WARNING if is_lost else logging.INFO)

    def _set_closed(self, reason: str, level: int = logging.INFO) -> None:
        self._set_state(
            ConnectionState(state="closed", address=self._address_text(self._address), reason=reason), level
        )

    def _address_text(self, address: BrokerAddress | None) -> str:
        return self._states.latest.address if address is None else str(address)

    async def _watch(self) -> None:
        """Send heartbeats, and end the connection if the broker is silent, until the connection is lost."""
        welcome = self._welcome
        interval = 0.5 if welcome is None else welcome.heartbeat_milliseconds / 1000
        patience = interval * (6 if welcome is None else welcome.patience)
        last = self._loop.time()
        while not self._connection_gone.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._connection_gone.wait()
            now = self._loop.time()
            slept = now - last > patience / 2  # this process was suspended: the silence is not the broker's
            if self.transport is not None:
                self.transport.beat(interval, float("inf") if slept else patience)
            last = now

    _address_index = 0

    async def _try(self, address: BrokerAddress, patience: float) -> str | None:
        """Try to connect to an address once; return None on success, else the reason of the failure."""
        self._attempt += 1
        reason = self._states.latest.reason if self.connections or self._attempt > 1 else None
        self._set_state(ConnectionState(state="connecting", address=str(address), reason=reason), logging.DEBUG)
        self._connection_gone = connection_gone = asyncio.Event()
        self._welcomed = self._loop.create_future()
        self.number = max(self.number + 1, time.time_ns() // 1000)
        transport: Transport | None = None
        try:
            context = None if self._identity is None else self._identity.context()
            async with asyncio.timeout(patience):
                _, transport = await self._loop.create_connection(
                    lambda: Transport(
                        self._handle_frames,
                        self._publish_gate.call,
                        lambda reason: self._connection_lost(connection_gone, reason),
                    ),
                    address.host,
                    address.port,
                    ssl=context,
                )
                self.transport = transport
                transport.send_message(FrameKind.HELLO, self._hello())
                welcome = await self._welcomed
        except TimeoutError:
            reason = f"no answer within {patience:.3g} seconds"
        except (OSError, TidingsError, UnicodeError) as error:  # UnicodeError: an impossible host name
            reason = _reason(error)
        else:
            self._address = address
            self._start_connection(transport, welcome)
            return None
        finally:
            if not self._welcomed.cancel():  # retrieve its error, which no caller awaits
                _consume_error(self._welcomed)
        if transport is not None:
            transport.end("")
        self.transport = None
        return reason

    def _hello(self) -> Hello:
        program = f"tidings-python/{__version__}"
        return Hello(
            MAGIC, (VERSION,), "client", self.name, self.number, self.broker, 1, program, observer=self._observer
        )

    def _start_connection(self, transport: FrameSender, welcome: Welcome) -> None:
        """Start to use a connection that the broker has accepted.

        After a reconnection the session sends its subscriptions, advertisements and contexts again, then the requests
        and publications that have no answer yet.
        """
        transport.welcome(MAX_RECORD_BYTES)
        self._welcome, self.broker = welcome, welcome.broker
        self.framing.most = welcome.frame_bytes
        self._sequence = max(self._sequence, welcome.sequence)
        self.connections += 1
        self._connected.set()
        if self.connections > 1:
            pending_requests = list(self.in_flight.requests.values())
            for kind, message in self.session_state.restore_requests():
                self._send_request(kind, message).add_done_callback(_log_refusal)
            for pending in pending_requests:
                pending.again = True
                transport.send_message(pending.kind, self._signed(pending.message))
            for number, publication in self.in_flight.in_order():
                if self.sealing_queue is not None and number in self.sealing_queue:
                    continue
                try:
                    data = self._framed(number, publication)
                except InvalidValueError as error:  # this broker has a smaller limit on frames
                    fail(self.in_flight.publications.pop(number).answer, error)
                    continue
                publication.note_sent(has_journal=self.has_journal)
                transport.send(data)
            self.listener.connected_again()
        if self.sealing_queue is not None:
            self.sealing_queue.flush()
        self._send_acknowledgements()
        self._update_reading()
        self._publish_gate.call()
        self._attempt = 0
        self._set_state(ConnectionState(state="connected", address=self._address_text(self._address)))

    def _connection_lost(self, connection_gone: asyncio.Event, reason: str) -> None:
        """Handle the loss of a connection: end the session if the broker closed it for good.

        Otherwise wake `_reconnect_forever`.
        """
        connection_gone.set()
        if connection_gone is not self._connection_gone:
            return
        was_connected = self.is_connected
        self.transport = None
        self._connected.clear()
        self.framing.schemas.clear()
        if self._last_bye is not None:
            reason = self._last_bye.reason
        if self._welcomed is not None and not self._welcomed.done():
            self._welcomed.set_exception(UnreachableError(self._unexplained_close() if reason == CLOSED else reason))
        if self._last_bye is not None and not self._last_bye.again:
            self._end(ClosedError(f"the broker has closed the connection of {self.name}: {self._last_bye.reason}"))
        elif was_connected:
            self._set_disconnected(self._address, reason, 0.0)
        self._last_bye = None
        self.in_flight.drop_abandoned_requests()
        self._publish_gate.call()

    def _unexplained_close(self) -> str:
        """Explain why a broker may have closed a connection without a reason: before TLS is up, it cannot send one."""
        if self._identity is None:
            return f"{CLOSED} without a word; if it has certificates, give an identity (--identity on the command line)"
        return f"{CLOSED} without a word; does it trust the authority of this client's certificate?"

    def _end(self, error: ClosedError, *, is_wanted: bool = False) -> None:
        """End the session: fail everything in flight, and tell the listener."""
        if self._error is not None:
            return
        self._error, self._is_close_wanted = error, is_wanted
        if self.sealing_queue is not None:
            self.sealing_queue.end()
        self.in_flight.end(error)
        self._connected.set()
        self._publish_gate.call()
        self.listener.ended(None if is_wanted else error)
        self._closed.set()
        self._set_closed(str(error), logging.INFO if is_wanted else logging.ERROR)

    # Frames from the broker

    def _handle_frames(self, frames: list[tuple[int, bytes]]) -> None:
        try:
            for kind, body in frames:
                if kind == FrameKind.NOTIFICATION:
                    self.listener.notified(decode_notification(body, self.name))
                elif kind in _DECODERS:
                    self._handle_message(_DECODERS[kind].decode(body))
        except UNREADABLE as error:
            if self.transport is not None:
                self.transport.end(f"the broker sent what cannot be read: {error}")
        if not self._wants_notifications:
            self._update_reading()

    def _handle_message(self, message: Any) -> None:
        match message:
            case answers.PublicationReceipts(receipts):
                self.in_flight.take_receipts(receipts, has_journal=self.has_journal)
                self._publish_gate.call()
            case answers.RequestDone() | answers.QueryAnswer():
                self.in_flight.take_answer(message)
            case answers.RequestRefused():
                self.in_flight.take_refusal(message)
                self._publish_gate.call()
            case answers.NotificationsLost():
                self.listener.notifications_lost(message)
            case answers.ContextChanged(context):
                self.session_state.set_context(Context.trusted(context))
            case SubjectBound():
                self.framing.bind(message)
            case Welcome():
                self._greeting_broker = message.broker
                if self._welcomed is not None and not self._welcomed.done():
                    self._welcomed.set_result(message)
            case Ping():
                if self.transport is not None:
                    self.transport.pong(message)
            case Challenge():
                if self.transport is not None:
                    self.transport.send_message(
                        FrameKind.PROOF,
                        self.challenge_responder.answer(message, self._greeting_broker, self.transport.certificate),
                    )
            case Bye():
                self._last_bye = message


def _reason(error: Exception) -> str:
    """Return the reason of a failed connection, in words that say what to change where the library's do not."""
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "it speaks no TLS: connect without an identity for TLS (--plain on the command line), or give it one"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused, so no broker listens there"
    return str(error)


def _consume_error(answer: "asyncio.Future[Any]") -> None:
    """Read the error of an answer that no caller awaits, so that asyncio does not report it as unhandled."""
    if not answer.cancelled():
        answer.exception()


def _log_refusal(answer: "asyncio.Future[Any]") -> None:
    """Log that a broker refused a request which the session sent again after a reconnection."""
    if not answer.cancelled() and (error := answer.exception()) is not None and not isinstance(error, ClosedError):
        _LOG.error("the broker refused a request that restores the client's state after a reconnection: %s", error)
