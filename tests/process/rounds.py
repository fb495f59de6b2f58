"""A round: publishers and durable subscribers on an overlay of processes, faults, healing, and the verdict."""

import asyncio
import random
from pathlib import Path

from tests.limits import PATIENCE
from tests.process.faults import Doing, drawn
from tests.process.overlay import RelayedOverlay
from tests.process.publishers import Publisher
from tests.process.subscribers import Subscriber
from tests.process.verdict import Verdict, written_down
from tidings.cli.overlay.local import JOURNAL
from tidings.model.errors import TidingsError
from tidings.simulation.topologies import Topology

_QUIET = 10  # seconds in which nothing comes any more


class Round:
    """`play` returns what went wrong: nothing, or a text that says all there is to know."""

    def __init__(self, seed: int, topology: Topology, folder: Path, faults: int) -> None:
        self._seed = seed
        self._overlay = RelayedOverlay(topology, str(folder))
        self._faults = drawn(seed, topology, faults)
        self._publishers: list[Publisher] = []
        self._subscribers: list[Subscriber] = []
        self.accepted = 0

    async def play(self) -> str:
        overlay = self._overlay
        await overlay.open()
        try:
            await self._begin()
            async with asyncio.TaskGroup() as group:
                publishing = [group.create_task(one.run()) for one in self._publishers]
                for one in self._publishers:
                    await one.is_ready.wait()
                await asyncio.to_thread(overlay.settle, PATIENCE)
                for one in self._publishers:
                    one.may_begin.set()
                await asyncio.gather(Doing(overlay).all(self._faults), self._trouble())
                await overlay.heal()
                for one in self._publishers:
                    one.is_over.set()
                async with asyncio.timeout(PATIENCE):
                    await asyncio.gather(*publishing)
            complaint = await self._end()
        finally:
            await overlay.close()
        return self._judged(complaint)

    async def _begin(self) -> None:
        """Two publishers that stay where they are, one that may go elsewhere, one whose broker is everybody's."""
        at = [address for _, address in sorted(self._overlay.addresses.items())]
        self._publishers = [
            Publisher("stays", [at[0]]),
            Publisher("strays", [at[1], at[2]]),
            Publisher("far", [at[3]]),
        ]
        self._steady, self._mortal = Subscriber("steady"), Subscriber("mortal")
        self._roaming, self._near = Subscriber("roaming"), Subscriber("near", zone=1)
        self._subscribers = [self._steady, self._mortal, self._roaming, self._near]
        for one, address in zip(self._subscribers, (at[3], at[2], at[0], at[1]), strict=True):
            await one.open(address)

    async def _trouble(self) -> None:
        """Of subscribers, while brokers have theirs."""
        chance = random.Random(~self._seed)
        for _ in range(2):
            await asyncio.sleep(chance.uniform(0.5, 2.0))
            await self._mortal.die()
            await asyncio.sleep(chance.uniform(0.5, 1.5))
            where = chance.choice(self._overlay.brokers)
            await self._roaming.move(self._overlay.addresses[where])

    async def _end(self) -> str:
        """Until all that is due has come, or nothing comes any more."""
        complaint = ""
        try:
            await asyncio.to_thread(self._overlay.settle, PATIENCE)
        except TidingsError as error:
            complaint = f"the overlay does not settle: {error}"
        judged = Verdict(self._publishers, ())
        due = {one.name: {each.event.id for each in judged.due(one)} for one in self._subscribers}
        before, quiet = -1, 0.0
        while quiet < _QUIET and any(due[one.name] - {each.id for each in one.events} for one in self._subscribers):
            await asyncio.sleep(0.2)
            count = sum(len(life) for one in self._subscribers for life in one.lives)
            quiet = quiet + 0.2 if count == before else 0.0
            before = count
        for one in self._subscribers:
            await one.close()
        return complaint

    def _judged(self, complaint: str) -> str:
        verdict = Verdict(self._publishers, self._subscribers)
        self.accepted = sum(len(one.accepted) for one in self._publishers)
        if not complaint and not verdict.faults:
            return ""
        journals = {name: self._overlay.folder / f"{name}{JOURNAL}" for name in self._overlay.brokers}
        return "\n".join([complaint, *verdict.faults, *written_down(journals, verdict.events), self._told()])

    def _told(self) -> str:
        return "\n".join([f"seed {self._seed}, faults:", *map(str, self._faults), f"folder {self._overlay.folder}"])
