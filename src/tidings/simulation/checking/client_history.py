"""The states of a client over time, by which the checker decides what it should be notified of."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from tidings.model.advertisement import Advertisement
from tidings.model.subscription import Subscription
from tidings.model.values import Context


class ObservedClient(Protocol):
    """What the checker reads of a client."""

    @property
    def broker(self) -> str: ...
    @property
    def is_connected(self) -> bool: ...
    @property
    def context(self) -> Context: ...
    def subscriptions(self) -> list[Subscription]: ...
    def advertisements(self) -> list[Advertisement]: ...


class ClientState(msgspec.Struct, frozen=True):
    """The state of a client at one moment: its broker, context, subscriptions and advertisements."""

    broker: str
    is_connected: bool
    context: Context
    subscriptions: Mapping[str, Subscription]
    advertisements: Mapping[str, Advertisement]

    @classmethod
    def of(cls, client: ObservedClient) -> "ClientState":
        """Return the present state of a client."""
        return cls(
            client.broker,
            client.is_connected,
            client.context,
            {subscription.id: subscription for subscription in client.subscriptions()},
            {advertisement.id: advertisement for advertisement in client.advertisements()},
        )

    def advertises(self, advertisement: Advertisement) -> bool:
        """Return whether the client has exactly this advertisement."""
        return self.advertisements.get(advertisement.id) == advertisement


class ClientHistory:
    """The states of a client since the last moment at which all brokers knew its state.

    While its broker is down or unreachable, changes of a client are not received; and a broker that it has moved
    away from may hold an earlier state. Until everybody has received the latest state, any of them may count.
    """

    def __init__(self, client: ObservedClient) -> None:
        self._client = client
        self.all = [ClientState.of(client)]
        self.is_known_to_a_broker = client.is_connected  # whether some broker has the latest state
        self._has_moved = False

    @property
    def now(self) -> ClientState:
        """The latest state."""
        return self.all[-1]

    def observe(self, *, leaves: bool = False) -> None:
        """Add the client's state if it has changed. `leaves`: the client has just disconnected by itself."""
        before, now = self.now, ClientState.of(self._client)
        if now == before:
            return
        self.all.append(now)
        self._has_moved |= now.broker != before.broker
        self.is_known_to_a_broker = now.is_connected or (leaves and before.is_connected)

    def settle(self, *, is_whole: bool) -> None:
        """Forget earlier states if the latest has been received everywhere. `is_whole`: all brokers reach each
        other."""
        if is_whole:
            self._has_moved = False
        if self.is_known_to_a_broker and not self._has_moved:
            del self.all[:-1]

    @property
    def is_steady(self) -> bool:
        """Whether the client was at one broker, and connected or not, all the time."""
        first = self.all[0]
        return all((state.broker, state.is_connected) == (first.broker, first.is_connected) for state in self.all)

    def versions(self, id: str) -> list[tuple[Subscription | None, Context]]:  # noqa: A002
        """Return the subscription (None where there was none) and the context in each state."""
        return [(state.subscriptions.get(id), state.context) for state in self.all]

    def possible_pairs(self, id: str) -> list[tuple[Subscription, Context]]:  # noqa: A002
        """Return the pairs of subscription and context that a broker may have had.

        After connecting, a broker receives a client's context and subscriptions one by one, so any version may
        meet any context.
        """
        if self.is_steady and self.now.is_connected:
            return [(subscription, context) for subscription, context in self.versions(id) if subscription is not None]
        subscriptions = [subscription for subscription, _ in self.versions(id) if subscription is not None]
        return [(subscription, state.context) for subscription in subscriptions for state in self.all]

    def subscription_ids(self) -> list[str]:
        """Return the ids of all subscriptions in any state."""
        return list(dict.fromkeys(name for state in self.all for name in state.subscriptions))

    def unchanged_advertisements(self) -> list[Advertisement]:
        """Return the advertisements that were unchanged in all states."""
        return [
            advertisement
            for advertisement in self.all[0].advertisements.values()
            if all(state.advertises(advertisement) for state in self.all[1:])
        ]
