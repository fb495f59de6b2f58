"""A membership: what a client with a `Member` does by itself. It asks centres for tokens and keys when they are needed,
and again before they end, and heeds what centres and the authority tell everybody."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.client.centres import Centres
from tidings.client.confined import is_confined, meant, named
from tidings.client.notices import Notices
from tidings.client.opening import Opening
from tidings.client.outbox import Outbox
from tidings.client.security import now
from tidings.client.subscription import MORE, Subscription
from tidings.model.errors import RefusedError, SecurityError, TidingsError, UnreachableError
from tidings.model.notification import Notification
from tidings.security.centre_questions import CHALLENGED, SUSPENDED
from tidings.security.member import Member
from tidings.security.records import TopicRecord
from tidings.security.revocation import Update
from tidings.security.token import Right, Token

if TYPE_CHECKING:
    from tidings.client.client import Client
    from tidings.client.session import Session

_LOG = logging.getLogger("tidings.client")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds after a centre has refused, or not answered
_AGAIN = 1.0  # seconds between two questions since a broker refuses something
_ANSWER = 10.0  # seconds for the broker's answer to what need not be known
_SOONEST, _SELDOM = 0.01, 60.0  # seconds between two looks at what is to be renewed
_FOR_ITS_OWNER = ("token", "right", "topic", "expired", "revoked")  # checks that a topic's owner can do something about


class _Failure(msgspec.Struct, frozen=True):
    """The centre of a topic is not asked again until then, in the loop's time."""

    error: TidingsError
    pause: float
    until: float


