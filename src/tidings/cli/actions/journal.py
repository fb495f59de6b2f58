"""The commands of `tidings journal`: check, repair, trim and show a journal."""

import contextlib
import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import typer

from tidings.cli.actions.history import print_pairs
from tidings.cli.output import err, out, print_json
from tidings.journal import Journal, JournalReader, Retention
from tidings.journal import repair as repair_journal
from tidings.journal.check import check as check_journal
from tidings.model.errors import JournalError

_JSON_COLUMNS = ("attributes", "context", "body")


@contextlib.contextmanager
def _journal_errors(folder: Path) -> Iterator[None]:
    """Turn an OSError of the body into a JournalError that fits into one line."""
    try:
        yield
    except OSError as error:
        raise JournalError(f"{error.filename or folder}: {error.strerror or error}", folder) from error


def check(folder: Path, *, as_json: bool) -> None:
    """Read every durable byte of a journal, and print its extent and its damage.

    Raises typer.Exit(1) if it is damaged.
    """
    with _journal_errors(folder):
        report = check_journal(folder)
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        values = msgspec.to_builtins(report)
        print_pairs({name: values[name] for name in ("journal", "first", "next", "records", "lost", "bytes")})
        if report.writer is not None:
            writer = f"process {report.writer}" if report.writer else "a process"
            out.print(f"open in {writer}: what was durable when the check began was read", markup=False, soft_wrap=True)
        for line in (*report.remarks, *report.damage):
            out.print(line, markup=False, soft_wrap=True)
        if not report.damage:
            out.print("nothing is damaged")
    if report.damage:
        raise typer.Exit(1)


def repair(folder: Path, *, dry_run: bool, as_json: bool) -> None:
    """Repair a damaged journal so that it opens, or, with `dry_run`, print what the repair would do and lose."""
    with _journal_errors(folder):
        report = repair_journal(folder, dry_run=dry_run)
    if as_json:
        lost = [{"first": first, "next": after} for first, after in report.lost]
        files = {"aside": [str(path) for path in report.aside], "renewed": [str(path) for path in report.renewed]}
        print_json({"dry_run": dry_run, "lost": lost, **files})
        return
    text = f"this would be done: {report}" if dry_run and report.is_needed else str(report)
    out.print(text, markup=False, soft_wrap=True)


def retain(folder: Path, days: float | None, size: int | None, *, as_json: bool) -> None:
    """Remove the oldest files of a journal, and print how many.

    A file stays if a durable subscription has not acknowledged its records, or if no snapshot covers them.

    Args:
        folder: The journal's folder.
        days: Remove files older than this; None: no limit.
        size: Remove files beyond this size of the journal in bytes; None: no limit.
        as_json: Print JSON.

    Raises:
        typer.BadParameter: Neither limit is set.
    """
    from tidings.runtime.journal_upkeep import retain

    if days is None and size is None:
        raise typer.BadParameter("one of --days and --bytes is required")
    with _journal_errors(folder), Journal.open(folder, create=False) as journal:
        size_before = journal.size
        removed = retain(journal, Retention(days, size), time.time_ns() // 1000)
        size_left, first = journal.size, journal.first
    if as_json:
        print_json({"removed": removed, "freed": size_before - size_left, "bytes": size_left, "first": first})
        return
    freed = size_before - size_left
    text = f"files removed: {removed}, with {freed:,} bytes; left: {size_left:,} bytes, from offset {first} on"
    out.print(text, soft_wrap=True)
    if size is not None and size_left > size:
        remark = "tidings: the rest is needed: for durable subscriptions, or since no snapshot stands for it"
        err.print(remark, soft_wrap=True)


def show(folder: Path, start: int | None, limit: int) -> None:
    """Print at most `limit` durable records from offset `start` on, as JSON lines; None starts at the oldest record."""
    for row in _rows(folder, start, limit):
        print_json(row)


def _rows(folder: Path, start: int | None, limit: int) -> Iterator[dict[str, Any]]:
    with _journal_errors(folder):
        reader = JournalReader(folder)
        begin = reader.first if start is None else start
        for batch in reader.read(begin, begin + limit):
            for row in batch.to_pylist():
                fields = {name: value for name, value in row.items() if value is not None and name != "journal"}
                yield {name: _json_value(name, value) for name, value in fields.items()}


def _json_value(name: str, value: Any) -> Any:
    """Return a column's value for JSON: times in ISO format, bytes in Base64, JSON columns decoded."""
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return msgspec.json.decode(value) if name in _JSON_COLUMNS else msgspec.to_builtins(value)
