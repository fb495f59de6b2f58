"""What a broker tells of itself: readable by people and by programs, one line each, and nobody waits for it."""

import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings.broker import logs as logs_module
from tidings.broker.config.tables import LogsTable
from tidings.broker.logs import BrokerLogs, Log, LogLine
from tidings.model.errors import InvalidValueError

LOG = Log("tidings.broker")


def test_lines_for_people(tmp_path: Path) -> None:
    file = tmp_path / "broker.log"
    with BrokerLogs(LogsTable(file=str(file)), "b1"):
        LOG.debug("not told")
        LOG.info("connected", client="car-1", address=("127.0.0.1", 5), seconds=0.5, durable=None)
        LOG.warning("said 100%", by="a b")
    first, second = file.read_text().splitlines()
    assert first.endswith(" info    b1: connected client=car-1 address=\"('127.0.0.1', 5)\" seconds=0.5 durable=null")
    assert second.endswith(' warning b1: said 100% by="a b"')


def test_lines_for_programs(tmp_path: Path) -> None:
    file = tmp_path / "broker.log"
    with BrokerLogs(LogsTable(file=str(file), format="json", level="debug"), "b1"):
        LOG.debug("connected", client="car-1")
        try:
            raise ValueError("no")
        except ValueError:
            LOG.exception("failed")
        logging.getLogger("tidings").info("%d of %d", 1, 2)
    first, second, third = [json.loads(line) for line in file.read_text().splitlines()]
    assert first.pop("time").endswith("Z")
    assert first == {"level": "debug", "broker": "b1", "message": "connected", "fields": {"client": "car-1"}}
    assert second["level"] == "error"
    assert second["fields"]["exception"].endswith("ValueError: no")
    assert (third["message"], third["fields"]) == ("1 of 2", {})


@examples(100, 5_000)
@given(st.text(), st.dictionaries(st.sampled_from(["a", "b"]), st.text() | st.integers() | st.none()))
def test_whatever_is_told_is_one_line(message: str, fields: dict[str, object]) -> None:
    line = LogLine(1e9, "info", message, fields)
    assert len(line.as_text("b1").splitlines()) == 1
    read = json.loads(line.as_json("b1"))
    assert (read["message"], read["fields"]) == (message, fields)
    assert "\n" not in line.as_json("b1")
    assert read["time"] == "2001-09-09T01:46:40.000Z"


def test_a_change_takes_effect_at_once_and_opens_the_file_anew(tmp_path: Path) -> None:
    file = tmp_path / "broker.log"
    with BrokerLogs(LogsTable(file=str(file)), "b1") as logs:
        LOG.info("first")
        drain(logs)
        file.rename(tmp_path / "moved.log")
        logs.change(LogsTable(file=str(file), level="debug", format="json"))
        LOG.debug("second")
    assert "first" in (tmp_path / "moved.log").read_text()
    assert json.loads(file.read_text())["message"] == "second"


def drain(logs: BrokerLogs) -> None:
    """Returns when everything that was logged before is written."""
    done = threading.Event()
    write = LogLine.as_text

    def watched(line: LogLine, broker: str) -> str:
        if line.message == "drained":
            done.set()
        return write(line, broker)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogLine, "as_text", watched)
        LOG.info("drained")
        assert done.wait(60)


def test_a_change_that_cannot_be_made_leaves_all_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "broker.log"
    with BrokerLogs(LogsTable(file=str(file)), "b1") as logs:
        with pytest.raises(InvalidValueError, match=r"^logs\.file: .*: No such file or directory$"):
            logs.change(LogsTable(file=str(tmp_path / "none" / "broker.log"), level="error"))
        LOG.info("still here")
    assert "still here" in file.read_text()


def test_who_logs_never_waits_and_what_is_dropped_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, stuck, freed, write = tmp_path / "broker.log", threading.Event(), threading.Event(), LogLine.as_json

    def slowly(line: LogLine, broker: str) -> str:
        stuck.set()
        assert freed.wait(60)
        return write(line, broker)

    monkeypatch.setattr(LogLine, "as_json", slowly)
    monkeypatch.setattr(logs_module, "QUEUED_LINES", 3)
    with BrokerLogs(LogsTable(file=str(file), format="json"), "b1") as logs:
        LOG.info("stuck")
        assert stuck.wait(60)
        for number in range(10):
            LOG.info("told", number=number)
        assert logs.dropped == 7
        freed.set()
        while file.read_text().count("told") < 3:
            threading.Event().wait(0.01)
        LOG.info("room again")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["fields"] for line in lines] == [
        {},
        {"number": 0},
        {"number": 1},
        {"number": 2},
        {"dropped_before": 7},
    ]


def test_a_full_disk_costs_lines_and_nothing_else() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    with BrokerLogs(LogsTable(file="/dev/full"), "b1") as logs:
        LOG.info("lost")
        LOG.info("lost, too")
    assert logs.dropped == 2


def test_afterwards_logging_is_as_it_was(tmp_path: Path) -> None:
    logger = logging.getLogger("tidings")
    before = (logger.level, list(logger.handlers))
    with BrokerLogs(LogsTable(file=str(tmp_path / "broker.log"), level="debug"), "b1"):
        assert logger.level == logging.DEBUG
    assert (logger.level, list(logger.handlers)) == before


def test_libraries_may_warn_and_not_chat(tmp_path: Path) -> None:
    file = tmp_path / "broker.log"
    with BrokerLogs(LogsTable(file=str(file), level="debug"), "b1"):
        logging.getLogger("asyncio").debug("chatter")
        logging.getLogger("uvicorn.error").warning("trouble")
    [line] = file.read_text().splitlines()
    assert line.endswith("b1: trouble")


@pytest.mark.process
def test_without_a_file_lines_go_to_standard_error() -> None:
    program = (
        "from tidings.broker.config.tables import LogsTable\n"
        "from tidings.broker.logs import BrokerLogs, Log\n"
        "with BrokerLogs(LogsTable(), 'b1'): Log('tidings').info('begun', listen='127.0.0.1:7450')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == ""
    assert done.stderr.endswith("info    b1: begun listen=127.0.0.1:7450\n")
