"""A discovery node on the overlay: it answers who asks, and keeps the same as the other nodes.

What it has acknowledged is on its disk. Other nodes are looked for at intervals; each is asked for what has changed
there, when it says that there are news, or when it is time.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Self

from tidings.client.asking import ask
from tidings.client.client import Client
from tidings.client.discovery import Discovery
from tidings.client.security import now
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
from tidings.security.certificates import Role
from tidings.security.credentials import Credentials
from tidings.security.discovery import DiscoveryNode
from tidings.security.discovery_questions import (
    ADVERTISE,
    ASK,
    FIND,
    HELLO,
    NEWS,
    REPLICATE,
    REPLY_TO,
    TOPIC,
    WITHDRAW,
    Changes,
    Finds,
    Kept,
    Replicates,
)
from tidings.security.encoding import decoded, encoded
from tidings.security.exchange import SERVICE_TOPIC, Question, Service
from tidings.security.identity import Identity
from tidings.security.respondent import Respondent
from tidings.security.revocation import Head, Update
from tidings.services.answering import Answering
from tidings.services.discovery_folder import DiscoveryFolder
from tidings.services.quota import Quota

_LOG = logging.getLogger("tidings.services")
INTERVAL = 10.0  # seconds between two looks at the other nodes
_PATIENCE = 5.0  # seconds for another node to answer
_MOMENT = 0.05  # seconds in which news of several nodes count as one
_HELLOS = 50  # a second, of one publisher


class DiscoveryService:
    """`async with` it: then it answers, until the end of the block."""

    def __init__(
        self,
        client: Client,
        identity: Identity,
        folder: str | Path,
        *,
        overlay: str = "tidings",
        revocations: Update | None = None,
        interval: float = INTERVAL,
        disk: Disk | None = None,
    ) -> None:
        if identity.certificate.role is not Role.TDN:
            raise InvalidValueError(
                f"the identity of a discovery node has the role tdn, not {identity.certificate.role.value}"
            )
        self._client, self._identity, self._interval = client, identity, interval
        self.folder = DiscoveryFolder(Path(folder), disk)
        self._unkept: deque[Kept] = deque()  # what the disk has not taken yet
        self._kept_head: Head | None = None  # of the list of revocations that is on the disk
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
        respondent = Respondent(identity, self._credentials)
        self.service = respondent.service(f"{TOPIC}/{secrets.token_hex(16)}", now())
        self.answering = Answering(client, respondent, self._answer)
        self.others = Discovery(client, identity, self._credentials)
        self._places: dict[bytes, Replicates] = {}  # up to where each instance of another node has been read
        self._hellos = Quota(_HELLOS)
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def lacks_revocations(self) -> bool:
        """Without a list that is young enough nobody is trusted, and nothing answered."""
        try:
            self._credentials.revocations.check_fresh(now())
        except SecurityError:
            return True
        return False

    # Beginning and end

    async def __aenter__(self) -> Self:
        await self._client.subscribe("security = 'revocations'", callback=self._told_revocations)
        await self.answering.begin(self.service.topic)
        await self._client.subscribe(f"{SERVICE_TOPIC} = '{TOPIC}'", callback=self._called)
        self._background(self._go_along())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = list(self._tasks)
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.folder.close()

    def _background(self, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Questions

    async def _answer(self, question: Question) -> bytes:
        at, asker = now(), question.certificate
        if question.kind == FIND:
            return encoded(self.node.find(decoded(question.body, Finds, "question"), asker, at))
        if question.kind in (ADVERTISE, WITHDRAW):
            kept = self.node.advertise(question.body, asker, at)
            self._keep(kept)
            if kept is not None:
                self._background(self._tell_news())
            return b""
        if question.kind == REPLICATE:
            if asker.role is not Role.TDN:
                raise RefusedError("authorize", f"{asker.name} is no discovery node")
            return encoded(self.node.changes(decoded(question.body, Replicates, "question"), at))
        raise RefusedError("authorize", f"a discovery node does not know the question {question.kind!r:.40}")

    def _keep(self, kept: Kept | None) -> None:
        """Returns when it is on the disk, and all that the disk did not take before: it is known here all the same, and
        who says it again must not be told that it is safe."""
        if kept is not None:
            self._unkept.append(kept)
        while self._unkept:
            self.folder.keep(self._unkept[0])
            self._unkept.popleft()

    async def _called(self, note: Notification) -> None:
        """What is asked of all nodes, in the clear."""
        said = note.attributes.get(ASK)
        if note.event.publisher == self._client.name or not self._hellos.take(note.event.publisher, now()):
            return
        if said == HELLO:
            reply_to = note.attributes.get(REPLY_TO)
            if isinstance(reply_to, str):
                await self._tell(reply_to)
        elif said == NEWS:
            self._news.set()

    async def _tell(self, reply_to: str) -> None:
        """Where this node can be asked."""
        try:
            data = self.service.data
            await self._client.publish({SERVICE_TOPIC: reply_to}, payload=data, safe="accepted", timeout=_PATIENCE)
        except TidingsError as error:  # a client that has got no answer asks again
            _LOG.debug("a client was not told where discovery node %s is: %s", self._identity.name, error)

    async def _tell_news(self) -> None:
        try:
            await self._client.publish({SERVICE_TOPIC: TOPIC, ASK: NEWS}, safe="accepted", timeout=_PATIENCE)
        except TidingsError as error:  # the others look by themselves, after a while
            _LOG.debug("the other discovery nodes were not told that there are news: %s", error)

    # Revocations

    def _told_revocations(self, note: Notification) -> None:
        try:
            self.revoke(Update.read(note.event.payload or b""))
        except SecurityError as error:
            _LOG.debug("a list of revocations of %s is of no use: %s", note.event.publisher, error)
        except JournalError as error:
            _LOG.error("a list of revocations counts, and is not kept: %s", error)

    async def _fetch_revocations(self) -> None:
        """What the broker has of the list, and this node has missed."""
        try:
            since = self._credentials.revocations.version
            found = await self._client.ask("security", timeout=_PATIENCE, since=since)
            if found["revocations"] is not None:
                self.revoke(Update.read(found["revocations"]))
        except TidingsError as error:
            _LOG.debug("no list of revocations from the broker: %s", error)

    def revoke(self, update: Update) -> None:
        """Heeds a list of revocations, and writes it into the folder; the same list may be given again if the disk did
        not take it."""
        self.node.revoke(update, now())
        head = self._credentials.revocations.head
        if head != self._kept_head:
            whole = self._credentials.revocations.since(0)
            if whole is not None:
                self.folder.keep_revocations(whole)
                self._kept_head = head

    # The other nodes

    async def _go_along(self) -> None:
        while True:
            try:
                await self.replicate()
            except TidingsError as error:
                _LOG.warning("discovery node %s cannot look at the others: %s", self._identity.name, error)
            try:
                async with asyncio.timeout(self._interval):
                    await self._news.wait()
                    await asyncio.sleep(_MOMENT)
            except TimeoutError:
                continue
            finally:
                self._news.clear()

    async def replicate(self) -> int:
        """Asks all other nodes that are there; how much was new."""
        await self._fetch_revocations()
        try:
            found = await self.others.nodes(timeout=min(_PATIENCE, self._interval))
        except UnreachableError:
            return 0  # it is the only one
        new = 0
        for service in found:
            try:
                new += await self._copied(service)
            except TidingsError as error:
                _LOG.warning("discovery node %s has not told its changes: %s", service.certificate.name, error)
        return new

    async def _copied(self, service: Service) -> int:
        place, new = self._places.get(service.certificate.fingerprint, Replicates()), 0
        while True:
            wanted = Replicates(place.instance, place.after, self._credentials.revocations.version)
            body = await ask(self._client, self._identity, service, REPLICATE, encoded(wanted), timeout=_PATIENCE)
            changes = decoded(body, Changes, "answer")
            if changes.revocations is not None:
                self.revoke(Update.read(changes.revocations))
            new += sum(self._joined(one, service) for one in changes.kept)
            place = Replicates(changes.instance, changes.number)
            self._places[service.certificate.fingerprint] = place
            if not changes.more:
                return new

    def _joined(self, kept: Kept, service: Service) -> bool:
        try:
            changed = self.node.join(kept, now())
        except SecurityError as error:
            _LOG.warning("an advertisement that %s keeps is refused: %s", service.certificate.name, error)
            return False
        self._keep(changed)
        return changed is not None
