"""Answering: the part that all services have in common. Questions come to a topic, answers go to who has asked."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from tidings.client.asking import TIMEOUT
from tidings.client.client import Client
from tidings.client.security import now
from tidings.client.subscription import Subscription
from tidings.model.errors import RefusedError, SecurityError, TidingsError
from tidings.model.notification import Notification
from tidings.security.exchange import SERVICE_TOPIC, Question
from tidings.security.respondent import Respondent
from tidings.services.quota import Quota

_LOG = logging.getLogger("tidings.services")
QUESTIONS = 200  # a second, of one publisher
_AT_ONCE = 256  # questions that are being answered; others wait

Answerer = Callable[[Question], Awaitable[bytes]]


class Answering:
    """`answerer` makes the body of an answer; what it raises as a `TidingsError` is told to the asker as the reason.

    What is no question gets no answer at all: nobody learns that a service is there by trying. `refused` counts why;
    `quota` says who sends too much, before anything is opened.
    """

    def __init__(self, client: Client, respondent: Respondent, answerer: Answerer, questions: int = QUESTIONS) -> None:
        self._client, self._respondent, self._answerer = client, respondent, answerer
        self.quota = Quota(questions)
        self.refused: Counter[str] = Counter()
        self.answered = 0
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, topic: str) -> Subscription:
        """Questions to that topic are answered until the subscription is closed. A topic is 32 letters of hexadecimal,
        or a well known word."""
        await self._client.advertise(f"{SERVICE_TOPIC} IS NOT NULL", id=f"{self._client.name[:120]}.answers")
        held = self._client.subscribe(f"{SERVICE_TOPIC} = '{topic}'", callback=self._came)
        return await held

    async def _came(self, note: Notification) -> None:
        payload = note.event.payload
        if payload is None:
            return
        at = now()
        if not self.quota.take(note.event.publisher, at):
            self.refused["flood"] += 1
            return
        try:
            question = self._respondent.read(payload, at)
        except SecurityError as error:
            self.refused[error.check] += 1
            _LOG.debug("a question of %s was not answered: %s", note.event.publisher, error)
            return
        # Whoever waits for an answer does not hold up others: what the answerer waits for may be a disk.
        await self._room.acquire()
        task = asyncio.create_task(self._reply(question))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reply(self, question: Question) -> None:
        try:
            payload = await self._answer(question)
            await self._client.publish(
                {SERVICE_TOPIC: question.reply_to}, payload=payload, safe="accepted", timeout=TIMEOUT
            )
            self.answered += 1
        except TidingsError as error:  # the connection has ended: who has asked will ask again
            _LOG.debug("an answer to %s was not sent: %s", question.certificate.name, error)
        finally:
            self._room.release()

    async def _answer(self, question: Question) -> bytes:
        try:
            return self._respondent.answer(question, await self._answerer(question))
        except RefusedError as error:
            return self._respondent.answer(question, refused=error.reason)
        except TidingsError as error:
            return self._respondent.answer(question, refused=str(error))
