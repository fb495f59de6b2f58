"""What a broker writes down of its debts, and what it makes of what is sent again."""

from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tests.spark.mortal import MortalDriver, take_all
from tidings.broker.journal_extension import read_redelivery_row, redelivery_floor_row, redelivery_row
from tidings.engine import journal_codec
from tidings.engine.overlay.redelivery import RedeliveryState
from tidings.journal import PASSED, Journal
from tidings.runtime import delivery_record
from tidings.simulation.checking.steps import Publishes, Returns, SetsContext, Subscribes
from tidings.simulation.topologies import line

NAMES, OFFSETS = st.text(min_size=1, max_size=5), st.integers(0, 2**60)
STATES = st.builds(
    RedeliveryState,
    floor=OFFSETS,
    owed=st.dictionaries(NAMES, OFFSETS, max_size=3),
    moved=st.lists(st.tuples(NAMES, NAMES, OFFSETS), max_size=3),
    known=st.frozensets(NAMES, max_size=3),
)


@examples(30, 1_000)
@given(STATES)
def test_debts_are_read_as_they_were_written(state: RedeliveryState) -> None:
    assert read_redelivery_row(redelivery_row(state)) == state


@examples(30, 1_000)
@given(STATES, OFFSETS)
def test_a_row_of_the_floor_alone_leaves_the_rest_as_it_was(state: RedeliveryState, floor: int) -> None:
    assert read_redelivery_row(redelivery_floor_row(floor), state) == msgspec.structs.replace(state, floor=floor)


def test_what_is_sent_again_after_a_power_cut_is_not_judged_by_what_clients_say_now(tmp_path: Path) -> None:
    driver = MortalDriver(line(2), tmp_path / "before")
    try:
        take_all(
            driver,
            [
                SetsContext("ann", {"x": 1}),
                SetsContext("bob", {"x": 2}),
                SetsContext("cyd", {}),
                Subscribes("dan", "dan.3", "", None, None, "d"),
                Subscribes("bob", "bob.3", "", "x = this.x", None, "d"),
            ],
        )
        told = [take_all(driver, [Publishes("ann", {"a": number}, None)]) for number in range(3)]
        assert [[one.client for one in event] for event in told] == [["dan"]] * 3
        take_all(driver, [SetsContext("bob", {"x": 1})])
        driver.power_cut(tmp_path / "before", tmp_path / "after")
        assert take_all(driver, [Returns(name) for name in ("ann", "bob", "cyd", "dan")]) == []
    finally:
        driver.close()
    with Journal.open(tmp_path / "after" / "b2") as journal:
        rows = [record.operation for record in journal.read() if record.operation.kind == PASSED]
    assert [delivery_record.subscriptions(journal_codec.driver_notes(row)[delivery_record.DUE]) for row in rows] == [
        ["dan.3"]
    ] * 3
