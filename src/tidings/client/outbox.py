"""The outbox of a secure client: publications wait here, in their order, until they are sealed and go.

They are sealed when they go: one that nothing else is under way with at once, and else what comes in one turn of the
loop together, with one signature for each topic. What is sent again after a connection broke is the same, byte for
byte. While the keys of a topic are asked for, what comes after waits too; but questions to services do not, else their
answers would never come.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tidings.client.security import now
from tidings.client.underway import Publication, fail
from tidings.model.errors import InvalidValueError, PublishedBeforeError, RefusedError, SecurityError, TidingsError
from tidings.model.event import Event
from tidings.security.envelope import Seal
from tidings.security.exchange import SERVICE_TOPIC
from tidings.security.records import TopicRecord
from tidings.security.token import Right

if TYPE_CHECKING:
    from tidings.client.membership import Membership

_TOGETHER = 64  # events under one signature: more make the path of each longer, and save little
_LACKING = ("token", "epoch", "expired")  # what a member without a good token or key meets


class Sender(Protocol):
    """The session, as far as an outbox needs it."""

    sent_sequence: int

    @property
    def is_connected(self) -> bool: ...
    @property
    def is_quiet(self) -> bool: ...
    def next_sequence(self, wanted: int | None = None) -> int: ...
    def hand_out(self, number: int, publication: Publication) -> None: ...
    def forget(self, number: int) -> None: ...


class Outbox:
    def __init__(self, membership: "Membership", sender: Sender) -> None:
        self._membership, self._sender = membership, sender
        self._member = membership.member
        self._waiting: dict[int, Publication] = {}  # by their numbers, which are in the order of the calls
        self._doubted: dict[int, tuple[Publication, TidingsError]] = {}
        self._is_due = False
        self._sealed_on: set[bytes] = set()  # topics, since it was looked last whether their keys are used up
        self._asking: asyncio.Task[None] | None = None

    def __contains__(self, number: int) -> bool:
        """Whether it has not gone, or will go once more."""
        return number in self._waiting or number in self._doubted

    @staticmethod
    def may_wait(attributes: Mapping[str, Any]) -> bool:
        """Whether it may wait for room, and for what was published before."""
        return SERVICE_TOPIC not in attributes

    def put(self, number: int, publication: Publication) -> None:
        is_first = not self._waiting and self._asking is None
        record = self._topic_of(publication.event) if is_first else None
        if (is_first and record is None) or not self.may_wait(publication.event.attributes):
            self._send(number, publication)
            return
        if record is not None and self._sender.is_quiet and self._seal_at_once(record, number, publication):
            return
        self._waiting[number] = publication
        if self._asking is None:
            self._be_due()

    def doubt(self, number: int, publication: Publication, error: TidingsError) -> bool:
        """A publication was refused; whether it will be tried once more: its topic may be a secure one that was not
        known here, or there may be newer keys."""
        is_untrusted = isinstance(error, SecurityError) or (isinstance(error, RefusedError) and error.step == "admit")
        if not is_untrusted or isinstance(error, PublishedBeforeError) or publication.is_doubted:
            return False
        publication.is_doubted = True
        self._doubted[number] = publication, error
        if self._asking is None:
            self._ask(self._reconsider())
        return True

    def flush(self) -> None:
        """Seals and sends what waits, as far as keys are here."""
        while self._waiting and self._asking is None and self._sender.is_connected:
            publication = next(iter(self._waiting.values()))
            record = self._topic_of(publication.event)
            if record is None:
                self._send(*self._taken(1)[0])
            else:
                self._seal(record)

    def end(self) -> None:
        self._waiting.clear()
        self._sealed_on.clear()
        self._doubted.clear()
        if self._asking is not None:
            self._asking.cancel()

    def _be_due(self) -> None:
        """After what goes in this turn has gone."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._due)

    def _due(self) -> None:
        self._is_due = False
        self.flush()
        if self._asking is None:
            self._renew()

    # Sealing

    def _seal_at_once(self, record: TopicRecord, number: int, publication: Publication) -> bool:
        """Whether it could be; what there is against it is seen to where it waits."""
        try:
            event = self._numbered(publication, 0)
            (sealed,) = self._member.seal_on(record, [event], now())
        except TidingsError:
            return False
        _put_seal(publication, event, sealed)
        self._send(number, publication)
        self._sealed_on.add(record.id)
        self._be_due()
        return True

    def _seal(self, record: TopicRecord) -> None:
        """The first ones that wait, all on this topic."""
        count = 0
        for one in islice(self._waiting.values(), _TOGETHER):
            if self._topic_of(one.event) is not record:
                break
            count += 1
        taken = self._taken(count)
        try:
            self._seal_all(record, taken)
        except SecurityError as error:
            if error.check in _LACKING:
                self._waiting = dict(taken) | self._waiting
                self._ask(self._obtain(record))
            elif count > 1:
                for number, publication in taken:
                    self._seal_one(record, number, publication)
            else:
                self._fail(*taken[0], self._membership.missing(record, Right.PUBLISH, error))
        self._sealed_on.add(record.id)
        self._be_due()

    def _renew(self) -> None:
        """Looks whether keys are used up: not before what was sealed with them has gone."""
        topics, self._sealed_on = self._sealed_on, set()
        for topic in topics:
            if self._member.needs_renewal(topic, now()):
                self._membership.renew(topic)

    def _seal_one(self, record: TopicRecord, number: int, publication: Publication) -> None:
        try:
            self._seal_all(record, [(number, publication)])
        except SecurityError as error:
            self._fail(number, publication, self._membership.missing(record, Right.PUBLISH, error))

    def _seal_all(self, record: TopicRecord, taken: list[tuple[int, Publication]]) -> None:
        events: list[Event] = []
        good: list[tuple[int, Publication]] = []
        for number, publication in taken:
            try:
                events.append(self._numbered(publication, events[-1].sequence if events else 0))
                good.append((number, publication))
            except InvalidValueError as error:
                self._fail(number, publication, error)
        if not events:
            return
        sealed = self._member.seal_on(record, events, now())
        for (number, publication), event, made in zip(good, events, sealed, strict=True):
            _put_seal(publication, event, made)
            self._send(number, publication)

    def _numbered(self, publication: Publication, last: int) -> Event:
        """Questions, and what is tried again, take numbers in between; a broker wants them to rise."""
        event, last = publication.event, max(last, self._sender.sent_sequence)
        if event.sequence > last:
            return event
        if publication.is_numbered:
            raise InvalidValueError(
                f"sequence: {event.sequence} does not come after {last}: the keys of its topic were asked for meanwhile"
            )
        return msgspec.structs.replace(event, sequence=self._sender.next_sequence())

    # Asking

    def _ask(self, doing: Coroutine[Any, Any, None]) -> None:
        """Nothing goes until it is done."""
        self._asking = asyncio.create_task(doing)
        self._asking.add_done_callback(self._asked)

    def _asked(self, done: "asyncio.Task[None]") -> None:
        self._asking = None
        if done.cancelled():
            return
        done.result()
        if self._doubted:
            self._ask(self._reconsider())
        else:
            self.flush()

    async def _obtain(self, record: TopicRecord) -> None:
        try:
            await self._membership.obtain(record)
            self._member.check_can_publish(record, now())
        except TidingsError as error:
            for number, publication in list(self._waiting.items()):
                if self._topic_of(publication.event) is record:
                    del self._waiting[number]
                    self._fail(number, publication, self._membership.missing(record, Right.PUBLISH, error))

    async def _reconsider(self) -> None:
        while self._doubted:
            number, (publication, error) = next(iter(self._doubted.items()))
            reason = await self._reason_against(publication, error)
            del self._doubted[number]
            if reason is None:
                publication.sealed, publication.epoch, publication.sent = None, None, 0
                publication.must_seal = True  # what was sealed once never goes in the clear
                self._waiting = dict(sorted([(number, publication), *self._waiting.items()]))
            else:
                self._fail(number, publication, reason)

    async def _reason_against(self, publication: Publication, error: TidingsError) -> TidingsError | None:
        """None: it may go this time."""
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

    # Going

    def _topic_of(self, event: Event) -> TopicRecord | None:
        return self._member.topic_of(event.subject, event.attributes)

    def _taken(self, count: int) -> list[tuple[int, Publication]]:
        numbers = list(islice(self._waiting, count))
        return [(number, self._waiting.pop(number)) for number in numbers]

    def _send(self, number: int, publication: Publication) -> None:
        if publication.must_seal and publication.sealed is None:
            self._fail(number, publication, self._member.seal_refusal())
            return
        try:
            if publication.sealed is None:
                publication.event = self._numbered(publication, 0)
            self._sender.hand_out(number, publication)
        except InvalidValueError as error:
            self._fail(number, publication, error)

    def _fail(self, number: int, publication: Publication, error: TidingsError) -> None:
        self._sender.forget(number)
        fail(publication.answer, error)


def _put_seal(publication: Publication, event: Event, sealed: Event) -> None:
    publication.event, publication.sealed, publication.epoch = event, sealed, Seal.of(sealed).epoch
