"""A topic discovery node on the overlay: answers clients' queries, and replicates the records of the other nodes.

A record is acknowledged after it is on disk. At intervals, and when another node announces news, the node looks for the
other nodes and fetches the changes since it last asked each of them.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, Self

from tidings.client.secure.discovery import Discovery
from tidings.client.secure.service_rpc import ServiceClient, ask, now
from tidings.journal.append_file import AppendFile
from tidings.journal.disk import Disk
from tidings.model.errors import (
    InvalidValueError,
    JournalError,
    RefusedError,
    SecurityError,
    TidingsError,
    UnreachableError,
)
from tidings.model.notification import Notification
from tidings.security.ca.certificates import Role
from tidings.security.ca.identity import Identity
from tidings.security.ca.revocation import RevocationHead, RevocationUpdate
from tidings.security.encoding import decode_canonical, encode_canonical
from tidings.security.rpc.messages import SERVICE_TOPIC, RpcRequest, RpcServer, ServiceRecord
from tidings.security.rpc.tdn_messages import (
    ADVERTISE,
    ASK,
    FIND,
    HELLO,
    NEWS,
    REPLICATE,
    REPLY_TO,
    TOPIC,
    WITHDRAW,
    FindRequest,
    ReplicatedRecord,
    ReplicateRequest,
    ReplicateResponse,
)
from tidings.security.tdn.discovery_node import DiscoveryNode
from tidings.security.tokens.credentials import Credentials
from tidings.services.service import RateLimit, RpcService

_LOG = logging.getLogger("tidings.services")
INTERVAL = 10.0  # seconds between two replications
_ANSWER_SECONDS = 5.0  # seconds for another node to answer
_BATCH_SECONDS = 0.05  # seconds in which announcements of several nodes cause one replication
_HELLOS = 50  # calls to all nodes, per second and publisher


class DiscoveryService:
    """Runs a discovery node, from entering it with `async with` until the end of the block.

    Args:
        client: The client that the node uses on the overlay.
        identity: The node's identity, with the role tdn.
        folder: The folder for its records and revocations.
        overlay: The name of the overlay.
        revocations: A revocation list to start with.
        interval: Seconds between two replications.
        disk: Writes the files; tests replace it.

    Raises:
        InvalidValueError: The identity has another role.
    """

    def __init__(
        self,
        client: ServiceClient,
        identity: Identity,
        folder: str | Path,
        *,
        overlay: str = "tidings",
        revocations: RevocationUpdate | None = None,
        interval: float = INTERVAL,
        disk: Disk | None = None,
    ) -> None:
        if identity.certificate.role is not Role.TDN:
            raise InvalidValueError(
                f"the identity of a discovery node has the role tdn, not {identity.certificate.role.value}"
            )
        self._client, self._identity, self._interval = client, identity, interval
        self.folder = DiscoveryStore(Path(folder), disk)
        self._unwritten: deque[ReplicatedRecord] = deque()  # records that are not on disk yet
        self._stored_head: RevocationHead | None = None  # head of the revocation list that is on disk
        try:
            self._credentials = Credentials(identity.anchor, overlay)
            self.node = DiscoveryNode(self._credentials, secrets.token_bytes(8))
            for update in (self.folder.revocations(), revocations):
                if update is not None:
                    self.revoke(update)
            self.node.restore(self.folder.read(), now())
            self.folder.tidy(self.node.kept())
        except BaseException:
            self.folder.close()
            raise
        respondent = RpcServer(identity, self._credentials)
        self.service = respondent.service(f"{TOPIC}/{secrets.token_hex(16)}", now())
        self.answering = RpcService(client, respondent, self._answer)
        self.others = Discovery(client, identity, self._credentials)
        self._positions: dict[bytes, ReplicateRequest] = {}  # by node: the position up to which its changes were read
        self._hellos = RateLimit(_HELLOS)
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def lacks_revocations(self) -> bool:
        """Whether the revocation list is missing or too old: then the node trusts no client and answers no request."""
        try:
            self._credentials.revocations.check_fresh(now())
        except SecurityError:
            return True
        return False

    # Starting and stopping

    async def __aenter__(self) -> Self:
        await self._client.subscribe("security = 'revocations'", callback=self._handle_revocations)
        await self.answering.begin(self.service.topic)
        await self._client.subscribe(f"{SERVICE_TOPIC} = '{TOPIC}'", callback=self._handle_broadcast)
        self._background(self._replicate_forever())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.folder.close()

    def _background(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Requests

    async def _answer(self, question: RpcRequest) -> bytes:
        at, asker = now(), question.certificate
        if question.kind == FIND:
            return encode_canonical(self.node.find(decode_canonical(question.body, FindRequest, "question"), asker, at))
        if question.kind in (ADVERTISE, WITHDRAW):
            record = self.node.advertise(question.body, asker, at)
            self._write(record)
            if record is not None:
                self._background(self._announce_news())
            return b""
        if question.kind == REPLICATE:
            if asker.role is not Role.TDN:
                raise RefusedError("authorize", f"{asker.name} is no discovery node")
            return encode_canonical(
                self.node.changes(decode_canonical(question.body, ReplicateRequest, "question"), at)
            )
        raise RefusedError("authorize", f"a discovery node does not know the question {question.kind!r:.40}")

    def _write(self, record: ReplicatedRecord | None) -> None:
        """Write a record to disk, and all that the disk refused before.

        A record that is in memory, but not on disk, must not be acknowledged when it is sent again.
        """
        if record is not None:
            self._unwritten.append(record)
        while self._unwritten:
            self.folder.keep(self._unwritten[0])
            self._unwritten.popleft()

    async def _handle_broadcast(self, notification: Notification) -> None:
        """Handle a message to all nodes, which is unsealed: a client's hello, or another node's news."""
        kind = notification.attributes.get(ASK)
        if notification.event.publisher == self._client.name or not self._hellos.take(
            notification.event.publisher, now()
        ):
            return
        if kind == HELLO:
            reply_to = notification.attributes.get(REPLY_TO)
            if isinstance(reply_to, str):
                await self._reply_with_service(reply_to)
        elif kind == NEWS:
            self._news.set()

    async def _reply_with_service(self, reply_to: str) -> None:
        """Publish this node's service record to the reply topic."""
        try:
            data = self.service.data
            await self._client.publish(
                {SERVICE_TOPIC: reply_to}, payload=data, safe="accepted", timeout=_ANSWER_SECONDS
            )
        except TidingsError as error:  # a client without an answer asks again
            _LOG.debug("a client was not told where discovery node %s is: %s", self._identity.name, error)

    async def _announce_news(self) -> None:
        """Announce to the other nodes that there are new records."""
        try:
            await self._client.publish({SERVICE_TOPIC: TOPIC, ASK: NEWS}, safe="accepted", timeout=_ANSWER_SECONDS)
        except TidingsError as error:  # the other nodes replicate at intervals anyway
            _LOG.debug("the other discovery nodes were not told that there are news: %s", error)

    # Revocations

    def _handle_revocations(self, notification: Notification) -> None:
        try:
            self.revoke(RevocationUpdate.read(notification.event.payload or b""))
        except SecurityError as error:
            _LOG.debug("a list of revocations of %s is of no use: %s", notification.event.publisher, error)
        except JournalError as error:
            _LOG.error("a list of revocations counts, and is not kept: %s", error)

    async def _fetch_revocations(self) -> None:
        """Fetch the revocations that this node missed from the broker."""
        try:
            since = self._credentials.revocations.version
            answer = await self._client.ask("security", timeout=_ANSWER_SECONDS, since=since)
            if answer["revocations"] is not None:
                self.revoke(RevocationUpdate.read(answer["revocations"]))
        except TidingsError as error:
            _LOG.debug("the broker has sent no revocation list: %s", error)

    def revoke(self, update: RevocationUpdate) -> None:
        """Apply a revocation list, and write it to disk; the same list may be given again if the disk refused it."""
        self.node.revoke(update, now())
        head = self._credentials.revocations.head
        if head != self._stored_head:
            whole = self._credentials.revocations.since(0)
            if whole is not None:
                self.folder.keep_revocations(whole)
                self._stored_head = head

    # Replication

    async def _replicate_forever(self) -> None:
        """Replicate at intervals, and soon after another node announced news."""
        while True:
            try:
                await self.replicate()
            except TidingsError as error:
                _LOG.warning("discovery node %s cannot look at the others: %s", self._identity.name, error)
            try:
                async with asyncio.timeout(self._interval):
                    await self._news.wait()
                    await asyncio.sleep(_BATCH_SECONDS)
            except TimeoutError:
                continue
            finally:
                self._news.clear()

    async def replicate(self) -> int:
        """Fetch the changes of all other nodes; return how many records were new."""
        await self._fetch_revocations()
        try:
            services = await self.others.nodes(timeout=min(_ANSWER_SECONDS, self._interval))
        except UnreachableError:
            return 0  # this is the only node
        new = 0
        for service in services:
            try:
                new += await self._fetch_changes(service)
            except TidingsError as error:
                _LOG.warning("discovery node %s has not told its changes: %s", service.certificate.name, error)
        return new

    async def _fetch_changes(self, service: ServiceRecord) -> int:
        """Fetch the changes of one node; return how many records were new."""
        position, new = self._positions.get(service.certificate.fingerprint, ReplicateRequest()), 0
        while True:
            request = ReplicateRequest(position.instance, position.after, self._credentials.revocations.version)
            body = await ask(
                self._client, self._identity, service, REPLICATE, encode_canonical(request), timeout=_ANSWER_SECONDS
            )
            changes = decode_canonical(body, ReplicateResponse, "answer")
            if changes.revocations is not None:
                self.revoke(RevocationUpdate.read(changes.revocations))
            new += sum(self._merge(record, service) for record in changes.kept)
            position = ReplicateRequest(changes.instance, changes.number)
            self._positions[service.certificate.fingerprint] = position
            if not changes.more:
                return new

    def _merge(self, record: ReplicatedRecord, service: ServiceRecord) -> bool:
        """Merge a record of another node into the store; return whether it changed anything."""
        try:
            changed = self.node.join(record, now())
        except SecurityError as error:
            _LOG.warning("an advertisement that %s keeps is refused: %s", service.certificate.name, error)
            return False
        self._write(changed)
        return changed is not None


