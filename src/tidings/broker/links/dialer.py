"""Dial a neighbour until the link is up, and again whenever the link has ended, with a growing, random delay."""

import asyncio
import contextlib
import logging
import random
from typing import Protocol

import msgspec

from tidings.broker.config.table_arrays import LinkTable
from tidings.broker.config.table_types import Address
from tidings.broker.net.channel import Channel, ConnectionOwner, Frame
from tidings.broker.net.connection import Connection, LocalEnd
from tidings.model.errors import TidingsError
from tidings.model.limits import MAX_RECORD_BYTES
from tidings.protocol.frames import UNREADABLE, FrameKind
from tidings.protocol.handshake import MAGIC, VERSION, Bye, Hello, Welcome
from tidings.security.ca.certificates import Role

_LOG = logging.getLogger("tidings.broker")
_RANDOM = random.Random()  # noqa: S311 - of its own: programs that use this library may seed the common one
_MIN_DELAY, _MAX_DELAY = 0.1, 5.0  # seconds between two attempts, at least and at most
_WELCOME = msgspec.msgpack.Decoder(Welcome)
_BYE = msgspec.msgpack.Decoder(Bye)


class StartableLink(ConnectionOwner, Protocol):
    """A new link, as the dialer uses it."""

    def start(self) -> None:
        """Tell the engine that the link is up."""
        ...


class LinkRegistry(Protocol):
    """What the dialer needs of the links of the broker."""

    def get(self, neighbour: str) -> StartableLink | None:
        """Return the link to a neighbour; None if it is down."""
        ...

    def add(
        self, connection: Channel, name: str, cost: int, ended: "asyncio.Future[None] | None"
    ) -> StartableLink | None:
        """Make a connection the link to the neighbour `name`; return None if another link stays.

        Args:
            connection: The connection, with the handshake completed.
            name: The neighbour's name.
            cost: The cost of the link in routing.
            ended: Done when the link has ended.
        """
        ...


class Dialer:
    """Keeps up the link to one neighbour whose address is configured, until it is stopped."""

    def __init__(self, end: LocalEnd, links: LinkRegistry, table: LinkTable) -> None:
        self.table = table
        self._end, self._links = end, links
        self._task = asyncio.get_running_loop().create_task(self._dial())

    @property
    def is_dialing(self) -> bool:
        """Whether the dialer is running: it dials the neighbour, or waits for the link to end."""
        return not self._task.done()

    async def stop(self) -> None:
        """Stop dialing; a link that is up stays."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _dial(self) -> None:
        delay, last_reason = _MIN_DELAY, ""
        while True:
            if self._links.get(self.table.broker) is None:
                attempt = DialAttempt(self._end, self._links, self.table)
                reason = await attempt.connect()
                if reason is None:
                    delay, last_reason = _MIN_DELAY, ""
                    await attempt.ended
                elif reason != last_reason:
                    last_reason = reason
                    _LOG.info("%s cannot be reached at %s: %s", self.table.broker, self.table.address, reason)
            # A random delay, so that brokers that were cut off together do not all dial at the same time.
            await asyncio.sleep(delay * _RANDOM.uniform(0.5, 1.0))
            delay = min(2 * delay, _MAX_DELAY)


class DialAttempt:
    """One attempt to connect to a neighbour; it owns the connection until the neighbour's WELCOME has come."""

    def __init__(self, end: LocalEnd, links: LinkRegistry, table: LinkTable) -> None:
        self._end, self._links, self._table = end, links, table
        loop = asyncio.get_running_loop()
        self._answered: asyncio.Future[str | None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._is_up = False

    async def connect(self) -> str | None:
        """Connect and do the handshake; return None if the link is up, else the reason why it is not."""
        end, address = self._end, Address.parse(self._table.address)
        limit = end.configuration.current.limits.handshake_seconds
        connection: Connection | None = None
        try:
            async with asyncio.timeout(limit):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: end.connection(self._opened),
                    address.host,
                    address.port,
                    ssl=None if end.certificates is None else end.certificates.link,
                    server_hostname=self._table.broker if end.configuration.current.tls.is_on else None,
                )
                return await self._answered
        except TimeoutError:
            return f"no answer within {limit:g} seconds"
        except (OSError, TidingsError, UnicodeError) as error:  # `UnicodeError`: the host name is invalid
            return str(error)
        finally:
            if connection is not None and not self._is_up:  # else late answers would open links
                connection.abort("the attempt to connect has failed")

    def _opened(self, connection: Channel) -> "DialAttempt":
        """Send the HELLO on the new connection."""
        self._connection = connection
        hello = Hello(MAGIC, (VERSION,), "broker", self._end.name, self._end.incarnation, cost=self._table.cost)
        connection.send_message(FrameKind.HELLO, hello)
        return self

    def handle_frames(self, frames: list[Frame]) -> None:
        """Check the neighbour's answer to the HELLO, and make the connection a link."""
        kind, body = frames[0]
        try:
            if kind == FrameKind.BYE:
                self._fail(_BYE.decode(body).reason)
                return
            if kind != FrameKind.WELCOME:
                self._fail("no broker of Tidings listens there")
                return
            welcome = _WELCOME.decode(body)
        except UNREADABLE as error:
            self._fail(f"the answer of the broker there cannot be decoded: {error}")
            return
        if welcome.broker != self._table.broker:
            self._fail(f"the broker there is {welcome.broker}")
            return
        tls = self._end.configuration.current.tls
        certified = self._connection.peer.certified_name if tls.is_on and tls.check_names else welcome.broker
        if certified != welcome.broker:
            self._fail(f"the certificate of the broker there names {certified}")
            return
        refusal = self._end.refusal(self._connection.peer, Role.BROKER)
        if refusal is not None:
            self._fail(refusal)
            return
        link = self._links.add(self._connection, welcome.broker, self._table.cost, self.ended)
        if link is None:
            self._fail("the link is up already")
            return
        self._is_up = True
        self._connection.hand_over(link, MAX_RECORD_BYTES)  # a neighbour may send any event that it has accepted
        if not self._answered.done():
            self._answered.set_result(None)
        link.start()
        if len(frames) > 1:
            link.handle_frames(frames[1:])

    def _fail(self, reason: str) -> None:
        if not self._answered.done():
            self._answered.set_result(reason)
        self._connection.close(reason)

    def on_stalled(self) -> None:
        """Abort the connection: a HELLO cannot fill it, so the other side does not read."""
        self._connection.abort("the other side does not read")

    def frames_first(self) -> list[bytes]:
        return []

    def on_resumed(self) -> None:
        pass

    def on_closed(self, reason: str) -> None:
        """Report why the connection was closed as the result of the attempt."""
        if not self._answered.done():
            self._answered.set_result(reason)
