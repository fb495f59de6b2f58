"""What a broker knows for routing, as a value to be compared: never when it learnt of it, nor in which version."""

from typing import Any

import msgspec

from tidings.engine import Engine
from tidings.engine.tables import Filed
from tidings.model.advertisement import Advertisement
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.routing.announced import Situation
from tidings.routing.spcf import content_table


class Known(msgspec.Struct, frozen=True):
    """A filter: where it came from, and where it was sent."""

    value: Advertisement | Subscription
    origin: str
    senders: tuple[str, ...]
    sent: tuple[str, ...]
    is_scoped: bool


class Knowledge(msgspec.Struct, frozen=True):
    neighbours: tuple[str, ...]
    filters: dict[str, Known]
    contexts: dict[str, Context]
    announced: dict[str, dict[bytes, Situation]]  # by broker (spcf)
    content: dict[tuple[str, bytes, str], set[str]]  # broker, context, neighbour -> subscriptions behind it (spcf)

    @classmethod
    def of(cls, engine: Engine) -> "Knowledge":
        announces = engine.strategy.announces
        return cls(
            tuple(sorted(engine.neighbours)),
            {one.id: _known(one, by_source=engine.strategy.by_source) for one in engine.filed()},
            {
                name: context for name, context in engine.tables().contexts.items() if context
            },  # an empty one is as good as none
            {name: dict(found) for name in engine.announced.brokers() if (found := engine.announced.of(name))},
            content_table(engine, list(engine.subscriptions)) if announces else {},
        )

    def differences(self, other: "Knowledge") -> list[str]:
        """What is known here and not there, or otherwise; and the other way round."""
        found: list[str] = []
        for field in self.__struct_fields__:
            here, there = getattr(self, field), getattr(other, field)
            if here == there:
                continue
            if isinstance(here, dict):
                names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
                found += [f"{field} {name}: {_difference(here.get(name), there.get(name))}" for name in names]
            else:
                found.append(f"{field}: {_difference(here, there)}")
        return found


def _difference(here: Any, there: Any) -> str:
    if isinstance(here, Known) and isinstance(there, Known):
        names = (name for name in Known.__struct_fields__ if getattr(here, name) != getattr(there, name))
        return ", ".join(f"{name} {_difference(getattr(here, name), getattr(there, name))}" for name in names)
    return f"{here} instead of {there}"


def _known(filed: Filed[Advertisement] | Filed[Subscription], *, by_source: bool) -> Known:
    """Whose client has it counts only where trees are computed from that."""
    senders = tuple(sorted(filed.senders)) or (filed.hop,)
    return Known(filed.value, filed.origin if by_source else "", senders, tuple(sorted(filed.sent)), filed.scoped)
