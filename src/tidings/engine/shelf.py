"""An engine on a shelf: its index in files that processes map into memory, and its subscriptions filed on demand.

This is how many workers have one engine with very many subscriptions: none of them makes an object of a subscription
that no event meets.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine import archive
from tidings.engine.compiling import compiled_text
from tidings.engine.matcher import FastMatcher
from tidings.engine.tables import Filed, Table
from tidings.index.rows import read
from tidings.model.errors import InvalidValueError
from tidings.model.subscription import Subscription

if TYPE_CHECKING:
    from tidings.engine.engine import Engine
    from tidings.engine.settings import Settings

_INDEX, _STATE = "index", "state"


class Shelf(Table[Subscription]):
    """The subscriptions that an index holds as text; one is filed when somebody asks for it.

    Those of a batch (`those`) are only asked who gets what, and most have no policy: these are filed without reading
    their filters, which the index knows already.
    """

    def __init__(self, engine: "Engine", matcher: FastMatcher) -> None:
        super().__init__()
        self._engine, self._matcher = engine, matcher
        self._rows = matcher.table()
        self._plain: dict[str, Filed[Subscription]] = {}

    def __len__(self) -> int:
        return len(self._matcher)

    def __iter__(self) -> Iterator[Filed[Subscription]]:
        return (self[one.id] for one in self._matcher.subscriptions())

    def __getitem__(self, id: str) -> Filed[Subscription]:  # noqa: A002 - the subscription's own word
        found = self._filed.get(id)
        return self._read(self._matcher.subscription(id)) if found is None else found

    def get(self, id: str) -> Filed[Subscription] | None:  # noqa: A002
        return self[id] if id in self._matcher else None

    def those(self, ids: Iterable[str]) -> list[Filed[Subscription]]:
        wanted = list(ids)
        unknown = [one for one in wanted if one not in self._filed and one not in self._plain]
        if unknown:
            self._file(unknown)
        return [self._filed.get(one) or self._plain[one] for one in wanted]

    def of(self, owner: str) -> list[Filed[Subscription]]:
        at_first = self._rows["id"].filter(pc.equal(self._rows["subscriber"], owner)).to_pylist()
        since = [one.id for one in super().of(owner)]
        found = [self[one] for one in dict.fromkeys([*at_first, *since]) if one in self._matcher]
        return [one for one in found if one.owner == owner]  # an id that was given back may be somebody else's by now

    def put(self, filed: Filed[Subscription]) -> None:
        self._plain.pop(filed.id, None)
        super().put(filed)

    def remove(self, id: str) -> Filed[Subscription]:  # noqa: A002
        self._plain.pop(id, None)
        _ = self[id]
        return super().remove(id)

    def with_policies(self) -> list[str]:
        found: list[str] = self._rows["id"].filter(pc.is_valid(self._rows["policy"])).to_pylist()
        return found

    def _file(self, ids: list[str]) -> None:
        positions = [self._matcher.position(one) for one in ids]
        if any(at >= self._rows.num_rows for at in positions):  # they came after the index was loaded
            self._rows = self._matcher.table()
        rows = self._rows.take(pa.array(positions))
        special = pc.or_(pc.is_valid(rows["policy"]), pc.equal(rows["notify"], "client").fill_null(False))
        for row in rows.filter(special).to_pylist():
            self._read(read(row))
        plain = rows.select(["id", "subscriber", "durable"]).filter(pc.invert(special))
        for row in plain.to_pylist():
            subscription = Subscription(id=row["id"], subscriber=row["subscriber"], durable=row["durable"])
            self._plain[subscription.id] = self._engine.new_filed(subscription, subscription.subscriber, None)

    def _read(self, subscription: Subscription) -> Filed[Subscription]:
        policy = None if subscription.policy is None else compiled_text(subscription.policy)
        filed = self._engine.new_filed(subscription, subscription.subscriber, policy)
        self.put(filed)
        return filed


def put_up(engine: "Engine", folder: Path) -> None:
    """Writes an engine into a folder: what its index holds, and the rest of its state."""
    matcher = _fast(engine)
    matcher.save(folder / _INDEX)
    (folder / _STATE).write_bytes(archive.saved(engine, subscriptions=False))


def taken_down(settings: "Settings", folder: Path, *, verify: bool = False) -> "Engine":
    """The engine that a folder holds, mapped into memory; changes stay in this process."""
    from tidings.engine.engine import Engine

    matcher = FastMatcher.load(folder / _INDEX, verify=verify)
    engine = Engine.restore(settings, (folder / _STATE).read_bytes(), matcher)
    engine.subscriptions = shelf = Shelf(engine, matcher)
    for filed in shelf.those(shelf.with_policies()):
        engine.note_rules(filed)
    return engine


def _fast(engine: "Engine") -> FastMatcher:
    if not isinstance(engine.matcher, FastMatcher):
        raise InvalidValueError("only an engine with an index can be put on a shelf")
    return engine.matcher
