"""An overlay of broker processes whose links go through relays."""

import asyncio

from tests.process.relay import Relay
from tidings.cli.overlay import LocalOverlay
from tidings.simulation.topologies import Edge, Topology

HEARTBEAT = {"interval_ms": 200, "patience": 5}  # who says nothing for a second is gone


class RelayedOverlay(LocalOverlay):
    """`opened` makes one that runs; its blocking calls belong into threads, since the relays are in the loop's."""

    def __init__(self, topology: Topology, folder: str) -> None:
        super().__init__(topology, folder, settings={"heartbeat": HEARTBEAT})
        self.relays = {edge: Relay() for edge in topology.edges}

    async def open(self) -> None:
        for relay in self.relays.values():
            await relay.open()
        await asyncio.to_thread(self.start)

    async def close(self) -> None:
        await asyncio.to_thread(self.stop)
        for relay in self.relays.values():
            await relay.close()

    def link_address(self, link: Edge, address: str) -> str:
        self.relays[link].target = address
        return self.relays[link].address

    async def heal(self) -> None:
        """Everything runs, and every link is whole."""
        for relay in self.relays.values():
            relay.heal()
        for name, child in self.children.items():
            child.resume()
            if not child.is_running:
                await asyncio.to_thread(self.restart, name)
