"""The reference of scenario files: every key is in its table, in order and with its default, and nothing else is."""

import re
import tomllib
from typing import Any

import msgspec
import pytest

from tests.docs.shell import ROOT
from tests.docs.tables import cells_of
from tidings.simulation.faults import KINDS
from tidings.simulation.scenario import Scenario
from tidings.simulation.scenario.clients import AdvertisementSpec, ClientGroup, SubscriptionSpec
from tidings.simulation.scenario.overlay import SHAPES, OverlaySpec
from tidings.simulation.scenario.scenario import FaultSpec, PublicationsSpec, Workload

PAGE = (ROOT / "docs" / "reference" / "scenario-file.md").read_text()
TABLES: dict[str, type[msgspec.Struct]] = {
    "the file": Scenario,
    "`[overlay]`": OverlaySpec,
    "`[[clients]]`": ClientGroup,
    "`subscriptions`": SubscriptionSpec,
    "`advertisements`": AdvertisementSpec,
    "`[workload]`": Workload,
    "`[[workload.publications]]`": PublicationsSpec,
    "`[[faults]]`": FaultSpec,
}


def rows_of(table: str) -> dict[str, str]:
    """The keys in a table of the page, each with its default as it is written."""
    found = re.search(rf"^\| key of {re.escape(table)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert found is not None, f"the page has no table of the keys of {table}"
    lines = found[1].splitlines()
    return {cells_of(line)[0]: re.split(r"(?<!\\)\|", line)[2].strip() for line in lines}


def default_of(field: Any) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default


@pytest.mark.parametrize("table", TABLES)
def test_every_key_is_described_with_its_default(table: str) -> None:
    rows, fields = rows_of(table), msgspec.structs.fields(TABLES[table])
    assert list(rows) == [field.name for field in fields]
    for field in fields:
        default, written = default_of(field), rows[field.name]
        if default is None or isinstance(default, msgspec.Struct):
            assert "`" not in written.replace("`advertisement`", ""), f"{field.name} has no default but words"
        else:
            assert tomllib.loads(f"it = {written.strip('`')}")["it"] == default


def test_there_are_no_other_tables_of_keys() -> None:
    assert re.findall(r"^\| key of (.*?) \|", PAGE, re.MULTILINE) == list(TABLES)


def test_shapes_and_kinds_are_all_named() -> None:
    assert all(f"`{name}`" in PAGE for name in (*SHAPES, *KINDS))


def test_the_example_of_the_page_is_a_scenario() -> None:
    [example] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    scenario = msgspec.convert(tomllib.loads(example), Scenario)
    assert list(scenario.mistakes()) == []
    assert (scenario.seed, len(scenario.clients), len(scenario.faults)) == (7, 2, 2)
