"""The links of a broker that are up, and the dialers of its neighbours."""

import asyncio
import logging
from typing import TYPE_CHECKING

from tidings.broker.links.dialer import Dialer
from tidings.broker.links.link import Link
from tidings.broker.net.connection import Connection
from tidings.model.limits import MAX_RECORD_BYTES

if TYPE_CHECKING:
    from tidings.broker.broker import Broker

_LOG = logging.getLogger("tidings.broker")


class Links:
    """The links of a broker: `links` are up, `dialers` belong to the neighbours whose addresses are configured."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.links: dict[str, Link] = {}  # the links that are up, by neighbour
        self._dialled: dict[str, asyncio.Future[None]] = {}
        self.dialers: dict[str, Dialer] = {}  # by neighbour, for those whose address is configured

    async def stop_dialing(self) -> None:
        """Stop dialing all neighbours."""
        for dialer in self.dialers.values():
            await dialer.stop()

    def add(self, connection: Connection, name: str, cost: int, ended: "asyncio.Future[None] | None") -> Link | None:
        """Make an accepted or dialed connection the link to the neighbour `name`; return None if another link stays.

        If two brokers dial each other at once, the link that the broker with the smaller name has dialed stays. In
        every other case the new link replaces the old one. For accepted connections, `ConnectionAdmission` has checked
        this already.

        Args:
            connection: The connection, with the handshake completed.
            name: The neighbour's name.
            cost: The cost of the link in routing.
            ended: Done when the link has ended, for the dialer; None if the neighbour has dialed.
        """
        existing = self.links.get(name)
        if existing is not None:
            if ended is not None and not existing.dialled and name < self._broker.name:
                return None
            existing.connection.close("another link takes its place")
            existing.on_closed("another link takes its place")
        connection.raise_frame_limit(MAX_RECORD_BYTES)  # a neighbour may send any event that it has accepted
        if ended is not None:
            self._dialled[name] = ended
        link = self.links[name] = Link(self._broker, connection, name, cost, dialled=ended is not None)
        _LOG.info("the link to %s is up", name)
        return link

    def remove(self, link: Link) -> bool:
        """Remove a link whose connection is gone, and tell its dialer.

        Returns False if another link to the neighbour has taken its place.
        """
        if self.links.get(link.name) is not link:
            return False
        del self.links[link.name]
        if (ended := self._dialled.pop(link.name, None)) is not None and not ended.done():
            ended.set_result(None)
        return True

    def dial(self) -> None:
        """Begin to dial the configured neighbours that are not being dialed yet."""
        for table in self._broker.configuration.links:
            if table.address and table.broker not in self.dialers:
                self.dialers[table.broker] = Dialer(self._broker, table)

    async def disconnect(self, neighbour: str) -> None:
        """Stop dialing a neighbour, and close the link to it."""
        if (dialer := self.dialers.pop(neighbour, None)) is not None:
            await dialer.stop()
        if (link := self.links.get(neighbour)) is not None:
            link.connection.close("the configuration has changed")
            link.on_closed("the configuration has changed")
