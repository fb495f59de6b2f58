"""`[[clients]]` of a scenario: groups of clients with their brokers, contexts, advertisements and subscriptions."""

from typing import Protocol

import msgspec

from tidings.coerce import content_filter, context_filter, policy_text
from tidings.configuration import at_least_one, check_parses
from tidings.model.advertisement import Advertisement
from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client
from tidings.model.subscription import Subscription
from tidings.simulation.rng import Random, seeded_random
from tidings.simulation.scenario.values import ValueChoice, check_values, draw_values, fill_template

EVENLY, RANDOM = "evenly", "random"


class ScenarioClient(Protocol):
    """What the tables of a group ask of each of its clients. `SimulatedClient` says what the arguments are."""

    def subscribe(
        self,
        content: str,
        *,
        publishers: str | None,
        policy: str | None,
        durable: str | None,
        format: str,  # noqa: A002
    ) -> Subscription: ...
    def advertise(
        self,
        content: str,
        publisher_context: list[str] | None,
        subscriber_context: list[str],
        *,
        policy: str | None,
        format: str,  # noqa: A002
    ) -> Advertisement: ...


class SubscriptionSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of `subscriptions`: `count` subscriptions of every client in the group.

    `{name}` in the filters is replaced by a value from `values`, drawn for each subscription.
    """

    content: str = ""
    format: str = "sql"
    publishers: str | None = None
    policy: str | None = None
    durable: str | None = None
    count: int = 1
    values: dict[str, ValueChoice] = {}

    def __post_init__(self) -> None:
        at_least_one("count", self.count)
        if self.durable is not None and self.count > 1:
            raise InvalidValueError("durable: a name is for one subscription; `count` is more")
        check_values("values", self.values)
        sample = draw_values(self.values, seeded_random(0, "sample"))
        check_parses("content", lambda: content_filter(fill_template(self.content, sample), self.format))
        check_parses("publishers", lambda: context_filter(self.publishers and fill_template(self.publishers, sample)))
        check_parses("policy", policy_text, self.policy)

    def subscribe(self, client: ScenarioClient, rng: Random) -> None:
        """Make the subscriptions of one client."""
        for _ in range(self.count):
            values = draw_values(self.values, rng)
            client.subscribe(
                fill_template(self.content, values),
                publishers=self.publishers and fill_template(self.publishers, values),
                policy=self.policy,
                durable=self.durable,
                format=self.format,
            )


class AdvertisementSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of `advertisements`: one advertisement of every client in the group."""

    content: str = ""
    format: str = "sql"
    publisher_context: list[str] | None = None
    subscriber_context: list[str] = []
    policy: str | None = None

    def __post_init__(self) -> None:
        check_parses("content", content_filter, self.content, self.format)
        check_parses("policy", policy_text, self.policy)

    def advertise(self, client: ScenarioClient) -> None:
        """Make the advertisement of one client."""
        client.advertise(
            self.content, self.publisher_context, self.subscriber_context, policy=self.policy, format=self.format
        )


class ClientGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of `[[clients]]`: `count` clients with the names `name-1`, `name-2` and so on."""

    name: str
    count: int = 1
    brokers: str | list[str] = EVENLY
    context: dict[str, ValueChoice] = {}
    subscriptions: list[SubscriptionSpec] = []
    advertisements: list[AdvertisementSpec] = []
    context_changes: float = 0.0  # per second, in the whole group
    moves: float = 0.0  # per second, in the whole group

    def __post_init__(self) -> None:
        check_parses("name", lambda: checked_client(f"{self.name}-{self.count}"))
        at_least_one("count", self.count)
        if isinstance(self.brokers, str) and self.brokers not in (EVENLY, RANDOM):
            raise InvalidValueError(f"brokers: '{EVENLY}', '{RANDOM}' or a list of brokers, not '{self.brokers}'")
        if not self.brokers:
            raise InvalidValueError("brokers: the list is empty")
        check_values("context", self.context)
        for name in ("context_changes", "moves"):
            if getattr(self, name) < 0:
                raise InvalidValueError(f"{name}: must not be negative")
        if self.context_changes and not self.context:
            raise InvalidValueError("context_changes: there is no context to draw from")

    def names(self) -> list[str]:
        """Return the names of the group's clients."""
        return [f"{self.name}-{number}" for number in range(1, self.count + 1)]

    def places(self, brokers: tuple[str, ...]) -> list[str]:
        """Return the brokers that the group's clients may be at."""
        return list(self.brokers) if isinstance(self.brokers, list) else list(brokers)

    def homes(self, brokers: tuple[str, ...], rng: Random) -> list[str]:
        """Return the first broker of each client. Listed brokers are taken in turn."""
        places = self.places(brokers)
        if isinstance(self.brokers, list):
            return [places[number % len(places)] for number in range(self.count)]
        if self.brokers == RANDOM:
            return [rng.choice(places) for _ in range(self.count)]
        return [places[number * len(places) // self.count] for number in range(self.count)]
