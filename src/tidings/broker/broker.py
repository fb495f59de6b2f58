"""A broker: a server for clients and other brokers around one `Node`. This module puts its parts together."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from tidings.broker.config import BrokerConfiguration, ConfigurationChange
from tidings.broker.config.configuration import ActiveConfiguration
from tidings.broker.config.table_types import Address
from tidings.broker.connection_admission import ConnectionAdmission
from tidings.broker.links.effects import EffectParts, RemoteEffects
from tidings.broker.links.handover import Handover
from tidings.broker.links.links import Link, LinkPorts, NeighbourLinks
from tidings.broker.links.resender import Resender
from tidings.broker.metrics import Metrics
from tidings.broker.net.channel import Channel, PeerIdentity
from tidings.broker.net.connection import LocalEnd
from tidings.broker.net.listener import Listener
from tidings.broker.net.rate_limits import RefusedAttempts
from tidings.broker.net.tls import Certificates
from tidings.broker.node import Node
from tidings.broker.ops.health import Health
from tidings.broker.ops.heartbeat import Heartbeat
from tidings.broker.ops.journal_maintenance import SNAPSHOT_PUBLICATIONS, JournalMaintenance, MaintainedJournal
from tidings.broker.ops.reload import Reload, engine_settings, install_configured
from tidings.broker.ports import SessionPort
from tidings.broker.scheduler import Backpressure, EventLoopScheduler
from tidings.broker.security.reauthentication import Reauthentication
from tidings.broker.security.topic_security import CertificateChecks, TopicSecurity, load_gate, read_files
from tidings.broker.security.trust_challenges import TrustChallenges, TrustGroups
from tidings.broker.sessions.client_sessions import ClientSessions, SubjectNumbers
from tidings.broker.sessions.queries import EventQueries, Queries
from tidings.broker.sessions.session import Session
from tidings.journal.disk import Disk
from tidings.model.event import Event
from tidings.protocol.handshake import Hello
from tidings.protocol.notifications import NotificationWriter
from tidings.runtime.clock import SystemClock
from tidings.runtime.journal_store import JournalStore
from tidings.runtime.queries import explain_event, past_event, possible_event, preview_event
from tidings.security.ca.certificates import Role

_LOG = logging.getLogger("tidings.broker")


class BrokerParts(NamedTuple):
    """The parts of a started broker. `Broker` starts and stops them; besides it, only tests look into them."""

    scheduler: EventLoopScheduler
    sessions: ClientSessions
    links: NeighbourLinks
    admission: ConnectionAdmission
    attempts: RefusedAttempts
    handover: Handover
    resender: Resender
    trust_challenges: TrustChallenges
    certificates: Certificates | None
    health: Health
    listener: Listener
    heartbeat: Heartbeat
    reload: Reload


class Broker:
    """A broker that serves clients and neighbours from `start` to `stop`.

    `gate` checks tokens and seals of secure topics; it is None if the broker has no identity. `node` and `parts` are
    there from `start` on. `disk` stands in for the real disk under the journal.
    """

    def __init__(self, configuration: BrokerConfiguration, disk: Disk | None = None) -> None:
        self._configuration = ActiveConfiguration(configuration)
        self._disk = disk
        self.name = configuration.broker.name
        self.metrics = Metrics()
        self._scheduler = EventLoopScheduler(SystemClock())
        self._incarnation = self._scheduler.clock.now()
        self._certificates = Certificates(configuration.tls) if configuration.tls.is_on else None
        self.gate = load_gate(configuration.security, self.name) if configuration.security.is_on else None
        self._trust_groups = TrustGroups(self.name, self._configuration)
        self._notification_writer = NotificationWriter()
        self.node: Node
        self.parts: BrokerParts
        self.address: Address

    @property
    def configuration(self) -> BrokerConfiguration:
        """The configuration in force."""
        return self._configuration.current

    @property
    def sessions(self) -> Mapping[str, SessionPort]:
        """The sessions of the connected clients, by name."""
        return self.parts.sessions.clients

    @property
    def links(self) -> Mapping[str, Link]:
        """The links that are up, by neighbour."""
        return self.parts.links.up

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do that this broker can do now."""
        return self.parts.health.is_settled

    @property
    def is_stopping(self) -> bool:
        """Whether the broker is being stopped, or has stopped."""
        return self._scheduler.is_stopping

    # Start and stop

    async def start(self) -> Address:
        """Read the journal, listen, and dial the neighbours; return the address at which the broker listens.

        Raises a `TidingsError` if the journal, the configuration or the address cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        effects = RemoteEffects(self._scheduler)
        self.node = Node(
            engine_settings(self.configuration),
            self._scheduler.clock,
            self._trust_groups.is_member,
            self._journal_store(),
            self.metrics.operations,
            effects,
            self.gate,
        )
        self.parts = parts = self._create_parts(effects)
        try:
            self.node.remove_transient_state()
            install_configured(self.node, self.configuration)
            if self._security is not None:
                self._security.subscribe_to_news()
                self._security.apply_files(read_files(self.configuration.security))
            self.address = await parts.listener.open(Address.parse(self.configuration.broker.listen))
        except BaseException:
            self._scheduler.readers.shutdown()
            self.node.stop()  # else the journal stays locked as long as this process runs
            raise
        parts.links.dial()
        parts.heartbeat.start()
        self._scheduler.flush()
        _LOG.info("%s listens at %s", self.name, self.address)
        return self.address

    async def reload(self, configuration: BrokerConfiguration) -> ConfigurationChange:
        """Take over every key of another configuration that needs no restart; return which keys were and were not."""
        return await self.parts.reload.apply(configuration)

    async def stop(self) -> None:
        """Stop serving: accept nothing more, write what waits for clients, close all connections and the journal.

        Clients have `broker.stop_seconds` to read what waits for them; after that, connections are aborted.
        """
        parts = self.parts
        self._scheduler.is_stopping = True
        parts.listener.close()
        await parts.links.stop_dialing()
        parts.heartbeat.stop()
        deadline = self._loop.time() + self.configuration.broker.stop_seconds
        for session in parts.sessions.all():
            session.connection.flow.set_reading(False)
        while self._loop.time() < deadline and self._has_unsent_data():
            self._scheduler.flush()
            await asyncio.sleep(0.01)
        for connection in self._connections():
            connection.close("the broker stops")
        await asyncio.sleep(0)
        while self._loop.time() < deadline and (parts.sessions.all() or parts.links.all()):
            await asyncio.sleep(0.01)
        for connection in self._connections():
            connection.abort("the broker has stopped")
        await asyncio.sleep(0)
        self._scheduler.readers.shutdown()
        self.node.stop()
        _LOG.info("%s has stopped", self.name)

    async def abort(self) -> None:
        """End as a killed process does: abort all connections, and write no snapshot."""
        for connection in self._connections():
            connection.abort("killed")
        self.parts.listener.close()
        self.parts.heartbeat.stop()
        self._scheduler.is_stopping = True
        await asyncio.sleep(0)
        self._scheduler.readers.shutdown()
        self.node.abort()
        await self.parts.links.stop_dialing()

    def _connections(self) -> list[Channel]:
        """Return all connections: to neighbours, to clients, and those whose handshake is not complete."""
        parts = self.parts
        return [
            *(link.connection for link in parts.links.all()),
            *(session.connection for session in parts.sessions.all()),
            *(handshake.connection for handshake in parts.admission.handshakes),
        ]

    def _has_unsent_data(self) -> bool:
        """Return whether something waits to be released or to be written to a connection."""
        waiting = any(connection.flow.waiting_bytes for connection in self._connections())
        return bool(self.node.release_queue) or waiting

    # Composition

    def _journal_store(self) -> JournalStore | None:
        """Open the journal, and return it; None if the configuration names no folder for it."""
        table = self.configuration.journal
        if not table.folder:
            return None
        journal_store = JournalStore(
            table.folder,
            self.name,
            self._scheduler.clock.entropy(),
            self._trust_groups.is_member,
            table.options(),
            self._disk,
        )
        upkeep = journal_store.upkeep
        upkeep.rows_due, upkeep.control_due = SNAPSHOT_PUBLICATIONS, table.snapshot_rows
        return journal_store

    def _create_parts(self, effects: RemoteEffects) -> BrokerParts:
        """Create the parts around the node, and give each part the ports that it needs of the others."""
        name, node, scheduler, configuration = self.name, self.node, self._scheduler, self._configuration
        self._attempts = RefusedAttempts(configuration.current.limits, self.metrics.security, scheduler.now)
        self._end = self._create_local_end()
        self._sessions = ClientSessions(node, scheduler, SubjectNumbers(lambda: node.engine.state.subjects))
        self._links = NeighbourLinks(self._end)
        self._create_security()
        self._handover = Handover(name, node, scheduler, self._sessions)
        self._resender = Resender(
            name,
            node.saved_redelivery_state,
            has_links=bool(configuration.current.links),
            node=node,
            scheduler=scheduler,
            on_settled=node.publish_handler.send_settled_receipt,
            is_full=lambda: self._backpressure.is_full,
        )
        self._backpressure = Backpressure(
            configuration, self._links, self._sessions, node.release_queue, self._resender.tracker
        )
        self._connect_links(effects)
        self._health = self._create_health()
        self._queries = self._create_queries()
        admission = self._create_admission()
        scheduler.begin(node.flush, self._turn_end_calls())
        return BrokerParts(
            scheduler=scheduler,
            sessions=self._sessions,
            links=self._links,
            admission=admission,
            attempts=self._attempts,
            handover=self._handover,
            resender=self._resender,
            trust_challenges=self._trust,
            certificates=self._certificates,
            health=self._health,
            listener=Listener(self._end, admission, self._attempts),
            heartbeat=self._create_heartbeat(effects),
            reload=self._create_reload(),
        )

    def _turn_end_calls(self) -> list[Callable[[], None]]:
        """Return what is called at the end of each turn of the event loop, after the deferred calls."""
        calls = [self._backpressure.update, self._settle_receipts]
        return calls if self._security is None else [self._security.apply_revocations, *calls]

    def _settle_receipts(self) -> None:
        """Hash the sealed events that were accepted last, once their deliveries have gone out."""
        if self.node.registry.receipts.unhashed:
            self._loop.call_soon(self.node.settle_receipts)

    def _create_local_end(self) -> LocalEnd:
        """Return this broker's end of all connections."""
        self._certificate_checks = None
        refusal: Callable[[PeerIdentity, Role | None], str | None] = _no_refusal
        if self.gate is not None:
            self._certificate_checks = CertificateChecks(self.gate.credentials.revocations, self._scheduler.clock)
            refusal = self._certificate_checks.refusal
        return LocalEnd(
            self.name, self._incarnation, self._configuration, self._certificates, self.metrics.traffic, refusal
        )

    def _create_security(self) -> None:
        """Create the parts that challenge parties, and the topic security if the broker has an identity."""
        self._trust = TrustChallenges(
            self.name,
            self._trust_groups,
            configuration=self._configuration,
            scheduler=self._scheduler,
            node=self.node,
            sessions=self._sessions,
            links=self._links,
            attempts=self._attempts,
            metrics=self.metrics.security,
        )
        self._reauthentication = Reauthentication(
            self.name,
            configuration=self._configuration,
            sessions=self._sessions,
            attempts=self._attempts,
            metrics=self.metrics.security,
            now=self._scheduler.now,
        )
        self._security: TopicSecurity | None = None
        if self.gate is not None and self._certificate_checks is not None:
            self._security = TopicSecurity(
                self.name,
                self.gate,
                certificates=self._certificate_checks,
                node=self.node,
                scheduler=self._scheduler,
                sessions=self._sessions,
                links=self._links,
                attempts=self._attempts,
            )

    def _connect_links(self, effects: RemoteEffects) -> None:
        """Give the links, and what carries out the node's effects on other brokers, the parts that they need."""
        node, sessions, links, trust = self.node, self._sessions, self._links, self._trust
        read_event = _ignore_event if self._security is None else self._security.read_event
        effects.begin(
            EffectParts(node, links, sessions, self._resender, self._handover, trust.trust_answer, read_event)
        )
        links.begin(
            LinkPorts(
                node=node,
                scheduler=self._scheduler,
                sessions=sessions,
                trust=trust,
                subject_numbers=sessions.subject_numbers,
                metrics=self.metrics.traffic,
                on_event=read_event,
                update_backpressure=self._backpressure.update,
            )
        )

    def _create_health(self) -> Health:
        return Health(
            self.name,
            address=lambda: self.address,
            configuration=self._configuration,
            scheduler=self._scheduler,
            node=self.node,
            sessions=self._sessions,
            links=self._links,
            redelivery=self._resender.tracker,
            moving=lambda: self._handover.pending_clients,
            settling=(self.node, self._handover, self._resender, self._trust),
            security=self._security,
            certificates=self._certificates,
        )

    def _create_queries(self) -> Queries:
        node, processor = self.node, self.node.processor
        return Queries(
            self.name,
            scheduler=self._scheduler,
            node=node,
            events=EventQueries(
                past_event=partial(past_event, processor),
                possible_event=partial(possible_event, processor),
                explain_event=partial(explain_event, processor),
                preview_event=partial(preview_event, processor),
            ),
            health=self._health,
            links=self._links,
            security=self._security,
            metrics=self.metrics,
            forget_broker=self._resender.forget,
        )

    def _create_admission(self) -> ConnectionAdmission:
        return ConnectionAdmission(
            self._end,
            scheduler=self._scheduler,
            attempts=self._attempts,
            metrics=self.metrics.security,
            sessions=self._sessions,
            links=self._links,
            node=self.node,
            trust=self._trust,
            stop_handing_over=self._handover.cancel,
            open_session=self._open_session,
            has_journal=self.node.journal_store is not None,
            has_gate=self.gate is not None,
        )

    def _open_session(self, connection: Channel, hello: Hello, nonce: bytes) -> Session:
        """Return the session of a client whose HELLO was accepted."""
        return Session(
            connection,
            hello,
            nonce,
            configuration=self._configuration,
            scheduler=self._scheduler,
            sessions=self._sessions,
            node=self.node,
            publish_handler=self.node.publish_handler,
            queries=self._queries,
            trust=self._trust,
            certificates=self._reauthentication,
            security=self._security,
            subject_numbers=self._sessions.subject_numbers,
            metrics=self.metrics,
            encode=self._notification_writer.frame,
            is_full=lambda: self._backpressure.is_full,
        )

    def _create_heartbeat(self, effects: RemoteEffects) -> Heartbeat:
        tasks = [self._handover.send_next, self._resender.tick, self._reauthentication.tick, effects.tick]
        journal_store, node = self.node.journal_store, self.node
        if journal_store is not None:
            upkeep = MaintainedJournal(
                start_snapshot=journal_store.upkeep.start,
                retain=journal_store.upkeep.retain,
                failure=lambda: node.failure,
                log_line=node.log_line,
            )
            tasks.insert(2, JournalMaintenance(upkeep, self._configuration, self._scheduler).tick)
        return Heartbeat(
            self.name,
            configuration=self._configuration,
            node=node,
            sessions=self._sessions,
            links=self._links,
            tasks=tasks,
        )

    def _create_reload(self) -> Reload:
        return Reload(
            self._configuration,
            scheduler=self._scheduler,
            node=self.node,
            sessions=self._sessions,
            links=self._links,
            attempts=self._attempts,
            trust_groups=self._trust_groups,
            security=self._security,
            certificates=self._certificates,
        )


def _no_refusal(_: PeerIdentity, __: Role | None) -> None:
    """Accept every certificate, since the broker has no identity to check certificates with."""


def _ignore_event(_: Event) -> None:
    """Look for no security news in an event, since the broker has no identity."""
