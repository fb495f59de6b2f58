"""How a client stood at a moment: where it was, and what it had said. What it was owed is judged by that."""

from collections.abc import Mapping

import msgspec

from tidings.model.advertisement import Advertisement
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.simulation.client import Client


class Standing(msgspec.Struct, frozen=True):
    broker: str
    is_connected: bool
    context: Context
    subscriptions: Mapping[str, Subscription]
    advertisements: Mapping[str, Advertisement]

    @classmethod
    def of(cls, client: Client) -> "Standing":
        return cls(
            client.broker,
            client.is_connected,
            client.context,
            {one.id: one for one in client.subscriptions()},
            {one.id: one for one in client.advertisements()},
        )

    def advertises(self, advertisement: Advertisement) -> bool:
        return self.advertisements.get(advertisement.id) == advertisement


class Standings:
    """How one client stood since the last moment at which its broker, and all others, knew how it stood.

    While its broker is down or cannot be reached, what a client says is not heard; and a broker that it has moved away
    from may hold what was said before. So either may count until everybody has heard.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.all = [Standing.of(client)]
        self.is_heard = client.is_connected  # whether some broker knows how it stands
        self._has_moved = False

    @property
    def now(self) -> Standing:
        return self.all[-1]

    def observe(self, *, leaves: bool = False) -> None:
        """Looks again; `leaves`: it has just said goodbye."""
        before, now = self.now, Standing.of(self._client)
        if now == before:
            return
        self.all.append(now)
        self._has_moved |= now.broker != before.broker
        self.is_heard = now.is_connected or (leaves and before.is_connected)

    def settle(self, *, is_whole: bool) -> None:
        """Everything has been heard that can be; `is_whole`: everywhere."""
        if is_whole:
            self._has_moved = False
        if self.is_heard and not self._has_moved:
            del self.all[:-1]

    @property
    def is_steady(self) -> bool:
        """Whether it was at the same broker all the time, either connected or not."""
        first = self.all[0]
        return all((one.broker, one.is_connected) == (first.broker, first.is_connected) for one in self.all)

    def versions(self, id: str) -> list[tuple[Subscription | None, Context]]:  # noqa: A002
        """A subscription, or that there was none, with the contexts that its subscriber had meanwhile."""
        return [(one.subscriptions.get(id), one.context) for one in self.all]

    def mixtures(self, id: str) -> list[tuple[Subscription, Context]]:  # noqa: A002
        """Those that a broker may have had. One that hears a client's wishes anew hears them one after the other."""
        if self.is_steady and self.now.is_connected:
            return [(one, context) for one, context in self.versions(id) if one is not None]
        found = [one for one, _ in self.versions(id) if one is not None]
        return [(one, standing.context) for one in found for standing in self.all]

    def ids(self) -> list[str]:
        """Of all its subscriptions."""
        return list(dict.fromkeys(name for one in self.all for name in one.subscriptions))

    def lasting(self) -> list[Advertisement]:
        """The advertisements that were there all the time."""
        return [
            one for one in self.all[0].advertisements.values() if all(each.advertises(one) for each in self.all[1:])
        ]
