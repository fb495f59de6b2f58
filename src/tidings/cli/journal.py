"""`tidings journal`: a journal looked at, checked, repaired and kept small."""

import contextlib
import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import typer

from tidings.cli.history import print_pairs
from tidings.cli.terminal import err, out, print_json
from tidings.journal import Journal, JournalReader, Retention
from tidings.journal import repair as repaired
from tidings.journal.check import check as checked
from tidings.model.errors import JournalError

_JSON_COLUMNS = ("attributes", "context", "body")


@contextlib.contextmanager
def _plainly(folder: Path) -> Iterator[None]:
    """What the file system refuses is told like everything else: in one line."""
    try:
        yield
    except OSError as error:
        raise JournalError(f"{error.filename or folder}: {error.strerror or error}", folder) from error


def check(folder: Path, *, as_json: bool) -> None:
    """Reads every byte and says what is there, and what is damaged; 1 if anything is."""
    with _plainly(folder):
        found = checked(folder)
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        whole = msgspec.to_builtins(found)
        print_pairs({name: whole[name] for name in ("journal", "first", "next", "records", "lost", "bytes")})
        if found.writer is not None:
            who = f"process {found.writer}" if found.writer else "a process"
            out.print(f"open in {who}: what was durable when the check began was read", markup=False, soft_wrap=True)
        for line in (*found.remarks, *found.damage):
            out.print(line, markup=False, soft_wrap=True)
        if not found.damage:
            out.print("nothing is damaged")
    if found.damage:
        raise typer.Exit(1)


def repair(folder: Path, *, dry_run: bool, as_json: bool) -> None:
    """Makes a damaged journal one that opens, or says what that would cost."""
    with _plainly(folder):
        report = repaired(folder, dry_run=dry_run)
    if as_json:
        lost = [{"first": first, "next": after} for first, after in report.lost]
        files = {"aside": [str(path) for path in report.aside], "renewed": [str(path) for path in report.renewed]}
        print_json({"dry_run": dry_run, "lost": lost, **files})
        return
    said = f"this would be done: {report}" if dry_run and report.is_needed else str(report)
    out.print(said, markup=False, soft_wrap=True)


def retain(folder: Path, days: float | None, size: int | None, *, as_json: bool) -> None:
    """Removes what is too old or too much, and nobody needs."""
    from tidings.hub.retaining import retain

    if days is None and size is None:
        raise typer.BadParameter("say how much is kept: --days, --bytes, or both")
    with _plainly(folder), Journal.open(folder, create=False) as journal:
        before = journal.size
        removed = retain(journal, Retention(days, size), time.time_ns() // 1000)
        left, first = journal.size, journal.first
    if as_json:
        print_json({"removed": removed, "freed": before - left, "bytes": left, "first": first})
        return
    said = f"files removed: {removed}, with {before - left:,} bytes; left: {left:,} bytes, from offset {first} on"
    out.print(said, soft_wrap=True)
    if size is not None and left > size:
        remark = "tidings: the rest is needed: for durable subscriptions, or since no snapshot stands for it"
        err.print(remark, soft_wrap=True)


def show(folder: Path, start: int | None, limit: int) -> None:
    """The durable records, a JSON object each."""
    for row in _rows(folder, start, limit):
        print_json(row)


def _rows(folder: Path, start: int | None, limit: int) -> Iterator[dict[str, Any]]:
    with _plainly(folder):
        reader = JournalReader(folder)
        begin = reader.first if start is None else start
        for batch in reader.read(begin, begin + limit):
            for row in batch.to_pylist():
                kept = {name: value for name, value in row.items() if value is not None and name != "journal"}
                yield {name: _plain(name, value) for name, value in kept.items()}


def _plain(name: str, value: Any) -> Any:
    """As JSON can say it: times with their zone, bytes in Base64, and what is JSON already as it is."""
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return msgspec.json.decode(value) if name in _JSON_COLUMNS else msgspec.to_builtins(value)
