"""Live overlays that may lose their power: what is on their disks at that moment is all that is left."""

import random
import shutil
from pathlib import Path

from tests.conformance.drivers import KEEP_A, REMOVE_B, TRIM, Told
from tests.conformance.live import LiveDriver
from tests.conformance.scenarios import OFFER
from tidings.client import connect
from tidings.model.values import Value
from tidings.simulation import Topology
from tidings.simulation.checking.steps import (
    Advertises,
    Leaves,
    Moves,
    Publishes,
    Returns,
    SetsContext,
    Step,
    Subscribes,
    Unsubscribes,
)

PUBLISHERS = ("ann", "bob")  # who stay: a program that starts anew elsewhere cannot know how far it had counted
ROAMERS = ("cyd", "dan", "eve")
CLIENTS = (*PUBLISHERS, *ROAMERS)
STRATEGY = "gsf"
DURABLE = ".3"  # how the ids of durable subscriptions end


class MortalDriver(LiveDriver):
    def __init__(self, topology: Topology, folder: Path) -> None:
        super().__init__(STRATEGY, topology, folder)
        self._topology = topology

    def power_cut(self, before: Path, after: Path) -> None:
        """The brokers begin anew from what is on their disks now; of the clients nobody is connected."""
        self._loop.run_until_complete(self._synced())
        shutil.copytree(before, after)
        self._loop.run_until_complete(self._begin_anew(after))

    async def _synced(self) -> None:
        """What clients have acknowledged is on the disk with the next event that is: else they are told again."""
        await self._settled()
        for name, broker in self._brokers.items():
            async with connect(str(broker.address), name=f"witness-{name}") as witness:
                await witness.publish({}, subscribers="nobody = 1")

    async def _begin_anew(self, folder: Path) -> None:
        await self._stop()
        self._brokers.clear()
        self._clients = {name: client for name, client in self._clients.items() if name in self._at}
        self._here.clear()
        self._subscriptions.clear()
        await self._start(STRATEGY, self._topology, folder)


def steps(seed: int, count: int, topology: Topology) -> list[Step]:
    """What clients do, at random; at the end all are back, so that nothing waits for them any more."""
    chance = random.Random(seed)
    drawn: list[Step] = [Advertises(name, f"{name}.ad", "", OFFER, OFFER) for name in CLIENTS]
    for _ in range(count):
        drawn += _step(chance, chance.choice(CLIENTS), topology)
    return drawn + everybody_back()


def everybody_back() -> list[Step]:
    return [Returns(name) for name in CLIENTS]


def _step(chance: random.Random, name: str, topology: Topology) -> list[Step]:
    number = chance.randrange(4)
    match chance.randrange(16 if name in PUBLISHERS else 10):
        case 0 | 1 | 2:
            content = chance.choice(["", "a > 1", "b = 1", "a < 3 and b = 0"])
            publishers = chance.choice([None, None, "x = this.x", "x > 1"])
            policy = chance.choice([None, None, TRIM, REMOVE_B, KEEP_A])
            durable = "d" if number == 3 else None
            return [Subscribes(name, f"{name}.{number}", content, publishers, policy, durable)]
        case 3:
            return [Unsubscribes(name, f"{name}.{number}")]
        case 4 | 5 | 6:
            return [SetsContext(name, {"x": number})]
        case 7 if name in ROAMERS:
            return [Leaves(name)]
        case 8 if name in ROAMERS:
            return [Moves(name, chance.choice(topology.brokers))]
        case 9 if name in ROAMERS:
            return [Returns(name)]
        case _:
            said: dict[str, Value] = {"a": number, "b": chance.randrange(2)}
            subscribers = chance.choice([None, None, "x < 2"])
            return [Advertises(name, f"{name}.ad", "", OFFER, OFFER), Publishes(name, said, subscribers)]


def take_all(driver: LiveDriver, taken: list[Step]) -> list[Told]:
    return [told for step in taken for told in driver.take(step)]
