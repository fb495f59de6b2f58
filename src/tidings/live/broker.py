"""A broker: a server for clients and other brokers around one desk, and what has to be done from time to time."""

import asyncio
import errno
import logging
import resource
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ssl import SSLContext
from typing import Any

import msgspec

from tidings.engine.debts import State
from tidings.engine.effects import Effect, HandedOver, HandOver, Send, Wake
from tidings.engine.operations import Connect, Disconnect, Tick
from tidings.engine.settings import Settings
from tidings.hub.archive import Archive
from tidings.hub.clock import SystemClock
from tidings.journal.disk import Disk
from tidings.live.bindings import Bindings
from tidings.live.configuration import Change, Configuration
from tidings.live.configuration.address import Address
from tidings.live.configuration.tables import DISCONNECT
from tidings.live.connection import Connection
from tidings.live.desk import Desk, Task
from tidings.live.dialling import Dialler
from tidings.live.greeting import Greeting
from tidings.live.link import Link
from tidings.live.metrics import Metrics
from tidings.live.moving import Moving
from tidings.live.own import put_own
from tidings.live.questions import Questions
from tidings.live.reloading import reload
from tidings.live.resending import Resending
from tidings.live.session import Session
from tidings.live.tls import Certificates, name_of
from tidings.live.upkeep import Upkeep
from tidings.model.errors import InvalidValueError, JournalError
from tidings.model.event import Event
from tidings.model.limits import MAX_RECORD_BYTES
from tidings.protocol.frames import Kind
from tidings.protocol.handshake import VERSION, Hello, Welcome
from tidings.protocol.notes import NoteWriter

_LOG = logging.getLogger("tidings.live")
_MUCH = 50_000  # things that wait to go out, before clients are not read for a while


