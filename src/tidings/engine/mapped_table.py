"""An engine saved in a folder: its index in memory-mapped files, its subscriptions decoded on demand.

Many worker processes can load the same folder: they share the mapped memory, and none of them creates an object for a
subscription that no event matches.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.engine import Engine
from tidings.engine.matcher import FastMatcher
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.filter_rules import StaticProjection, compiled_text
from tidings.engine.state.filters import FilterEntry, FilterTable
from tidings.engine.state.recipients import RecipientColumns
from tidings.engine.state.registration import new_entry
from tidings.engine.state.static_projections import NO_PROJECTION, StaticProjections, static_projections_of
from tidings.model.errors import InvalidValueError
from tidings.model.subscription import Subscription
from tidings.text_index import subscription_of

if TYPE_CHECKING:
    from tidings.engine.settings import Settings
    from tidings.security.gate import Gate

_INDEX, _STATE, _PROJECTIONS = "index", "state", "cuts"


class MappedTable(FilterTable[Subscription]):
    """A table over the subscriptions that an index stores as text; an entry is created when it is first asked for.

    A batch (`get_many`) asks only for the recipients of events, and most subscriptions have no policy: their entries
    are created without parsing the filters, which only the index needs.
    """

    def __init__(self, state: BrokerState, matcher: FastMatcher, cuts: StaticProjections) -> None:
        super().__init__()
        self._state, self._matcher = state, matcher
        self._rows = matcher.table()
        numbers, self._projections = cuts.columns()
        governing = pa.array(sorted({*state.settings.govern, state.name}), pa.string())
        self._projection_numbers = np.where(
            np.asarray(pc.is_in(self._rows["subscriber"], governing)), NO_PROJECTION, numbers
        )
        self._plain: dict[str, FilterEntry[Subscription]] = {}

    def __len__(self) -> int:
        return len(self._matcher)

    def __iter__(self) -> Iterator[FilterEntry[Subscription]]:
        return (self[subscription.id] for subscription in self._matcher.subscriptions())

    def __getitem__(self, id: str) -> FilterEntry[Subscription]:  # noqa: A002 - the subscription's own word
        found = self._entries.get(id)
        return self._read(self._matcher.subscription(id)) if found is None else found

    def get(self, id: str) -> FilterEntry[Subscription] | None:  # noqa: A002
        return self[id] if id in self._matcher else None

    def get_many(self, ids: Iterable[str]) -> list[FilterEntry[Subscription]]:
        wanted = list(ids)
        unknown = [
            subscription_id
            for subscription_id in wanted
            if subscription_id not in self._entries and subscription_id not in self._plain
        ]
        if unknown:
            self._create_entries(unknown)
        return [self._entries.get(subscription_id) or self._plain[subscription_id] for subscription_id in wanted]

    def projections_of(
        self, directory: RecipientColumns
    ) -> tuple[npt.NDArray[np.int32], list[StaticProjection]] | None:
        if directory.positions is None or not (self._projections or self._entries):
            return None
        positions, projections = directory.positions, list(self._projections)
        numbers = np.full(len(directory), NO_PROJECTION, np.int32)
        old = positions < len(self._projection_numbers)
        numbers[old] = self._projection_numbers[positions[old]]
        if self._entries:  # decoded or later entries may have changed: they override the columns
            entries = list(self._entries.values())
            places = pc.index_in(
                pa.array([subscription.id for subscription in entries], pa.string()), directory.ids
            ).to_pylist()
            for one, place in zip(entries, places, strict=True):
                if place is not None:
                    numbers[place] = NO_PROJECTION if one.projection is None else len(projections)
                    projections += [] if one.projection is None else [one.projection]
        return numbers, projections

    def of(self, owner: str) -> list[FilterEntry[Subscription]]:
        at_first = self._rows["id"].filter(pc.equal(self._rows["subscriber"], owner)).to_pylist()
        since = [entry.id for entry in super().of(owner)]
        found = [self[one] for one in dict.fromkeys([*at_first, *since]) if one in self._matcher]
        return [entry for entry in found if entry.owner == owner]  # a freed id may have another owner now

    def put(self, entry: FilterEntry[Subscription]) -> None:
        self._plain.pop(entry.id, None)
        super().put(entry)

    def remove(self, id: str) -> FilterEntry[Subscription]:  # noqa: A002
        self._plain.pop(id, None)
        _ = self[id]
        return super().remove(id)

    def special(self) -> list[str]:
        """Return the ids of the subscriptions for which `RuleIndex.update` must be called after loading.

        They are the broker's own, and those of which a delivery must know more than id and subscriber.
        """
        rows = self._rows
        own = pc.equal(rows["subscriber"], self._state.name).fill_null(False)
        more = pc.and_(_needs_more_columns(rows), pa.array(self._projection_numbers == NO_PROJECTION))
        found: list[str] = rows["id"].filter(pc.or_(own, more)).to_pylist()
        return found

    def _create_entries(self, ids: list[str]) -> None:
        positions = [self._matcher.position(one) for one in ids]
        if any(at >= self._rows.num_rows for at in positions):  # subscriptions that were added after loading
            self._rows = self._matcher.table()
        rows = self._rows.take(pa.array(positions))
        special = pc.or_(_needs_more_columns(rows), pc.is_valid(rows["token"]))
        for row in rows.filter(special).to_pylist():
            self._read(subscription_of(row))
        plain = rows.select(["id", "subscriber"]).filter(pc.invert(special))
        for row in plain.to_pylist():
            subscription = Subscription(id=row["id"], subscriber=row["subscriber"])
            self._plain[subscription.id] = new_entry(self._state, subscription, subscription.subscriber, None)

    def _read(self, subscription: Subscription) -> FilterEntry[Subscription]:
        policy = None if subscription.policy is None else compiled_text(subscription.policy)
        entry = new_entry(self._state, subscription, subscription.subscriber, policy)
        self.put(entry)
        return entry


def save(engine: Engine, folder: Path) -> None:
    """Write an engine into a folder: its index, its fixed projections, and the rest of its state.

    Raises `InvalidValueError` if the engine's matcher is not an index.
    """
    matcher = index_of(engine.state)
    matcher.save(folder / _INDEX)
    (folder / _STATE).write_bytes(engine.save(subscriptions=False))
    (folder / _PROJECTIONS).write_bytes(msgspec.msgpack.encode(static_projections_of(engine.state, matcher.table())))


def load(settings: "Settings", folder: Path, *, verify: bool = False, gate: "Gate | None" = None) -> Engine:
    """Return the engine saved in a folder, mapped into memory. Changes stay in this process.

    Args:
        settings: The configuration of the engine.
        folder: The folder that `save` wrote.
        verify: Whether to check the index files for damage.
        gate: The gate, for engines with secure topics.
    """
    matcher = FastMatcher.load(folder / _INDEX, verify=verify)
    cuts = msgspec.msgpack.decode((folder / _PROJECTIONS).read_bytes(), type=StaticProjections)
    engine = Engine.restore(settings, (folder / _STATE).read_bytes(), matcher, gate)
    engine.state.filters.subscriptions = table = MappedTable(engine.state, matcher, cuts)
    for entry in table.get_many(table.special()):
        engine.state.rules.update(entry)
    return engine


def _needs_more_columns(rows: pa.Table) -> Any:
    """Return which rows have a policy, a durable name or notify="client"."""
    found = pc.equal(rows["notify"], "client").fill_null(False)
    for name in ("policy", "durable"):
        found = pc.or_(found, pc.is_valid(rows[name]))
    return found


def index_of(state: BrokerState) -> FastMatcher:
    """Return the index of an engine's state. Raises `InvalidValueError` if its matcher is not one."""
    matcher = state.filters.matcher
    if not isinstance(matcher, FastMatcher):
        raise InvalidValueError("only an engine with an index can be put on a table")
    return matcher
