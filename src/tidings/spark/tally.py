"""What a task has to say of itself, in one row of its output: counts, and where its shard stands now."""

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidings.spark.standing import Place


class Tally(msgspec.Struct, kw_only=True, omit_defaults=True):
    shard: int | None = None
    place: Place | None = None
    events: int = 0  # that were looked at
    changes: int = 0
    matched: int = 0  # events that concern somebody
    matches: int = 0  # how often
    rejected: int = 0
    late: int = 0  # of the rejected
    meta_events: int = 0
    latest: int | None = None  # the latest time of all

    def add(self, physical: pa.Table) -> pa.Table:
        """Counts physical rows, and hands them on."""
        for name in ("subscriptions", "notes"):
            found = physical[name].drop_null()
            self.matched += len(found)
            self.matches += pc.sum(pc.list_value_length(found)).as_py() or 0
        self.rejected += len(physical) - physical["step"].null_count
        self.late += pc.sum(pc.equal(physical["step"], "late")).as_py() or 0
        self.meta_events += len(physical) - physical["meta"].null_count
        return physical

    def see(self, table: pa.Table, is_event: pa.ChunkedArray, *, counts_events: bool) -> None:
        """Counts rows that came in; what all shards see is counted by one."""
        events = pc.sum(is_event).as_py() or 0
        self.events += events if counts_events else 0
        self.changes += len(table) - events

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


def total(tallies: list[Tally]) -> Tally:
    """All together; no shard in particular."""
    times = [one.latest for one in tallies if one.latest is not None]
    counted = ("events", "changes", "matched", "matches", "rejected", "late", "meta_events")
    sums = {name: sum(getattr(one, name) for one in tallies) for name in counted}
    return Tally(latest=max(times, default=None), **sums)
