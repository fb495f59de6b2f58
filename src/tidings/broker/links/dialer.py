"""Dial a neighbour until the link is up, and again whenever the link has ended, with a growing, random delay."""

import asyncio
import contextlib
import logging
import random
from typing import TYPE_CHECKING

import msgspec

from tidings.broker.config.table_arrays import LinkTable
from tidings.broker.config.table_types import Address
from tidings.broker.net.connection import Connection, Frame
from tidings.model.errors import TidingsError
from tidings.protocol.frames import UNREADABLE, FrameKind
from tidings.protocol.handshake import MAGIC, VERSION, Bye, Hello, Welcome
from tidings.security.ca.certificates import Role

if TYPE_CHECKING:
    from tidings.broker.broker import Broker

_LOG = logging.getLogger("tidings.broker")
_RANDOM = random.Random()  # noqa: S311 - of its own: programs that use this library may seed the common one
_MIN_DELAY, _MAX_DELAY = 0.1, 5.0  # seconds between two attempts, at least and at most
_WELCOME = msgspec.msgpack.Decoder(Welcome)
_BYE = msgspec.msgpack.Decoder(Bye)


class Dialer:
    """Keeps up the link to one neighbour whose address is configured, until it is stopped."""

    def __init__(self, broker: "Broker", table: LinkTable) -> None:
        self.table = table
        self._broker = broker
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
            if self.table.broker not in self._broker.links:
                attempt = DialAttempt(self._broker, self.table)
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

    def __init__(self, broker: "Broker", table: LinkTable) -> None:
        self._broker, self._table = broker, table
        loop = asyncio.get_running_loop()
        self._answered: asyncio.Future[str | None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._is_up = False

    async def connect(self) -> str | None:
        """Connect and do the handshake; return None if the link is up, else the reason why it is not."""
        broker, address = self._broker, Address.parse(self._table.address)
        limit = broker.configuration.limits.handshake_seconds
        connection: Connection | None = None
        try:
            async with asyncio.timeout(limit):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(broker.metrics.traffic, self._opened),
                    address.host,
                    address.port,
                    ssl=broker.link_tls(),
                    server_hostname=self._table.broker if broker.configuration.tls.is_on else None,
                )
                return await self._answered
        except TimeoutError:
            return f"no answer within {limit:g} seconds"
        except (OSError, TidingsError, UnicodeError) as error:  # `UnicodeError`: the host name is invalid
            return str(error)
        finally:
            if connection is not None and not self._is_up:  # else late answers would open links
                connection.abort("it was called in vain")

    def _opened(self, connection: Connection) -> "DialAttempt":
        """Send the HELLO on the new connection."""
        self._connection = connection
        broker = self._broker
        if broker.certificates is not None:
            connection.own_fingerprint = broker.certificates.fingerprint
        hello = Hello(MAGIC, (VERSION,), "broker", broker.name, broker.incarnation, cost=self._table.cost)
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
                self._fail("it is no broker of Tidings")
                return
            welcome = _WELCOME.decode(body)
        except UNREADABLE as error:
            self._fail(f"its answer cannot be read: {error}")
            return
        if welcome.broker != self._table.broker:
            self._fail(f"it is {welcome.broker} that listens there")
            return
        tls = self._broker.configuration.tls
        certified = self._connection.certified_name if tls.is_on and tls.check_names else welcome.broker
        if certified != welcome.broker:
            self._fail(f"its certificate is that of {certified}")
            return
        topic_security = self._broker.topic_security
        refusal = None if topic_security is None else topic_security.refusal(self._connection, Role.BROKER)
        if refusal is not None:
            self._fail(refusal)
            return
        link = self._broker.link_registry.add(self._connection, welcome.broker, self._table.cost, self.ended)
        if link is None:
            self._fail("the link is up already")
            return
        self._is_up, self._connection.owner = True, link
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
        self._connection.abort("it does not read")

    def frames_first(self) -> list[bytes]:
        return []

    def on_resumed(self) -> None:
        pass

    def on_closed(self, reason: str) -> None:
        """Report why the connection was closed as the result of the attempt."""
        if not self._answered.done():
            self._answered.set_result(reason)
