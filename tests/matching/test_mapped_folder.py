"""Saved and loaded, an index answers as before; several processes share it; a damaged one is refused."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidings as td
from tests.matching.test_index import Both, events, subscriptions
from tests.sizes import examples
from tests.strategies import contents
from tidings import Event, Subscription
from tidings.model.values import Value


@examples(13, 300)
@given(
    st.lists(subscriptions(st.integers(0, 30).map("s{}".format)), max_size=20),
    st.lists(st.tuples(st.sampled_from(["ann", "bob", "cid"]), contents.map(dict)), max_size=5),
    st.lists(events(), min_size=1, max_size=5),
    st.lists(subscriptions(st.integers(0, 30).map("s{}".format)), max_size=4),
)
def test_a_loaded_index_is_the_saved_one(
    tmp_path_factory: pytest.TempPathFactory,
    given: list[Subscription],
    moves: list[tuple[str, dict[str, Value]]],
    published: list[Event],
    later: list[Subscription],
) -> None:
    folder = tmp_path_factory.mktemp("index")
    both = Both()
    both.index = td.Index()
    for subscription in given:
        both.put(subscription)
    for client, context in moves:
        both.set_context(client, context)
    for id in sorted(both.subscriptions)[::3]:  # noqa: A001
        both.remove(id)
    both.index.save(folder)
    both.index = td.Index.load(folder)
    for event in published:
        both.check(event)
    assert sorted(one.id for one in both.index.subscriptions()) == sorted(both.subscriptions)
    assert {one.id: one for one in both.index.subscriptions()} == both.subscriptions
    for subscription in later:  # and it goes on from there
        both.put(subscription)
    for client, context in moves[::-1]:
        both.set_context(client, context)
    for id in sorted(both.subscriptions)[::2]:  # noqa: A001
        both.remove(id)
    for event in published:
        both.check(event)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    index = td.Index()
    texts = [f"class = 'c{i % 7}' and n between {i} and {i + 50}" for i in range(3_000)]
    index.add_many(pa.table({"id": [f"s{i}" for i in range(3_000)], "content": texts}))
    index.add("near", "class like '%3'", subscriber="car", publishers="x > this.x and name = 'ann'")
    index.set_context("car", {"x": 1, "note": "not asked about"})
    index.save(tmp_path / "index")
    return tmp_path / "index"


def test_it_is_the_same_after_a_while(saved: Path) -> None:
    index = td.Index.load(saved)
    assert len(index) == 3_001
    about = {"context": {"x": 2, "name": "ann"}}
    expected = {f"s{i}" for i in range(3_000) if i % 7 == 3 and i <= 500 <= i + 50}
    assert index.match({"class": "c3", "n": 500}, **about) == expected | {"near"}
    found = index.match_batch(pa.table({"class": ["c3"], "n": [500]}))
    assert set(found["subscription"].to_pylist()) == expected
    index.remove("s500")
    index.add("new", "n = 500")
    assert index.match({"class": "c3", "n": 500}) == (expected - {"s500"}) | {"new"}
    assert td.Index.load(saved).match({"class": "c3", "n": 500}) == expected  # what one changes stays its own
    assert index.explain({"n": 1}, "near").step == "content"


def test_saving_again_replaces_it_and_leaves_nothing_behind(saved: Path) -> None:
    before = sorted(path.name for path in saved.iterdir())
    old = td.Index.load(saved)
    index = td.Index.load(saved)
    index.add("new", "n = -1")
    index.save(saved)
    after = sorted(path.name for path in saved.iterdir())
    assert not {name for name in before if name != "contents.json"} & set(after)
    assert td.Index.load(saved).match({"n": -1}) == {"new"}
    assert old.match({"n": -1}) == set()
    assert len(old.match({"class": "c3", "n": 500})) > 0


def damages(saved: Path) -> Iterator[tuple[Path, bytes]]:
    for path in sorted(saved.iterdir()):
        whole = path.read_bytes()
        yield path, whole[:-1]
        yield path, whole[: len(whole) // 2]
        yield path, b""
        for at in range(0, len(whole), max(1, len(whole) // 5)):
            yield path, whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]


def test_damage_is_refused(saved: Path) -> None:
    tried = 0
    for path, content in damages(saved):
        whole = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(td.IndexDamagedError, match=path.name):
            td.Index.load(saved)
        path.write_bytes(whole)
        tried += 1
    assert tried > 50
    td.Index.load(saved)
    for path in saved.glob("*.npy"):
        kept = path.rename(path.with_suffix(".away"))
        with pytest.raises(td.IndexDamagedError, match="is missing"):
            td.Index.load(saved, verify=False)
        kept.rename(path)
    with pytest.raises(td.IndexDamagedError, match="there is no index"):
        td.Index.load(saved.parent)


def test_other_formats_are_refused(saved: Path) -> None:
    path = saved / "contents.json"
    given = json.loads(path.read_text())
    body = given["body"].replace('"version": 1', '"version": 2')
    import hashlib

    digest = hashlib.blake2b(body.encode(), digest_size=16).hexdigest()
    path.write_text(json.dumps({"digest": digest, "body": body}))
    with pytest.raises(td.IndexDamagedError, match="version 2"):
        td.Index.load(saved)


SHARED = """
import re, sys, pyarrow as pa, tidings as td
index = td.Index.load(sys.argv[1])
assert index.match_batch(pa.table({"a0": [1.0], "n": [5.0]})).num_rows == 5
pages = open("/proc/self/smaps").read().split("segment000")[1]
print(re.search(r"Anonymous:\\s+(\\d+)", pages).group(1), re.search(r"Rss:\\s+(\\d+)", pages).group(1))
"""


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="asks the kernel what is shared")
def test_processes_share_one_copy(tmp_path: Path) -> None:
    index = td.Index()
    count = 20_000
    texts = [f"a0 = {i % 50} and n between {i} and {i + 1000}" for i in range(count)]
    texts[1::50] = [f"a0 = 1 and n between {i} and {i + 1}" for i in range(len(texts[1::50]))]
    index.add_many(pa.table({"id": [f"s{i}" for i in range(count)], "content": texts}))
    wanted = index.match_batch(pa.table({"a0": [1.0], "n": [5.0]})).num_rows
    index.save(tmp_path)
    code = SHARED.replace("== 5", f"== {wanted}")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    own, resident = map(int, done.stdout.split())
    assert own == 0  # pages of its own: none was written
    assert resident > 0
