"""A client's session: one connection after the other to one of several brokers, as if it were one.

What is under way when a connection breaks is said again on the next one, in its order: requests, and publications under
their ids, so that none is published twice.
"""

import asyncio
import contextlib
import logging
import random
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from tidings._version import __version__
from tidings.client.addresses import BrokerAddress, read_addresses
from tidings.client.connection_state import ConnectionState, ConnectionStates, OnState
from tidings.client.framing import Framing
from tidings.client.identity import Identity
from tidings.client.proving import Prover
from tidings.client.standing import Standing
from tidings.client.turns import Turns
from tidings.client.underway import Pending, Publication, Underway, fail
from tidings.client.wire import CLOSED, Wire
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
from tidings.model.timeout import checked_seconds
from tidings.model.values import Context
from tidings.protocol import answers, requests
from tidings.protocol.challenges import Challenge
from tidings.protocol.frames import Kind
from tidings.protocol.handshake import MAGIC, VERSION, Bound, Bye, Hello, Ping, Welcome
from tidings.protocol.notes import read_note
from tidings.protocol.publications import Safety
from tidings.protocol.unreadable import UNREADABLE
from tidings.security.trust import Group

if TYPE_CHECKING:
    from tidings.client.outbox import Outbox

_LOG = logging.getLogger("tidings.client")
_CHANCE = random.Random()  # noqa: S311 - of its own: programs that use this library may seed the common one
_SOONEST, _LATEST = 0.05, 5.0  # seconds between two attempts
_DECODERS: dict[int, msgspec.msgpack.Decoder[Any]] = {
    Kind.WELCOME: msgspec.msgpack.Decoder(Welcome),
    Kind.PING: msgspec.msgpack.Decoder(Ping),
    Kind.CHALLENGE: msgspec.msgpack.Decoder(Challenge),
    Kind.BYE: msgspec.msgpack.Decoder(Bye),
    Kind.BOUND: msgspec.msgpack.Decoder(Bound),
    Kind.DONE: msgspec.msgpack.Decoder(answers.Done),
    Kind.REFUSED: msgspec.msgpack.Decoder(answers.Refused),
    Kind.RECEIPTS: msgspec.msgpack.Decoder(answers.Receipts),
    Kind.LOST: msgspec.msgpack.Decoder(answers.Lost),
    Kind.CONTEXT: msgspec.msgpack.Decoder(answers.Context),
    Kind.ANSWER: msgspec.msgpack.Decoder(answers.Answer),
}


