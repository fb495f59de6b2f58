"""Dialling: a broker calls a neighbour until the link is up, and again when it is gone."""

import asyncio
import contextlib
import logging
import random
from typing import TYPE_CHECKING

import msgspec

from tidings.live.configuration.address import Address
from tidings.live.configuration.own import Link as LinkTable
from tidings.live.connection import Connection, Frame
from tidings.model.errors import TidingsError
from tidings.protocol.frames import Kind
from tidings.protocol.handshake import MAGIC, VERSION, Bye, Hello, Welcome
from tidings.protocol.unreadable import UNREADABLE
from tidings.security.certificates import Role

if TYPE_CHECKING:
    from tidings.live.broker import Broker

_LOG = logging.getLogger("tidings.live")
_CHANCE = random.Random()  # noqa: S311 - of its own: programs that use this library may seed the common one
_SOONEST, _LATEST = 0.1, 5.0  # seconds between two calls
_WELCOME = msgspec.msgpack.Decoder(Welcome)
_BYE = msgspec.msgpack.Decoder(Bye)


class Dialler:
    """Of one neighbour whose address is known."""

    def __init__(self, broker: "Broker", wanted: LinkTable) -> None:
        self.wanted = wanted
        self._broker = broker
        self._task = asyncio.get_running_loop().create_task(self._dial())

    @property
    def is_dialling(self) -> bool:
        """Whether it still calls the neighbour, or watches the link to it."""
        return not self._task.done()

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _dial(self) -> None:
        delay, told = _SOONEST, ""
        while True:
            if self.wanted.broker not in self._broker.links:
                call = Call(self._broker, self.wanted)
                reason = await call.made()
                if reason is None:
                    delay, told = _SOONEST, ""
                    await call.ended
                elif reason != told:
                    told = reason
                    _LOG.info("%s cannot be reached at %s: %s", self.wanted.broker, self.wanted.address, reason)
            # A little at random, so that brokers that were cut off together do not come back together.
            await asyncio.sleep(delay * _CHANCE.uniform(0.5, 1.0))
            delay = min(2 * delay, _LATEST)


class Call:
    """One attempt: it says hello, and is answered or not."""

    def __init__(self, broker: "Broker", wanted: LinkTable) -> None:
        self._broker, self._wanted = broker, wanted
        loop = asyncio.get_running_loop()
        self._answered: asyncio.Future[str | None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._is_up = False

    async def made(self) -> str | None:
        """None if the link is up; else why not."""
        broker, address = self._broker, Address.parse(self._wanted.address)
        limit = broker.configuration.limits.handshake_seconds
        connection: Connection | None = None
        try:
            async with asyncio.timeout(limit):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(broker.metrics, self._opened),
                    address.host,
                    address.port,
                    ssl=broker.link_tls(),
                    server_hostname=self._wanted.broker if broker.configuration.tls.is_on else None,
                )
                return await self._answered
        except TimeoutError:
            return f"no answer within {limit:g} seconds"
        except (OSError, TidingsError, UnicodeError) as error:  # the last of a host that cannot be
            return str(error)
        finally:
            if connection is not None and not self._is_up:  # else who answers late has a link with each attempt
                connection.abort("it was called in vain")

    def _opened(self, connection: Connection) -> "Call":
        self._connection = connection
        broker = self._broker
        if broker.certificates is not None:
            connection.own_fingerprint = broker.certificates.fingerprint
        hello = Hello(MAGIC, (VERSION,), "broker", broker.name, broker.incarnation, cost=self._wanted.cost)
        connection.say(Kind.HELLO, hello)
        return self

    def take(self, frames: list[Frame]) -> None:
        kind, body = frames[0]
        try:
            if kind == Kind.BYE:
                self._fail(_BYE.decode(body).reason)
                return
            if kind != Kind.WELCOME:
                self._fail("it is no broker of Tidings")
                return
            welcome = _WELCOME.decode(body)
        except UNREADABLE as error:
            self._fail(f"its answer cannot be read: {error}")
            return
        if welcome.broker != self._wanted.broker:
            self._fail(f"it is {welcome.broker} that listens there")
            return
        tls = self._broker.configuration.tls
        certified = self._connection.certified_name if tls.is_on and tls.check_names else welcome.broker
        if certified != welcome.broker:
            self._fail(f"its certificate is that of {certified}")
            return
        gatehouse = self._broker.gatehouse
        refusal = None if gatehouse is None else gatehouse.refusal(self._connection, Role.BROKER)
        if refusal is not None:
            self._fail(refusal)
            return
        link = self._broker.neighbourhood.linked(self._connection, welcome.broker, self._wanted.cost, self.ended)
        if link is None:
            self._fail("the link is up already")
            return
        self._is_up, self._connection.owner = True, link
        if not self._answered.done():
            self._answered.set_result(None)
        link.start()
        if len(frames) > 1:
            link.take(frames[1:])

    def _fail(self, reason: str) -> None:
        if not self._answered.done():
            self._answered.set_result(reason)
        self._connection.close(reason)

    def stalled(self) -> None:
        self._connection.abort("it does not read")

    def ahead(self) -> list[bytes]:
        return []

    def relieved(self) -> None:
        pass

    def gone(self, reason: str) -> None:
        if not self._answered.done():
            self._answered.set_result(reason)
