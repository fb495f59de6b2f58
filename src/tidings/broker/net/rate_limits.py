"""Rate limits: token buckets, and the lockout of hosts and certificates with too many refused attempts."""

from collections import OrderedDict
from collections.abc import Callable

from tidings.broker.config.tables import LimitsTable
from tidings.broker.metrics import SecurityMetrics
from tidings.broker.net.channel import Channel
from tidings.model.limits import MAX_WATCHED_PARTIES

_MAX_LOCKOUT_SECONDS = 3_600.0  # seconds that a party is locked out at most


class _AttemptCount:
    __slots__ = ("allowance", "times", "until")

    def __init__(self, limits: LimitsTable) -> None:
        self.allowance = TokenBucket(limits.bogus_attempts / limits.bogus_seconds, limits.bogus_attempts)
        self.until = 0.0  # locked out until then
        self.times = 0  # how often it was locked out


class Lockout:
    """Locks out parties (hosts, or names of certificates) that had too many refused attempts, for a time that doubles.

    Use one `Lockout` for hosts and another one for names, so that a name cannot be taken for a host. All times are
    seconds of any clock that does not go back.
    """

    def __init__(self, limits: LimitsTable) -> None:
        self._limits = limits
        self._counts: OrderedDict[str, _AttemptCount] = OrderedDict()  # in the order of their last attempts

    def set_limits(self, limits: LimitsTable) -> None:
        """Apply other limits from now on. If they differ, everything that was counted is forgotten."""
        if limits != self._limits:
            self._limits = limits
            self._counts.clear()

    def __len__(self) -> int:
        """Return the number of parties with refused attempts."""
        return len(self._counts)

    def check(self, party: str, now: float) -> float:
        """Return for how many seconds `party` is still locked out; 0 if it is not."""
        attempts = self._counts.get(party)
        return 0.0 if attempts is None else max(0.0, attempts.until - now)

    def record_refused(self, party: str, now: float) -> float:
        """Count a refused attempt of `party`; return for how many seconds it is locked out now, 0 if it is not."""
        attempts = self._counts.pop(party, None) or _AttemptCount(self._limits)
        self._counts[party] = attempts
        if len(self._counts) > MAX_WATCHED_PARTIES:
            self._counts.popitem(last=False)
        if attempts.allowance.take(1, now) > 0 and now >= attempts.until:
            attempts.until = now + min(_MAX_LOCKOUT_SECONDS, self._limits.shut_out_seconds * 2.0**attempts.times)
            attempts.times = min(attempts.times + 1, 32)
        return max(0.0, attempts.until - now)


class RefusedAttempts:
    """Counts the refused attempts of hosts and of certificates, and locks them out after too many.

    Args:
        limits: The limits on refused attempts.
        metrics: The counters that are incremented.
        now: Returns the time of the event loop, in seconds.
    """

    def __init__(self, limits: LimitsTable, metrics: SecurityMetrics, now: Callable[[], float]) -> None:
        self._hosts, self._certificates = Lockout(limits), Lockout(limits)
        self._metrics, self._now = metrics, now

    def set_limits(self, limits: LimitsTable) -> None:
        """Apply other limits on refused attempts; the attempts that were counted are forgotten."""
        self._hosts.set_limits(limits)
        self._certificates.set_limits(limits)

    def host_wait(self, host: str) -> float:
        """Return for how many seconds `host` is still locked out; 0 if it is not."""
        return self._hosts.check(host, self._now())

    def certificate_wait(self, name: str) -> float:
        """Return for how many seconds the certificate of `name` is still locked out; 0 if it is not."""
        return self._certificates.check(name, self._now())

    def count(self, host: str) -> None:
        """Count an attempt from `host` that was refused, or that closed before completing the handshake."""
        self._metrics.bogus += 1
        self._hosts.record_refused(host, self._now())

    def record(self, connection: Channel, name: str) -> None:
        """Count a refused proof, token or signature of a connected party; after too many, close its connection.

        It counts for the host and, if `name` is the name in the connection's certificate, for that certificate. Without
        that condition a client could have another one locked out by using its name.
        """
        peer = connection.peer
        self.count(peer.host)
        wait = self.host_wait(peer.host)
        if peer.certified_name == name:
            wait = max(wait, self._certificates.record_refused(name, self._now()))
        if wait:
            self._metrics.shut_out += 1
            connection.close(lockout_reason(wait))


def lockout_reason(wait: float) -> str:
    """Return the close reason for a party that is locked out for `wait` seconds."""
    return f"too many attempts were refused; try again in {wait:.0f} seconds"


class TokenBucket:
    """A token bucket that may go into debt.

    `take` never refuses: it takes any amount, and returns how long the caller must wait before it takes more. So a
    frame that is larger than the burst costs its sender time, but not the connection. Times are seconds of any clock;
    when the clock goes back, the bucket is not refilled.
    """

    __slots__ = ("_level", "_level_time", "burst", "rate")

    def __init__(self, rate: float, burst: float | None = None) -> None:
        """Create a full bucket with `rate` tokens per second; the burst is that of one second if it is None."""
        self.rate = rate
        self.burst = rate if burst is None else burst
        self._level = float(self.burst)
        self._level_time = float("-inf")  # the time of the level

    def take(self, amount: float, now: float) -> float:
        """Take `amount` tokens; return for how many seconds to take no more, 0 if there were enough."""
        if now > self._level_time:
            self._level = min(self.burst, self._level + (now - self._level_time) * self.rate)
            self._level_time = now
        self._level -= amount
        return max(0.0, -self._level / self.rate)
