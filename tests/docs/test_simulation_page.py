"""The reference of the simulation: parameters and settings are in its tables, each with its default."""

import inspect
import re
from typing import Any

import msgspec

from tests.docs.shell import ROOT
from tests.docs.tables import cells_of
from tidings.engine.settings import Settings
from tidings.simulation import World
from tidings.simulation.client import SimulatedClient

PAGE = (ROOT / "docs" / "reference" / "simulation.md").read_text()
OF_HUBS = {"name", "strategy", "host", "govern", "observers", "large_message_bytes"}


def rows_of(first: str) -> dict[str, str]:
    """The first two cells of each row of a table."""
    found = re.search(rf"^\| {re.escape(first)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert found is not None
    return {cells[0]: cells[1] for cells in map(cells_of, found[1].splitlines())}


def test_every_parameter_of_a_world_is_described_with_its_default() -> None:
    given = inspect.signature(World).parameters
    expected = {name: repr(one.default) for name, one in given.items() if one.kind is one.KEYWORD_ONLY}
    assert rows_of("parameter of `World`") == expected


def test_every_setting_of_brokers_is_described_with_its_default() -> None:
    fields: dict[str, Any] = {one.name: one.default for one in msgspec.structs.fields(Settings)}
    assert rows_of("setting") == {name: repr(one) for name, one in fields.items() if name not in OF_HUBS}
    assert all(f"`{name}`" in PAGE for name in OF_HUBS - {"name"})


def test_what_worlds_and_clients_do_is_named() -> None:
    of_world = {name for name, one in vars(World).items() if inspect.isfunction(one) and not name.startswith("_")}
    inside = {"broker", "new_event_id", "draw_reconnection_delay"}
    assert {name for name in of_world if f"`{name}(" not in PAGE and f", `{name}(" not in PAGE} <= inside
    for name in ("connect", "disconnect", "move", "set_context", "let_set_context", "set_policy", "schema"):
        assert hasattr(SimulatedClient, name)
        assert f"`{name}" in PAGE
