"""Codes for terminals in what others have chosen: written out, wherever they stand."""

import io
import json

import pytest
from rich.console import Console
from rich.text import Text

from tidings.broker.logs import LogLine
from tidings.cli import output
from tidings.cli.actions.subscribe import _line
from tidings.cli.output import SanitizingHook, escape_control
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.model.notification import Notification

CODES = ["\x1b[2J", "\x07", "\r", "\x7f", "\x9b31m", "\u202e"]


@pytest.mark.parametrize("code", CODES)
def test_codes_are_written_out_and_the_rest_stays(code: str) -> None:
    assert escape_control(f"a{code}ä\t日\n") == f"a\\u{ord(code[0]):04x}{code[1:]}ä\t日\n"


@pytest.mark.parametrize("code", CODES)
def test_a_console_writes_its_own_codes_and_nobody_elses(code: str) -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, color_system="standard", width=200)
    console.push_render_hook(SanitizingHook())
    table = output.table("name")
    table.add_row(Text(f"x{code}y"))
    for one in (Text(f"x{code}y", style="red"), f"x{code}y", table):
        console.print(one, markup=False)
    assert code not in written.getvalue()
    assert "\x1b[31m" in written.getvalue()


@pytest.mark.parametrize("code", CODES)
def test_json_is_the_same_to_who_reads_it(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({f"a{code}": f"b{code}"})
    line = capsys.readouterr().out
    assert code not in line.removesuffix("\n")
    assert json.loads(line) == {f"a{code}": f"b{code}"}


@pytest.mark.parametrize("code", CODES)
def test_a_watched_event_says_nothing_to_the_terminal(code: str) -> None:
    name = f"p{code}"
    event = Event.of({name: name}, id=uuid7(5_000, bytes(10)), publisher=name, timestamp=5, sequence=1, subject=name)
    note = Notification(event=event, subscription="s", subscriber="car", attributes=event.attributes)
    with output.out.capture() as written:
        output.out.print(_line(note), soft_wrap=True)
    assert code not in written.get().removesuffix("\n")


@pytest.mark.parametrize("code", CODES)
def test_a_line_of_the_log_says_nothing_to_the_terminal(code: str) -> None:
    line = LogLine(0.0, "info", f"{code} has come", {"client": f"c{code}"}).as_text("b1")
    assert code not in line
