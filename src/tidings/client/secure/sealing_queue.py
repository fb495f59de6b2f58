"""The queue in which a secure client's publications wait, in order, until they are sealed and sent.

Rules:

1. Publications are sealed when they are sent: at once if nothing else is in flight; otherwise those of one turn of the
   event loop together, with one signature per topic.
2. A publication that is sent again after a reconnection is the same, byte for byte.
3. While the keys of a topic are fetched, later publications wait, too. Requests to services do not: otherwise their
   answers, the keys, would never come.
4. A publication that was sealed once is never sent unsealed.

Theory of operation. `put` sends a publication directly if it needs no seal and none waits; otherwise it joins
`_waiting`. `flush` seals and sends from the front. If a key or token is missing, a task (`_obtain`) fetches it, and
nothing goes out until it is done. If the broker refuses a publication, `retry_after_refusal` decides whether its reason
may be gone (an unknown secure topic, newer keys); if so, `_retry_refused` puts it back into its place, once.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from itertools import islice
from typing import Any, Protocol

import msgspec

from tidings.client.in_flight import PendingPublication, fail
from tidings.client.secure.service_rpc import now
from tidings.model.errors import InvalidValueError, PublishedBeforeError, RefusedError, SecurityError, TidingsError
from tidings.model.event import Event
from tidings.security.member import Member
from tidings.security.rpc.messages import SERVICE_TOPIC
from tidings.security.sealing.envelope import Seal
from tidings.security.tokens.token import Right, Token
from tidings.security.topic_record import TopicRecord

_EVENTS_PER_SIGNATURE = 64  # events per signature: more would lengthen the Merkle path of each, and save little
_LACKING = ("token", "epoch", "expired")  # failed checks that a new token or key may fix


class PublicationSender(Protocol):
    """The part of the session that the queue needs to send publications."""

    sent_sequence: int

    @property
    def is_connected(self) -> bool: ...
    @property
    def is_quiet(self) -> bool: ...
    def next_sequence(self, chosen: int | None = None) -> int: ...
    def send_publication(self, number: int, publication: PendingPublication) -> None: ...
    def forget(self, number: int) -> None: ...


class SealingKeys(Protocol):
    """What sealing needs of the client's membership in secure topics."""

    @property
    def member(self) -> Member: ...
    async def obtain(self, record: TopicRecord) -> Token: ...
    async def obtain_anew(self, record: TopicRecord) -> None: ...
    async def learn(self, **about: object) -> bool: ...
    def missing(self, record: TopicRecord, right: Right, cause: TidingsError) -> TidingsError: ...
    def renew(self, topic: bytes) -> None: ...


