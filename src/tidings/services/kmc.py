"""A key management centre on the overlay: a client of brokers that answers to a topic which nobody can guess.

What it says to anybody it says after it is on the disk. A disk that fails ends it: then nobody knows which of the keys
that it has made would still be there after a restart.
"""

import asyncio
import logging

from tidings.client.asking import TIMEOUT
from tidings.client.client import Client
from tidings.client.security import now
from tidings.client.subscription import Subscription
from tidings.model.errors import ClosedError, JournalError, RefusedError, SecurityError, TidingsError
from tidings.model.notification import Notification
from tidings.security.centre import Reply
from tidings.security.centre_questions import CHALLENGED
from tidings.security.exchange import Question
from tidings.security.notices import SignedNotice
from tidings.security.proclaimed import KIND, NOTICE, RECORD, REVOCATIONS, TOPIC
from tidings.security.records import TopicRecord
from tidings.security.respondent import Respondent
from tidings.security.restriction import Restriction
from tidings.security.revocation import Update
from tidings.services.answering import Answering
from tidings.services.centre_folder import CentreFolder
from tidings.services.placard import Placard

_LOG = logging.getLogger("tidings.kmc")
_SECOND = 1_000_000  # microseconds
_WINDOW = 10 * _SECOND
_INQUIRIES = 60.0  # seconds between two questions for what is new in the list of revocations
_FAREWELL = 2.0  # seconds for the broker to take what it was asked last
_LONGEST, _SHORTEST = 1.0, 0.01  # seconds between two looks at what time brings