LEDGER, REVOCATIONS = "ledger", "revocations"
_LARGE = 4 * 1024 * 1024  # bytes above which a ledger is rewritten, if at least half of it is obsolete


class DiscoveryStore:
    """The folder of a discovery node: a ledger of records, and the revocation list."""

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        self._folder, self._disk = folder, disk or Disk()
        self._ledger = AppendFile(folder / LEDGER, "discovery node", self._disk)

    def read(self) -> list[ReplicatedRecord]:
        """Return all records of the ledger."""
        return [decode_canonical(data, ReplicatedRecord, f"record of {self._folder / LEDGER}") for data in self._ledger]

    def keep(self, record: ReplicatedRecord) -> None:
        """Append a record to the ledger; return when it is on disk."""
        self._ledger.append(encode_canonical(record))

    def tidy(self, replicated: Iterable[ReplicatedRecord]) -> None:
        """Rewrite the ledger with just these records, if that makes it much smaller."""
        records = [encode_canonical(record) for record in replicated]
        if self._ledger.size > max(_LARGE, 2 * sum(map(len, records))):
            self._ledger.rewrite(records)

    def revocations(self) -> RevocationUpdate | None:
        """Return the stored revocation list, or None."""
        try:
            return RevocationUpdate.read((self._folder / REVOCATIONS).read_bytes())
        except FileNotFoundError:
            return None

    def keep_revocations(self, update: RevocationUpdate) -> None:
        """Store a revocation list."""
        path = self._folder / REVOCATIONS
        try:
            self._disk.create(path, update.data)
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror or error}", path) from error

    def close(self) -> None:
        self._ledger.close()