class SealingQueue:
    """Seals the publications of one client, and hands them to the session in order."""

    def __init__(self, membership: SealingKeys, sender: PublicationSender) -> None:
        self._membership, self._sender = membership, sender
        self._member = membership.member
        self._waiting: dict[int, PendingPublication] = {}  # by request number, which rises with each call
        self._refused_once: dict[int, tuple[PendingPublication, TidingsError]] = {}
        self._is_scheduled = False
        self._sealed_on: set[bytes] = set()  # topics whose keys were used since the last check for renewal
        self._fetch_task: asyncio.Task[None] | None = None

    def __contains__(self, number: int) -> bool:
        """Whether the publication waits, or will be sent once more after a refusal."""
        return number in self._waiting or number in self._refused_once

    @staticmethod
    def may_wait(attributes: Mapping[str, Any]) -> bool:
        """Return whether a publication with these attributes may wait: requests to services may not."""
        return SERVICE_TOPIC not in attributes

    def put(self, number: int, publication: PendingPublication) -> None:
        """Accept a publication: send it at once if it may go, otherwise enqueue it."""
        is_first = not self._waiting and self._fetch_task is None
        record = self._topic_of(publication.event) if is_first else None
        if (is_first and record is None) or not self.may_wait(publication.event.attributes):
            self._send(number, publication)
            return
        if record is not None and self._sender.is_quiet and self._seal_at_once(record, number, publication):
            return
        self._waiting[number] = publication
        if self._fetch_task is None:
            self._schedule_flush()

    def retry_after_refusal(self, number: int, publication: PendingPublication, error: TidingsError) -> bool:
        """Handle a refusal by the broker; return whether the publication will be tried once more.

        It will if its topic may be a secure one that was not known here, or if there may be newer keys.
        """
        is_untrusted = isinstance(error, SecurityError) or (isinstance(error, RefusedError) and error.step == "admit")
        if not is_untrusted or isinstance(error, PublishedBeforeError) or publication.is_retried:
            return False
        publication.is_retried = True
        self._refused_once[number] = publication, error
        if self._fetch_task is None:
            self._start_fetch(self._retry_refused())
        return True

    def flush(self) -> None:
        """Seal and send waiting publications, as far as the keys are available."""
        while self._waiting and self._fetch_task is None and self._sender.is_connected:
            publication = next(iter(self._waiting.values()))
            record = self._topic_of(publication.event)
            if record is None:
                self._send(*self._pop_waiting(1)[0])
            else:
                self._seal(record)

    def end(self) -> None:
        """Drop everything that waits: the session has ended."""
        self._waiting.clear()
        self._sealed_on.clear()
        self._refused_once.clear()
        if self._fetch_task is not None:
            self._fetch_task.cancel()

    def _schedule_flush(self) -> None:
        """Schedule `flush` and the check for renewal after this turn of the event loop."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self.flush()
        if self._fetch_task is None:
            self._renew()

    # Sealing

    def _seal_at_once(self, record: TopicRecord, number: int, publication: PendingPublication) -> bool:
        """Seal and send a single publication; False if that fails, and it has to wait, where the error is handled."""
        try:
            event = self._numbered(publication, 0)
            (sealed,) = self._member.seal_on(record, [event], now())
        except TidingsError:
            return False
        _put_seal(publication, event, sealed)
        self._send(number, publication)
        self._sealed_on.add(record.id)
        self._schedule_flush()
        return True

    def _seal(self, record: TopicRecord) -> None:
        """Seal and send the first waiting publications, all on this topic."""
        count = 0
        for waiting in islice(self._waiting.values(), _EVENTS_PER_SIGNATURE):
            if self._topic_of(waiting.event) is not record:
                break
            count += 1
        publications = self._pop_waiting(count)
        try:
            self._seal_all(record, publications)
        except SecurityError as error:
            if error.check in _LACKING:
                self._waiting = dict(publications) | self._waiting
                self._start_fetch(self._obtain(record))
            elif count > 1:
                for number, publication in publications:
                    self._seal_one(record, number, publication)
            else:
                self._fail(*publications[0], self._membership.missing(record, Right.PUBLISH, error))
        self._sealed_on.add(record.id)
        self._schedule_flush()

    def _renew(self) -> None:
        """Renew keys that are used up, after the publications sealed with them were sent."""
        topics, self._sealed_on = self._sealed_on, set()
        for topic in topics:
            if self._member.needs_renewal(topic, now()):
                self._membership.renew(topic)

    def _seal_one(self, record: TopicRecord, number: int, publication: PendingPublication) -> None:
        try:
            self._seal_all(record, [(number, publication)])
        except SecurityError as error:
            self._fail(number, publication, self._membership.missing(record, Right.PUBLISH, error))

    def _seal_all(self, record: TopicRecord, publications: list[tuple[int, PendingPublication]]) -> None:
        events: list[Event] = []
        numbered: list[tuple[int, PendingPublication]] = []
        for number, publication in publications:
            try:
                events.append(self._numbered(publication, events[-1].sequence if events else 0))
                numbered.append((number, publication))
            except InvalidValueError as error:
                self._fail(number, publication, error)
        if not events:
            return
        sealed = self._member.seal_on(record, events, now())
        for (number, publication), event, sealed_event in zip(numbered, events, sealed, strict=True):
            _put_seal(publication, event, sealed_event)
            self._send(number, publication)

    def _numbered(self, publication: PendingPublication, last: int) -> Event:
        """Return the event with a sequence number above `last` and above any that was sent.

        Requests to services and repeated publications take numbers in between, and brokers require numbers to rise.

        Raises:
            InvalidValueError: The publisher chose the number, and it no longer rises.
        """
        event, last = publication.event, max(last, self._sender.sent_sequence)
        if event.sequence > last:
            return event
        if publication.is_numbered:
            raise InvalidValueError(
                f"sequence: {event.sequence} does not come after {last}: the keys of its topic were asked for meanwhile"
            )
        return msgspec.structs.replace(event, sequence=self._sender.next_sequence())

    # Asking

    def _start_fetch(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that fetches keys or topics; nothing is sent until it is done."""
        self._fetch_task = asyncio.create_task(coroutine)
        self._fetch_task.add_done_callback(self._fetch_done)

    def _fetch_done(self, done: "asyncio.Task[None]") -> None:
        self._fetch_task = None
        if done.cancelled():
            return
        done.result()
        if self._refused_once:
            self._start_fetch(self._retry_refused())
        else:
            self.flush()

    async def _obtain(self, record: TopicRecord) -> None:
        """Fetch the token and keys of a topic; if that fails, fail the waiting publications on it."""
        try:
            await self._membership.obtain(record)
            self._member.check_can_publish(record, now())
        except TidingsError as error:
            for number, publication in list(self._waiting.items()):
                if self._topic_of(publication.event) is record:
                    del self._waiting[number]
                    self._fail(number, publication, self._membership.missing(record, Right.PUBLISH, error))

    async def _retry_refused(self) -> None:
        """Decide for each refused publication whether to send it again."""
        while self._refused_once:
            number, (publication, error) = next(iter(self._refused_once.items()))
            reason = await self._reason_against(publication, error)
            del self._refused_once[number]
            if reason is None:
                publication.sealed, publication.epoch, publication.sent = None, None, 0
                publication.must_seal = True  # never send unsealed what was sealed once
                self._waiting = dict(sorted([(number, publication), *self._waiting.items()]))
            else:
                self._fail(number, publication, reason)

    async def _reason_against(self, publication: PendingPublication, error: TidingsError) -> TidingsError | None:
        """Return the error with which a refused publication fails; None if it is worth sending again."""
        event = publication.event
        if publication.is_numbered:
            return error
        record = self._topic_of(event)
        if publication.sealed is None:
            if record is None:
                await self._membership.learn(subject=event.subject, attributes=dict(event.attributes))
            return error if self._topic_of(event) is None else None
        if record is None:
            return error
        try:
            await self._membership.obtain_anew(record)
            self._member.check_can_publish(record, now())
        except (RefusedError, SecurityError) as missing:
            return self._membership.missing(record, Right.PUBLISH, missing)
        except TidingsError:
            return error
        token, key = self._member.token(record.id), self._member.keyring.current(record.id, now())
        is_newer = key is not None and publication.epoch is not None and key.epoch > publication.epoch
        return None if is_newer or token is None or token.data != publication.sealed.token else error

    # Sending

    def _topic_of(self, event: Event) -> TopicRecord | None:
        return self._member.topic_of(event.subject, event.attributes)

    def _pop_waiting(self, count: int) -> list[tuple[int, PendingPublication]]:
        numbers = list(islice(self._waiting, count))
        return [(number, self._waiting.pop(number)) for number in numbers]

    def _send(self, number: int, publication: PendingPublication) -> None:
        if publication.must_seal and publication.sealed is None:
            self._fail(number, publication, self._member.seal_refusal())
            return
        try:
            if publication.sealed is None:
                publication.event = self._numbered(publication, 0)
            self._sender.send_publication(number, publication)
        except InvalidValueError as error:
            self._fail(number, publication, error)

    def _fail(self, number: int, publication: PendingPublication, error: TidingsError) -> None:
        self._sender.forget(number)
        fail(publication.answer, error)


def _put_seal(publication: PendingPublication, event: Event, sealed: Event) -> None:
    publication.event, publication.sealed, publication.epoch = event, sealed, Seal.of(sealed).epoch
