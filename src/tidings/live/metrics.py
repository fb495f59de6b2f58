"""What a broker counts. Plain numbers, so that counting costs next to nothing; `exposition` writes them for others."""

from bisect import bisect_left
from collections import Counter

import msgspec

from tidings.model.errors import JournalError, RefusedError, TidingsError

# Upper ends of the buckets, in seconds: from a fraction of a millisecond to what only trouble explains.
BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Durations:
    """How long something took, in buckets; the last is for what took longer than all bounds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def note(self, seconds: float, times: int = 1) -> None:
        """That it took so long, once or for so many together. A clock that was set back counts as no time."""
        seconds = max(seconds, 0.0)
        self.counts[bisect_left(BOUNDS, seconds)] += times
        self.total += seconds * times


class Metrics:
    """Counters since the broker was started. Whoever counts writes `metrics.accepted += 1`."""

    def __init__(self) -> None:
        self.accepted = 0  # publications of this broker's clients
        self.repeated = 0  # the same, whose ids were known
        self.refused: Counter[str] = Counter()  # what clients asked for, by the step that refused it
        self.delivered = 0  # notifications to this broker's clients
        self.lost = 0  # notifications that slow consumers lost
        self.told = 0  # meta-events
        self.bytes_in = self.bytes_out = 0
        self.link_messages_in = self.link_messages_out = 0  # from and to neighbours
        self.broken_connections = 0  # that were closed, as what came was no frame
        self.misunderstood = 0  # frames with nothing in them that could be understood
        self.slow_disconnected = 0  # consumers and neighbours whose queue stayed full
        self.challenges = 0  # to clients and neighbours
        self.challenges_failed = 0  # the same, that were not answered, or wrongly
        self.bogus = 0  # handshakes, proofs and tokens that were refused
        self.shut_out = 0  # connections that were closed at once, after too many of these
        self.commits = Durations()  # of the journal
        self.delivered_after = Durations()  # since the publication was accepted

    def refuse(self, error: TidingsError) -> None:
        if isinstance(error, RefusedError):
            self.refused[error.step] += 1
        else:
            self.refused["journal" if isinstance(error, JournalError) else "admit"] += 1

    def numbers(self) -> dict[str, int]:
        """All that was counted, by name."""
        plain = {name: value for name, value in vars(self).items() if isinstance(value, int)}
        return {**plain, "refused": self.refused.total()}


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """How things stand when somebody asks."""

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
    """How things stand at the gate. Without a list of revocations its version is -1, and its times are 0."""

    refused: dict[str, int] = {}  # by the check that was not passed
    topics: int = 0
    revocations: int = -1
    revocations_issued: float = 0.0  # seconds since 1970
    revocations_expire: float = 0.0
