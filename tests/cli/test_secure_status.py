"""`tidings overlay status` says in a few words how things are at brokers' gates."""

from pathlib import Path

import pytest

from tests.broker.running_broker import running_broker
from tests.broker.secured import SECOND, LiveWorld
from tidings.cli.output import out
from tidings.cli.overlay.status import StatusTargets, status


def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, place: str) -> str:
    monkeypatch.setattr(out, "width", 250)
    status(StatusTargets([place], None, "watcher", None, place), as_json=False)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("next_update", "told"),
    [(None, "1 topics, list 0, "), (1, ", out of date, 0 refused"), (0, "1 topics, no list of revocations, 0 refused")],
)
def test_the_gate_has_a_column(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    next_update: int | None,
    told: str,
) -> None:
    world = LiveWorld(tmp_path)
    if next_update:
        world.list_file.write_bytes(world.update(next_update=next_update - SECOND).data)
    given = world.security("b1", **({"revocations": ""} if next_update == 0 else {}))
    with running_broker(**given) as address:
        assert told in shown(capsys, monkeypatch, f"tidings://{address}")


def test_where_there_is_no_gate_there_is_no_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_broker() as address:
        assert "security" not in shown(capsys, monkeypatch, f"tidings://{address}")
