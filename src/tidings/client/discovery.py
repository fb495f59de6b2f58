"""Discovery: topics and centres are found at discovery nodes, and owners advertise them there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tidings.client.asking import CLOCKS, TIMEOUT, ask
from tidings.client.security import now
from tidings.model.errors import InvalidValueError, RefusedError, SecurityError, TidingsError, UnreachableError
from tidings.model.limits import DEFAULT_FOUND
from tidings.security.advertised import Advertised
from tidings.security.certificates import Role
from tidings.security.credentials import Credentials
from tidings.security.discovery_questions import (
    ADVERTISE,
    ASK,
    FIND,
    HELLO,
    REPLY_TO,
    TOPIC,
    WITHDRAW,
    Finds,
    Found,
    Key,
)
from tidings.security.encoding import decoded, encoded
from tidings.security.exchange import SERVICE_TOPIC, Service
from tidings.security.identity import Identity
from tidings.security.revocation import Update

if TYPE_CHECKING:
    from tidings.client.client import Client

_PAUSE = 0.5  # seconds until it is asked again who is there
_MOMENT = 0.1  # for others to answer, once one has
_SHORT = 0.6  # for a node that was there before: one that has started again has another topic and key
_Value = TypeVar("_Value")


class Page:
    """A part of what a node has found, behind that of the page before; a `SecurityError` if it leads nowhere."""

    def __init__(self, after: Key | None, body: bytes) -> None:
        found = decoded(body, Found, "answer")
        self.advertised = [Advertised(data) for data in found.advertised]
        self.more, self.revocations = found.more, found.revocations
        self.last = after
        for one in self.advertised:
            if self.last is not None and one.key <= self.last:
                raise SecurityError("answer", "the discovery node does not go on with what it has found")
            self.last = one.key
        if self.more and not self.advertised:
            raise SecurityError("answer", "the discovery node says that there is more, and does not tell it")


class Discovery:
    """Of one client. Nodes are looked for once, and again when none of them answers any more.

    Whatever nodes say is checked here: they can keep something back, and make nothing up.
    """

    def __init__(self, client: "Client", identity: Identity, credentials: Credentials) -> None:
        self._client, self._identity, self._credentials = client, identity, credentials
        self.known: dict[str, Service] = {}  # the nodes that have answered, by name

    async def nodes(self, *, timeout: float = TIMEOUT) -> list[Service]:
        """Those who answer, the quickest first; an `UnreachableError` if none does."""
        heard: dict[str, Service] = {}
        first = asyncio.Event()

        def taker(_: str, payload: bytes) -> None:
            try:
                service = Service(payload)
                service.check(self._credentials, Role.TDN, now())
            except TidingsError:
                return
            before = heard.get(service.certificate.name)
            if before is None or before.version < service.version:  # an old one may have been sent by anybody
                heard[service.certificate.name] = service
            first.set()

        try:
            async with asyncio.timeout(timeout):
                await self._client.mailbox.open()
                with self._client.mailbox.expecting(taker) as reply_to:
                    while not first.is_set():
                        await self._client.publish(
                            {SERVICE_TOPIC: TOPIC, ASK: HELLO, REPLY_TO: reply_to}, safe="accepted"
                        )
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(first.wait(), _PAUSE)
                    await asyncio.sleep(_MOMENT)
        except TimeoutError:
            if not heard:
                raise UnreachableError(
                    f"no discovery node has answered within {timeout:g} s: see whether one is running"
                    " (`tidings tdn serve`)"
                ) from None
        self.known = heard
        return list(heard.values())

    async def find(
        self,
        topics: str | None = None,
        *,
        centre: bytes | None = None,
        limit: int = DEFAULT_FOUND,
        timeout: float = TIMEOUT,
    ) -> list[Advertised]:
        """Topics that a query (`*`, `/Sports/*`, `Sports=NBA`) finds, with the centres that count for them; or the
        centre with that certificate, by its fingerprint. What this identity may not find is not there. At most `limit`
        of them; `timeout` is for each page that a node answers with."""
        if limit < 1:
            raise InvalidValueError(f"limit: at least 1, not {limit}")
        found: list[Advertised] = []
        async for page in self.pages(topics, centre=centre, timeout=timeout):
            found += page
            if len(found) >= limit:
                break
        return found[:limit]

    async def pages(
        self, topics: str | None = None, *, centre: bytes | None = None, timeout: float = TIMEOUT
    ) -> AsyncIterator[list[Advertised]]:
        """The same as it is answered, a page at a time, in the order of keys. If a node is gone in between, another one
        goes on."""
        after: Key | None = None
        while True:
            wanted = Finds(topics, centre, self._credentials.revocations.version, after)
            page = await self._asked_one(FIND, encoded(wanted), partial(Page, after), timeout)
            if page.revocations is not None:
                self._credentials.revoke(Update.read(page.revocations))
            self._credentials.revocations.check_fresh(now())
            for said in page.advertised:
                said.check(self._credentials, now())
            yield [said for said in page.advertised if now() < said.expires]
            if not page.more:
                return
            after = page.last

    async def _asked_one(self, kind: str, body: bytes, read: Callable[[bytes], _Value], timeout: float) -> _Value:
        """The answer of the first node that gives one that can be read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                for nodes in (list(self.known.values()), None):
                    asked = await self.nodes(timeout=timeout) if nodes is None else nodes
                    for node in asked:
                        patience = timeout / (2 * len(asked)) if nodes is None else min(_SHORT, timeout / 4)
                        try:
                            return read(await ask(self._client, self._identity, node, kind, body, timeout=patience))
                        except (UnreachableError, SecurityError):
                            self.known.pop(node.certificate.name, None)
        raise UnreachableError(
            f"no discovery node has answered within {timeout:g} s: see whether one is running, and {CLOCKS}"
        )

    async def advertise(self, advertised: Advertised, *, timeout: float = TIMEOUT) -> list[str]:
        """The names of the nodes that have it on their disks now: all that are there. A node that comes later gets it
        from them. If one refuses it, that is told."""
        return await self._asked_all(ADVERTISE, advertised, timeout)

    async def withdraw(self, withdrawal: Advertised, *, timeout: float = TIMEOUT) -> list[str]:
        """The same for what is to be found no more."""
        return await self._asked_all(WITHDRAW, withdrawal, timeout)

    async def _asked_all(self, kind: str, said: Advertised, timeout: float) -> list[str]:
        nodes = await self.nodes(timeout=timeout)
        asked = [ask(self._client, self._identity, one, kind, said.data, timeout=timeout) for one in nodes]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, RefusedError) or (
                isinstance(answer, BaseException) and not isinstance(answer, TidingsError)
            ):
                raise answer
        took = [one.certificate.name for one, answer in zip(nodes, answers, strict=True) if isinstance(answer, bytes)]
        if not took:
            raise next(one for one in answers if isinstance(one, BaseException))
        return sorted(took)
