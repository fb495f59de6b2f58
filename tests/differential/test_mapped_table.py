"""An engine that was put on a shelf and taken down gives what the engine would have given, whatever rules say, and also
after changes: what always cuts alike, or asks for no more than a copy, is decided in columns there."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.differential.test_batch import columns_table, delivered, noted
from tests.engine.messages import publish, subscribe
from tests.sizes import examples
from tidings import policies
from tidings.engine import Engine, Settings
from tidings.engine.batch import publication_run
from tidings.engine.mapped_table import load, save
from tidings.engine.operations import SetPolicy, Unsubscribe
from tidings.model.schema import AttributeFilter, Schema

_LOOP = Schema("Loop", {"a": int, "b": float})
_LOGS = (
    'PolicyStatement { On(Publication) { If {} Then {RemoveAttributes("a")} } On(Publication) { If {} Then {Log()} } }'
)
_KEEPS = 'PolicyStatement { On(Publication) { If {} Then {KeepOnlyAttributes("a", "c") RemoveAttributes("c")} } }'
_CUTS = [None, str(policies.trim()), str(policies.remove("b")), _KEEPS]
_POLICIES = [*_CUTS, str(policies.remove("a", convert="json")), _LOGS]
_CONTENTS = ["", "a > 1", "a > 0 or c = 'x'", "b < 2.5 and a > 0", "c LIKE 'x%'"]
_STRUCTURES = st.sampled_from([None, None, AttributeFilter(_LOOP, names={"a"})])
_SUBSCRIPTIONS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "content": st.sampled_from(_CONTENTS),
        "client": st.sampled_from(["ann", "bob", "cyd", "hub"]),
        "policy": st.sampled_from(_POLICIES),
        "notify": st.sampled_from(["subscription", "subscription", "client"]),
        "durable": st.sampled_from([None, None, "d"]),
        "structure": _STRUCTURES,
    }
)
_SIMPLE: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "content": st.sampled_from(_CONTENTS),
        "client": st.sampled_from(["ann", "bob"]),
        "policy": st.sampled_from(_CUTS),
        "structure": _STRUCTURES,
    }
)
_EVENTS = st.lists(
    st.fixed_dictionaries(
        {"a": st.integers(0, 3)},
        optional={"b": st.sampled_from([1.0, 2.5]), "c": st.sampled_from(["x", "xy", "z"])},
    ),
    min_size=1,
    max_size=6,
)


def changed(engine: Engine, changes: list[tuple[str, int, dict[str, Any]]], owners: dict[str, str]) -> None:
    for what, number, said in changes:
        name = f"s{number}"
        if what == "subscribe" or name not in owners:
            engine.handle(subscribe(name, **said), 1)
            owners[name] = said["client"]
        elif what == "unsubscribe":
            engine.handle(Unsubscribe(owners.pop(name), name), 1)
        else:
            engine.handle(SetPolicy(owners[name], name, said["policy"]), 1)


@given(
    st.lists(_SIMPLE, max_size=8) | st.lists(_SUBSCRIPTIONS, max_size=8),
    _EVENTS,
    st.lists(
        st.tuples(st.sampled_from(["subscribe", "unsubscribe", "set policy"]), st.integers(0, 9), _SUBSCRIPTIONS),
        max_size=3,
    ),
)
@examples(35, 1000)
def test_what_was_on_a_shelf_is_what_it_was(
    subscriptions: list[dict[str, Any]], events: list[dict[str, Any]], changes: list[tuple[str, int, dict[str, Any]]]
) -> None:
    publication_run.MAX_SINGLE_ROWS = 0
    settings = Settings(govern=frozenset({"cyd"}))
    engine, owners = Engine(settings), dict[str, str]()
    changed(engine, [("subscribe", number, said) for number, said in enumerate(subscriptions)], owners)
    with TemporaryDirectory() as made:
        save(engine, Path(made))
        shelved = load(settings, Path(made))
        in_order = [{name: one[name] for name in "abc" if name in one} for one in events]  # as columns are
        operations = [publish(one, "eve", number) for number, one in enumerate(in_order, 2)]
        table = columns_table([one.event for one in operations])
        for changes_now in ([], changes):
            known = dict(owners)
            changed(engine, changes_now, owners)
            changed(shelved, changes_now, known)
            expected = [engine.handle(one, one.event.timestamp) for one in operations]
            assert noted(shelved.batch(table)) == delivered(expected)
