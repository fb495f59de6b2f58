"""The command `tidings history`: query a journal with Spark.

Spark replays the journal's events against the subscriptions, contexts and policies in force at the time ("retracing"),
and so computes which notifications there were, and why.
"""

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import typer

from tidings.cli.measurement import steps
from tidings.cli.options import parse_time
from tidings.cli.output import err, out, print_json, time_text
from tidings.journal.reader import JournalReader
from tidings.model.errors import TidingsError


class JournalSpan(NamedTuple):
    """A journal, and the time span of it that a query is about."""

    folder: Path
    since: str | None
    until: str | None
    reader: JournalReader

    @classmethod
    def of(cls, folder: Path, since: str | None, until: str | None) -> "JournalSpan":
        """Open the journal in `folder` and check the span.

        Raises typer.BadParameter if `until` is not later than `since`.
        """
        times = [parse_time(text, name) for text, name in ((since, "--since"), (until, "--until"))]
        if None not in times and times[0] >= times[1]:  # type: ignore[operator]
            raise typer.BadParameter("must be later than --since", param_hint="'--until'")
        return cls(folder, since, until, JournalReader(folder))

    @property
    def remark(self) -> str | None:
        """A remark if the oldest records were removed, so that operations among them do not count; else None."""
        first = self.reader.first
        if not first:
            return None
        return f"the journal begins at offset {first}: what was said before, and then taken away, does not count"

    def read(self, spark: Any) -> Any:
        """Return the durable records of the span as a DataFrame."""
        from tidings.spark import history

        return history.read(spark, str(self.folder), self.since, self.until, self.reader.end)


class HistoryOptions(NamedTuple):
    """The subscription or client that a query is about, and the row limit of its tables."""

    subscription: str | None = None
    client: str | None = None
    limit: int = 20


@contextmanager
def spark_journal(span: JournalSpan, total: int) -> Iterator[tuple[Any, Any]]:
    """Start Spark and show the progress; yield the journal's records as a DataFrame, and a function that names the
    next step.

    A Spark session that this function started is stopped at the end.
    """
    from tidings.spark import session
    from tidings.spark.session import is_running, unwrapped_spark_errors

    if span.remark is not None:
        err.print(f"tidings: {span.remark}", markup=False, soft_wrap=True)
    with steps(total + 1) as step, unwrapped_spark_errors():
        step("starting Spark")
        was_running = is_running()
        spark = session("tidings history")
        try:
            yield span.read(spark), step
        finally:
            if not was_running:
                spark.stop()


def summary(span: JournalSpan, options: HistoryOptions, *, as_json: bool) -> None:
    """Print how many events, notifications and refusals the journal has, and the notifications of each subscription.

    Raises TidingsError if the query is about a subscription or a client that the journal does not have.
    """
    from tidings.spark import retrace
    from tidings.spark.replay import journal_summary

    selection = {"subscription": options.subscription, "client": options.client}
    with spark_journal(span, 4) as (journal, step):
        step("counting")
        totals = journal_summary.overview(journal)
        retraced = retrace(journal)
        step("retracing: notifications")
        counts = retraced.per_subscription.cache()  # one row per subscription
        refusals = retraced.per_step.cache()
        try:
            totals["notifications"] = counts.agg({"notifications": "sum"}).first()[0] or 0
            step("subscriptions")
            subscriptions = _first_rows(journal_summary.subscriptions(journal, counts, **selection), options)
            step("retracing: what was refused")
            totals["refused"] = refusals.agg({"count": "sum"}).first()[0] or 0
            reasons = _first_rows(refusals.orderBy("step", "reason"), options)
        finally:
            counts.unpersist()
            refusals.unpersist()
    if not subscriptions and (options.subscription or options.client):
        raise TidingsError(f"the journal has no subscription {options.subscription or f'of {options.client}'}")
    if as_json:
        print_json(json_value({"journal": span.reader.name, **totals, "reasons": reasons, "subscribed": subscriptions}))
        return
    print_pairs({"journal": span.reader.name, **totals})
    print_table(reasons, ("step", "kind", "count", "reason"))
    print_table(subscriptions, ("id", "subscriber", "notifications", "last", "until", "content"))


