"""Attempts that were refused: who makes too many of them is shut out for a while, before anything is checked again."""

from collections import OrderedDict

from tidings.live.configuration.tables import Limits
from tidings.live.rates import Allowance
from tidings.model.limits import MAX_WATCHED_PARTIES

_LONGEST = 3_600.0  # seconds that somebody is shut out at most


class _Watched:
    __slots__ = ("allowance", "times", "until")

    def __init__(self, limits: Limits) -> None:
        self.allowance = Allowance(limits.bogus_attempts / limits.bogus_seconds, limits.bogus_attempts)
        self.until = 0.0  # shut out until then
        self.times = 0  # that it was


class Attempts:
    """Of addresses, and of identities: two of these, so that no name is taken for an address. Times are seconds of any
    clock that does not go back."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._watched: OrderedDict[str, _Watched] = OrderedDict()  # who made one last is last

    def limit(self, limits: Limits) -> None:
        """From now on; what was counted is forgotten."""
        if limits != self._limits:
            self._limits = limits
            self._watched.clear()

    def __len__(self) -> int:
        """The number of parties that are watched."""
        return len(self._watched)

    def check(self, who: str, now: float) -> float:
        """For how many seconds it is shut out; 0: it is not."""
        watched = self._watched.get(who)
        return 0.0 if watched is None else max(0.0, watched.until - now)

    def note(self, who: str, now: float) -> float:
        """Another attempt of it was refused; for how many seconds it is shut out now."""
        watched = self._watched.pop(who, None) or _Watched(self._limits)
        self._watched[who] = watched
        if len(self._watched) > MAX_WATCHED_PARTIES:
            self._watched.popitem(last=False)
        if watched.allowance.take(1, now) > 0 and now >= watched.until:
            watched.until = now + min(_LONGEST, self._limits.shut_out_seconds * 2.0**watched.times)
            watched.times = min(watched.times + 1, 32)
        return max(0.0, watched.until - now)
