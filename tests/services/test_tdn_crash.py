"""A discovery node killed at random moments: what it has acknowledged is found when it is there again."""

import asyncio
import random
from pathlib import Path

import pytest

import tidings as td
from tests.broker.cases import run
from tests.broker.running_broker import running_broker
from tests.services.discovery_world import DiscoveryWorld
from tests.sizes import sized
from tidings.client.secure.discovery import Discovery
from tidings.client.secure.service_rpc import now
from tidings.model.errors import UnreachableError
from tidings.security.tdn.discovery_records import DiscoveryRecord
from tidings.security.tokens.credentials import Credentials

pytestmark = pytest.mark.process

LIVES = sized(3, 20)


def test_killed_at_random_moments(tmp_path: Path) -> None:
    world, draw = DiscoveryWorld(tmp_path), random.Random(11)
    owner = world.identity("owner")
    told: dict[str, bytes] = {}  # by template, the latest that was acknowledged

    async def live(address: str, life: int) -> None:
        async with td.connect(address, "owner") as client:
            discovery = Discovery(client, owner, Credentials(owner.anchor))
            with world.node("tdn-1", address) as process:
                found = {str(one.record.template): one for one in await discovery.find("*") if one.record is not None}
                for template, data in told.items():
                    assert found[template].data == data or found[template].version > DiscoveryRecord(data).version
                turn = 0
                while True:
                    template = f"life={life},turn={turn % 5}"
                    said = DiscoveryRecord.topic(owner, world.record(template), now())
                    try:
                        await discovery.advertise(said, timeout=0.7)
                    except UnreachableError:
                        if process.poll() is None:  # it is slow, and alive
                            continue
                        return
                    told[template] = said.data
                    if turn == 0:
                        asyncio.get_running_loop().call_later(draw.uniform(0.05, 0.5), process.kill)
                    turn += 1

    with running_broker() as at:
        for life in range(LIVES):
            run(live(f"tidings://{at}", life))
    assert len(told) > LIVES
