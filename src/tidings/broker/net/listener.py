"""The listener of a broker: accepts connections, except from hosts that are locked out, and runs TLS on them."""

import asyncio
import errno
import logging
import socket
import ssl
from typing import Protocol

from tidings.broker.config.table_types import Address
from tidings.broker.net.channel import Channel, ConnectionOwner
from tidings.broker.net.connection import LocalEnd
from tidings.broker.net.rate_limits import RefusedAttempts
from tidings.model.errors import InvalidValueError

_LOG = logging.getLogger("tidings.broker")
_BACKLOG = 1024
_ACCEPTS_IN_A_ROW = 64  # connections that are accepted in a row before other tasks run
_PAUSE = 1.0  # seconds to wait when the system has no room for another connection


class Admission(Protocol):
    """What the listener needs of the admission of connections."""

    def may_connect(self, host: str, tls_handshakes: int) -> bool:
        """Return whether a connection from `host` may begin its handshake."""
        ...

    def connection_opened(self, connection: Channel) -> ConnectionOwner:
        """Return the first owner of a new connection."""
        ...

    def connection_closed(self, connection: Channel) -> None:
        """Called when a connection has ended."""
        ...


class Listener:
    """Listens at the broker's address. A host that is locked out is turned away before the TLS handshake."""

    def __init__(self, end: LocalEnd, admission: Admission, attempts: RefusedAttempts) -> None:
        self._end, self._admission, self._attempts = end, admission, attempts
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._tls_handshakes: set[asyncio.Task[None]] = set()  # accepted connections whose TLS handshake is under way

    async def open(self, address: Address) -> Address:
        """Listen at `address`; return the address with the port that was picked, if `address` has port 0.

        Raises an `InvalidValueError` if the address cannot be opened.
        """
        try:
            addresses = await self._loop.getaddrinfo(
                address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            for family, kind, protocol, _, socket_address in dict.fromkeys(addresses):
                self._sockets.append(_open_socket(family, kind, protocol, socket_address))
        except OSError as error:
            self.close()
            reason = (
                "another program listens there already" if error.errno == errno.EADDRINUSE else error.strerror or error
            )
            raise InvalidValueError(
                f"broker.listen: {address} cannot be opened: {reason}; name another address"
            ) from None
        self._accepting = [self._loop.create_task(self._accept(listening)) for listening in self._sockets]
        return Address(address.host, self._sockets[0].getsockname()[1])

    def close(self) -> None:
        """Accept no more connections; those that are established stay."""
        for task in (*self._accepting, *self._tls_handshakes):
            task.cancel()
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        """Accept connections from one listening socket, for ever."""
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
            host = peer[0] if isinstance(peer, tuple) else ""
            if self._admission.may_connect(host, len(self._tls_handshakes)):
                task = self._loop.create_task(self._complete(accepted, peer[0]))
                self._tls_handshakes.add(task)
                task.add_done_callback(self._tls_handshakes.discard)
            else:
                accepted.close()
            count += 1
            if count % _ACCEPTS_IN_A_ROW == 0:
                await asyncio.sleep(0)

    async def _complete(self, accepted: socket.socket, host: str) -> None:
        """Run the TLS handshake on an accepted connection, and make it a `Connection`."""
        end, admission = self._end, self._admission
        secured = None if end.certificates is None else end.certificates.server
        limit = end.configuration.current.limits.handshake_seconds
        try:
            await self._loop.connect_accepted_socket(
                lambda: end.connection(admission.connection_opened, admission.connection_closed),
                accepted,
                ssl=secured,
                ssl_handshake_timeout=None if secured is None else max(limit, 0.001),
            )
        except (OSError, ssl.SSLError) as error:  # also raised if the handshake takes too long
            self._attempts.count(host)
            _LOG.debug(
                "a connection from %s has failed: %s",
                host,
                str(error) or "the other side has closed it in the TLS handshake",
            )


def _open_socket(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
