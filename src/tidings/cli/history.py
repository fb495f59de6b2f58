"""`tidings history`: questions to what was journaled, answered by Spark."""

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import typer

from tidings.cli.bench import steps
from tidings.cli.terminal import err, out, print_json
from tidings.cli.values import time_of
from tidings.journal.reader import JournalReader
from tidings.model.errors import TidingsError


class Span(NamedTuple):
    """A journal, and the part of it that is asked about."""

    folder: Path
    since: str | None
    until: str | None
    reader: JournalReader

    @classmethod
    def of(cls, folder: Path, since: str | None, until: str | None) -> "Span":
        times = [time_of(text, name) for text, name in ((since, "--since"), (until, "--until"))]
        if None not in times and times[0] >= times[1]:  # type: ignore[operator]
            raise typer.BadParameter("must be later than --since", param_hint="'--until'")
        return cls(folder, since, until, JournalReader(folder))

    @property
    def remark(self) -> str | None:
        first = self.reader.first
        if not first:
            return None
        return f"the journal begins at offset {first}: what was said before, and then taken away, does not count"

    def read(self, spark: Any) -> Any:
        """All that is durable now."""
        from tidings.spark import history

        return history.read(spark, str(self.folder), self.since, self.until, self.reader.end)


class Question(NamedTuple):
    subscription: str | None = None
    client: str | None = None
    limit: int = 20


@contextmanager
def asking(span: Span, total: int) -> Iterator[tuple[Any, Any]]:
    """The rows, and what is called with the name of each step; a Spark that was started for it is stopped."""
    from tidings.spark import session
    from tidings.spark.complaints import plainly
    from tidings.spark.session import is_running

    if span.remark is not None:
        err.print(f"tidings: {span.remark}", markup=False, soft_wrap=True)
    with steps(total + 1) as step, plainly():
        step("starting Spark")
        borrowed = is_running()
        spark = session("tidings history")
        try:
            yield span.read(spark), step
        finally:
            if not borrowed:
                spark.stop()


def summary(span: Span, question: Question, *, as_json: bool) -> None:
    """How much there was, and who got how much."""
    from tidings.spark import digest, retrace

    about = {"subscription": question.subscription, "client": question.client}
    with asking(span, 4) as (journal, step):
        step("counting")
        counted = digest.overview(journal)
        retraced = retrace(journal)
        step("retracing: notifications")
        counts = retraced.per_subscription.cache()  # a row a subscription
        refusals = retraced.per_step.cache()
        try:
            counted["notifications"] = counts.agg({"notifications": "sum"}).first()[0] or 0
            step("subscriptions")
            held = _first(digest.subscriptions(journal, counts, **about), question)
            step("retracing: what was refused")
            counted["refused"] = refusals.agg({"count": "sum"}).first()[0] or 0
            refused = _first(refusals.orderBy("step", "reason"), question)
        finally:
            counts.unpersist()
            refusals.unpersist()
    if not held and (question.subscription or question.client):
        raise TidingsError(f"the journal has no subscription {question.subscription or f'of {question.client}'}")
    if as_json:
        print_json(plain({"journal": span.reader.name, **counted, "reasons": refused, "subscribed": held}))
        return
    print_pairs({"journal": span.reader.name, **counted})
    print_table(refused, ("step", "kind", "count", "reason"))
    print_table(held, ("id", "subscriber", "notifications", "last", "until", "content"))


def events(span: Span, question: Question, *, as_json: bool) -> None:
    """Which events went to whom."""
    from tidings.spark import digest, retrace

    about = {"subscription": question.subscription, "client": question.client}
    with asking(span, 1) as (journal, step):
        step("retracing")
        found = digest.events(journal, retrace(journal), **about).limit(question.limit).collect()
    rows = [row.asDict() for row in found]
    if as_json:
        for row in rows:
            print_json(plain(row))
        return
    for row in rows:
        row["subscriptions"] = ", ".join(row["subscriptions"]) or "nobody"
    print_table(rows, ("timestamp", "event_id", "publisher", "attributes", "subscriptions"))


def rules(span: Span, question: Question, *, as_json: bool) -> None:
    """What policies blocked and shaped."""
    from tidings.spark import per_rule

    with asking(span, 1) as (journal, step):
        step("retracing, with policies and without")
        found = per_rule(journal).orderBy("rule").limit(question.limit).collect()
    rows = [row.asDict() for row in found]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        row["rule"] = row["rule"] or "rules on subscriptions"
    print_table(rows, ("rule", "blocked", "shaped"))
    if not rows:
        out.print("no policy has changed anything")


def why(span: Span, event: str, question: Question, *, as_json: bool) -> None:
    """Why an event did, or did not, reach a subscription, or those of a client."""
    from tidings.spark import digest, explain_journal

    if (question.subscription is None) == (question.client is None):
        raise typer.BadParameter("say of whom: --subscription ID, or --client NAME", param_hint="'--why'")
    with asking(span, 1) as (journal, step):
        step("retracing")
        pairs = digest.pairs(journal, event, subscription=question.subscription, client=question.client)
        found = explain_journal(journal, pairs).orderBy("subscription_id").limit(question.limit).collect()
    rows = [row.asDict() for row in found]
    if all(row["reason"].startswith("there is no event") for row in rows):
        said = "in that time" if span.since or span.until else "in the journal"
        raise TidingsError(f"there is no event {event} {said}; `tidings history {span.folder} --events` lists them")
    if as_json:
        print_json(rows)
        return
    for row in rows:
        row["delivered"] = "yes" if row["delivered"] else "no"
    print_table(rows, ("subscription_id", "delivered", "step", "reason"))


def _first(frame: Any, question: Question) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.limit(question.limit).collect()]


def plain(value: Any) -> Any:
    """As JSON can say it."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.isoformat() if isinstance(value, dt.datetime) else value


def print_pairs(found: dict[str, Any]) -> None:
    width = max(len(name) for name in found) + 2
    for name, value in found.items():
        out.print(f"{name.replace('_', ' '):<{width}}{_shown(value)}", markup=False, soft_wrap=True)


def print_table(rows: list[dict[str, Any]], names: tuple[str, ...]) -> None:
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    table = Table(*(name.replace("_", " ") for name in names), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(_shown(row[name])) for name in names))
    out.print()
    out.print(table)


def _shown(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
