"""A broker's counters and gauges, as plain numbers, so that counting costs next to nothing.

`ops.prometheus` turns them into a page for Prometheus.
"""

from bisect import bisect_left
from collections import Counter

import msgspec

from tidings.model.errors import JournalError, RefusedError, TidingsError

# Upper bounds of the buckets, in seconds.
BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Durations:
    """A histogram of durations in seconds; the last bucket counts those above all of `BOUNDS`."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def record(self, seconds: float, times: int = 1) -> None:
        """Count a duration, `times` times. A negative one, from a clock that was set back, counts as zero."""
        seconds = max(seconds, 0.0)
        self.counts[bisect_left(BOUNDS, seconds)] += times
        self.total += seconds * times


class OperationMetrics:
    """Counters of what clients publish, request and get, with the times that this takes."""

    def __init__(self) -> None:
        self.accepted = 0  # publications of this broker's clients that were new
        self.repeated = 0  # publications of its clients whose ids were known
        self.refused: Counter[str] = Counter()  # requests and publications, by the step that refused them
        self.delivered = 0  # notifications to this broker's clients
        self.lost = 0  # notifications that were dropped since their subscriber was slow
        self.told = 0  # meta-events that the broker published
        self.commits = Durations()  # syncs of the journal
        self.delivered_after = Durations()  # from accepting a publication to its deliveries

    def refuse(self, error: TidingsError) -> None:
        """Count a refusal under its step: that of the `RefusedError`, else `journal` or `admit`."""
        if isinstance(error, RefusedError):
            self.refused[error.step] += 1
        else:
            self.refused["journal" if isinstance(error, JournalError) else "admit"] += 1


class TrafficMetrics:
    """Counters of bytes and messages, and of connections that end because of what comes or waits on them."""

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = 0
        self.link_messages_in = self.link_messages_out = 0  # operations from and to neighbours
        self.broken_connections = 0  # connections that were closed, since what came was not frames
        self.misunderstood = 0  # frames whose content could not be decoded
        self.slow_disconnected = 0  # clients that were disconnected, since their queue stayed full


class SecurityMetrics:
    """Counters of challenges, and of attempts that were refused."""

    def __init__(self) -> None:
        self.challenges = 0  # sent to clients and neighbours
        self.challenges_failed = 0  # challenges that were not answered in time, or wrongly
        self.bogus = 0  # handshakes, proofs and tokens that were refused
        self.shut_out = 0  # connections that were closed at once, after too many of `bogus`


class Metrics:
    """Counters since the broker was started. The parts of a broker increment their group: `traffic.bytes_in += 1`."""

    def __init__(self) -> None:
        self.operations = OperationMetrics()
        self.traffic = TrafficMetrics()
        self.security = SecurityMetrics()

    def numbers(self) -> dict[str, int]:
        """Return every counter by name, with all refusals as one number."""
        groups = vars(self.operations) | vars(self.traffic) | vars(self.security)
        plain = {name: value for name, value in groups.items() if isinstance(value, int)}
        return {**plain, "refused": self.operations.refused.total()}


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a broker in numbers, read when the metrics page is requested."""

    connections: int = 0
    subscriptions: int = 0
    advertisements: int = 0
    links: int = 0
    links_configured: int = 0
    journal_offset: int = 0
    journal_synced_offset: int = 0
    journal_bytes: int = 0
    unsettled: int = 0
    queue_bytes: int = 0
    log_lines_dropped: int = 0
    certificate_expires: float | None = None  # seconds since 1970
    security: "SecurityGauges | None" = None


class SecurityGauges(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of the security gate in numbers.

    Without a revocation list `revocations` is -1, and the times are 0.
    """

    refused: dict[str, int] = {}  # by the check that failed
    topics: int = 0
    revocations: int = -1
    revocations_issued: float = 0.0  # seconds since 1970
    revocations_expire: float = 0.0