class Membership:
    """`centres` answer its questions; `finds` is a query for topics at discovery nodes, with which it begins."""

    def __init__(self, client: "Client", member: Member, centres: Centres, finds: str | None = None) -> None:
        self.member, self.centres = member, centres
        self._client, self._finds = client, finds
        self._asking: dict[bytes, asyncio.Task[Token]] = {}
        self._failures: dict[bytes, _Failure] = {}
        self._anew_after: dict[bytes, float] = {}  # in the loop's time
        self._renewing: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._notices = Notices(
            client, member.credentials, self._noticed, lambda: self._in_background(self.fetch_revocations())
        )
        self._background: set[asyncio.Task[None]] = set()

    # Beginning and end

    def join(self, session: "Session") -> None:
        """What is published through the session is sealed from now on, and subscriptions with a token are signed."""
        session.seal_with(Outbox(self, session), self.member.prove)

    async def begin(self) -> None:
        """After the first connection."""
        await self.fetch_revocations()
        if self._finds is not None:
            await self.centres.find(self._finds)
        self._renewing = asyncio.create_task(self._renew_in_time())

    def connected_again(self) -> None:
        """What was told meanwhile has not come here."""
        self._failures.clear()
        self._in_background(self.fetch_revocations())
        for topic in self.member.topics():
            self.renew(topic)

    async def end(self) -> None:
        tasks = [*self._background, *self._asking.values(), *([] if self._renewing is None else [self._renewing])]
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Tokens and keys

    async def token(self, record: TopicRecord, right: Right) -> Token:
        """One that gives the right now, of the centre if there is none here; a `SecurityError` says what is missing."""
        held = self.member.token(record.id)
        if held is not None and not self.member.was_taken_back(record.id):
            with contextlib.suppress(SecurityError):
                held.check_use(right, now())
                return held
        try:
            held = await self.obtain(record)
            held.check_use(right, now())
        except TidingsError as error:
            raise self.missing(record, right, error) from None
        return held

    def missing(self, record: TopicRecord, right: Right, why: TidingsError) -> TidingsError:
        """What somebody has to do so that this client may."""
        reason = why.reason if isinstance(why, RefusedError | SecurityError) else str(why)
        told = f"{self.member.name} cannot {right.words[0]} on the secure topic {record.template}: {reason}"
        is_challenged = reason.startswith(CHALLENGED)
        if is_challenged:
            told += " Answer that first: with `tidings kmc answer`, or with `answer` of its `Security`"
        elif SUSPENDED in reason:
            is_challenged = True
        elif isinstance(why, RefusedError) or (isinstance(why, SecurityError) and why.check in _FOR_ITS_OWNER):
            told += f". Its owner, {record.owner.name}, can grant the right to {right.words[0]}"
        if isinstance(why, SecurityError):
            return SecurityError(why.check, told)
        if isinstance(why, RefusedError):
            return SecurityError("challenge" if is_challenged else "token", told)
        return UnreachableError(told)

    async def obtain(self, record: TopicRecord) -> Token:
        """Asks the topic's centre for a token and the keys that are lacking; who wants the same meanwhile shares the
        answer. After a failure it is not asked again for a while, and the error is the same."""
        failed = self._failures.get(record.id)
        if failed is not None and asyncio.get_running_loop().time() < failed.until:
            raise failed.error.with_traceback(None)
        asking = self._asking.get(record.id)
        if asking is None:
            asking = self._asking[record.id] = asyncio.create_task(self._obtained(record))
        return await asyncio.shield(asking)

    async def obtain_anew(self, record: TopicRecord) -> None:
        """After a broker has refused something. It may have other reasons than keys: it is not asked each time."""
        here = asyncio.get_running_loop().time()
        if here >= self._anew_after.get(record.id, 0.0) or self.member.needs_renewal(record.id, now()):
            self._anew_after[record.id] = here + _AGAIN
            await self.obtain(record)

    async def _obtained(self, record: TopicRecord) -> Token:
        try:
            token = await self.centres.keys(record)
        except TidingsError as error:
            self._fail(record.id, error)
            raise
        finally:
            del self._asking[record.id]
            self._changed.set()
        self._failures.pop(record.id, None)
        self._in_background(self._subscribe_anew(token))
        self._in_background(self._notices.watch(self.member.topics()))
        return token

    def _fail(self, topic: bytes, error: TidingsError) -> None:
        before = self._failures.get(topic)
        pause = _FIRST_PAUSE if before is None else min(2 * before.pause, _LONGEST_PAUSE)
        self._failures[topic] = _Failure(error, pause, asyncio.get_running_loop().time() + pause)
        if isinstance(error, RefusedError) and self.member.was_taken_back(topic):
            self._leave(topic, error)

    def _leave(self, topic: bytes, error: TidingsError) -> None:
        """What it was granted was taken back: subscriptions to nothing but that topic end, and say why."""
        self.member.leave(topic)
        for held in self._client.subscriptions():
            if held.token is not None and held.token.topic == topic and held.is_confined:
                self._client.give_up(held, self.missing(held.token.record, Right.SUBSCRIBE, error))

    def renew(self, topic: bytes) -> None:
        """In the background: what is held now serves until it ends."""
        record = self.member.credentials.topics.get(topic)
        if record is not None and not self._rests(topic):
            self._in_background(self._renewed(record))

    async def _renewed(self, record: TopicRecord) -> None:
        try:
            await self.obtain(record)
        except TidingsError as error:
            _LOG.warning("%s got no new keys of %s: %s", self.member.name, record.template, error)

    async def _renew_in_time(self) -> None:
        while True:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._wait()):
                    await self._changed.wait()
            moment = now()
            for topic in self.member.topics():
                if not self._rests(topic) and self.member.needs_renewal(topic, moment):
                    self.renew(topic)

    def _wait(self) -> float:
        """Seconds until the next one is due."""
        moment, here = now(), asyncio.get_running_loop().time()
        waits = [_SELDOM]
        for topic in self.member.topics():
            failed, due = self._failures.get(topic), self.member.renew_at(topic)
            if failed is not None and failed.until > here:
                waits.append(failed.until - here)
            elif due is not None and topic not in self._asking:
                waits.append((due - moment) / 1_000_000)
        return max(_SOONEST, min(waits))

    def _rests(self, topic: bytes) -> bool:
        failed = self._failures.get(topic)
        return topic in self._asking or (failed is not None and asyncio.get_running_loop().time() < failed.until)

    # Subscriptions

    async def secure(self, subscription: Subscription) -> None:
        """What is sealed is opened for it; with a token, if it is for a secure topic."""
        if not subscription.raw and subscription.opening is None:
            subscription.opening = self._opening(subscription)
        wanted, topics = subscription.wanted, self.member.credentials.topics.values()
        record = meant(wanted, topics) if subscription.topic is None else named(subscription.topic, topics)
        if record is None:
            return
        is_only = is_confined(wanted, record)
        try:
            subscription.token = await self.token(record, Right.SUBSCRIBE)
        except TidingsError as error:
            # Who may not have it gets the rest. Who may, and cannot at the moment, would lose what waits for it.
            may_not = isinstance(error, SecurityError) and error.check in _FOR_ITS_OWNER
            if is_only or subscription.topic is not None or not may_not:
                raise
            _LOG.warning("of what %s gets, nothing will be of a secure topic: %s", subscription.id, error)
            return
        subscription.is_confined = is_only
        if is_only and subscription.opening is not None:
            subscription.opening.only = record
        subscription.wanted = msgspec.structs.replace(wanted, token=subscription.token.data)

    def _opening(self, held: Subscription) -> Opening:
        def opened(note: Notification) -> None:
            held.put(note)
            self._client.look_at(held)

        return Opening(
            self,
            held.limit + MORE,
            lambda: self._client.policy_of(held),
            opened,
            held.refuse,
            lambda _: held.told_lost(1),
        )

    async def reconsider(self, subscription: Subscription) -> bool:
        """The broker has refused it; whether to try once more, since there is another token, or one is needed."""
        before = subscription.token
        if before is not None:
            record = self.member.credentials.topics[before.topic]
            try:
                await self.obtain_anew(record)
            except TidingsError as error:
                raise self.missing(record, Right.SUBSCRIBE, error) from None
        else:
            wanted = subscription.wanted
            await self.learn(subject=wanted.subject, content=wanted.content)
        await self.secure(subscription)
        return subscription.token is not None and (before is None or subscription.token.data != before.data)

    async def _subscribe_anew(self, token: Token) -> None:
        """Subscriptions whose token ends soon, or counts no more, get the new one: under the same id, without a gap."""
        for held in self._client.subscriptions():
            if held.token is None or held.token.topic != token.topic or not _is_worn(held.token, token):
                continue
            held.token, held.wanted = token, msgspec.structs.replace(held.wanted, token=token.data)
            try:
                await self._client.subscribe_anew(held)
            except TidingsError as error:
                _LOG.warning("the subscription %s has no token any more: %s", held.id, error)

    # What is told

    def _noticed(self, topic: bytes) -> None:
        self._failures.pop(topic, None)
        if self.member.token(topic) is None or self.member.needs_renewal(topic, now()):
            self.renew(topic)

    async def fetch_revocations(self) -> None:
        """What the broker has of the list and this client has not."""
        credentials = self.member.credentials
        try:
            found = await self._client.ask("security", timeout=_ANSWER, since=credentials.revocations.version)
            if found["revocations"] is not None:
                credentials.revoke(Update.read(found["revocations"]))
        except TidingsError as error:
            _LOG.debug("no list of revocations from the broker: %s", error)

    async def learn(self, **about: object) -> bool:
        """Asks the broker which secure topic something is on; whether it is one that was not known here."""
        try:
            found = await self._client.ask("security", timeout=_ANSWER, **about)
            learnt = [self.member.credentials.learn(TopicRecord(one), now()) for one in found["records"]]
        except TidingsError as error:
            _LOG.debug("no topic from the broker: %s", error)
            return False
        return any(learnt)

    def _in_background(self, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(doing)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _is_worn(held: Token, fresh: Token) -> bool:
    """Whether more than half of its time is over, or what it says is not so any more."""
    is_other = (held.grant, held.rights, held.record.data) != (fresh.grant, fresh.rights, fresh.record.data)
    return is_other or now() > (held.not_before + held.not_after) // 2
