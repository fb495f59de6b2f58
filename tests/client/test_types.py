"""Editors understand the client: a program that uses it well passes mypy, and one that does not is told where."""

import re
from pathlib import Path

from mypy import api

GOOD = """
import asyncio
from typing import assert_type
import tidings as td
from tidings.client import Client, Subscription, SyncClient, SyncSubscription

async def main() -> None:
    async with td.connect("tidings://127.0.0.1:7450", name="car-1", identity=None) as client:
        assert_type(client, Client)
        await client.set_context(x=10.0, y=20.0)
        async with client.subscribe("a = 1", publishers="x > this.x") as sub:
            assert_type(sub, Subscription)
            async for note in sub:
                assert_type(note, td.Notification)
                assert_type(note.event, td.Event)
        receipt = await client.publish({"a": 1}, safe="journaled")
        assert_type(receipt, td.Receipt)
        assert_type(await client.subscribe(""), Subscription)
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


def checked(folder: Path, program: str) -> str:
    path = folder / "program.py"
    path.write_text(program)
    told, _, _ = api.run(["--strict", "--no-error-summary", "--cache-dir", str(folder / "cache"), str(path)])
    return told


def test_a_program_that_uses_the_client_well_is_understood(tmp_path: Path) -> None:
    assert checked(tmp_path, GOOD) == ""


def test_a_program_that_does_not_is_told_where(tmp_path: Path) -> None:
    told = {int(line) for line in re.findall(r"program\.py:(\d+): error", checked(tmp_path, BAD))}
    assert told == {number for number, line in enumerate(BAD.splitlines(), 1) if "  # no" in line}
