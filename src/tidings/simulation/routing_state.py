"""The routing state of a broker as a comparable value, without the times and versions at which it learnt things."""

from typing import Any

import msgspec

from tidings.engine import Engine
from tidings.engine.state.filters import FilterEntry
from tidings.model.advertisement import Advertisement
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.routing.context_table import AnnouncedContext
from tidings.routing.spcf import content_table


class KnownFilter(msgspec.Struct, frozen=True):
    """An advertisement or subscription in a broker's tables: from which neighbours it came, and to which it was
    forwarded."""

    value: Advertisement | Subscription
    origin: str
    senders: tuple[str, ...]
    sent_to: tuple[str, ...]
    is_scoped: bool


class RoutingState(msgspec.Struct, frozen=True):
    """A broker's routing tables. Equal for two brokers that route in the same way, however they came to know it."""

    neighbours: tuple[str, ...]
    filters: dict[str, KnownFilter]
    contexts: dict[str, Context]
    announced: dict[str, dict[bytes, AnnouncedContext]]  # announced contexts by broker (spcf)
    content: dict[tuple[str, bytes, str], set[str]]  # (broker, context, neighbour) -> subscriptions beyond it (spcf)

    @classmethod
    def of(cls, engine: Engine) -> "RoutingState":
        """Return the routing state of an engine."""
        announces = engine.state.strategy.announces
        return cls(
            tuple(sorted(engine.state.links.neighbours)),
            {
                entry.id: _known_filter(entry, by_source=engine.state.strategy.by_source)
                for entry in engine.state.filters.entries()
            },
            {
                name: context for name, context in engine.tables().contexts.items() if context
            },  # an empty context equals none
            {
                name: dict(announced)
                for name in engine.state.contexts.announced.brokers()
                if (announced := engine.state.contexts.announced.of(name))
            },
            content_table(engine.state.overlay, list(engine.state.filters.subscriptions)) if announces else {},
        )

    def differences(self, other: "RoutingState") -> list[str]:
        """Describe each difference to another broker's state, for an error message."""
        differences: list[str] = []
        for field in self.__struct_fields__:
            here, there = getattr(self, field), getattr(other, field)
            if here == there:
                continue
            if isinstance(here, dict):
                names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
                differences += [f"{field} {name}: {_difference(here.get(name), there.get(name))}" for name in names]
            else:
                differences.append(f"{field}: {_difference(here, there)}")
        return differences


def _difference(here: Any, there: Any) -> str:
    if isinstance(here, KnownFilter) and isinstance(there, KnownFilter):
        names = (name for name in KnownFilter.__struct_fields__ if getattr(here, name) != getattr(there, name))
        return ", ".join(f"{name} {_difference(getattr(here, name), getattr(there, name))}" for name in names)
    return f"{here} instead of {there}"


def _known_filter(entry: FilterEntry[Advertisement] | FilterEntry[Subscription], *, by_source: bool) -> KnownFilter:
    """Return the filter's entry; its origin matters only for strategies that compute trees per source."""
    senders = tuple(sorted(entry.senders)) or (entry.hop,)
    return KnownFilter(
        entry.value, entry.origin if by_source else "", senders, tuple(sorted(entry.sent_to)), entry.scoped
    )
