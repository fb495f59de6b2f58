"""The door of a broker: it listens, and lets connections in. Who is shut out does not get as far as a TLS handshake."""

import asyncio
import errno
import logging
import socket
import ssl
from typing import TYPE_CHECKING

from tidings.live.configuration.address import Address
from tidings.live.connection import Connection
from tidings.model.errors import InvalidValueError

if TYPE_CHECKING:
    from tidings.live.broker import Broker

_LOG = logging.getLogger("tidings.live")
_BACKLOG = 1024
_AT_A_TIME = 64  # connections that are accepted before others have their turn
_PAUSE = 1.0  # seconds, when the system has no room for another connection


class Door:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._entering: set[asyncio.Task[None]] = set()  # connections of which the handshake is under way

    async def open(self, address: Address) -> Address:
        """Listens there; where that is, once a port is picked."""
        try:
            found = await self._loop.getaddrinfo(
                address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            for family, kind, protocol, _, place in dict.fromkeys(found):
                self._sockets.append(_listening(family, kind, protocol, place))
        except OSError as error:
            self.close()
            told = "somebody listens there already" if error.errno == errno.EADDRINUSE else error.strerror or error
            raise InvalidValueError(
                f"broker.listen: {address} cannot be opened: {told}; name another address"
            ) from None
        self._accepting = [self._loop.create_task(self._accept(one)) for one in self._sockets]
        return Address(address.host, self._sockets[0].getsockname()[1])

    def close(self) -> None:
        """Nobody comes in any more; who is in stays."""
        for task in (*self._accepting, *self._entering):
            task.cancel()
        for one in self._sockets:
            self._loop.remove_reader(one)
            one.close()

    async def _accept(self, listening: socket.socket) -> None:
        count = 0
        while True:
            try:
                accepted, peer = await self._loop.sock_accept(listening)
            except ConnectionAbortedError:
                continue  # the other side has given up meanwhile
            except OSError as error:  # such as too many open files
                _LOG.error("no connection can be accepted: %s", error.strerror)
                await asyncio.sleep(_PAUSE)
                continue
            if self._broker.reception.lets_in(peer[0] if isinstance(peer, tuple) else "", len(self._entering)):
                task = self._loop.create_task(self._enter(accepted, peer[0]))
                self._entering.add(task)
                task.add_done_callback(self._entering.discard)
            else:
                accepted.close()
            count += 1
            if count % _AT_A_TIME == 0:
                await asyncio.sleep(0)

    async def _enter(self, accepted: socket.socket, host: str) -> None:
        broker = self._broker
        secured = None if broker.certificates is None else broker.certificates.server
        limit = broker.configuration.limits.handshake_seconds
        try:
            await self._loop.connect_accepted_socket(
                lambda: Connection(broker.metrics, broker.reception.opened, broker.reception.closed),
                accepted,
                ssl=secured,
                ssl_handshake_timeout=None if secured is None else max(limit, 0.001),
            )
        except (OSError, ssl.SSLError) as error:  # a handshake that takes too long is such a one
            broker.reception.note_bogus(host)
            _LOG.debug("a connection from %s has failed: %s", host, str(error) or "it broke off in the handshake")


def _listening(family: int, kind: int, protocol: int, place: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(place)
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made
