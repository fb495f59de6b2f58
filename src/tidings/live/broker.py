"""A broker: a server for clients and other brokers around one desk, and what has to be done from time to time."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ssl import SSLContext
from typing import Any

import msgspec

from tidings.engine.debts import State
from tidings.engine.effects import Effect, HandedOver, HandOver, RestoreContext, Send, Settled, Wake
from tidings.engine.operations import Disconnect, SetContext, Tick
from tidings.engine.settings import Settings
from tidings.hub.archive import Archive
from tidings.hub.clock import SystemClock
from tidings.journal.disk import Disk
from tidings.live.bindings import Bindings
from tidings.live.configuration import Change, Configuration
from tidings.live.configuration.address import Address
from tidings.live.connection import Connection
from tidings.live.desk import Desk
from tidings.live.door import Door
from tidings.live.examining import Examining
from tidings.live.gatehouse import Gatehouse, gate_of, read_files
from tidings.live.heart import Heart
from tidings.live.link import Link
from tidings.live.metrics import Metrics
from tidings.live.moving import Moving
from tidings.live.neighbourhood import Neighbourhood
from tidings.live.neighbours import Task
from tidings.live.own import put_own
from tidings.live.questions import Questions
from tidings.live.reception import Reception
from tidings.live.reloading import reload
from tidings.live.resending import Resending
from tidings.live.session import Session
from tidings.live.tls import Certificates
from tidings.live.trusting import Trusting
from tidings.live.upkeep import Upkeep
from tidings.model.errors import JournalError
from tidings.model.event import Event
from tidings.model.values import Context
from tidings.protocol.frames import Kind
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
        security = configuration.security
        self.gatehouse = Gatehouse(self, gate_of(security, self.name)) if security.is_on else None
        self.metrics = Metrics()
        self.notes = NoteWriter()
        self.sessions: dict[str, Session] = {}  # of clients, by name
        self.observers: set[Session] = set()  # several may have one name, also that of a client
        self.readers = ThreadPoolExecutor(2, "tidings-read")
        self.desk: Desk
        self.bindings: Bindings
        self.questions = Questions(self)
        self.moving = Moving(self)
        self.trusting = Trusting(self)
        self.examining = Examining(self)
        self.reception = Reception(self)
        self.neighbourhood = Neighbourhood(self)
        self.address: Address
        self.door: Door | None = None
        self._ending: list[Callable[[], None]] = []
        self._was_full = False
        self.heart: Heart | None = None
        self.is_stopping = False

    @property
    def links(self) -> dict[str, Link]:
        """The links that are up, by neighbour."""
        return self.neighbourhood.links

    # Beginning and end

    async def start(self) -> Address:
        """Reads the journal, listens and calls its neighbours; where it listens."""
        self._loop = asyncio.get_running_loop()
        given = self.configuration
        archive = None
        if given.journal.folder:
            archive = Archive(
                given.journal.folder,
                self.name,
                self.clock.entropy(),
                self.trusting.is_member,
                given.journal.options(),
                self._disk,
            )
        gate = None if self.gatehouse is None else self.gatehouse.gate
        trusts = self.trusting.is_member
        self.desk = Desk(self.engine_settings(given), self.clock, trusts, archive, self.metrics, self, gate)
        self.bindings = Bindings(self.desk)
        self.resending = Resending(self, self.desk.saved_debts)
        self.door = Door(self)
        try:
            self.desk.begin()
            self.upkeep = Upkeep(self)
            put_own(self.desk, given)
            if self.gatehouse is not None:
                self.gatehouse.listen()
                self.gatehouse.begin(read_files(given.security))
            self.address = await self.door.open(Address.parse(given.broker.listen))
        except BaseException:
            self.readers.shutdown()
            self.desk.stop()  # else nobody could open the journal any more while this process is there
            raise
        self.neighbourhood.dial()
        self.heart = Heart(self)
        self.flush()
        _LOG.info("%s listens at %s", self.name, self.address)
        return self.address

    async def reload(self, configuration: Configuration) -> Change:
        """Takes over what needs no restart of another configuration; what that is, and what does need one."""
        return await reload(self, configuration)

    async def stop(self) -> None:
        """No new connections; what waits for clients is written, as far as they read it in time; then the end."""
        self.is_stopping = True
        if self.door is not None:
            self.door.close()
        await self.neighbourhood.stop_calling()
        if self.heart is not None:
            self.heart.stop()
        until = self._loop.time() + self.configuration.broker.stop_seconds
        for session in self.all_sessions():
            session.connection.read(False)
        while self._loop.time() < until and self._has_to_go():
            self.flush()
            await asyncio.sleep(0.01)
        for connection in self.connections():
            connection.close("the broker stops")
        await asyncio.sleep(0)
        while self._loop.time() < until and (self.all_sessions() or self.links):
            await asyncio.sleep(0.01)
        for connection in self.connections():
            connection.abort("the broker has stopped")
        await asyncio.sleep(0)
        self.readers.shutdown()
        self.desk.stop()
        _LOG.info("%s has stopped", self.name)

    async def abort(self) -> None:
        """Ends as a killed process does: connections break without a word, and no snapshot is written."""
        for connection in self.connections():
            connection.abort("killed")
        if self.door is not None:
            self.door.close()
        if self.heart is not None:
            self.heart.stop()
        self.is_stopping = True
        await asyncio.sleep(0)
        self.readers.shutdown()
        self.desk.abort()
        await self.neighbourhood.stop_calling()

    def all_sessions(self) -> list[Session]:
        """The sessions of clients and of observers."""
        return [*self.sessions.values(), *self.observers]

    def connections(self) -> list[Connection]:
        """The connections to neighbours, to clients, and to those that have not said who they are."""
        return [
            *(one.connection for one in self.links.values()),
            *(one.connection for one in self.all_sessions()),
            *(one.connection for one in self.reception.greetings),
        ]

    def _has_to_go(self) -> bool:
        return bool(self.desk.outgoing) or any(one.waiting_bytes for one in self.connections())

    @staticmethod
    def engine_settings(given: Configuration) -> Settings:
        """What others may have missed is sent again by who has a journal."""
        return msgspec.structs.replace(given.broker.settings(), resends=bool(given.journal.folder))

    # Who comes and goes

    def left(self, session: Session, reason: str) -> None:
        """A client is gone; what is durable stays."""
        self.observers.discard(session)
        if self.sessions.get(session.name) is not session:
            return
        del self.sessions[session.name]
        _LOG.debug("%s has left: %s", session.name, reason)
        try:
            self.desk.operate(Disconnect(session.name), safe=False)
        except JournalError as error:
            self.desk.note(f"{session.name} has left, and {error}")
        self.flush()

    def begin_anew(self) -> None:
        self.at_the_end(self._links_anew)
        self.later(0, self.flush)

    def _links_anew(self) -> None:
        self.desk.go_on_anew()
        for session in self.sessions.values():
            self.desk.came(session.name)  # what waited in the engine for its proof is gone with that
        for link in list(self.links.values()):
            link.connection.close("what is known of its neighbours is gone here")
            link.gone("what is known of its neighbours is gone here")

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
                if isinstance(effect, Settled):
                    self.at_the_end(partial(self.moving.settled, effect))
            else:
                tasks.append((self._carry_out, (effect,)))
        return tasks

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Wake(microseconds):
                self.later(microseconds / 1_000_000, self.tick)
            case HandOver(client, broker, context):
                self.moving.hand_over(client, broker, context)
            case RestoreContext(client, context):
                self._restore_context(client, context)
            case HandedOver(number):
                self.moving.handed_over(number)

    def _restore_context(self, client: str, context: Context) -> None:
        session = self.sessions.get(client)
        if session is None or not session.service.has_set_context:
            self.desk.operate(SetContext(client, context), safe=False)

    def published(self, event: Event, offset: int) -> None:
        self.resending.published(event, offset)
        self.heard(event)

    def heard(self, event: Event) -> None:
        """An event has come, from a client or from a neighbour."""
        if self.gatehouse is not None:
            self.gatehouse.heard(event)

    def is_waiting(self, offset: int) -> bool:
        return self.resending.is_waiting(offset)

    def committing(self) -> None:
        self.resending.committing()

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
        if self.gatehouse is not None:
            self.gatehouse.look_again()
        self.look_again()
        if self.desk.roster.receipts.is_fresh:
            self._loop.call_soon(self.desk.settle_receipts)

    def at_the_end(self, act: Callable[[], None]) -> None:
        self._ending.append(act)

    def later(self, seconds: float, act: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, act)

    def tick(self) -> None:
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
        return all(one.is_settled for one in (self.desk, self.moving, self.resending, self.trusting))

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
            for session in self.all_sessions():
                session.look_again()

    # What is asked of others

    def asked(self, party: str, group: str) -> tuple[bool, int] | None:
        return self.trusting.asked(party, group)

    def subject_defined(self, subject: str) -> None:
        """From now on clients may say the subject's number instead of its name."""
        bound = self.bindings.bound(subject)
        for session in self.all_sessions():
            session.connection.say(Kind.BOUND, bound)

    def link_tls(self) -> SSLContext | None:
        return None if self.certificates is None else self.certificates.link

    def now(self) -> float:
        """By the clock of the loop."""
        return self._loop.time()