class CentreServer:
    """Where it is asked can be found at discovery nodes, by whom the `restriction` admits, and is in a file of its
    folder. Above so many `bogus` questions in ten seconds, which are none, it moves to another topic."""

    def __init__(
        self, folder: CentreFolder, client: Client, *, restriction: Restriction | None = None, bogus: int = 5_000
    ) -> None:
        self.folder, self.centre = folder, folder.centre
        self._client, self._bogus = client, bogus
        self._placard = Placard(client, self.centre.identity, self.centre.credentials, restriction)
        respondent = Respondent(self.centre.identity, self.centre.credentials, self.centre.key)
        self.answering = Answering(client, respondent, self._answer)
        self._questions: Subscription | None = None
        self._revocations: Subscription | None = None
        self._untold: dict[tuple[str, bytes], bytes] = {}  # by kind and topic: the latest counts
        self._has_news = asyncio.Event()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._window = (0, 0)  # when it began, and how many questions had been none by then
        self._tasks: list[asyncio.Task[None]] = []

    # Beginning and end

    async def begin(self) -> None:
        """Returns when questions are answered."""
        id = f"{self._client.name[:120]}.news"  # noqa: A001
        await self._client.advertise(f"{KIND} IN ('{RECORD}', '{NOTICE}')", id=id)
        self._revocations = await self._client.subscribe(f"{KIND} = '{REVOCATIONS}'", callback=self._revoked)
        doing = self._tick(), self._tell(), self._stay_informed(), self._placard.keep()
        self._tasks = [asyncio.create_task(one) for one in doing]
        for task in self._tasks:
            task.add_done_callback(self._look_at)
        self._publish(self.centre.news())  # what was changed before a crash may not have been told
        await self._settle()

    async def serve(self) -> None:
        """Until it is cancelled, or cannot go on: its disk has failed, or the broker has ended its connection for
        good."""
        closed = asyncio.create_task(self._client.until_closed())
        try:
            await asyncio.wait([self._failure, closed], return_when=asyncio.FIRST_COMPLETED)
            await (self._failure if self._failure.done() else closed)
        finally:
            closed.cancel()

    def _look_at(self, done: asyncio.Task[None]) -> None:
        """A centre of which a part has ended would not renew keys, or not tell so, and nobody would notice."""
        error = None if done.cancelled() else done.exception()
        if error is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for held in (self._questions, self._revocations):
            if held is not None:
                await held.close(timeout=_FAREWELL)
        self._failure.cancel()

    async def __aenter__(self) -> "CentreServer":
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def _settle(self) -> None:
        """Where it is asked from now on."""
        before, service = self._questions, self.centre.service
        self._questions = await self.answering.begin(service.topic)
        if before is not None:
            await before.close()
        self.folder.publish_service()
        self._placard.show(service)

    # What it does

    async def _answer(self, question: Question) -> bytes:
        reply = self.centre.handle(question, now())
        await self._kept(reply)
        if reply.refused is not None:
            is_asked = reply.refused.startswith(CHALLENGED)  # what is asked concerns nobody else
            why = "a query is to be answered first" if is_asked else reply.refused
            _LOG.info("%s was refused %s: %s", question.certificate.name, question.kind, why)
            raise RefusedError("authorize", reply.refused)
        if reply.changes:
            _LOG.info("%s: %s", question.certificate.name, question.kind)
        return reply.body

    async def _kept(self, reply: Reply) -> None:
        """Returns when it may be told; also what changes nothing waits for what was changed before it."""
        try:
            end = self.folder.append(reply, now())
            if not self.folder.is_synced(end):
                await asyncio.get_running_loop().run_in_executor(None, self.folder.sync, end)
        except JournalError as error:
            if not self._failure.done():
                self._failure.set_exception(error)
            raise RefusedError("keep", "the centre cannot keep its state at the moment: ask again later") from None
        self._publish(reply)

    async def _revoked(self, note: Notification) -> None:
        try:
            await self.revoke(Update.read(note.event.payload or b""))
        except SecurityError as error:  # anybody may carry a list, and some may try
            _LOG.warning("%s has sent a list of revocations that is none: %s", note.event.publisher, error)

    async def _stay_informed(self) -> None:
        """Lists that were published while nobody was connected are had from the broker."""
        while True:
            try:
                since = self.centre.credentials.revocations.version
                found = await self._client.ask("security", timeout=TIMEOUT, since=since)
                if found["revocations"] is not None:
                    await self.revoke(Update.read(found["revocations"]))
            except ClosedError:
                return
            except TidingsError as error:  # a broker that checks nothing knows of no list
                _LOG.debug("no list of revocations from the broker: %s", error)
            await asyncio.sleep(_INQUIRIES)

    async def revoke(self, update: Update) -> None:
        """Takes an update of the authority's list, wherever it is from."""
        await self._kept(self.centre.revocations(update, now()))

    async def _tick(self) -> None:
        while True:
            wait = (self.centre.due() - now()) / _SECOND
            await asyncio.sleep(min(_LONGEST, max(_SHORTEST, wait)))
            try:
                await self._kept(self.centre.tick(now()))
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
        begun, before = self._window
        bogus = self.answering.refused.total()
        if bogus - before > self._bogus:
            _LOG.warning("%d questions were none: the centre moves to another topic", bogus - before)
            await self._kept(self.centre.move())
            await self._settle()
            self._window = now(), bogus
        elif now() - begun > _WINDOW:
            self._window = now(), bogus

    # What it tells everybody

    def _publish(self, reply: Reply) -> None:
        for data in reply.records:
            self._untold[RECORD, TopicRecord(data).id] = data
        for data in reply.notices:
            self._untold[NOTICE, SignedNotice(data).notice.topic] = data
        self._has_news.set()

    async def _tell(self) -> None:
        """One after the other, records first: a notice of a topic that a broker does not know is none to it. Without a
        connection they wait, and only the latest of each topic is told then."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            while self._untold:
                kind, topic = min(self._untold, key=lambda one: one[0] != RECORD)
                data = self._untold.pop((kind, topic))
                try:
                    await self._client.publish({KIND: kind, TOPIC: topic.hex()}, payload=data)
                except ClosedError:
                    return
                except TidingsError as error:
                    _LOG.warning("a %s of %s was not published: %s", kind, topic.hex(), error)