class Broker:
    """`start` it, and it serves until `stop`."""

    def __init__(self, configuration: Configuration, disk: Disk | None = None) -> None:
        self.configuration = configuration
        self._disk = disk
        self.name = configuration.broker.name
        self.clock = SystemClock()
        self.incarnation = self.clock.now()
        self.started = time.monotonic()
        self.certificates = Certificates(configuration.tls) if configuration.tls.is_on else None
        self.metrics = Metrics()
        self.notes = NoteWriter()
        self.sessions: dict[str, Session] = {}
        self.links: dict[str, Link] = {}
        self.readers = ThreadPoolExecutor(2, "tidings-read")
        self.desk: Desk
        self.bindings: Bindings
        self.questions = Questions(self)
        self.moving = Moving(self)
        self._connections: Counter[str] = Counter()  # by host
        self._greetings: set[Greeting] = set()
        self._dialled: dict[str, asyncio.Future[None]] = {}
        self._diallers: dict[str, Dialler] = {}
        self._server: asyncio.Server | None = None
        self._ending: list[Callable[[], None]] = []
        self._was_full = False
        self._beating: asyncio.Task[None] | None = None
        self._tidying: asyncio.Future[None] | None = None
        self.is_stopping = False

    # Beginning and end

    async def start(self) -> Address:
        """Reads the journal, listens and calls its neighbours; where it listens."""
        self._loop = asyncio.get_running_loop()
        given = self.configuration
        archive = None
        if given.journal.folder:
            archive = Archive(
                given.journal.folder, self.name, self.clock.entropy(), self._trusts, given.journal.options(), self._disk
            )
        self.desk = Desk(self.engine_settings(given), self.clock, self._trusts, archive, self.metrics, self)
        self.bindings = Bindings(self.desk)
        self.resending = Resending(self, self.desk.saved_debts)
        self.desk.begin()
        self._upkeep = Upkeep(self)
        put_own(self.desk, given)
        try:
            self._server = await self._listen(Address.parse(given.broker.listen))
        except InvalidValueError:
            self.desk.stop()
            raise
        self.dial()
        self._beating = self._loop.create_task(self._beat())
        self.flush()
        _LOG.info("%s listens at %s", self.name, self.address)
        return self.address

    async def _listen(self, address: Address) -> asyncio.Server:
        try:
            server = await self._loop.create_server(
                lambda: Connection(self.metrics, self._opened, self._closed),
                address.host,
                address.port,
                ssl=None if self.certificates is None else self.certificates.server,
                backlog=1024,
            )
        except OSError as error:
            told = "somebody listens there already" if error.errno == errno.EADDRINUSE else error.strerror or error
            raise InvalidValueError(
                f"broker.listen: {address} cannot be opened: {told}; name another address"
            ) from None
        self.address = Address(address.host, server.sockets[0].getsockname()[1])
        return server

    async def reload(self, configuration: Configuration) -> Change:
        """Takes over what needs no restart of another configuration; what that is, and what does need one."""
        return await reload(self, configuration)

    async def stop(self) -> None:
        """No new connections; what waits for clients is written, as far as they read it in time; then the end."""
        self.is_stopping = True
        if self._server is not None:
            self._server.close()
        for dialler in self._diallers.values():
            await dialler.stop()
        if self._beating is not None:
            self._beating.cancel()
        until = self._loop.time() + self.configuration.broker.stop_seconds
        for session in self.sessions.values():
            session.connection.read(False)
        while self._loop.time() < until and self._has_to_go():
            self.flush()
            await asyncio.sleep(0.01)
        for connection in self._all():
            connection.close("the broker stops")
        await asyncio.sleep(0)
        while self._loop.time() < until and (self.sessions or self.links):
            await asyncio.sleep(0.01)
        for connection in self._all():
            connection.abort("the broker has stopped")
        await asyncio.sleep(0)
        self.readers.shutdown()
        self.desk.stop()
        _LOG.info("%s has stopped", self.name)

    def _all(self) -> list[Connection]:
        return [
            *(one.connection for one in self.links.values()),
            *(one.connection for one in self.sessions.values()),
            *(one.connection for one in self._greetings),
        ]

    def _has_to_go(self) -> bool:
        return bool(self.desk.outgoing) or any(one.waiting_bytes for one in self._all())

    @staticmethod
    def engine_settings(given: Configuration) -> Settings:
        """What others may have missed is sent again by who has a journal."""
        return msgspec.structs.replace(given.broker.settings(), resends=bool(given.journal.folder))

    # Who comes

    def _opened(self, connection: Connection) -> Greeting:
        host, limits = connection.host, self.configuration.limits
        self._connections[host] += 1
        greeting = Greeting(self, connection)
        self._greetings.add(greeting)
        if self.is_stopping:
            connection.close("the broker stops")
        elif self._connections.total() > limits.connections:
            connection.close("too many connections; try later, or another broker")
        elif self._connections[host] > limits.connections_per_address:
            connection.close("too many connections from this address", again=False)
        return greeting

    def ungreeted(self, greeting: Greeting) -> None:
        self._greetings.discard(greeting)

    def _closed(self, connection: Connection) -> None:
        host = connection.host
        self._connections[host] -= 1
        if not self._connections[host]:
            del self._connections[host]

    def greeted_by_client(self, connection: Connection, hello: Hello) -> Session | None:
        refusal = self._refusal(connection, hello)
        if refusal is None and self._is_broker(hello.name):
            refusal = f"{hello.name} is the name of a broker"
        known = self.sessions.get(hello.name)
        if refusal is None and known is not None and known.number >= hello.session:
            refusal = f"{hello.name} is connected, with a later session"
        if refusal is not None:
            connection.close(refusal, again=False)
            return None
        if known is not None:
            known.connection.close(f"{hello.name} has connected anew", again=False)
            self.left(known, "it has connected anew")
        self.moving.came_back(hello.name)
        moved = bool(hello.last_broker) and hello.last_broker != self.name
        outcome = self.desk.operate(Connect(hello.name, moved, hello.session), safe=False)
        if outcome.refused is not None:
            connection.close(outcome.refused.reason, again=False)
            return None
        self._welcome(connection, hello, self.desk.roster.sequences.get(hello.name, 0))
        session = self.sessions[hello.name] = Session(self, connection, hello)
        self.desk.sessions[hello.name] = hello.session
        for bound in self.bindings.all():
            connection.say(Kind.BOUND, bound)
        return session

    def greeted_by_broker(self, connection: Connection, hello: Hello) -> Link | None:
        wanted = next((one for one in self.configuration.links if one.broker == hello.name), None)
        refusal = self._refusal(connection, hello)
        if refusal is None and wanted is None:
            refusal = f"{self.name} has no link to {hello.name}; say so in its configuration"
        known = self.links.get(hello.name)
        if refusal is None and known is not None and known.dialled and self.name < hello.name:
            refusal = "the link is up already"
        if refusal is not None or wanted is None:
            connection.close(refusal or "")
            return None
        self._welcome(connection, hello, 0, wanted.cost)
        link = self.linked(connection, hello.name, wanted.cost, None)
        if link is not None:
            link.start()
        return link

    def _refusal(self, connection: Connection, hello: Hello) -> str | None:
        if hello.name == self.name:
            return f"{hello.name} is the name of this broker"
        tls = self.configuration.tls
        if tls.is_on and tls.check_names:
            certified = self.certified_name(connection)
            if certified is None and (hello.role == "broker" or tls.require_client_certificate):
                return "a certificate is needed here"
            if certified is not None and certified != hello.name:
                return f"the certificate is that of {certified}, not of {hello.name}"
        return None

    def _is_broker(self, name: str) -> bool:
        return name in self.desk.engine.topology.brokers or any(one.broker == name for one in self.configuration.links)

    def _welcome(self, connection: Connection, hello: Hello, sequence: int, cost: int = 1) -> None:
        heartbeat, limits = self.configuration.heartbeat, self.configuration.limits
        connection.welcome(limits.frame_bytes)
        welcome = Welcome(
            VERSION,
            self.name,
            self.incarnation,
            heartbeat.interval_ms,
            heartbeat.patience,
            limits.frame_bytes,
            limits.in_flight,
            sequence,
            cost,
            self.desk.archive is not None,
        )
        connection.say(Kind.WELCOME, welcome)

    def left(self, session: Session, reason: str) -> None:
        """A client is gone; what is durable stays."""
        if self.sessions.get(session.name) is not session:
            return
        del self.sessions[session.name]
        try:
            self.desk.operate(Disconnect(session.name), safe=False)
        except JournalError as error:
            self.desk.note(f"{session.name} has left, and {error}")
        self.flush()

    def linked(self, connection: Connection, name: str, cost: int, ended: "asyncio.Future[None] | None") -> Link | None:
        """A neighbour is there. Of two links that both have opened at once, the one that the smaller name has dialled
        stays."""
        known = self.links.get(name)
        if known is not None:
            if ended is not None and not known.dialled and name < self.name:
                return None
            known.connection.close("another link takes its place")
            known.gone("another link takes its place")
        connection.welcome(MAX_RECORD_BYTES)  # what another broker has accepted is not refused here for its size
        if ended is not None:
            self._dialled[name] = ended
        link = self.links[name] = Link(self, connection, name, cost, dialled=ended is not None)
        _LOG.info("the link to %s is up", name)
        return link

    def unlinked(self, link: Link) -> bool:
        """Whether it was the link to that neighbour, and there is none now."""
        if self.links.get(link.name) is not link:
            return False
        del self.links[link.name]
        if (ended := self._dialled.pop(link.name, None)) is not None and not ended.done():
            ended.set_result(None)
        return True

    def dial(self) -> None:
        """Calls the neighbours that are not called yet."""
        for wanted in self.configuration.links:
            if wanted.address and wanted.broker not in self._diallers:
                self._diallers[wanted.broker] = Dialler(self, wanted)

    async def hang_up(self, neighbour: str) -> None:
        """The neighbour is called no more, and the link to it is closed."""
        if (dialler := self._diallers.pop(neighbour, None)) is not None:
            await dialler.stop()
        if (link := self.links.get(neighbour)) is not None:
            link.connection.close("the configuration has changed")
            link.gone("the configuration has changed")

    # What the desk wants carried out

    def bound(self, effects: list[Effect]) -> list[Task]:
        """What is sent is for the link that there is when it is decided: the one after it begins anew."""
        tasks: list[Task] = []
        for effect in effects:
            if isinstance(effect, Send):
                link = self.links.get(effect.neighbour)
                if link is not None:
                    tasks.append((link.send, (effect.operation,)))
            elif self.resending.take(effect):
                self.at_the_end(self.resending.go_on)
            else:
                tasks.append((self._carry_out, (effect,)))
        return tasks

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Wake(microseconds):
                self.later(microseconds / 1_000_000, self._tick)
            case HandOver(client, broker):
                self.moving.hand_over(client, broker)
            case HandedOver(number):
                self.moving.handed_over(number)

    def published(self, event: Event, offset: int) -> None:
        self.resending.published(event, offset)

    def is_waiting(self, offset: int) -> bool:
        return self.resending.is_waiting(offset)

    def debts(self) -> State:
        return self.resending.debts.state()

    def needed(self) -> int | None:
        return self.resending.debts.needed

    # From time to time

    def flush(self) -> None:
        """At the end of each turn."""
        self.desk.flush()
        while self._ending:
            ending, self._ending = self._ending, []
            for act in ending:
                act()
        self.look_again()

    def at_the_end(self, act: Callable[[], None]) -> None:
        self._ending.append(act)

    def later(self, seconds: float, act: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, act)

    def _tick(self) -> None:
        if self.is_stopping:
            return
        try:
            self.desk.drive(Tick())
        except JournalError as error:
            self.desk.note(f"what time has brought is not told: {error}")
        self.flush()

    @property
    def is_settled(self) -> bool:
        """Whether nothing is to be done here that can be done."""
        return self.desk.is_settled and self.moving.is_settled and self.resending.is_settled

    def under_way(self) -> dict[str, Any]:
        """What is to be done here, and by whom it is waited for."""
        debts = self.resending.debts
        return {
            "tables": not self.desk.engine.is_settled,
            "to_disk": len(self.desk.outgoing),
            "publications": debts.unsettled,
            "owed": {" ".join(filter(None, one)): offset for one, offset in sorted(debts.owed.items())},
            "moving": self.moving.under_way,
        }

    @property
    def is_full(self) -> bool:
        """Whether so much is on its way to the disk, or to a neighbour, that clients are not read for a while."""
        slow = any(link.connection.is_stalled for link in self.links.values())
        unsettled = self.resending.debts.unsettled > self.configuration.limits.unsettled
        return slow or unsettled or len(self.desk.outgoing) > _MUCH

    def look_again(self) -> None:
        full = self.is_full
        if full != self._was_full:
            self._was_full = full
            for session in list(self.sessions.values()):
                session.look_again()

    async def _beat(self) -> None:
        """Says that it is there, and looks who is not."""
        heartbeat = self.configuration.heartbeat
        spent, then = _processor_seconds(), self._loop.time()
        while True:
            await asyncio.sleep(heartbeat.interval_ms / 1000)
            now = self._loop.time()
            used, elapsed = _processor_seconds(), now - then
            if self.desk.failure is None:
                self.desk.set_load(min(1.0, max(0.0, (used - spent) / elapsed)) if elapsed else 0.0)
            spent, then = used, now
            patience = heartbeat.interval_ms / 1000 * heartbeat.patience
            if elapsed > patience / 2:
                continue  # this process was stopped, or the machine slept: others may be there all the same
            for link in list(self.links.values()):
                self._look_after(link.connection, now, patience)
            for session in list(self.sessions.values()):
                self._look_after(session.connection, now, patience, is_client=True)
            for act in (self.moving.go_on, self.resending.tick, self._upkeep.tick, self._tick, self._keep_tidy):
                try:
                    act()
                except Exception:  # a heart that stops would be noticed by nobody: links would stay as they are
                    _LOG.exception("%s could not do what is to be done from time to time", self.name)

    def _keep_tidy(self) -> None:
        """Beside everything else, since it may take long."""
        engine = self.desk.engine
        if engine.is_untidy and (self._tidying is None or self._tidying.done()):
            self._tidying = self._loop.run_in_executor(None, engine.tidy)

    def _look_after(self, connection: Connection, now: float, patience: float, *, is_client: bool = False) -> None:
        limits = self.configuration.limits
        if now - connection.heard > patience and connection.is_reading:
            connection.abort(f"nothing was heard for {now - connection.heard:.1f} seconds")
        elif not connection.is_stalled:
            connection.ping()
        elif is_client and limits.slow_consumer == DISCONNECT and now - connection.stalled_since > limits.slow_seconds:
            self.metrics.slow_disconnected += 1
            connection.abort(f"too slow: it has not read for {limits.slow_seconds:g} seconds")

    # What is asked of others

    def _trusts(self, party: str, group: str) -> bool:
        return any(one.group == group and party in one.members for one in self.configuration.trust)

    def subject_defined(self, subject: str) -> None:
        """From now on clients may say the subject's number instead of its name."""
        bound = self.bindings.bound(subject)
        for session in self.sessions.values():
            session.connection.say(Kind.BOUND, bound)

    def link_tls(self) -> SSLContext | None:
        return None if self.certificates is None else self.certificates.link

    def certified_name(self, connection: Connection) -> str | None:
        return name_of(connection.peer("peercert"))

    def now(self) -> float:
        """By the clock of the loop."""
        return self._loop.time()


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