class Session:
    def __init__(
        self,
        addresses: str | Iterable[str],
        name: str,
        identity: Identity | None,
        patience: float,
        standing: Standing,
        groups: Iterable[Group] = (),
        on_state: OnState | None = None,
        *,
        observer: bool = False,
    ) -> None:
        self.name = checked_client(name)
        self._observer = observer
        self.standing = standing
        self._addresses = read_addresses(addresses)
        self.states = ConnectionStates(self.name, str(self._addresses[0]), on_state)
        self._attempt = 0  # number of attempts since the last connection
        self._identity = identity
        self.prover = Prover(name, identity, groups)
        self._patience = checked_seconds(patience, "patience")  # seconds for the first connection
        self.notified: Callable[[Notification], None]
        self.lost: Callable[[answers.Lost], None]
        self.context_set: Callable[[Context], None]
        self.ended: Callable[[ClosedError | None], None]
        self.connected_again: Callable[[], None]
        self.number = 0  # of this session, rising wherever the client connects
        self.connections = 0
        self.broker = ""
        self._met = ""  # the broker that has said welcome
        self.wire: Wire | None = None  # of the connection, while there is one
        self._welcomed: asyncio.Future[Welcome] | None = None
        self._welcome: Welcome | None = None
        self._gone: asyncio.Event = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self.underway = Underway()
        self._sequence = 0
        self._turns = Turns(lambda: self._error is not None or not self._has_no_room)
        self._takes_notes = True
        self._expected = 0  # answers of services, which come as notifications
        self.outbox: Outbox | None = None  # of a secure client
        self._prove: Callable[[bytes, bytes], bytes] | None = None  # the same; see `Member.prove`
        self.sent_sequence = 0  # the highest that has gone
        self._acknowledged: dict[str, list[bytes]] = {}
        self.framing = Framing(standing)
        self._error: ClosedError | None = None
        self._connected = asyncio.Event()
        self._last_bye: Bye | None = None
        self._address: BrokerAddress | None = None

    # Beginning and end

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set() and self._error is None

    @property
    def is_quiet(self) -> bool:
        """Whether the client is connected and at most one publication, the one just accepted, has no answer yet."""
        return self.is_connected and len(self.underway.publications) <= 1

    async def open(self) -> None:
        """Connects the client for the first time: tries its addresses in order until a broker accepts it.

        Raises an `UnreachableError` when none has done so within `patience` seconds."""
        if self._keeping is not None:
            raise InvalidValueError(f"the client {self.name} is open already")
        self._loop = asyncio.get_running_loop()
        until = self._loop.time() + self._patience
        reasons: dict[str, str] = {}
        delay = _SOONEST
        while True:
            for address in self._addresses:
                reason = await self._try(address, max(0.1, until - self._loop.time()))
                if reason is None:
                    self._keeping = self._loop.create_task(self._keep())
                    self._keeping.add_done_callback(self._stopped_trying)
                    return
                reasons[str(address)] = reason
                if self._error is not None:
                    raise self._error
                self._set_disconnected(address, reason, delay if address == self._addresses[-1] else 0.0)
            if self._loop.time() + delay > until:
                told = "; ".join(f"{address}: {reason}" for address, reason in reasons.items())
                hint = "start one with `tidings broker`, or connect to another address"
                error = UnreachableError(f"no broker could be reached: {told}; {hint}")
                self._set_closed(str(error))
                raise error
            await asyncio.sleep(delay)
            delay = min(2 * delay, 1.0)

    async def close(self, timeout: float | None = None) -> None:
        """`timeout` is for how many seconds publications that are under way are waited for; None: `patience`."""
        if self._keeping is None:
            return
        if self._error is None and self.is_connected:
            waiting = [one.answer for one in self.underway.publications.values()]
            if waiting:
                await asyncio.wait(waiting, timeout=self._patience if timeout is None else timeout)
            self._tell_acknowledged()
        self._keeping.cancel()
        await asyncio.wait([self._keeping])
        self._connected.clear()  # what is lost from now on was not lost by accident
        if self.wire is not None:
            self.wire.close("the client has closed")
            await self._gone.wait()
        self._end(ClosedError(f"the client {self.name} is closed"), is_wanted=True)

    async def move(self, addresses: str | Iterable[str]) -> None:
        """To another broker; returns when everything has been said there. If it cannot be reached, the client goes back
        to one that can, and an `UnreachableError` says so."""
        self._check_open()
        wanted = read_addresses(addresses)
        self._addresses = [*wanted, *(one for one in self._addresses if one not in wanted)]
        self._place = 0
        if self._connected.is_set():
            self._connected.clear()
            self._set_disconnected(self._address, "the client moves", 0.0)
        if self.wire is not None:
            self.wire.close("the client moves")
        await self._connected.wait()
        self._check_open()
        pending = [one.answer for one in self.underway.requests.values()]
        if pending:
            await asyncio.wait(pending)
        if self._address not in wanted:
            told = ", ".join(map(str, wanted))
            raise UnreachableError(f"no broker could be reached at {told}; the client is at {self.broker}")

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        if self._keeping is None:
            raise ClosedError(f"the client {self.name} is not open: use it with 'async with'")

    # Asking and publishing

    async def request(self, kind: Kind, message: msgspec.Struct) -> Any:
        self._check_open()
        answer = self._ask(kind, message)
        try:
            return await answer
        finally:
            if answer.cancelled() and not self._connected.is_set():
                self.underway.drop_abandoned_requests()

    def _ask(self, kind: Kind, message: msgspec.Struct) -> "asyncio.Future[Any]":
        number = self.underway.next_number()
        numbered = msgspec.structs.replace(message, request=number)
        answer: asyncio.Future[Any] = self._loop.create_future()
        data = self.framing.request(kind, self._proved(numbered))
        self.underway.requests[number] = Pending(kind, numbered, answer)
        if self.wire is not None and self._connected.is_set():
            self.wire.send(data)
        self._look()
        return answer

    def _proved(self, message: msgspec.Struct) -> msgspec.Struct:
        """A subscription with a token, signed for this connection."""
        if self._prove is None or self._welcome is None or not isinstance(message, requests.Subscribe):
            return message
        if message.token is None or not self._welcome.nonce:
            return message
        proof = self._prove(requests.proved(message, self.broker), self._welcome.nonce)
        return msgspec.structs.replace(message, proof=proof)

    def withdraw(self, subscription: str) -> "asyncio.Future[Any] | None":
        """Tell the broker that a subscription that is not durable has ended; its answer, which need not be awaited.

        None without a connection: the subscription ended at the broker when the connection did.
        """
        if not self.is_connected or self._keeping is None:
            return None
        answer = self._ask(Kind.UNSUBSCRIBE, requests.Unsubscribe(0, subscription))
        answer.add_done_callback(_ignored)
        return answer

    def seal_with(self, outbox: "Outbox", prove: Callable[[bytes, bytes], bytes]) -> None:
        """From now on what is published goes through it, and subscriptions with a token are signed."""
        self.outbox, self._prove = outbox, prove
        self.underway.doubt = outbox.doubt

    @property
    def has_journal(self) -> bool:
        """Whether the broker has one where the client is, or was last; True before the first has said welcome."""
        return self._welcome is None or self._welcome.is_durable

    @property
    def sequence(self) -> int:
        return 0 if self._welcome is None else self._welcome.sequence

    def next_sequence(self, wanted: int | None = None) -> int:
        if wanted is not None and wanted <= self._sequence:
            raise InvalidValueError(f"sequence: {wanted} does not come after {self._sequence}, the last of {self.name}")
        self._sequence = self._sequence + 1 if wanted is None else wanted
        return self._sequence

    def publish(
        self, event: Event, safe: Safety, *, is_numbered: bool = False, must_seal: bool = False
    ) -> "asyncio.Future[Receipt]":
        """It is under way from now on; the answer comes when it is as safe as was asked."""
        self._check_open()
        number = self.underway.next_number()
        answer: asyncio.Future[Receipt] = self._loop.create_future()
        publication = Publication(event, safe, answer, is_numbered=is_numbered, must_seal=must_seal)
        if self.outbox is None:
            self.hand_out(number, publication)
        else:
            self.underway.publications[number] = publication
            self.outbox.put(number, publication)
        if not self._takes_notes:
            self._look()
        return answer

    def hand_out(self, number: int, publication: Publication) -> None:
        """To the broker, now or with the next connection."""
        data = self._framed(number, publication)
        self.underway.publications[number] = publication
        self.sent_sequence = max(self.sent_sequence, publication.event.sequence)
        if self.wire is not None and self._connected.is_set():
            publication.note_sent(has_journal=self.has_journal)
            self.wire.send(data)

    def forget(self, number: int) -> None:
        """A publication will not go."""
        self.underway.publications.pop(number, None)
        self._turns.call()

    def _framed(self, number: int, publication: Publication) -> bytes:
        return self.framing.publication(number, publication, is_connected=self._connected.is_set())

    def acknowledge(self, subscription: str, events: list[UUID]) -> None:
        """Gathered, and told at the end of the turn."""
        if not self._acknowledged:
            self._loop.call_soon(self._tell_acknowledged)
        self._acknowledged.setdefault(subscription, []).extend(event.bytes for event in events)

    def _tell_acknowledged(self) -> None:
        if self.wire is None or not self._connected.is_set():
            return  # after the next connection they come again, and are acknowledged then
        told, self._acknowledged = self._acknowledged, {}
        for subscription, events in told.items():
            self.wire.say(Kind.ACKNOWLEDGE, requests.Acknowledge(subscription, tuple(events)))

    @property
    def is_full(self) -> bool:
        """Whether a publication has to wait: as many are in flight as the broker allows, or others wait already."""
        return bool(self._turns) or self._has_no_room

    @property
    def _has_no_room(self) -> bool:
        most = self._welcome.in_flight if self._welcome is not None else 1
        return len(self.underway.publications) + self._turns.called >= most or (
            self.wire is not None and self.wire.is_full
        )

    async def room(self) -> None:
        """Returns when there is some, to one after the other in the order in which they came."""
        await self._turns.wait()

    def read(self, wanted: bool) -> None:
        """Starts or stops reading notifications from the socket.

        The session still reads while a request waits for its answer, since answers and notifications share the socket.
        """
        self._takes_notes = wanted
        self._look()

    @contextlib.contextmanager
    def expecting(self) -> Iterator[None]:
        """Until an answer has come as a notification, they are read, whoever is full."""
        self._expected += 1
        self._look()
        try:
            yield
        finally:
            self._expected -= 1
            self._look()

    def _look(self) -> None:
        if self.wire is not None:
            self.wire.read(self._takes_notes or bool(self.underway) or bool(self._expected))

    # Connections

    async def _keep(self) -> None:
        """Waits until the connection is lost and connects again, until the session is closed or fails."""
        delay = _SOONEST
        while self._error is None:
            await self._watch()
            self._connected.clear()
            while self._error is None:
                address = self._addresses[self._place % len(self._addresses)]
                reason = await self._try(address, self._patience)
                if reason is None:
                    delay = _SOONEST
                    break
                self._place += 1
                # Somewhat at random, so that clients that were cut off together do not come back together.
                pause = delay * _CHANCE.uniform(0.5, 1.0)
                if self._error is None:
                    self._set_disconnected(address, reason, pause)
                await asyncio.sleep(pause)
                delay = min(2 * delay, _LATEST)

    def _stopped_trying(self, task: "asyncio.Task[None]") -> None:
        """End the session if the task that reconnects has failed: no request would be answered any more."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _LOG.error("the client %s cannot go on", self.name, exc_info=error)
            self._end(ClosedError(f"the client {self.name} cannot go on: {error!r}"))

    # The state of the connection

    def _set_state(self, state: ConnectionState, level: int = logging.INFO) -> None:
        self.states.set(
            msgspec.structs.replace(state, broker=self.broker, attempt=self._attempt, connections=self.connections),
            level,
        )

    def _set_disconnected(self, address: BrokerAddress | None, reason: str, retry_seconds: float) -> None:
        state = ConnectionState(
            state="disconnected", address=self._named(address), reason=reason, retry_seconds=retry_seconds
        )
        is_lost = self.states.latest.state == "connected"
        self._set_state(state, logging.WARNING if is_lost else logging.INFO)

    def _set_closed(self, reason: str, level: int = logging.INFO) -> None:
        self._set_state(ConnectionState(state="closed", address=self._named(self._address), reason=reason), level)

    def _named(self, address: BrokerAddress | None) -> str:
        return self.states.latest.address if address is None else str(address)

    async def _watch(self) -> None:
        welcome = self._welcome
        interval = 0.5 if welcome is None else welcome.heartbeat_milliseconds / 1000
        patience = interval * (6 if welcome is None else welcome.patience)
        last = self._loop.time()
        while not self._gone.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._gone.wait()
            now = self._loop.time()
            slept = now - last > patience / 2  # this process itself: the broker may be there all the same
            if self.wire is not None:
                self.wire.beat(interval, float("inf") if slept else patience)
            last = now

    _place = 0

    async def _try(self, address: BrokerAddress, patience: float) -> str | None:
        """One attempt; None if it is connected, else why not."""
        self._attempt += 1
        reason = self.states.latest.reason if self.connections or self._attempt > 1 else None
        self._set_state(ConnectionState(state="connecting", address=str(address), reason=reason), logging.DEBUG)
        self._gone = gone = asyncio.Event()
        self._welcomed = self._loop.create_future()
        self.number = max(self.number + 1, time.time_ns() // 1000)
        wire: Wire | None = None
        try:
            context = None if self._identity is None else self._identity.context()
            async with asyncio.timeout(patience):
                _, wire = await self._loop.create_connection(
                    lambda: Wire(self._take, self._turns.call, lambda reason: self._lost(gone, reason)),
                    address.host,
                    address.port,
                    ssl=context,
                )
                self.wire = wire
                wire.say(Kind.HELLO, self._hello())
                welcome = await self._welcomed
        except TimeoutError:
            reason = f"no answer within {patience:.3g} seconds"
        except (OSError, TidingsError, UnicodeError) as error:  # the last of a host that cannot be
            reason = _reason(error)
        else:
            self._address = address
            self._begin(wire, welcome)
            return None
        finally:
            if not self._welcomed.cancel():  # nobody waits for it any more, whenever the connection is lost
                _ignored(self._welcomed)
        if wire is not None:
            wire.end("")
        self.wire = None
        return reason

    def _hello(self) -> Hello:
        program = f"tidings-python/{__version__}"
        return Hello(
            MAGIC, (VERSION,), "client", self.name, self.number, self.broker, 1, program, observer=self._observer
        )

    def _begin(self, wire: Wire, welcome: Welcome) -> None:
        """Starts to use a connection that the broker has accepted.

        After a reconnection the session sends its subscriptions, advertisements and contexts again, then the requests
        and publications that have no answer yet."""
        wire.welcome(MAX_RECORD_BYTES)
        self._welcome, self.broker = welcome, welcome.broker
        self.framing.most = welcome.frame_bytes
        self._sequence = max(self._sequence, welcome.sequence)
        self.connections += 1
        self._connected.set()
        if self.connections > 1:
            underway = list(self.underway.requests.values())
            for kind, message in self.standing.said_again():
                self._ask(kind, message).add_done_callback(_heard)
            for pending in underway:
                pending.again = True
                wire.say(pending.kind, self._proved(pending.message))
            for number, publication in self.underway.in_order():
                if self.outbox is not None and number in self.outbox:
                    continue
                try:
                    data = self._framed(number, publication)
                except InvalidValueError as error:  # this broker takes less than the last one did
                    fail(self.underway.publications.pop(number).answer, error)
                    continue
                publication.note_sent(has_journal=self.has_journal)
                wire.send(data)
            self.connected_again()
        if self.outbox is not None:
            self.outbox.flush()
        self._tell_acknowledged()
        self._look()
        self._turns.call()
        self._attempt = 0
        self._set_state(ConnectionState(state="connected", address=self._named(self._address)))

    def _lost(self, gone: asyncio.Event, reason: str) -> None:
        gone.set()
        if gone is not self._gone:
            return
        was_connected = self.is_connected
        self.wire = None
        self._connected.clear()
        self.framing.schemas.clear()
        if self._last_bye is not None:
            reason = self._last_bye.reason
        if self._welcomed is not None and not self._welcomed.done():
            self._welcomed.set_exception(UnreachableError(self._unwelcome() if reason == CLOSED else reason))
        if self._last_bye is not None and not self._last_bye.again:
            self._end(ClosedError(f"the broker has closed the connection of {self.name}: {self._last_bye.reason}"))
        elif was_connected:
            self._set_disconnected(self._address, reason, 0.0)
        self._last_bye = None
        self.underway.drop_abandoned_requests()
        self._turns.call()

    def _unwelcome(self) -> str:
        """Why a broker may have closed a connection without a word: before TLS is up, it cannot say any."""
        if self._identity is None:
            return f"{CLOSED} without a word; if it has certificates, give an identity (--identity on the command line)"
        return f"{CLOSED} without a word; does it trust the authority of this client's certificate?"

    def _end(self, error: ClosedError, *, is_wanted: bool = False) -> None:
        if self._error is not None:
            return
        self._error = error
        if self.outbox is not None:
            self.outbox.end()
        self.underway.end(error)
        self._connected.set()
        self._turns.call()
        self.ended(None if is_wanted else error)
        self._set_closed(str(error), logging.INFO if is_wanted else logging.ERROR)

    # What comes

    def _take(self, frames: list[tuple[int, bytes]]) -> None:
        try:
            for kind, body in frames:
                if kind == Kind.NOTE:
                    self.notified(read_note(body, self.name))
                elif kind in _DECODERS:
                    self._told(_DECODERS[kind].decode(body))
        except UNREADABLE as error:
            if self.wire is not None:
                self.wire.end(f"the broker sent what cannot be read: {error}")
        if not self._takes_notes:
            self._look()

    def _told(self, message: Any) -> None:
        match message:
            case answers.Receipts(receipts):
                self.underway.take_receipts(receipts, has_journal=self.has_journal)
                self._turns.call()
            case answers.Done() | answers.Answer():
                self.underway.take_answer(message)
            case answers.Refused():
                self.underway.take_refusal(message)
                self._turns.call()
            case answers.Lost():
                self.lost(message)
            case answers.Context(context):
                self.context_set(Context.trusted(context))
            case Bound():
                self.framing.bind(message)
            case Welcome():
                self._met = message.broker
                if self._welcomed is not None and not self._welcomed.done():
                    self._welcomed.set_result(message)
            case Ping():
                if self.wire is not None:
                    self.wire.pong(message)
            case Challenge():
                if self.wire is not None:
                    self.wire.say(Kind.PROOF, self.prover.answer(message, self._met, self.wire.certificate))
            case Bye():
                self._last_bye = message


def _reason(error: Exception) -> str:
    """In words that say what to change, where the library's own do not."""
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "it speaks no TLS: connect without an identity for TLS (--plain on the command line), or give it one"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused, so no broker listens there"
    return str(error)


def _ignored(answer: "asyncio.Future[Any]") -> None:
    """Reads the error of a request whose answer nobody waits for, so that asyncio does not report it as unhandled."""
    if not answer.cancelled():
        answer.exception()


def _heard(answer: "asyncio.Future[Any]") -> None:
    """Logs that a broker refused a request which the session sent again after a reconnection."""
    if not answer.cancelled() and (error := answer.exception()) is not None and not isinstance(error, ClosedError):
        _LOG.error("what was said again to another broker was refused: %s", error)
