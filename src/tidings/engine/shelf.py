"""An engine on a shelf: its index in files that processes map into memory, and its subscriptions filed on demand.

This is how many workers have one engine with very many subscriptions: none of them makes an object of a subscription
that no event meets.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine import archive
from tidings.engine.compiling import compiled_text
from tidings.engine.cuts import NO_CUT, Cuts, cuts_of
from tidings.engine.directory import Directory
from tidings.engine.matcher import FastMatcher
from tidings.engine.ruled import Cut
from tidings.engine.tables import Filed, Table
from tidings.index.rows import read
from tidings.model.errors import InvalidValueError
from tidings.model.subscription import Subscription

if TYPE_CHECKING:
    from tidings.engine.engine import Engine
    from tidings.engine.settings import Settings
    from tidings.security.gate import Gate

_INDEX, _STATE, _CUTS = "index", "state", "cuts"


class Shelf(Table[Subscription]):
    """The subscriptions that an index holds as text; one is filed when somebody asks for it.

    Those of a batch (`those`) are only asked who gets what, and most have no policy: these are filed without reading
    their filters, which the index knows already.
    """

    def __init__(self, engine: "Engine", matcher: FastMatcher, cuts: Cuts) -> None:
        super().__init__()
        self._engine, self._matcher = engine, matcher
        self._rows = matcher.table()
        numbers, self._cuts = cuts.columns()
        governing = pa.array(sorted({*engine.settings.govern, engine.name}), pa.string())
        self._cut = np.where(np.asarray(pc.is_in(self._rows["subscriber"], governing)), NO_CUT, numbers)
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

    def cuts_at(self, directory: Directory) -> tuple[npt.NDArray[np.int32], list[Cut]] | None:
        if directory.positions is None or not (self._cuts or self._filed):
            return None
        positions, known = directory.positions, list(self._cuts)
        found = np.full(len(directory), NO_CUT, np.int32)
        old = positions < len(self._cut)
        found[old] = self._cut[positions[old]]
        if self._filed:  # some were read, or came later: what is said of them now counts
            filed = list(self._filed.values())
            places = pc.index_in(pa.array([one.id for one in filed], pa.string()), directory.ids).to_pylist()
            for one, place in zip(filed, places, strict=True):
                if place is not None:
                    found[place] = NO_CUT if one.cut is None else len(known)
                    known += [] if one.cut is None else [one.cut]
        return found, known

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

    def special(self) -> list[str]:
        """The ids of those of which more has to be known than who gets a copy: by the rules that `note_rules` notes."""
        rows = self._rows
        own = pc.equal(rows["subscriber"], self._engine.name).fill_null(False)
        more = pc.and_(_asks_more(rows), pa.array(self._cut == NO_CUT))
        found: list[str] = rows["id"].filter(pc.or_(own, more)).to_pylist()
        return found

    def _file(self, ids: list[str]) -> None:
        positions = [self._matcher.position(one) for one in ids]
        if any(at >= self._rows.num_rows for at in positions):  # they came after the index was loaded
            self._rows = self._matcher.table()
        rows = self._rows.take(pa.array(positions))
        special = pc.or_(_asks_more(rows), pc.is_valid(rows["token"]))
        for row in rows.filter(special).to_pylist():
            self._read(read(row))
        plain = rows.select(["id", "subscriber"]).filter(pc.invert(special))
        for row in plain.to_pylist():
            subscription = Subscription(id=row["id"], subscriber=row["subscriber"])
            self._plain[subscription.id] = self._engine.new_filed(subscription, subscription.subscriber, None)

    def _read(self, subscription: Subscription) -> Filed[Subscription]:
        policy = None if subscription.policy is None else compiled_text(subscription.policy)
        filed = self._engine.new_filed(subscription, subscription.subscriber, policy)
        self.put(filed)
        return filed


def put_up(engine: "Engine", folder: Path) -> None:
    """Writes an engine into a folder: what its index holds, and the rest of its state."""
    matcher = fast(engine)
    matcher.save(folder / _INDEX)
    (folder / _STATE).write_bytes(archive.saved(engine, subscriptions=False))
    (folder / _CUTS).write_bytes(msgspec.msgpack.encode(cuts_of(engine, matcher.table())))


def taken_down(settings: "Settings", folder: Path, *, verify: bool = False, gate: "Gate | None" = None) -> "Engine":
    """The engine that a folder holds, mapped into memory; changes stay in this process."""
    from tidings.engine.engine import Engine

    matcher = FastMatcher.load(folder / _INDEX, verify=verify)
    cuts = msgspec.msgpack.decode((folder / _CUTS).read_bytes(), type=Cuts)
    engine = Engine.restore(settings, (folder / _STATE).read_bytes(), matcher, gate)
    engine.subscriptions = shelf = Shelf(engine, matcher, cuts)
    for filed in shelf.those(shelf.special()):
        engine.note_rules(filed)
    return engine


def _asks_more(rows: pa.Table) -> Any:
    """Rows with a policy, and those that `is_known_by_name` does not hold for."""
    found = pc.equal(rows["notify"], "client").fill_null(False)
    for name in ("policy", "durable"):
        found = pc.or_(found, pc.is_valid(rows[name]))
    return found


def fast(engine: "Engine") -> FastMatcher:
    if not isinstance(engine.matcher, FastMatcher):
        raise InvalidValueError("only an engine with an index can be put on a shelf")
    return engine.matcher
