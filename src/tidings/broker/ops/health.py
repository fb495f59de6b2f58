"""The health of a broker: its status for operators, gauges for monitoring, and the reasons why it is not ready."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Any, Protocol

from tidings._version import __version__
from tidings.broker.config.configuration import ActiveConfiguration
from tidings.broker.config.table_types import Address
from tidings.broker.metrics import Gauges, SecurityGauges
from tidings.broker.net.tls import Certificates
from tidings.broker.ports import Links, Scheduler, Sessions
from tidings.engine import Engine
from tidings.engine.overlay.redelivery import Recipient
from tidings.model.errors import TidingsError
from tidings.runtime.journal_store import JournalStore


class HealthNode(Protocol):
    """What the health needs of the node."""

    @property
    def engine(self) -> Engine:
        """The engine; a rebuild replaces it."""
        ...

    @property
    def journal_store(self) -> JournalStore | None:
        """The journal; None if the broker has none."""
        ...

    @property
    def failure(self) -> TidingsError | None:
        """Why the journal has failed; None if it has not."""
        ...

    @property
    def release_queue(self) -> Sized:
        """The calls that wait for the disk."""
        ...


class RedeliveryStatus(Protocol):
    """What the health needs of the redelivery to other brokers."""

    @property
    def unsettled(self) -> int:
        """How many publications are in flight."""
        ...

    @property
    def owed(self) -> Mapping[Recipient, int]:
        """From which offset publications are owed to brokers and moved clients."""
        ...


class SecurityReport(Protocol):
    """What the health needs of the topic security."""

    def gauges(self) -> SecurityGauges:
        """Return the state of the gate as numbers."""
        ...

    def state(self) -> dict[str, Any]:
        """Return the state of the gate; it has no secrets."""
        ...


class SettlingPart(Protocol):
    """A part of the broker that may have something left to do."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do that the part can do now."""
        ...


class Health:
    """Reports the state of a running broker.

    Args:
        name: The broker's name.
        address: Returns the address at which the broker listens.
        configuration: Has the links that should be up.
        scheduler: Knows whether the broker is being stopped.
        node: The engine and the journal.
        sessions: The sessions of the clients.
        links: The links that are up.
        redelivery: What other brokers have yet to be sent.
        moving: Returns the clients of which something has yet to be handed over.
        settling: The parts that may have something left to do.
        security: The topic security; None if the broker has no identity.
        certificates: The broker's certificates; None without TLS.
    """

    def __init__(
        self,
        name: str,
        *,
        address: Callable[[], Address],
        configuration: ActiveConfiguration,
        scheduler: Scheduler,
        node: HealthNode,
        sessions: Sessions,
        links: Links,
        redelivery: RedeliveryStatus,
        moving: Callable[[], list[str]],
        settling: Sequence[SettlingPart],
        security: SecurityReport | None,
        certificates: Certificates | None,
    ) -> None:
        self._name, self._address, self._configuration = name, address, configuration
        self._scheduler, self._node, self._sessions, self._links = scheduler, node, sessions, links
        self._redelivery, self._moving, self._settling = redelivery, moving, settling
        self._security, self._certificates = security, certificates
        self._started = time.monotonic()

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do that this broker can do now."""
        return all(part.is_settled for part in self._settling)

    def links_down(self) -> list[str]:
        """Return the neighbours whose links are configured but down."""
        configured = (link.broker for link in self._configuration.current.links)
        return [neighbour for neighbour in configured if self._links.get(neighbour) is None]

    def pending_work(self) -> dict[str, Any]:
        """Return what is still to be done, for operators: tables, syncs, publications, redelivery, clients moving."""
        owed = sorted(self._redelivery.owed.items())
        return {
            "tables": not self._node.engine.is_settled,
            "to_disk": len(self._node.release_queue),
            "publications": self._redelivery.unsettled,
            "owed": {" ".join(filter(None, recipient)): offset for recipient, offset in owed},
            "moving": self._moving(),
        }

    def status(self) -> dict[str, Any]:
        """Return the state of the broker, its links and its journal, for the `status` query."""
        engine, journal_store = self._node.engine, self._node.journal_store
        return {
            "broker": self._name,
            "version": __version__,
            "address": str(self._address()),
            "uptime": round(time.monotonic() - self._started, 3),
            "strategy": engine.state.settings.strategy,
            "settled": self.is_settled,
            "under_way": self.pending_work(),
            "clients": len(self._sessions.all()),
            "subscriptions": sum(entry.is_client for entry in engine.state.filters.subscriptions),
            "links": {
                link.name: {"cost": link.cost, "sent": link.sent, "received": link.received}
                for link in sorted(self._links.all(), key=lambda link: link.name)
            },
            "wanted_links": sorted(link.broker for link in self._configuration.current.links),
            "brokers": sorted(engine.topology.brokers),
            "security": None if self._security is None else self._security.state(),
            "journal": None
            if journal_store is None
            else {
                "folder": str(journal_store.journal.folder),
                "next": journal_store.journal.next,
                "synced": journal_store.synced,
            },
        }

    def gauges(self, log_lines_dropped: int = 0) -> Gauges:
        """Return the current gauges of the broker, for the metrics page."""
        engine, journal_store = self._node.engine, self._node.journal_store
        links = self._links.all()
        connections = [session.connection for session in self._sessions.all()] + [link.connection for link in links]
        return Gauges(
            connections=len(connections),
            subscriptions=len(engine.state.filters.subscriptions),
            advertisements=len(engine.state.filters.advertisements),
            links=len(links),
            links_configured=len(self._configuration.current.links),
            journal_offset=0 if journal_store is None else journal_store.journal.next,
            journal_synced_offset=0 if journal_store is None else journal_store.synced,
            journal_bytes=0 if journal_store is None else journal_store.journal.size,
            unsettled=self._redelivery.unsettled,
            queue_bytes=sum(connection.flow.waiting_bytes for connection in connections),
            log_lines_dropped=log_lines_dropped,
            certificate_expires=None if self._certificates is None else self._certificates.expires,
            security=None if self._security is None else self._security.gauges(),
        )

    def not_ready_reasons(self) -> Iterator[str]:
        """Yield the reasons why the broker is not ready; none if it is."""
        if self._scheduler.is_stopping:
            yield "the broker is being stopped"
        if self._node.failure is not None:
            yield str(self._node.failure)
        for neighbour in self.links_down():
            yield f"the link to {neighbour} is down"
        if not self._node.engine.is_settled:
            yield "the broker's tables are not complete"
