"""The state of a broker. Each part of it has an owner, which alone knows how the part is kept consistent.

| owner | what it owns |
|---|---|
| `FilterTables` | advertisements and subscriptions, and the structures that match them |
| `RuleIndex` | which filters have policy rules on what, conflicts and meta-events |
| `ClientContexts` | contexts, their versions and delegates, and which neighbours have them |
| `LinkTables` | neighbours, the topology of the routing tables, covering sets |
| `SeenEvents` | which events have passed |

`FilterEntry.sent_to` and `FilterEntry.target_links` of every filter, the covering sets and `ClientContexts.sent` say
what each neighbour has from here. After a topology change they are cleared, and everything is sent again.
`tidings.engine.state.registration` puts filters into the state and takes them out of it.
"""

from collections.abc import Iterable

from tidings.engine.matcher import Matcher
from tidings.engine.settings import Settings
from tidings.engine.state.contexts import ClientContexts
from tidings.engine.state.filter_tables import FilterTables
from tidings.engine.state.filters import BrokerTables
from tidings.engine.state.links import LinkTables
from tidings.engine.state.rule_index import RuleIndex
from tidings.engine.state.seen_events import SeenEvents
from tidings.model.limits import MAX_KNOWN_TRUST
from tidings.model.subjects import Subjects
from tidings.routing import strategy
from tidings.routing.covering_classes import CoveringClasses
from tidings.routing.topology import BrokerGraph


class TrustAnswers:
    """The answers of the trust provider that are still valid: party and group -> member, until when."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], tuple[bool, int]] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._answers)

    def __contains__(self, question: tuple[str, str]) -> bool:
        return question in self._answers

    def __getitem__(self, question: tuple[str, str]) -> tuple[bool, int]:
        return self._answers[question]

    def get(self, question: tuple[str, str], default: tuple[bool, int]) -> tuple[bool, int]:
        """Return whether the party is a member of the group, and until when the answer is valid."""
        return self._answers.get(question, default)

    def answer(self, question: tuple[str, str], now: int) -> bool | None:
        """Return whether the party is a member of the group; None if there is no valid answer."""
        known = self._answers.get(question)
        if known is None:
            return None
        member, until = known
        if until <= now:
            del self._answers[question]
            return None
        return member

    def put(self, question: tuple[str, str], member: bool, until: int, now: int) -> None:
        """Store an answer, in place of a former one, unless it is not valid any more.

        Args:
            question: The party and the group.
            member: Whether the party is a member of the group.
            until: Until when the answer is valid, in microseconds.
            now: The time in microseconds.
        """
        self._answers.pop(question, None)
        if until > now:
            self._answers[question] = member, until
            if len(self._answers) > MAX_KNOWN_TRUST:
                del self._answers[next(iter(self._answers))]

    def saved(self) -> list[tuple[str, str, bool, int]]:
        """Return all answers, for `restore`."""
        return [(*question, *answer) for question, answer in self._answers.items()]

    def restore(self, saved: Iterable[tuple[str, str, bool, int]]) -> None:
        """Replace the answers by those that `saved` returned."""
        self._answers = {(party, group): (member, until) for party, group, member, until in saved}


class OverlayKnowledge:
    """What a routing strategy sees of the state: see `tidings.routing.strategy.OverlayView`."""

    def __init__(self, name: str, filters: FilterTables, contexts: ClientContexts, links: LinkTables) -> None:
        self.name, self.offers, self.announced, self._links = name, filters.offers, contexts.announced, links

    @property
    def topology(self) -> BrokerGraph:
        """The brokers and links for which the routing tables are built."""
        return self._links.topology


class BrokerState:
    """The parts of a broker's state.

    Args:
        settings: The broker's configuration.
        matcher: Finds the local subscriptions that an event matches; by default an index.
        covering_classes: A cache of covering decisions, which engines of one process may share.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        matcher: Matcher | None = None,
        covering_classes: CoveringClasses | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.name = self.settings.name
        self.strategy = strategy(self.settings.strategy)
        self.filters = FilterTables(matcher, ignores_context=self.strategy.announces)
        self.rules = RuleIndex(self.name, self.filters)
        self.contexts = ClientContexts(self.filters)
        self.links = LinkTables(self.settings, self.strategy, covering_classes)
        self.seen_events = SeenEvents()
        self.subjects = Subjects()
        self.trust = TrustAnswers()
        self.overlay = OverlayKnowledge(self.name, self.filters, self.contexts, self.links)

    def configure(self, settings: Settings) -> None:
        """Use a changed configuration from now on; the name and the strategy stay."""
        self.settings = settings
        self.links.configure(settings)


def governs(state: BrokerState, owner: str) -> bool:
    """Whether an owner's policies may act on others' events, by configuration or as a broker.

    No client can use the name of a broker: see `admit.admit_from_broker`.
    """
    return owner in state.settings.govern or owner == state.name or owner in state.links.neighbours


def tables_of(state: BrokerState) -> BrokerTables:
    """Return the broker's tables as values that can be listed and compared."""
    entries = list(state.filters.entries())
    return BrokerTables(
        advertisements=[entry.value for entry in state.filters.advertisements],
        subscriptions=[entry.value for entry in state.filters.subscriptions],
        contexts={**state.filters.remote_subscriptions.contexts(), **state.contexts.local},
        policies={entry.id: str(entry.policy.policy) for entry in entries if entry.policy is not None},
        operator_policies={
            entry.id: str(entry.operator_policy.policy) for entry in entries if entry.operator_policy is not None
        },
        schemas=list(state.subjects),
        hops={entry.id: entry.hop for entry in entries},
        sent={entry.id: sorted(entry.sent_to) for entry in entries if entry.sent_to},
    )
