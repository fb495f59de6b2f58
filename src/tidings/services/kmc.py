"""A key management centre on the overlay: a client of a broker that answers requests to a random, secret topic.

Replies and notices are published after their changes are on disk. If the disk fails, the service ends: it could not
know which of its newly generated keys would survive a restart.
"""

import asyncio
import logging

from tidings.client.secure.discovery import Discovery
from tidings.client.secure.service_rpc import TIMEOUT, ServiceClient, ServiceSubscription, now
from tidings.model.errors import ClosedError, JournalError, RefusedError, SecurityError, TidingsError
from tidings.model.notification import Notification
from tidings.security.ca.revocation import RevocationUpdate
from tidings.security.kmc import CentreReply
from tidings.security.rpc.kmc_messages import CHALLENGED
from tidings.security.rpc.messages import RpcRequest, RpcServer
from tidings.security.tdn.discovery_records import Visibility
from tidings.security.tokens.notices import KIND, NOTICE, RECORD, REVOCATIONS, TOPIC, SignedNotice
from tidings.security.topic_record import TopicRecord
from tidings.services.kmc_store import KmcStore
from tidings.services.service import RpcService, ServiceListing

_LOG = logging.getLogger("tidings.kmc")
_SECOND = 1_000_000  # microseconds
_WINDOW = 10 * _SECOND
_POLL_SECONDS = 60.0  # seconds between two queries for revocation updates
_CLOSE_SECONDS = 2.0  # seconds to wait for the broker when closing
_LONGEST, _SHORTEST = 1.0, 0.01  # seconds between two checks of what is due


