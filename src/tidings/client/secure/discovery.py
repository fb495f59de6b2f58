"""Finds topics and key management centres at discovery nodes, and advertises them there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Protocol, TypeVar

from tidings.client.secure.service_rpc import CLOCKS, TIMEOUT, ServiceClient, ask, now
from tidings.model.errors import InvalidValueError, RefusedError, SecurityError, TidingsError, UnreachableError
from tidings.model.limits import DEFAULT_FOUND
from tidings.security.ca.certificates import Role
from tidings.security.ca.identity import Identity
from tidings.security.ca.revocation import RevocationUpdate, UpdatableTrust
from tidings.security.encoding import decode_canonical, encode_canonical
from tidings.security.rpc.messages import SERVICE_TOPIC, ServiceRecord
from tidings.security.rpc.tdn_messages import (
    ADVERTISE,
    ASK,
    FIND,
    HELLO,
    REPLY_TO,
    TOPIC,
    WITHDRAW,
    FindRequest,
    FindResponse,
    Key,
)
from tidings.security.tdn.discovery_records import DiscoveryRecord

_RETRY_SECONDS = 0.5  # seconds until discovery nodes are called again
_MORE_NODES_SECONDS = 0.1  # seconds for other nodes to answer, after the first
_KNOWN_NODE_SECONDS = 0.6  # seconds to wait for a known node: after a restart, a node has another topic and key
_Value = TypeVar("_Value")


class DiscoveryPage:
    """A page of a discovery node's answer: the records after the key `after`.

    Raises:
        SecurityError: The records are out of order, or an empty page claims that there are more.
    """

    def __init__(self, after: Key | None, body: bytes) -> None:
        response = decode_canonical(body, FindResponse, "answer")
        self.advertised = [DiscoveryRecord(data) for data in response.advertised]
        self.more, self.revocations = response.more, response.revocations
        self.last = after
        for record in self.advertised:
            if self.last is not None and record.key <= self.last:
                raise SecurityError("answer", "the discovery node does not go on with what it has found")
            self.last = record.key
        if self.more and not self.advertised:
            raise SecurityError("answer", "the discovery node says that there is more, and does not tell it")


class SignedRecord(Protocol):
    """What advertising needs of a record of a topic or a service."""

    @property
    def data(self) -> bytes: ...


class Discovery:
    """A client of the discovery nodes. Nodes are looked for once, and again when none of the known ones answers.

    All records are verified here: a node can withhold records, but not invent them.
    """

    def __init__(self, client: ServiceClient, identity: Identity, credentials: UpdatableTrust) -> None:
        self._client, self._identity, self._credentials = client, identity, credentials
        self.known: dict[str, ServiceRecord] = {}  # the nodes that answered, by name

    async def nodes(self, *, timeout: float = TIMEOUT) -> list[ServiceRecord]:
        """Return the discovery nodes that answer, the fastest first.

        Raises:
            UnreachableError: No node answered within `timeout` seconds.
        """
        services: dict[str, ServiceRecord] = {}
        first = asyncio.Event()

        def handle_reply(_: str, payload: bytes) -> None:
            try:
                service = ServiceRecord(payload)
                service.check(self._credentials, Role.TDN, now())
            except TidingsError:
                return
            present = services.get(service.certificate.name)
            if present is None or present.version < service.version:  # any client can replay an old record
                services[service.certificate.name] = service
            first.set()

        try:
            async with asyncio.timeout(timeout):
                await self._client.mailbox.open()
                with self._client.mailbox.expecting(handle_reply) as reply_to:
                    while not first.is_set():
                        await self._client.publish(
                            {SERVICE_TOPIC: TOPIC, ASK: HELLO, REPLY_TO: reply_to}, safe="accepted"
                        )
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(first.wait(), _RETRY_SECONDS)
                    await asyncio.sleep(_MORE_NODES_SECONDS)
        except TimeoutError:
            if not services:
                raise UnreachableError(
                    f"no discovery node has answered within {timeout:g} s: see whether one is running"
                    " (`tidings tdn serve`)"
                ) from None
        self.known = services
        return list(services.values())

    async def find(
        self,
        topics: str | None = None,
        *,
        centre: bytes | None = None,
        limit: int = DEFAULT_FOUND,
        timeout: float = TIMEOUT,
    ) -> list[DiscoveryRecord]:
        """Find the topics that match a query, with their centres; or the centre with a given certificate.

        Only records that this identity is allowed to find are returned.

        Args:
            topics: A query: `*`, `/Sports/*`, or `Sports=NBA`.
            centre: The fingerprint of a centre's certificate, instead of `topics`.
            limit: The maximum number of records.
            timeout: Seconds for each page of an answer.

        Raises:
            UnreachableError: No discovery node answered.
        """
        if limit < 1:
            raise InvalidValueError(f"limit: at least 1, not {limit}")
        records: list[DiscoveryRecord] = []
        async for page in self.pages(topics, centre=centre, timeout=timeout):
            records += page
            if len(records) >= limit:
                break
        return records[:limit]

    async def pages(
        self, topics: str | None = None, *, centre: bytes | None = None, timeout: float = TIMEOUT
    ) -> AsyncIterator[list[DiscoveryRecord]]:
        """Yield the records of `find` page by page, in the order of their keys.

        If a node stops answering, another one continues.
        """
        after: Key | None = None
        while True:
            request = FindRequest(topics, centre, self._credentials.revocations.version, after)
            page = await self._ask_any_node(FIND, encode_canonical(request), partial(DiscoveryPage, after), timeout)
            if page.revocations is not None:
                self._credentials.revoke(RevocationUpdate.read(page.revocations))
            self._credentials.revocations.check_fresh(now())
            for record in page.advertised:
                record.check(self._credentials, now())
            yield [record for record in page.advertised if now() < record.expires]
            if not page.more:
                return
            after = page.last

    async def _ask_any_node(self, kind: str, body: bytes, read: Callable[[bytes], _Value], timeout: float) -> _Value:
        """Return the first readable answer of any node: first of the known ones, then of those newly found."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                for nodes in (list(self.known.values()), None):
                    candidates = await self.nodes(timeout=timeout) if nodes is None else nodes
                    for node in candidates:
                        patience = (
                            timeout / (2 * len(candidates)) if nodes is None else min(_KNOWN_NODE_SECONDS, timeout / 4)
                        )
                        try:
                            return read(await ask(self._client, self._identity, node, kind, body, timeout=patience))
                        except (UnreachableError, SecurityError):
                            self.known.pop(node.certificate.name, None)
        raise UnreachableError(
            f"no discovery node has answered within {timeout:g} s: see whether one is running, and {CLOCKS}"
        )

    async def advertise(self, advertised: SignedRecord, *, timeout: float = TIMEOUT) -> list[str]:
        """Advertise a record at all discovery nodes; return the names of the nodes that have it on disk.

        A node that starts later gets the record from the others.

        Raises:
            RefusedError: A node refuses the record.
            UnreachableError: No node answered.
        """
        return await self._ask_all_nodes(ADVERTISE, advertised, timeout)

    async def withdraw(self, withdrawal: SignedRecord, *, timeout: float = TIMEOUT) -> list[str]:
        """Withdraw a record at all discovery nodes; return the names of the nodes that did so."""
        return await self._ask_all_nodes(WITHDRAW, withdrawal, timeout)

    async def _ask_all_nodes(self, kind: str, record: SignedRecord, timeout: float) -> list[str]:
        nodes = await self.nodes(timeout=timeout)
        requests = [ask(self._client, self._identity, node, kind, record.data, timeout=timeout) for node in nodes]
        answers = await asyncio.gather(*requests, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, RefusedError) or (
                isinstance(answer, BaseException) and not isinstance(answer, TidingsError)
            ):
                raise answer
        accepted = [node for node, answer in zip(nodes, answers, strict=True) if isinstance(answer, bytes)]
        names = [node.certificate.name for node in accepted]
        if not names:
            raise next(answer for answer in answers if isinstance(answer, BaseException))
        return sorted(names)
