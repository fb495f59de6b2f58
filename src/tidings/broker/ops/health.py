"""The health of a broker: gauges for monitoring, and the reasons why it is not ready."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidings.broker.metrics import Gauges

if TYPE_CHECKING:
    from tidings.broker.broker import Broker


def gauges(broker: "Broker", log_lines_dropped: int = 0) -> Gauges:
    """Return the current gauges of a broker, for the metrics page."""
    engine, journal_store, certificates = broker.node.engine, broker.node.journal_store, broker.certificates
    connections = [peer.connection for peer in broker.all_sessions()]
    connections += (peer.connection for peer in broker.links.values())
    return Gauges(
        connections=len(connections),
        subscriptions=len(engine.state.filters.subscriptions),
        advertisements=len(engine.state.filters.advertisements),
        links=len(broker.links),
        links_configured=len(broker.configuration.links),
        journal_offset=0 if journal_store is None else journal_store.journal.next,
        journal_synced_offset=0 if journal_store is None else journal_store.synced,
        journal_bytes=0 if journal_store is None else journal_store.journal.size,
        unsettled=broker.resender.tracker.unsettled,
        queue_bytes=sum(peer.waiting_bytes for peer in connections),
        log_lines_dropped=log_lines_dropped,
        certificate_expires=None if certificates is None else certificates.expires,
        security=None if broker.topic_security is None else broker.topic_security.gauges(),
    )


def not_ready_reasons(broker: "Broker") -> Iterator[str]:
    """Yield the reasons why the broker is not ready; none if it is."""
    if broker.is_stopping:
        yield "it is being stopped"
    if broker.node.failure is not None:
        yield str(broker.node.failure)
    for link in broker.configuration.links:
        if link.broker not in broker.links:
            yield f"the link to {link.broker} is down"
    if not broker.node.engine.is_settled:
        yield "its tables are not complete"
