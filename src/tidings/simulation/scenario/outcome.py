"""The outcome of a scenario: counts, traffic, table sizes and violations, as a value that can be encoded."""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from tidings.simulation.broker import SimulatedBroker
from tidings.simulation.checking.checker import Violation
from tidings.simulation.counters import Counts
from tidings.simulation.topologies import Edge

_SHOWN_REASONS = 5


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """A number of messages and their bytes."""

    messages: int
    bytes: int


class LinkTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic on one link, both directions together."""

    one: str
    other: str
    messages: int
    bytes: int
    publications: int  # messages that are publications


class TableSizes(msgspec.Struct, frozen=True, kw_only=True):
    """The number of entries in a broker's tables."""

    advertisements: int
    subscriptions: int
    contexts: int
    from_neighbours: int  # entries that came from other brokers


class ScenarioOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run of a scenario.

    `setup` is the traffic until all clients have registered, and `workload` the traffic after that.
    """

    seed: int
    strategy: str
    brokers: int
    clients: int
    seconds: float  # virtual time from beginning to end
    trace: str  # the digest of the trace; the same in every run with the same seed
    published: int
    refused: int
    away: int  # refused because the publisher's broker was down
    reasons: dict[str, int]  # the reasons of refusals by brokers, most frequent first
    delivered: int
    context_changes: int
    moves: int
    faults: int
    setup: dict[str, Traffic]  # by type of operation
    workload: dict[str, Traffic]
    links: list[LinkTraffic]  # busiest first
    tables: dict[str, TableSizes]  # by broker, at the end
    setup_seconds: float  # virtual time until the tables were complete
    settle_seconds: float  # the longest time until the network had settled
    dropped: int  # datagrams that were lost
    is_checked: bool = False
    closing: int = 0  # events that were published after the scenario, to check that all are notified
    violations: list[Violation] = []


def traffic_of(counts: Counts) -> dict[str, Traffic]:
    """Return the traffic by type of operation."""
    sizes = counts.bytes_by_kind()
    return {kind: Traffic(messages=count, bytes=sizes[kind]) for kind, count in counts.by_kind().items()}


def links_of(edges: Iterable[Edge], counts: Counts) -> list[LinkTraffic]:
    """Return the traffic of each link, busiest first."""
    messages, sizes = counts.by_link(), counts.bytes_by_link()
    events = counts.of("Publish").by_link()
    links = [
        LinkTraffic(
            one=one,
            other=other,
            messages=sum(messages.get(way, 0) for way in paths),
            bytes=sum(sizes.get(way, 0) for way in paths),
            publications=sum(events.get(way, 0) for way in paths),
        )
        for one, other, _ in edges
        for paths in [((one, other), (other, one))]
    ]
    return sorted(links, key=lambda link: -link.messages)


def sizes_of(brokers: Mapping[str, SimulatedBroker]) -> dict[str, TableSizes]:
    """Return the table sizes of each broker."""
    sizes = {}
    for name, broker in brokers.items():
        tables = broker.engine.tables()
        sizes[name] = TableSizes(
            advertisements=len(tables.advertisements),
            subscriptions=len(tables.subscriptions),
            contexts=len(tables.contexts),
            from_neighbours=sum(hop in brokers for hop in tables.hops.values()),
        )
    return sizes


def reasons_of(brokers: Iterable[SimulatedBroker]) -> dict[str, int]:
    """Return the most frequent reasons for which brokers refused operations."""
    counts = Counter(rejection.reason for broker in brokers for rejection in broker.rejected)
    return dict(counts.most_common(_SHOWN_REASONS))
