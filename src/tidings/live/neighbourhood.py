"""The neighbourhood of a broker: the links that are up, and the neighbours that are called."""

import asyncio
import logging
from typing import TYPE_CHECKING

from tidings.live.connection import Connection
from tidings.live.dialling import Dialler
from tidings.live.link import Link
from tidings.model.limits import MAX_RECORD_BYTES

if TYPE_CHECKING:
    from tidings.live.broker import Broker

_LOG = logging.getLogger("tidings.live")


class Neighbourhood:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.links: dict[str, Link] = {}  # by neighbour
        self._dialled: dict[str, asyncio.Future[None]] = {}
        self.diallers: dict[str, Dialler] = {}  # the same, where the address is known

    async def stop_calling(self) -> None:
        for dialler in self.diallers.values():
            await dialler.stop()

    def linked(self, connection: Connection, name: str, cost: int, ended: "asyncio.Future[None] | None") -> Link | None:
        """A neighbour is there. Of two links that both have opened at once, the one that the smaller name has dialled
        stays."""
        known = self.links.get(name)
        if known is not None:
            if ended is not None and not known.dialled and name < self._broker.name:
                return None
            known.connection.close("another link takes its place")
            known.gone("another link takes its place")
        connection.welcome(MAX_RECORD_BYTES)  # what another broker has accepted is not refused here for its size
        if ended is not None:
            self._dialled[name] = ended
        link = self.links[name] = Link(self._broker, connection, name, cost, dialled=ended is not None)
        _LOG.info("the link to %s is up", name)
        return link

    def unlinked(self, link: Link) -> bool:
        """Whether it was the link to that neighbour, and there is none now."""
        if self.links.get(link.name) is not link:
            return False
        del self.links[link.name]
        if (ended := self._dialled.pop(link.name, None)) is not None and not ended.done():
            ended.set_result(None)
        return True

    def dial(self) -> None:
        """Calls the neighbours that are not called yet."""
        for wanted in self._broker.configuration.links:
            if wanted.address and wanted.broker not in self.diallers:
                self.diallers[wanted.broker] = Dialler(self._broker, wanted)

    async def hang_up(self, neighbour: str) -> None:
        """The neighbour is called no more, and the link to it is closed."""
        if (dialler := self.diallers.pop(neighbour, None)) is not None:
            await dialler.stop()
        if (link := self.links.get(neighbour)) is not None:
            link.connection.close("the configuration has changed")
            link.gone("the configuration has changed")
