"""A broker: a server for clients and other brokers around one `Node`, with its timers and its start and stop."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ssl import SSLContext
from typing import Any

import msgspec

from tidings.broker.config import BrokerConfiguration, ConfigurationChange
from tidings.broker.config.table_types import Address
from tidings.broker.connection_admission import ConnectionAdmission
from tidings.broker.links.handover import Destination, Handover
from tidings.broker.links.link import Link
from tidings.broker.links.links import Links
from tidings.broker.links.resender import Resender
from tidings.broker.metrics import Metrics
from tidings.broker.net.connection import Connection
from tidings.broker.net.listener import Listener
from tidings.broker.net.tls import Certificates
from tidings.broker.node import Node
from tidings.broker.ops.heartbeat import Heartbeat
from tidings.broker.ops.journal_maintenance import JournalMaintenance
from tidings.broker.ops.reload import install_configured, reload
from tidings.broker.release_queue import Task
from tidings.broker.security.reauthentication import Reauthentication
from tidings.broker.security.topic_security import TopicSecurity, load_gate, read_files
from tidings.broker.security.trust_challenges import TrustChallenges
from tidings.broker.sessions.queries import Queries
from tidings.broker.sessions.session import Session, SubjectNumbers
from tidings.engine.effects import (
    ClientMoved,
    Effect,
    HandOver,
    HandoverDone,
    PublicationSettled,
    RestoreContext,
    Send,
    Wake,
)
from tidings.engine.operations import Disconnect, SetContext, Tick
from tidings.engine.overlay.redelivery import RedeliveryTracker
from tidings.engine.settings import Settings
from tidings.journal.disk import Disk
from tidings.model.errors import JournalError
from tidings.model.event import Event
from tidings.model.values import Context
from tidings.protocol.frames import FrameKind
from tidings.protocol.notifications import NotificationWriter
from tidings.runtime.clock import SystemClock
from tidings.runtime.journal_store import JournalStore

_LOG = logging.getLogger("tidings.broker")
_MAX_QUEUED = 50_000  # entries of the release queue, above which clients are not read


class Broker:
    """A broker that serves clients and neighbours from `start` to `stop`.

    It creates the parts of the broker (sessions, links, security, journal maintenance), is the port through which the
    `Node` reaches the links (`LinksPort`), and ends every turn of the event loop with `flush`. `disk` stands in for the
    real disk under the journal.
    """

    def __init__(self, configuration: BrokerConfiguration, disk: Disk | None = None) -> None:
        self.configuration = configuration
        self._disk = disk
        self.name = configuration.broker.name
        self.clock = SystemClock()
        self.incarnation = self.clock.now()
        self.started = time.monotonic()
        self.certificates = Certificates(configuration.tls) if configuration.tls.is_on else None
        security = configuration.security
        self.topic_security = TopicSecurity(self, load_gate(security, self.name)) if security.is_on else None
        self.metrics = Metrics()
        self.notification_writer = NotificationWriter()
        self.sessions: dict[str, Session] = {}  # of clients, by name
        self.observers: set[Session] = set()  # several observers may have the same name, even a client's
        self.readers = ThreadPoolExecutor(2, "tidings-read")
        self.node: Node
        self.subject_numbers: SubjectNumbers
        self.queries = Queries(self)
        self.handover = Handover(self)
        self.trust_challenges = TrustChallenges(self)
        self.reauthentication = Reauthentication(self)
        self.admission = ConnectionAdmission(self)
        self.link_registry = Links(self)
        self.address: Address
        self.listener: Listener | None = None
        self._turn_end_calls: list[Callable[[], None]] = []
        self._was_full = False
        self.heartbeat: Heartbeat | None = None
        self.is_stopping = False

    @property
    def links(self) -> dict[str, Link]:
        """The links that are up, by neighbour."""
        return self.link_registry.links

    # Start and stop

    async def start(self) -> Address:
        """Read the journal, listen, and dial the neighbours; return the address at which the broker listens.

        Raises a `TidingsError` if the journal, the configuration or the address cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        configuration = self.configuration
        journal_store = None
        if configuration.journal.folder:
            journal_store = JournalStore(
                configuration.journal.folder,
                self.name,
                self.clock.entropy(),
                self.trust_challenges.is_member,
                configuration.journal.options(),
                self._disk,
            )
        gate = None if self.topic_security is None else self.topic_security.gate
        is_member = self.trust_challenges.is_member
        self.node = Node(
            self.engine_settings(configuration), self.clock, is_member, journal_store, self.metrics, self, gate
        )
        self.subject_numbers = SubjectNumbers(self.node)
        self.resender = Resender(self, self.node.saved_redelivery_state)
        self.listener = Listener(self)
        try:
            self.node.remove_transient_state()
            self.journal_maintenance = JournalMaintenance(self)
            install_configured(self.node, configuration)
            if self.topic_security is not None:
                self.topic_security.subscribe_to_news()
                self.topic_security.apply_files(read_files(configuration.security))
            self.address = await self.listener.open(Address.parse(configuration.broker.listen))
        except BaseException:
            self.readers.shutdown()
            self.node.stop()  # else the journal stays locked as long as this process runs
            raise
        self.link_registry.dial()
        self.heartbeat = Heartbeat(self)
        self.flush()
        _LOG.info("%s listens at %s", self.name, self.address)
        return self.address

    async def reload(self, configuration: BrokerConfiguration) -> ConfigurationChange:
        """Take over every key of another configuration that needs no restart; return which keys were and were not."""
        return await reload(self, configuration)

    async def stop(self) -> None:
        """Stop serving: accept nothing more, write what waits for clients, close all connections and the journal.

        Clients have `broker.stop_seconds` to read what waits for them; after that, connections are aborted.
        """
        self.is_stopping = True
        if self.listener is not None:
            self.listener.close()
        await self.link_registry.stop_dialing()
        if self.heartbeat is not None:
            self.heartbeat.stop()
        deadline = self._loop.time() + self.configuration.broker.stop_seconds
        for session in self.all_sessions():
            session.connection.set_reading(False)
        while self._loop.time() < deadline and self._has_unsent_data():
            self.flush()
            await asyncio.sleep(0.01)
        for connection in self.connections():
            connection.close("the broker stops")
        await asyncio.sleep(0)
        while self._loop.time() < deadline and (self.all_sessions() or self.links):
            await asyncio.sleep(0.01)
        for connection in self.connections():
            connection.abort("the broker has stopped")
        await asyncio.sleep(0)
        self.readers.shutdown()
        self.node.stop()
        _LOG.info("%s has stopped", self.name)

    async def abort(self) -> None:
        """End as a killed process does: abort all connections, and write no snapshot."""
        for connection in self.connections():
            connection.abort("killed")
        if self.listener is not None:
            self.listener.close()
        if self.heartbeat is not None:
            self.heartbeat.stop()
        self.is_stopping = True
        await asyncio.sleep(0)
        self.readers.shutdown()
        self.node.abort()
        await self.link_registry.stop_dialing()

    def all_sessions(self) -> list[Session]:
        """Return the sessions of clients and of observers."""
        return [*self.sessions.values(), *self.observers]

    def connections(self) -> list[Connection]:
        """Return all connections: to neighbours, to clients, and those whose handshake is not complete."""
        return [
            *(link.connection for link in self.links.values()),
            *(session.connection for session in self.all_sessions()),
            *(handshake.connection for handshake in self.admission.handshakes),
        ]

    def _has_unsent_data(self) -> bool:
        """Return whether something waits to be released or to be written to a connection."""
        return bool(self.node.release_queue) or any(connection.waiting_bytes for connection in self.connections())

    @staticmethod
    def engine_settings(configuration: BrokerConfiguration) -> Settings:
        """Return the engine's settings for a configuration; a broker with a journal resends what others missed."""
        return msgspec.structs.replace(configuration.broker.settings(), resends=bool(configuration.journal.folder))

    # Sessions that end, links that are made anew

    def session_ended(self, session: Session, reason: str) -> None:
        """Remove the session of a client whose connection is gone, and disconnect the client in the engine.

        The client's durable subscriptions stay. If a newer session of the client has replaced this one, nothing is
        done.
        """
        self.observers.discard(session)
        if self.sessions.get(session.name) is not session:
            return
        del self.sessions[session.name]
        _LOG.debug("%s has left: %s", session.name, reason)
        try:
            self.node.operate(Disconnect(session.name), sync=False)
        except JournalError as error:
            self.node.log_line(f"{session.name} has left, and {error}")
        self.flush()

    def relink_all(self) -> None:
        """Close every link at the end of this turn, since the engine was rebuilt and knows no neighbours."""
        self.defer_to_turn_end(self._close_all_links)
        self.call_later(0, self.flush)

    def _close_all_links(self) -> None:
        """Accept operations again, have pending decisions made again, and close every link; dialers connect again."""
        self.node.resume_after_rebuild()
        for session in self.sessions.values():
            self.node.client_connected(session.name)  # the rebuilt engine no longer waits for the client's proof
        for link in list(self.links.values()):
            link.connection.close("what is known of its neighbours is gone here")
            link.on_closed("what is known of its neighbours is gone here")

    # LinksPort: what the node wants carried out

    def tasks_for(self, effects: list[Effect]) -> list[Task]:
        """Return the calls that carry out effects, for the release queue.

        A `Send` is bound to the link that is up now: a later link to the same neighbour begins with a full exchange.
        Effects about redelivery are given to the resender at once, not queued: the next publication must already see
        them.
        """
        tasks: list[Task] = []
        for effect in effects:
            if isinstance(effect, Send):
                link = self.links.get(effect.neighbour)
                if link is not None:
                    tasks.append((link.send, (effect.operation,)))
            elif self.resender.apply_effect(effect):
                self.defer_to_turn_end(self.resender.send_next)
                if isinstance(effect, PublicationSettled):
                    self.defer_to_turn_end(partial(self.handover.publication_settled, effect))
                elif isinstance(effect, ClientMoved):
                    tasks.append((self._carry_out, (effect,)))  # behind a `HandOver` that is still queued
            else:
                tasks.append((self._carry_out, (effect,)))
        return tasks

    def _carry_out(self, effect: Effect) -> None:
        """Carry out an effect of the engine that is neither sent to a neighbour nor about redelivery."""
        match effect:
            case Wake(microseconds):
                self.call_later(microseconds / 1_000_000, self.tick)
            case HandOver(client, broker, context, session):
                self.handover.hand_over(client, Destination(broker, session), context)
            case ClientMoved(client, broker, session):
                self.handover.client_moved(client, Destination(broker, session))
            case RestoreContext(client, context):
                self._restore_context(client, context)
            case HandoverDone(number):
                self.handover.parcel_stored(number)

    def _restore_context(self, client: str, context: Context) -> None:
        """Set the context that a client had at its former broker, unless the client has set one here."""
        session = self.sessions.get(client)
        if session is None or not session.handlers.has_set_context:
            self.node.operate(SetContext(client, context), sync=False)

    def on_published(self, event: Event, offset: int) -> None:
        """Note that a client's event was accepted at this offset of the journal."""
        self.resender.on_published(event, offset)
        self.on_event(event)

    def on_event(self, event: Event) -> None:
        """Let the topic security read an event of a client or a neighbour: it may carry security news."""
        if self.topic_security is not None:
            self.topic_security.read_event(event)

    def is_unsettled(self, offset: int) -> bool:
        """Return whether the publication at this offset is not settled yet."""
        return self.resender.is_unsettled(offset)

    def before_sync(self) -> None:
        """Append the redelivery state to the journal, which is about to be synced."""
        self.resender.before_sync()

    @property
    def redelivery(self) -> RedeliveryTracker:
        """Knows what other brokers have yet to be sent."""
        return self.resender.tracker

    # Turns of the event loop, timers and backpressure

    def flush(self) -> None:
        """End a turn of the event loop: release what is ready, run deferred calls, and update backpressure.

        Every callback of the event loop that brings operations to the node calls this at its end.
        """
        self.node.flush()
        while self._turn_end_calls:
            calls, self._turn_end_calls = self._turn_end_calls, []
            for call in calls:
                call()
        if self.topic_security is not None:
            self.topic_security.apply_revocations()
        self.update_backpressure()
        if self.node.registry.receipts.unhashed:
            self._loop.call_soon(self.node.settle_receipts)

    def defer_to_turn_end(self, call: Callable[[], None]) -> None:
        """Call `call` at the end of this turn of the event loop, in `flush`."""
        self._turn_end_calls.append(call)

    def call_later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `call` after so many seconds; return a handle that cancels the call."""
        return self._loop.call_later(seconds, call)

    def tick(self) -> None:
        """Tell the engine that time has passed."""
        if self.is_stopping:
            return
        try:
            self.node.drive(Tick())
        except JournalError as error:
            self.node.log_line(f"what time has brought is not told: {error}")
        self.flush()

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do that this broker can do now."""
        return all(part.is_settled for part in (self.node, self.handover, self.resender, self.trust_challenges))

    def pending_work(self) -> dict[str, Any]:
        """Return what is still to be done, for operators: tables, syncs, publications, redelivery, clients moving."""
        tracker = self.resender.tracker
        return {
            "tables": not self.node.engine.is_settled,
            "to_disk": len(self.node.release_queue),
            "publications": tracker.unsettled,
            "owed": {" ".join(filter(None, key)): offset for key, offset in sorted(tracker.owed.items())},
            "moving": self.handover.pending_clients,
        }

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the disk or for neighbours that the broker reads nothing from its clients."""
        slow = any(link.connection.is_stalled for link in self.links.values())
        unsettled = self.resender.tracker.unsettled > self.configuration.limits.unsettled
        return slow or unsettled or len(self.node.release_queue) > _MAX_QUEUED

    def update_backpressure(self) -> None:
        """Pause or resume reading from all clients, if `is_full` has changed."""
        is_full = self.is_full
        if is_full != self._was_full:
            self._was_full = is_full
            for session in self.all_sessions():
                session.update_throttle()

    # Ports of other parts

    def trust_answer(self, party: str, group: str) -> tuple[bool, int] | None:
        """Return whether `party` belongs to the trust group, and until when; None if the party is challenged now."""
        return self.trust_challenges.trust_answer(party, group)

    def subject_defined(self, subject: str) -> None:
        """Tell every client the number by which it may name a subject from now on."""
        announcement = self.subject_numbers.announcement(subject)
        for session in self.all_sessions():
            session.connection.send_message(FrameKind.BOUND, announcement)

    def link_tls(self) -> SSLContext | None:
        """Return the TLS context for dialing other brokers; None without TLS."""
        return None if self.certificates is None else self.certificates.link

    def now(self) -> float:
        """Return the time of the event loop, in seconds."""
        return self._loop.time()