class KmcServer:
    """Runs a key management centre.

    Its service record is written to its folder, and listed at discovery nodes for the clients that `restriction`
    admits. If more than `bogus` malformed requests come within ten seconds, the centre moves to another topic.
    """

    def __init__(
        self, folder: KmcStore, client: ServiceClient, *, restriction: Visibility | None = None, bogus: int = 5_000
    ) -> None:
        self.folder, self.centre = folder, folder.centre
        self._client, self._bogus = client, bogus
        self._listing = ServiceListing(
            Discovery(client, self.centre.identity, self.centre.credentials), self.centre.identity, restriction
        )
        respondent = RpcServer(self.centre.identity, self.centre.credentials, self.centre.key)
        self.answering = RpcService(client, respondent, self._answer)
        self._requests: ServiceSubscription | None = None
        self._revocations: ServiceSubscription | None = None
        self._unpublished: dict[
            tuple[str, bytes], bytes
        ] = {}  # by kind and topic: news to publish, only the latest of each
        self._has_news = asyncio.Event()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._window = (0, 0)  # its start, and the number of malformed requests then
        self._tasks: list[asyncio.Task[None]] = []

    # Starting and stopping

    async def begin(self) -> None:
        """Start the service; on return, requests are answered."""
        id = f"{self._client.name[:120]}.news"  # noqa: A001
        await self._client.advertise(f"{KIND} IN ('{RECORD}', '{NOTICE}')", id=id)
        self._revocations = await self._client.subscribe(f"{KIND} = '{REVOCATIONS}'", callback=self._handle_revocations)
        coroutines = self._tick(), self._publish_news(), self._poll_revocations(), self._listing.keep()
        self._tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
        for task in self._tasks:
            task.add_done_callback(self._fail_with_task)
        self._queue_news(self.centre.news())  # changes before a crash may not have been published
        await self._serve_topic()

    async def serve(self) -> None:
        """Run until cancelled; raise the error if the disk fails, or the broker closes the connection for good."""
        closed = asyncio.create_task(self._client.until_closed())
        try:
            await asyncio.wait([self._failure, closed], return_when=asyncio.FIRST_COMPLETED)
            await (self._failure if self._failure.done() else closed)
        finally:
            closed.cancel()

    def _fail_with_task(self, done: asyncio.Task[None]) -> None:
        """Stop the service if one of its tasks fails: it would silently no longer renew keys or publish news."""
        error = None if done.cancelled() else done.exception()
        if error is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def end(self) -> None:
        """Stop the service."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for subscription in (self._requests, self._revocations):
            if subscription is not None:
                await subscription.close(timeout=_CLOSE_SECONDS)
        self._failure.cancel()

    async def __aenter__(self) -> "KmcServer":
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def _serve_topic(self) -> None:
        """Answer requests to the centre's present topic, and publish its service record."""
        before, service = self._requests, self.centre.service
        self._requests = await self.answering.begin(service.topic)
        if before is not None:
            await before.close()
        self.folder.publish_service()
        self._listing.show(service)

    # Requests and revocations

    async def _answer(self, question: RpcRequest) -> bytes:
        reply = self.centre.handle(question, now())
        await self._sync_then_publish(reply)
        if reply.refused is not None:
            is_asked = reply.refused.startswith(CHALLENGED)  # the challenge is private, so it is not logged
            why = "a query is to be answered first" if is_asked else reply.refused
            _LOG.info("%s was refused %s: %s", question.certificate.name, question.kind, why)
            raise RefusedError("authorize", reply.refused)
        if reply.changes:
            _LOG.info("%s: %s", question.certificate.name, question.kind)
        return reply.body

    async def _sync_then_publish(self, reply: CentreReply) -> None:
        """Return when the reply's changes, and all before them, are on disk; then publish its news.

        A reply without changes waits, too: it may depend on earlier changes.
        """
        try:
            end = self.folder.append(reply, now())
            if not self.folder.is_synced(end):
                await asyncio.get_running_loop().run_in_executor(None, self.folder.sync, end)
        except JournalError as error:
            if not self._failure.done():
                self._failure.set_exception(error)
            raise RefusedError("keep", "the centre cannot keep its state at the moment: ask again later") from None
        self._queue_news(reply)

    async def _handle_revocations(self, notification: Notification) -> None:
        try:
            await self.revoke(RevocationUpdate.read(notification.event.payload or b""))
        except SecurityError as error:  # any client may publish such an event
            _LOG.warning("%s has published an invalid revocation list: %s", notification.event.publisher, error)

    async def _poll_revocations(self) -> None:
        """Query the broker for revocation lists that were published while the centre was not connected."""
        while True:
            try:
                since = self.centre.credentials.revocations.version
                answer = await self._client.ask("security", timeout=TIMEOUT, since=since)
                if answer["revocations"] is not None:
                    await self.revoke(RevocationUpdate.read(answer["revocations"]))
            except ClosedError:
                return
            except TidingsError as error:  # a broker without security has no list
                _LOG.debug("the broker has sent no revocation list: %s", error)
            await asyncio.sleep(_POLL_SECONDS)

    async def revoke(self, update: RevocationUpdate) -> None:
        """Apply an update of the authority's revocation list, from any source."""
        await self._sync_then_publish(self.centre.revocations(update, now()))

    async def _tick(self) -> None:
        """Periodically run the centre's due work, move to another topic when flooded, and write snapshots."""
        while True:
            wait = (self.centre.due() - now()) / _SECOND
            await asyncio.sleep(min(_LONGEST, max(_SHORTEST, wait)))
            try:
                await self._sync_then_publish(self.centre.tick(now()))
                await self._move_when_flooded()
                self.folder.tidy()
            except ClosedError:
                return
            except JournalError as error:
                _LOG.error("the state was not written whole: %s", error)
            except TidingsError as error:
                if self._failure.done():
                    return
                _LOG.error("the centre could not do what is due: %s", error)

    async def _move_when_flooded(self) -> None:
        """Move to another topic if too many malformed requests came within ten seconds."""
        begun, before = self._window
        bogus = self.answering.refused.total()
        if bogus - before > self._bogus:
            _LOG.warning("%d questions were none: the centre moves to another topic", bogus - before)
            await self._sync_then_publish(self.centre.move())
            await self._serve_topic()
            self._window = now(), bogus
        elif now() - begun > _WINDOW:
            self._window = now(), bogus

    # Publishing records and notices

    def _queue_news(self, reply: CentreReply) -> None:
        """Queue the reply's topic records and notices for publication."""
        for data in reply.records:
            self._unpublished[RECORD, TopicRecord(data).id] = data
        for data in reply.notices:
            self._unpublished[NOTICE, SignedNotice(data).notice.topic] = data
        self._has_news.set()

    async def _publish_news(self) -> None:
        """Publish queued news one by one, records first: a broker ignores a notice of a topic that it does not know.

        Without a connection the news waits, and only the latest of each topic is published afterwards.
        """
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            while self._unpublished:
                kind, topic = min(self._unpublished, key=lambda key: key[0] != RECORD)
                data = self._unpublished.pop((kind, topic))
                try:
                    await self._client.publish({KIND: kind, TOPIC: topic.hex()}, payload=data)
                except ClosedError:
                    return
                except TidingsError as error:
                    _LOG.warning("a %s of %s was not published: %s", kind, topic.hex(), error)
