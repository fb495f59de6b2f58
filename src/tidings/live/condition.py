"""How a broker is: numbers for those who watch it, and what keeps it from serving as it should."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidings.live.metrics import Gauges

if TYPE_CHECKING:
    from tidings.live.broker import Broker


def gauges(broker: "Broker", log_lines_dropped: int = 0) -> Gauges:
    engine, archive, certificates = broker.desk.engine, broker.desk.archive, broker.certificates
    connections = [one.connection for one in broker.all_sessions()]
    connections += (one.connection for one in broker.links.values())
    return Gauges(
        connections=len(connections),
        subscriptions=len(engine.subscriptions),
        advertisements=len(engine.advertisements),
        links=len(broker.links),
        links_configured=len(broker.configuration.links),
        journal_offset=0 if archive is None else archive.journal.next,
        journal_synced_offset=0 if archive is None else archive.synced,
        journal_bytes=0 if archive is None else archive.journal.size,
        unsettled=broker.resending.debts.unsettled,
        queue_bytes=sum(one.waiting_bytes for one in connections),
        log_lines_dropped=log_lines_dropped,
        certificate_expires=None if certificates is None else certificates.expires,
        security=None if broker.gatehouse is None else broker.gatehouse.gauges(),
    )


def hindrances(broker: "Broker") -> Iterator[str]:
    """Why the broker is not ready; nothing, if it is."""
    if broker.is_stopping:
        yield "it is being stopped"
    if broker.desk.failure is not None:
        yield str(broker.desk.failure)
    for link in broker.configuration.links:
        if link.broker not in broker.links:
            yield f"the link to {link.broker} is down"
    if not broker.desk.engine.is_settled:
        yield "its tables are not complete"