def events(span: JournalSpan, options: HistoryOptions, *, as_json: bool) -> None:
    """Print events, and the subscriptions that each was delivered to."""
    from tidings.spark import retrace
    from tidings.spark.replay import journal_summary

    selection = {"subscription": options.subscription, "client": options.client}
    with spark_journal(span, 1) as (journal, step):
        step("retracing")
        collected = journal_summary.events(journal, retrace(journal), **selection).limit(options.limit).collect()
    rows = [row.asDict() for row in collected]
    if as_json:
        for row in rows:
            print_json(json_value(row))
        return
    for row in rows:
        row["subscriptions"] = ", ".join(row["subscriptions"]) or "nobody"
    print_table(rows, ("timestamp", "event_id", "publisher", "attributes", "subscriptions"))


def rules(span: JournalSpan, options: HistoryOptions, *, as_json: bool) -> None:
    """Print how many notifications each policy rule blocked and transformed."""
    from tidings.spark import per_rule

    with spark_journal(span, 1) as (journal, step):
        step("retracing, with policies and without")
        collected = per_rule(journal).orderBy("rule").limit(options.limit).collect()
    rows = [row.asDict() for row in collected]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        row["rule"] = row["rule"] or "rules on subscriptions"
    print_table(rows, ("rule", "blocked", "shaped"))
    if not rows:
        out.print("no policy has changed anything")


def why(span: JournalSpan, event: str, options: HistoryOptions, *, as_json: bool) -> None:
    """Print why an event did, or did not, reach a subscription or the subscriptions of a client.

    Args:
        span: The journal and the time span.
        event: The id of the event.
        options: Either a subscription or a client, and the row limit.
        as_json: Print JSON.

    Raises:
        typer.BadParameter: The question has neither a subscription nor a client, or both.
        TidingsError: The journal has no such event in the time span.
    """
    from tidings.spark import explain_journal
    from tidings.spark.replay import journal_summary

    if (options.subscription is None) == (options.client is None):
        raise typer.BadParameter("say of whom: --subscription ID, or --client NAME", param_hint="'--why'")
    with spark_journal(span, 1) as (journal, step):
        step("retracing")
        pairs = journal_summary.pairs(journal, event, subscription=options.subscription, client=options.client)
        collected = explain_journal(journal, pairs).orderBy("subscription_id").limit(options.limit).collect()
    rows = [row.asDict() for row in collected]
    if all(row["reason"].startswith("there is no event") for row in rows):
        period = "in that time" if span.since or span.until else "in the journal"
        raise TidingsError(f"there is no event {event} {period}; `tidings history {span.folder} --events` lists them")
    if as_json:
        print_json(rows)
        return
    for row in rows:
        row["delivered"] = "yes" if row["delivered"] else "no"
    print_table(rows, ("subscription_id", "delivered", "step", "reason"))


def _first_rows(frame: Any, options: HistoryOptions) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.limit(options.limit).collect()]


def json_value(value: Any) -> Any:
    """Convert times, also inside lists and dictionaries, to strings for JSON."""
    if isinstance(value, dict):
        return {name: json_value(element) for name, element in value.items()}
    if isinstance(value, list):
        return [json_value(element) for element in value]
    return time_text(value, "microseconds") if isinstance(value, dt.datetime) else value


def print_pairs(pairs: dict[str, Any]) -> None:
    """Print names and values, one pair a line."""
    width = max(len(name) for name in pairs) + 2
    for name, value in pairs.items():
        out.print(f"{name.replace('_', ' '):<{width}}{_format_value(value)}", markup=False, soft_wrap=True)


def print_table(rows: list[dict[str, Any]], names: tuple[str, ...]) -> None:
    """Print these columns of the rows as a table, or nothing if there are no rows."""
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    table = Table(*(name.replace("_", " ") for name in names), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(_format_value(row[name])) for name in names))
    out.print()
    out.print(table)


def _format_value(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return time_text(value)
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
