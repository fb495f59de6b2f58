"""`[[clients]]` of a scenario: groups of clients, where they are, what they say of themselves, offer and want."""

import msgspec

from tidings.configuration.checks import at_least_one, readable
from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client
from tidings.simulation.chance import Random, drawn_from
from tidings.simulation.client import Client
from tidings.simulation.scenario.values import Given, check_values, drawn_all, filled
from tidings.texts import content_filter, context_filter, policy_text

EVENLY, RANDOM = "evenly", "random"


class Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of `subscriptions`: so many for every client of the group. `{name}` in its filters is one of its
    `values`, drawn for each."""

    content: str = ""
    format: str = "sql"
    publishers: str | None = None
    policy: str | None = None
    durable: str | None = None
    count: int = 1
    values: dict[str, Given] = {}

    def __post_init__(self) -> None:
        at_least_one("count", self.count)
        if self.durable is not None and self.count > 1:
            raise InvalidValueError("durable: a name is for one subscription; `count` is more")
        check_values("values", self.values)
        sample = drawn_all(self.values, drawn_from(0, "sample"))
        readable("content", lambda: content_filter(filled(self.content, sample), self.format))
        readable("publishers", lambda: context_filter(self.publishers and filled(self.publishers, sample)))
        readable("policy", policy_text, self.policy)

    def subscribe(self, client: Client, chance: Random) -> None:
        for _ in range(self.count):
            values = drawn_all(self.values, chance)
            client.subscribe(
                filled(self.content, values),
                publishers=self.publishers and filled(self.publishers, values),
                policy=self.policy,
                durable=self.durable,
                format=self.format,
            )


class Offered(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of `advertisements`: every client of the group has it."""

    content: str = ""
    format: str = "sql"
    publisher_context: list[str] | None = None
    subscriber_context: list[str] = []
    policy: str | None = None

    def __post_init__(self) -> None:
        readable("content", content_filter, self.content, self.format)
        readable("policy", policy_text, self.policy)

    def advertise(self, client: Client) -> None:
        client.advertise(
            self.content, self.publisher_context, self.subscriber_context, policy=self.policy, format=self.format
        )


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of `[[clients]]`: its clients are `name-1`, `name-2` and so on."""

    name: str
    count: int = 1
    brokers: str | list[str] = EVENLY
    context: dict[str, Given] = {}
    subscriptions: list[Wanted] = []
    advertisements: list[Offered] = []
    context_changes: float = 0.0  # a second, in the whole group
    moves: float = 0.0  # the same

    def __post_init__(self) -> None:
        readable("name", lambda: checked_client(f"{self.name}-{self.count}"))
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
        return [f"{self.name}-{number}" for number in range(1, self.count + 1)]

    def places(self, brokers: tuple[str, ...]) -> list[str]:
        """Where its clients may be; brokers that are listed are taken in turn, and others never."""
        return list(self.brokers) if isinstance(self.brokers, list) else list(brokers)

    def homes(self, brokers: tuple[str, ...], chance: Random) -> list[str]:
        """The broker of each client."""
        places = self.places(brokers)
        if isinstance(self.brokers, list):
            return [places[number % len(places)] for number in range(self.count)]
        if self.brokers == RANDOM:
            return [chance.choice(places) for _ in range(self.count)]
        return [places[number * len(places) // self.count] for number in range(self.count)]
