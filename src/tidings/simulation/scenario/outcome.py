"""What came of a scenario: counts, traffic, tables and the checker's verdict, as a value that can be written down."""

from collections import Counter

import msgspec

from tidings.simulation.counters import Counts
from tidings.simulation.violation import Violation
from tidings.simulation.world import World

_SHOWN_REASONS = 5


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    messages: int
    bytes: int


class LinkTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """Both directions together."""

    one: str
    other: str
    messages: int
    bytes: int
    publications: int  # of the messages


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much stands in a broker's tables, and how much of it came from other brokers."""

    advertisements: int
    subscriptions: int
    contexts: int
    from_neighbours: int


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """`setup` is until all clients have said what they offer and want, `workload` is from then on."""

    seed: int
    strategy: str
    brokers: int
    clients: int
    seconds: float  # of virtual time, from beginning to end
    trace: str  # the same seed gives the same
    published: int
    refused: int
    away: int  # of the refused: those whose publisher's broker was down
    reasons: dict[str, int]  # why brokers refused something, most frequent first
    delivered: int
    context_changes: int
    moves: int
    faults: int
    setup: dict[str, Traffic]  # by type of message
    workload: dict[str, Traffic]
    links: list[LinkTraffic]  # the busiest first
    tables: dict[str, Sizes]  # by broker, at the end
    setup_seconds: float  # until tables were complete
    settle_seconds: float  # the longest that it took until the network had settled
    dropped: int  # datagrams that the network lost
    is_checked: bool = False
    closing: int = 0  # events that were published afterwards, to see whether all are served
    violations: list[Violation] = []


def traffic_of(counts: Counts) -> dict[str, Traffic]:
    sizes = counts.bytes_by_kind()
    return {kind: Traffic(messages=count, bytes=sizes[kind]) for kind, count in counts.by_kind().items()}


def links_of(world: World, counts: Counts) -> list[LinkTraffic]:
    messages, sizes = counts.by_link(), counts.bytes_by_link()
    events = counts.of("Publish").by_link()
    found = [
        LinkTraffic(
            one=one,
            other=other,
            messages=sum(messages.get(way, 0) for way in ways),
            bytes=sum(sizes.get(way, 0) for way in ways),
            publications=sum(events.get(way, 0) for way in ways),
        )
        for one, other, _ in world.topology.edges
        for ways in [((one, other), (other, one))]
    ]
    return sorted(found, key=lambda link: -link.messages)


def sizes_of(world: World) -> dict[str, Sizes]:
    found = {}
    for name in world.brokers:
        tables = world.tables(name)
        found[name] = Sizes(
            advertisements=len(tables.advertisements),
            subscriptions=len(tables.subscriptions),
            contexts=len(tables.contexts),
            from_neighbours=sum(hop in world.brokers for hop in tables.hops.values()),
        )
    return found


def reasons_of(world: World) -> dict[str, int]:
    found = Counter(one.reason for broker in world.brokers.values() for one in broker.rejected)
    return dict(found.most_common(_SHOWN_REASONS))
