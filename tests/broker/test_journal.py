"""A broker with a journal: what is promised is on the disk, and what the disk does not take is not promised."""

import asyncio
import contextlib
import errno
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import tidings as td
from tests.broker.cases import Raw, address, configuration, connect, publication, run, running, until
from tests.journal.cases import FailingDisk
from tidings.broker.broker import Broker
from tidings.client import Client
from tidings.journal.disk import Disk
from tidings.model.errors import (
    JournalFailedError,
    JournalFullError,
    PublishedBeforeError,
    TidingsError,
    UnreachableError,
)
from tidings.protocol import answers, requests
from tidings.protocol.notifications import WireNotification
from tidings.protocol.publications import Safety


class GatedDisk(Disk):
    """Syncs only while its gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = 0

    def sync(self, fd: int) -> None:
        self.waiting += 1
        self.gate.wait(60)
        self.waiting -= 1
        super().sync(fd)


def numbers(notes: list[td.Notification]) -> list[Any]:
    return [note.attributes["n"] for note in notes]


def folder(path: Path) -> dict[str, str]:
    return {"folder": str(path)}


def test_nothing_is_told_before_it_is_on_the_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = GatedDisk()
        async with (
            running(disk=disk, journal=folder(tmp_path)) as broker,
            connect(broker, "car-1") as car,
            Raw.client(broker) as raw,
        ):
            held = await car.subscribe("")
            disk.gate.clear()
            try:
                raw.send(publication(1, {"n": 1}, safe=int(Safety.JOURNALED)))
                await until(lambda: disk.waiting)
                assert await held.take(timeout=0.1) == []
                with pytest.raises(TimeoutError):
                    await raw.told(0.1)
            finally:
                disk.gate.set()
            assert isinstance(await raw.answered(), answers.PublicationReceipts)
            assert numbers(await held.take(timeout=60)) == [1]

    run(scenario())


def test_accepted_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = GatedDisk()
        async with running(disk=disk, journal=folder(tmp_path)) as broker, connect(broker, "car-1") as car:
            held = await car.subscribe("")
            await until(lambda: broker.is_settled)
            disk.gate.clear()
            try:
                assert (await car.publish({"n": 1}, safe="accepted")).offset > 0
                assert numbers(await held.take(timeout=60)) == [1]
                later = [asyncio.ensure_future(car.publish({"n": n})) for n in (2, 3)]
                await asyncio.sleep(0.05)
                assert not any(one.done() for one in later)
            finally:
                disk.gate.set()
            assert [one.event.sequence for one in await asyncio.gather(*later)] == [2, 3]
            assert numbers([*await held.take(timeout=60), *await held.take(timeout=0.1)]) == [2, 3]

    run(scenario())


def test_many_share_one_sync(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FailingDisk()
        async with running(disk=disk, journal=folder(tmp_path)) as broker, connect(broker, "cam-1") as camera:
            before = disk.syncs
            await asyncio.gather(*[camera.publish({"n": n}) for n in range(500)])
            assert disk.syncs - before < 100

    run(scenario())


# Full disks


async def refused(client: Client, kind: type[TidingsError], told: str) -> None:
    with pytest.raises(kind, match=told):
        await client.publish({"n": 0})


def test_a_full_disk_refuses_and_recovers(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FailingDisk()
        async with (
            running(disk=disk, journal=folder(tmp_path)) as broker,
            connect(broker, "cam-1") as camera,
            connect(broker, "car-1") as car,
        ):
            held = await car.subscribe("", durable="all")
            await camera.publish({"n": 1})
            disk.write_error = errno.ENOSPC
            await refused(camera, JournalFullError, "room")
            ends = await asyncio.gather(*[camera.publish({"n": n}) for n in range(20)], return_exceptions=True)
            assert {type(one) for one in ends} == {JournalFullError}
            with pytest.raises(JournalFullError):
                await car.subscribe("n = 5", durable="more")
            assert car.is_connected
            assert broker.node.failure is None
            disk.write_error = None
            assert (await camera.publish({"n": 2})).offset > 0
            await car.schema(td.Schema("Loop", {"li": int}))
            await camera.publish({"li": 3}, subject="Loop")
            got: list[td.Notification] = []
            while len(got) < 3:
                got += await held.take(timeout=60)
            assert [dict(note.attributes) for note in got] == [{"n": 1}, {"n": 2}, {"li": 3}]

    run(scenario())


def test_the_log_says_once_that_the_disk_is_full_and_once_that_it_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        disk = FailingDisk()
        async with running(disk=disk, journal=folder(tmp_path)) as broker, connect(broker, "cam-1") as camera:
            disk.write_error = errno.ENOSPC
            for _ in range(3):
                await refused(camera, JournalFullError, "room")
            disk.write_error = None
            for _ in range(3):
                await camera.publish({"n": 2})

    with caplog.at_level("INFO", logger="tidings"):
        run(scenario())
    told = [(one.levelname, one.message) for one in caplog.records if "disk" in one.message]
    assert told == [
        ("ERROR", "the disk is full, and publications are refused"),
        ("INFO", "the disk has room again"),
    ]


def test_a_failed_journal_is_an_error_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(fails: str) -> None:
        disk = FailingDisk()
        async with running(disk=disk, journal=folder(tmp_path / fails)) as broker, connect(broker, "cam-1") as camera:
            setattr(disk, fails, errno.EIO)
            await refused(camera, TidingsError, "journal|disk")

    for fails in ("write_error", "sync_error"):
        caplog.clear()
        run(scenario(fails))
        told = [one.levelname for one in caplog.records if one.message.startswith("the journal has failed")]
        assert told[:1] == ["ERROR"]


def test_clients_come_and_go_on_a_full_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FailingDisk()
        async with running(disk=disk, journal=folder(tmp_path)) as broker:
            car = connect(broker, "car-1")
            await car.__aenter__()
            await car.subscribe("n > 0")
            disk.write_error = errno.ENOSPC
            await car.close()
            await until(lambda: not broker.sessions)
            with pytest.raises(UnreachableError, match="room"):
                await connect(broker, "car-2", patience=0.2).__aenter__()
            disk.write_error = None
            async with connect(broker, "car-1") as car:
                held = await car.subscribe("n > 0")
                await car.publish({"n": 1})
                assert numbers(await held.take(timeout=60)) == [1]

    run(scenario())


@contextlib.asynccontextmanager
async def linked(tmp_path: Path, disk: FailingDisk) -> AsyncIterator[tuple[Broker, Broker]]:
    """Two brokers, of which the first has that disk."""
    async with running("b1", disk=disk, journal=folder(tmp_path / "b1"), links=[{"broker": "b2"}]) as b1:
        links = [{"broker": "b1", "address": str(b1.address)}]
        async with running("b2", journal=folder(tmp_path / "b2"), links=links) as b2:
            await until(lambda: b1.links and b2.links and b1.is_settled and b2.is_settled)
            yield b1, b2


def test_what_a_full_disk_refuses_costs_a_broker_no_neighbour(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FailingDisk()
        async with linked(tmp_path, disk) as (b1, b2), connect(b1, "car-1") as car, connect(b2, "cam-1") as camera:
            await camera.schema(td.Schema("Far", {"n": int}))  # which no journal of b1 says
            await until(lambda: b1.node.engine.state.subjects.find("Far"))
            await car.schema(td.Schema("Near", {"n": int}))
            for client in (camera, car):
                await client.advertise("n > 0")
            held = await car.subscribe("n > 0")
            disk.write_error = errno.ENOSPC
            for _ in range(3):
                with pytest.raises(JournalFullError):
                    await car.subscribe("n = 5")
            disk.write_error = None
            await until(
                lambda: b1.links and b1.node.engine.state.links.neighbours and b1.node.engine.state.subjects.find("Far")
            )
            await camera.publish({"n": 1}, safe="settled")
            assert numbers(await held.take(timeout=60)) == [1]
            got = await car.subscribe("n > 0", subject="Near")
            await car.publish({"n": 2}, subject="Near")  # by its number, as it was told
            assert [note.event.subject for note in await got.take(timeout=60)] == ["Near"]

    run(scenario())


def test_who_leaves_while_the_disk_is_full_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FailingDisk()
        async with linked(tmp_path, disk) as (b1, b2):
            async with connect(b1, "car-1") as car, connect(b2, "cam-1") as camera:
                await camera.advertise("n > 0")
                await car.subscribe("n > 0")
                await until(lambda: len(b2.node.engine.state.filters.subscriptions) == 1)
                disk.write_error = errno.ENOSPC
            await until(lambda: not b1.sessions and not b1.node.engine.state.filters.subscriptions)
            await until(lambda: not b2.node.engine.state.filters.subscriptions)
            disk.write_error = None
            async with connect(b1, "car-2") as car:
                await car.subscribe("n > 1")
                kept = b1.node.journal_store
                assert kept is not None
                assert [one.owner for one in kept.rebuild_engine().state.filters.subscriptions] == ["car-2"]

    run(scenario())


# Disks that fail


def test_after_a_failed_sync_everything_is_refused_and_the_broker_is_not_ready(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FailingDisk()
        heartbeat = {"interval_ms": 20, "patience": 500}
        async with (
            running(disk=disk, journal=folder(tmp_path), heartbeat=heartbeat) as broker,
            connect(broker, "cam-1") as camera,
            connect(broker, "car-1") as car,
        ):
            held = await car.subscribe("")
            assert list(broker.parts.health.not_ready_reasons()) == []
            disk.sync_error = errno.EIO
            ends = await asyncio.gather(*[camera.publish({"n": n}) for n in range(20)], return_exceptions=True)
            assert {type(one) for one in ends} == {JournalFailedError}
            assert await held.take(timeout=0.1) == []
            disk.sync_error = None
            await refused(camera, JournalFailedError, "fsync|sync")
            with pytest.raises(JournalFailedError):
                await camera.publish({"n": 1}, safe="accepted")
            with pytest.raises(JournalFailedError):
                await car.subscribe("n > 5")
            with pytest.raises(JournalFailedError):
                await car.set_context(x=1)
            assert len(list(broker.parts.health.not_ready_reasons())) == 1
            await asyncio.sleep(0.1)  # some heartbeats
            assert broker.parts.heartbeat.is_beating
            assert (await car.ask("status"))["broker"] == "b1"
            with pytest.raises(UnreachableError, match="sync"):
                await connect(broker, "late", patience=0.2).__aenter__()

    run(scenario())


def test_what_waited_for_the_disk_is_told_that_it_failed(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FailingDisk()
        async with running(disk=disk, journal=folder(tmp_path)) as broker, Raw.client(broker) as raw:
            assert isinstance(await raw.asked(requests.SubscribeRequest(1, "s")), answers.RequestDone)
            disk.sync_error = errno.EIO
            raw.send(publication(2, {"n": 2}, safe=1))
            raw.say(requests.SubscribeRequest(3, "d", durable="all"))
            raw.send(publication(4, {"n": 4}, safe=1) + publication(4, {"n": 4}, safe=1))
            told = [await raw.told() for _ in range(4)]
            assert [type(one) for one in told] == [answers.RequestRefused] * 4
            assert sorted(one.request for one in told) == [2, 3, 4, 4]
            assert not any(isinstance(one, WireNotification) for one in told)

    run(scenario())


# Starting again


@pytest.mark.parametrize("hard", [False, True])
def test_a_broker_that_starts_again_knows_what_it_knew(tmp_path: Path, hard: bool) -> None:
    async def scenario() -> None:
        journal = folder(tmp_path)
        broker = await _started(journal)
        async with connect(broker, "car-1") as car:
            await car.set_context(x=1)
            await car.subscribe("", publishers="x = this.x", durable="near")
            await car.subscribe("")
            await car.schema(td.Schema("Loop", {"li": int}))
        async with connect(broker, "cam-1") as camera:
            await camera.set_context(x=1)
            receipts = [await camera.publish({"n": n}) for n in range(5)]
            await camera.set_context(x=2)
            await camera.publish({"n": 9})
        await (broker.abort() if hard else broker.stop())
        async with running(journal=journal) as broker:
            assert [one.durable for one in broker.node.registry.subscriptions_of("car-1")] == ["near"]
            assert broker.node.registry.contexts["car-1"] == {"x": 1}
            async with connect(broker, "cam-1") as camera:
                with pytest.raises(PublishedBeforeError):
                    await camera.publish({"n": 0}, id=receipts[0].event.id)
                await camera.set_context(x=1)
                receipt = await camera.publish({"n": 5})
                assert receipt.event.sequence > 6
                assert receipt.offset > receipts[-1].offset
                async with connect(broker, "car-1") as car:
                    await car.set_context(x=1)
                    near = await car.subscribe("", publishers="x = this.x", durable="near")
                    await until(lambda: near.waiting == 6)
                    assert numbers(await near.take()) == [0, 1, 2, 3, 4, 5]
                    assert (await car.schema("Loop")).attributes == {"li": int}
                    assert numbers([note async for note in near.replay(receipts[3])]) == [3, 4, 5]

    run(scenario())


async def _started(journal: dict[str, str]) -> Broker:
    """One that the test itself ends."""
    broker = Broker(configuration(journal=journal))
    await broker.start()
    return broker


@pytest.mark.parametrize("hard", [False, True], ids=["stopped", "killed"])
def test_a_lone_broker_that_starts_again_waits_for_nobody(tmp_path: Path, hard: bool) -> None:
    async def scenario() -> None:
        async with running(journal=folder(tmp_path / "journal")) as broker, connect(broker, "cam-1") as camera:
            for number in range(3):
                await camera.publish({"n": number})
            broker.parts.resender.write_redelivery_state()
            broker.node.journal_store.sync(broker.node.processor.next)  # type: ignore[union-attr]
            await camera.publish({"n": 3})
            if hard:
                shutil.copytree(tmp_path / "journal", tmp_path / "copy")
        left = tmp_path / ("copy" if hard else "journal")
        async with running(journal=folder(left)) as broker, connect(broker, "cam-1") as camera:
            async with asyncio.timeout(60):
                await camera.publish({"n": 4}, safe="settled")
            await until(lambda: not broker.parts.resender.tracker.owed)
            assert (
                broker.parts.resender.tracker.needed == broker.parts.resender.tracker.end
            )  # so retention may remove what is older

    run(scenario())


def test_a_replay_comes_in_pages_however_large_its_events_are(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(journal=folder(tmp_path)) as broker, connect(broker, "car-1") as car:
            held = await car.subscribe("n >= 0")
            payload = bytes(1024 * 1024)
            await asyncio.gather(*[car.publish({"n": n}, payload=payload) for n in range(40)])
            await asyncio.gather(*[car.publish({"n": n}) for n in range(40, 1_500)])
            assert numbers([note async for note in held.replay()]) == list(range(1_500))
            assert car.session.connections == 1
            for since in (2**63 - 1, 10**18):
                assert [note async for note in held.replay(since)] == []

    run(scenario())


def test_a_journal_that_is_locked_or_of_another_broker_is_not_opened(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(journal=folder(tmp_path)):
            with pytest.raises(TidingsError, match="open"):
                async with running(journal=folder(tmp_path)):
                    pass
        with pytest.raises(TidingsError, match="b1, not of b2"):
            async with running("b2", journal=folder(tmp_path)):
                pass

    run(scenario())


def test_a_client_outlives_a_broker_whose_disk_has_failed(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FailingDisk()
        async with running(disk=disk, journal=folder(tmp_path)) as broker, running("b2") as other:
            client = td.connect([address(broker), address(other)], "cam-1")
            await client.__aenter__()
            disk.sync_error = errno.EIO
            await refused(client, JournalFailedError, "sync")
            await client.move(address(other))
            assert (await client.publish({"n": 1})).offset >= 0
            await client.close()

    run(scenario())
