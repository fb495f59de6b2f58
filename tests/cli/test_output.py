"""What is shown in a table can be read, and copied, line by line."""

import datetime as dt
import io
import os
import subprocess
import sys
from collections import Counter

import pytest
from rich.console import Console

from tidings.cli.output import table, time_text

ADDRESS = "tidings://127.0.0.1:7450"


def shown(width: int, *rows: tuple[str, ...]) -> str:
    made = table("broker", "address", "links", "subscriptions")
    for row in rows:
        made.add_row(*row)
    written = io.StringIO()
    Console(file=written, width=width).print(made)
    return written.getvalue()


@pytest.mark.parametrize("width", [200, 60])
def test_words_stay_whole_as_long_as_there_is_room(width: int) -> None:
    told = shown(width, ("b1", ADDRESS, ", ".join(f"b{n}" for n in range(2, 9)), "0"))
    assert ADDRESS in told
    assert "subscriptions" in told
    assert max(map(len, told.splitlines())) <= width


def test_nothing_is_left_out_where_there_is_none() -> None:
    lines = shown(24, ("b1", ADDRESS, "b2, b3", "0")).splitlines()
    assert max(map(len, lines)) <= 24
    assert Counter(ADDRESS) <= Counter("".join(lines))


@pytest.mark.process
def test_behind_a_redirection_a_row_is_a_line() -> None:
    written = "from tidings.cli.output import out, table; t = table('a'); t.add_row('b ' * 200); out.print(t)"
    variables = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run([sys.executable, "-c", written], capture_output=True, text=True, env=variables, check=True)
    assert len(done.stdout.splitlines()) == 2  # the header is one


def test_every_command_shows_times_in_one_format() -> None:
    """Spark returns times without a zone, which are in the zone of this machine."""
    moment = dt.datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=dt.UTC)
    microseconds = int(moment.timestamp() * 1_000_000)
    assert time_text(microseconds) == time_text(moment) == "2026-01-31T12:00:00.123Z"
    assert time_text(moment.astimezone().replace(tzinfo=None)) == "2026-01-31T12:00:00.123Z"
    assert time_text(moment, "seconds") == "2026-01-31T12:00:00Z"
    assert time_text(moment, "microseconds") == "2026-01-31T12:00:00.123456Z"
