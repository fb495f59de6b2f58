"""Editors understand the client: a program that uses it well passes mypy, and one that does not is told where."""

import re

import pytest
from mypy import api

GOOD = """
import asyncio
from typing import assert_type
import tidings as td
from tidings.client import Client, ClientSubscription, SyncClient, SyncSubscription

async def main() -> None:
    async with td.connect("tidings://127.0.0.1:7450", name="car-1", identity=None) as client:
        assert_type(client, Client)
        await client.set_context(x=10.0, y=20.0)
        async with client.subscribe("a = 1", publishers="x > this.x") as sub:
            assert_type(sub, ClientSubscription)
            async for note in sub:
                assert_type(note, td.Notification)
                assert_type(note.event, td.Event)
        receipt = await client.publish({"a": 1}, safe="journaled")
        assert_type(receipt, td.Receipt)
        assert_type(await client.subscribe(""), ClientSubscription)
        assert_type(await client.schema("Loop"), td.Schema)
        async for old in client.replay(since=receipt):
            assert_type(old, td.Notification)

with td.connect_sync(["a:1", "b:2"], "car-1") as sync:
    assert_type(sync, SyncClient)
    held = sync.subscribe("a = 1", durable="all", limit=5)
    assert_type(held, SyncSubscription)
    for note in held.listen(timeout=1.0):
        assert_type(note, td.Notification)
    assert_type(sync.publish_many([{"a": 1}]), list[td.Receipt])
"""
BAD = """
import tidings as td

async def main() -> None:
    async with td.connect(7450) as client:  # no address
        await client.publish("a = 1")  # no mapping
        client.subscribe("", durrable="all")  # no such word
        client.subscribe("", notify="everybody")  # no such way
        await client.publish({"a": 1}, payload="text")  # no bytes

with td.connect_sync("a:1") as sync:
    sync.subscribe("", durrable="all")  # no such word
    sync.advertise("", publishers="x")  # no such word
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What mypy says of both programs; it reads the whole package for that, so they are checked together."""
    folder = tmp_path_factory.mktemp("programs")
    paths = [folder / "good.py", folder / "bad.py"]
    for path, program in zip(paths, (GOOD, BAD), strict=True):
        path.write_text(program)
    said, _, _ = api.run(["--strict", "--no-error-summary", "--cache-dir", str(folder / "cache"), *map(str, paths)])
    return said


def test_a_program_that_uses_the_client_well_is_understood(told: str) -> None:
    assert "good.py" not in told


def test_a_program_that_does_not_is_told_where(told: str) -> None:
    lines = {int(line) for line in re.findall(r"bad\.py:(\d+): error", told)}
    assert lines == {number for number, line in enumerate(BAD.splitlines(), 1) if "  # no" in line}
