"""A client's membership in secure topics: fetches and renews tokens and keys, and follows notices and revocations.

Tokens and keys are fetched when a publication or subscription first needs them, and again before they expire. After a
failure a topic's centre is asked again only after a pause, which grows. Notices of centres and revocation updates
arrive over the overlay; after a reconnection the client fetches the ones it missed.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from tidings.client.secure.decryption import DecryptionQueue
from tidings.client.secure.kmc_client import KmcClient
from tidings.client.secure.sealing_queue import PublicationSender, SealingQueue
from tidings.client.secure.service_rpc import ServiceClient, now
from tidings.filters import Filter
from tidings.model.errors import InvalidValueError, RefusedError, SecurityError, TidingsError, UnreachableError
from tidings.model.notification import Notification
from tidings.protocol.requests import SubscribeRequest
from tidings.security.ca.revocation import Revocations, RevocationUpdate
from tidings.security.member import Member
from tidings.security.rpc.kmc_messages import CHALLENGED, SUSPENDED
from tidings.security.template import ANY, Template
from tidings.security.tokens.notices import KIND, NOTICE, REVOCATIONS, TOPIC, SignedNotice
from tidings.security.tokens.token import Right, Token
from tidings.security.topic_record import TopicRecord

_LOG = logging.getLogger("tidings.client")
_TOPICS_NAMED_MAX = 1_000  # topics named in the subscription; with more, it takes notices of all topics


class NoticeCredentials(Protocol):
    """What notices and revocation updates change: the credentials of a member."""

    @property
    def revocations(self) -> Revocations: ...
    def heed(self, notice: SignedNotice, now: int) -> bool: ...
    def revoke(self, update: RevocationUpdate) -> object: ...


class NoticeListener:
    """Subscribes to revocation updates and to notices of a member's topics, and applies them to its credentials.

    `on_notice` is called with a topic that has a valid new notice, `on_gap` when revocation updates before this one are
    missing.
    """

    def __init__(
        self,
        client: ServiceClient,
        credentials: NoticeCredentials,
        on_notice: Callable[[bytes], None],
        on_gap: Callable[[], None],
    ) -> None:
        self._client, self._credentials, self._on_notice, self._on_gap = client, credentials, on_notice, on_gap
        self._id = f"notices.{secrets.token_hex(16)}"
        self._watched: set[bytes] = set()
        self._changing = asyncio.Lock()

    async def watch(self, topics: Iterable[bytes]) -> None:
        """Receive notices of these topics, too, from now on."""
        async with self._changing:
            watched = self._watched | set(topics)
            if watched == self._watched:
                return
            ids = ", ".join(f"'{topic.hex()}'" for topic in sorted(watched))
            notices = (
                f"{KIND} = '{NOTICE}' AND {TOPIC} IN ({ids})"
                if len(watched) <= _TOPICS_NAMED_MAX
                else f"{KIND} = '{NOTICE}'"
            )
            content = f"{KIND} = '{REVOCATIONS}' OR {notices}"
            try:
                await self._client.subscribe(content, id=self._id, callback=self._handle_event)
            except TidingsError as error:
                _LOG.warning("%s gets no notices of new keys: %s", self._client.name, error)
                return
            self._watched = watched

    def _handle_event(self, notification: Notification) -> None:
        payload = notification.payload
        if payload is None:
            return
        try:
            if notification.attributes[KIND] == REVOCATIONS:
                self._revoke(RevocationUpdate.read(payload))
                return
            notice = SignedNotice(payload)
            if self._credentials.heed(notice, now()):
                self._on_notice(notice.notice.topic)
        except SecurityError as error:  # any client may publish such events; only the signature counts
            _LOG.debug("ignored an invalid notice: %s", error)

    def _revoke(self, update: RevocationUpdate) -> None:
        if update.after > self._credentials.revocations.version:
            self._on_gap()
        else:
            self._credentials.revoke(update)


_LOG = logging.getLogger("tidings.client")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds to pause after a centre refused or did not answer
_RETRY_SECONDS = 1.0  # seconds between two requests to a centre because of a broker's refusals
_ANSWER_SECONDS = 10.0  # seconds to wait for the broker's answer to optional queries
_CHECK_SECONDS_MIN, _CHECK_SECONDS_MAX = 0.01, 60.0  # seconds between two checks for renewal
_GRANTABLE = ("token", "right", "topic", "expired", "revoked")  # failed checks that a grant can fix


class _Failure(msgspec.Struct, frozen=True):
    """The last failure of a topic's centre, which is not asked again before `until`, in the loop's time."""

    error: TidingsError
    pause: float
    until: float


class SecureSubscription(Protocol):
    """What a membership reads and sets of a subscription.

    Attributes:
        wanted: The request that the broker gets.
        token: The token with which it subscribed.
        is_confined: Whether only events on the token's topic can match.
        opening: Decrypts its notifications.
    """

    wanted: SubscribeRequest
    token: Token | None
    is_confined: bool
    opening: DecryptionQueue | None

    @property
    def topic(self) -> str | None: ...


class SecureSubscriptions(Protocol):
    """What a membership needs of the table of the client's subscriptions."""

    def subscriptions(self) -> Sequence[SecureSubscription]: ...
    async def subscribe_anew(self, id: str) -> None: ...  # noqa: A002
    def give_up(self, id: str, error: TidingsError) -> None: ...  # noqa: A002


class Membership:
    """Fetches and renews the tokens and keys of a client with a `Member`, and secures its subscriptions.

    `centres` asks the key management centres; `finds` is a query whose topics are learned from discovery nodes on
    connecting.
    """

    def __init__(
        self,
        client: ServiceClient,
        subscriptions: SecureSubscriptions,
        member: Member,
        centres: KmcClient,
        finds: str | None = None,
    ) -> None:
        self.member, self.centres = member, centres
        self._client, self._subscriptions, self._finds = client, subscriptions, finds
        self._requests: dict[bytes, asyncio.Task[Token]] = {}
        self._failures: dict[bytes, _Failure] = {}
        self._retry_after: dict[bytes, float] = {}  # when `obtain_anew` may ask again, in the loop's time
        self._renewing: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._notices = NoticeListener(
            client, member.credentials, self._handle_notice, lambda: self._in_background(self.fetch_revocations())
        )
        self._background: set[asyncio.Task[None]] = set()

    # Opening and closing

    def sealing_queue(self, sender: PublicationSender) -> SealingQueue:
        """Return the queue that seals the client's events, and sends them through `sender`."""
        return SealingQueue(self, sender)

    async def begin(self) -> None:
        """Fetch revocations and topics, and start to renew tokens and keys, after the first connection."""
        await self.fetch_revocations()
        if self._finds is not None:
            await self.centres.find(self._finds)
        self._renewing = asyncio.create_task(self._renew_forever())

    def connected_again(self) -> None:
        """Fetch, after a reconnection, the revocations and keys whose notices were missed."""
        self._failures.clear()
        self._in_background(self.fetch_revocations())
        for topic in self.member.topics():
            self.renew(topic)

    async def end(self) -> None:
        """Cancel all tasks: the client is closed."""
        tasks = [*self._background, *self._requests.values(), *([] if self._renewing is None else [self._renewing])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Tokens and keys

    async def token(self, record: TopicRecord, right: Right) -> Token:
        """Return a token that grants the right now, asking the topic's centre if need be.

        Raises:
            SecurityError: The client cannot get the right; the message says what is missing.
            UnreachableError: The centre has not answered.
        """
        token = self.member.token(record.id)
        if token is not None and not self.member.was_taken_back(record.id):
            with contextlib.suppress(SecurityError):
                token.check_use(right, now())
                return token
        try:
            token = await self.obtain(record)
            token.check_use(right, now())
        except TidingsError as error:
            raise self.missing(record, right, error) from None
        return token

    def missing(self, record: TopicRecord, right: Right, cause: TidingsError) -> TidingsError:
        """Return an error that explains how this client can get the right to the topic."""
        reason = cause.reason if isinstance(cause, RefusedError | SecurityError) else str(cause)
        message = f"{self.member.name} cannot {right.words[0]} on the secure topic {record.template}: {reason}"
        is_challenged = reason.startswith(CHALLENGED)
        if is_challenged:
            message += " Answer that first: with `tidings kmc answer`, or with `answer` of its `Security`"
        elif SUSPENDED in reason:
            is_challenged = True
        elif isinstance(cause, RefusedError) or (isinstance(cause, SecurityError) and cause.check in _GRANTABLE):
            message += f". Its owner, {record.owner.name}, can grant the right to {right.words[0]}"
        if isinstance(cause, SecurityError):
            return SecurityError(cause.check, message)
        if isinstance(cause, RefusedError):
            return SecurityError("challenge" if is_challenged else "token", message)
        return UnreachableError(message)

    async def obtain(self, record: TopicRecord) -> Token:
        """Get the topic's token and missing keys from its centre; concurrent callers share one request.

        After a failure the centre is not asked for a while; until then the same error is raised.
        """
        failed = self._failures.get(record.id)
        if failed is not None and asyncio.get_running_loop().time() < failed.until:
            raise failed.error.with_traceback(None)
        request = self._requests.get(record.id)
        if request is None:
            request = self._requests[record.id] = asyncio.create_task(self._request_keys(record))
        return await asyncio.shield(request)

    async def obtain_anew(self, record: TopicRecord) -> None:
        """Ask the centre for newer keys after a broker's refusal, but not each time: it may have other reasons."""
        here = asyncio.get_running_loop().time()
        if here >= self._retry_after.get(record.id, 0.0) or self.member.needs_renewal(record.id, now()):
            self._retry_after[record.id] = here + _RETRY_SECONDS
            await self.obtain(record)

    async def _request_keys(self, record: TopicRecord) -> Token:
        try:
            token = await self.centres.keys(record)
        except TidingsError as error:
            self._fail(record.id, error)
            raise
        finally:
            del self._requests[record.id]
            self._changed.set()
        self._failures.pop(record.id, None)
        self._in_background(self._subscribe_anew(record.id))
        self._in_background(self._notices.watch(self.member.topics()))
        return token

    def _fail(self, topic: bytes, error: TidingsError) -> None:
        """Record a failure; leave the topic if the member's grant was withdrawn."""
        before = self._failures.get(topic)
        pause = _FIRST_PAUSE if before is None else min(2 * before.pause, _LONGEST_PAUSE)
        self._failures[topic] = _Failure(error, pause, asyncio.get_running_loop().time() + pause)
        if isinstance(error, RefusedError) and self.member.was_taken_back(topic):
            self._leave(topic, error)

    def _leave(self, topic: bytes, error: TidingsError) -> None:
        """Leave a topic whose grant was withdrawn: end the subscriptions to just that topic, with the reason."""
        self.member.leave(topic)
        for subscription in self._subscriptions.subscriptions():
            if subscription.token is not None and subscription.token.topic == topic and subscription.is_confined:
                self._subscriptions.give_up(
                    subscription.wanted.id, self.missing(subscription.token.record, Right.SUBSCRIBE, error)
                )

    def renew(self, topic: bytes) -> None:
        """Renew the topic's token and keys in the background; the present ones serve until they expire."""
        record = self.member.credentials.topics.get(topic)
        if record is not None and not self._is_paused(topic):
            self._in_background(self._renew_one(record))

    async def _renew_one(self, record: TopicRecord) -> None:
        try:
            await self.obtain(record)
        except TidingsError as error:
            _LOG.warning("%s got no new keys of %s: %s", self.member.name, record.template, error)

    async def _renew_forever(self) -> None:
        while True:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds_until_renewal()):
                    await self._changed.wait()
            moment = now()
            for topic in self.member.topics():
                if not self._is_paused(topic) and self.member.needs_renewal(topic, moment):
                    self.renew(topic)

    def _seconds_until_renewal(self) -> float:
        """Return the seconds until the next token or key is due for renewal."""
        moment, here = now(), asyncio.get_running_loop().time()
        waits = [_CHECK_SECONDS_MAX]
        for topic in self.member.topics():
            failed, due = self._failures.get(topic), self.member.renew_at(topic)
            if failed is not None and failed.until > here:
                waits.append(failed.until - here)
            elif due is not None and topic not in self._requests:
                waits.append((due - moment) / 1_000_000)
        return max(_CHECK_SECONDS_MIN, min(waits))

    def _is_paused(self, topic: bytes) -> bool:
        """Return whether the topic's centre is being asked, or must not be asked yet."""
        failed = self._failures.get(topic)
        return topic in self._requests or (failed is not None and asyncio.get_running_loop().time() < failed.until)

    # Subscriptions

    async def secure(self, subscription: SecureSubscription) -> None:
        """Prepare a subscription for secure topics: get a token if it asks for a secure topic.

        Raises:
            SecurityError: The subscription needs the topic's token, and the client cannot get it.
            UnreachableError: The topic's centre has not answered.
        """
        request, topics = subscription.wanted, self.member.credentials.topics.values()
        record = (
            implied_topic(request, topics) if subscription.topic is None else topic_named(subscription.topic, topics)
        )
        if record is None:
            return
        is_confined_to_topic = is_confined(request, record)
        try:
            subscription.token = await self.token(record, Right.SUBSCRIBE)
        except TidingsError as error:
            # Without the right, subscribe to the events that need no token. With the right, but without an answer from
            # the centre, fail: otherwise the notifications on the topic would be lost.
            lacks_right = isinstance(error, SecurityError) and error.check in _GRANTABLE
            if is_confined_to_topic or subscription.topic is not None or not lacks_right:
                raise
            _LOG.warning("the subscription %s will get no sealed events: %s", request.id, error)
            return
        subscription.is_confined = is_confined_to_topic
        if is_confined_to_topic and subscription.opening is not None:
            subscription.opening.only = record
        subscription.wanted = msgspec.structs.replace(request, token=subscription.token.data)

    def decryption_queue(
        self,
        limit: int,
        policy: Callable[[], str | None],
        on_decrypted: Callable[[Notification], None],
        on_refused: Callable[[Notification, TidingsError], None],
        on_lost: Callable[[Notification], None],
    ) -> DecryptionQueue:
        """Return the queue that decrypts a subscription's notifications.

        Args:
            limit: How many notifications may wait in it.
            policy: Returns the subscription's present policy.
            on_decrypted: Called with each readable notification.
            on_refused: Called with each one that cannot be decrypted.
            on_lost: Called with each one for which there was no room.
        """
        return DecryptionQueue(self, limit, policy, on_decrypted, on_refused, on_lost)

    async def reconsider(self, subscription: SecureSubscription) -> bool:
        """Handle the broker's refusal of a subscription.

        Return whether it has a new token and should be tried again.
        """
        before = subscription.token
        if before is not None:
            record = self.member.credentials.topics[before.topic]
            try:
                await self.obtain_anew(record)
            except TidingsError as error:
                raise self.missing(record, Right.SUBSCRIBE, error) from None
        else:
            request = subscription.wanted
            await self.learn(subject=request.subject, content=request.content)
        await self.secure(subscription)
        return subscription.token is not None and (before is None or subscription.token.data != before.data)

    async def _subscribe_anew(self, topic: bytes) -> None:
        """Give subscriptions whose token expires soon, or is no longer valid, the new one: same id, without a gap."""
        fresh = self.member.token(topic)
        for subscription in self._subscriptions.subscriptions():
            present = subscription.token
            if fresh is None or present is None or present.topic != topic:
                continue
            is_same_grant = (present.grant, present.rights) == (fresh.grant, fresh.rights)
            is_same = is_same_grant and present.record.data == fresh.record.data
            if is_same and now() <= (present.not_before + present.not_after) // 2:
                continue  # less than half of its time is over
            subscription.token = fresh
            subscription.wanted = msgspec.structs.replace(subscription.wanted, token=fresh.data)
            try:
                await self._subscriptions.subscribe_anew(subscription.wanted.id)
            except TidingsError as error:
                _LOG.warning("the subscription %s cannot use its new token: %s", subscription.wanted.id, error)

    # Notices and revocations

    def _handle_notice(self, topic: bytes) -> None:
        """Handle a new notice of a topic: fetch the keys that it calls for."""
        self._failures.pop(topic, None)
        if self.member.token(topic) is None or self.member.needs_renewal(topic, now()):
            self.renew(topic)

    async def fetch_revocations(self) -> None:
        """Fetch the entries of the revocation list that this client lacks from the broker."""
        credentials = self.member.credentials
        try:
            answer = await self._client.ask("security", timeout=_ANSWER_SECONDS, since=credentials.revocations.version)
            if answer["revocations"] is not None:
                credentials.revoke(RevocationUpdate.read(answer["revocations"]))
        except TidingsError as error:
            _LOG.debug("the broker has sent no revocation list: %s", error)

    async def learn(self, **about: object) -> bool:
        """Ask the broker on which secure topic something is; return whether that topic was not known here."""
        try:
            answer = await self._client.ask("security", timeout=_ANSWER_SECONDS, **about)
            learnt = [self.member.credentials.learn(TopicRecord(record), now()) for record in answer["records"]]
        except TidingsError as error:
            _LOG.debug("the broker has named no secure topic: %s", error)
            return False
        return any(learnt)

    def _in_background(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def topic_named(template: str, topics: Iterable[TopicRecord]) -> TopicRecord:
    """Return the topic with that template, or with one that covers it.

    Raises:
        InvalidValueError: No such topic is known.
    """
    named = Template.parse(template)
    for record in topics:
        if record.template.covers(named):
            return record
    raise InvalidValueError(f"topic: no secure topic {template} is known here; give its record, or find it")


def implied_topic(request: SubscribeRequest, topics: Iterable[TopicRecord]) -> TopicRecord | None:
    """Return the topic that a subscription implies by its subject, or by asking for all of a topic's values.

    None for a broader subscription.
    """
    content = Filter.parse(request.content)
    for record in topics:
        template = record.template
        if template.subject is not None:
            if template.subject == request.subject:
                return record
        elif template.key[0] in content.names and _value_filter(template).covers(content):
            return record
    return None


def is_confined(request: SubscribeRequest, record: TopicRecord) -> bool:
    """Return whether the subscription can match events on this topic only: then it needs a token."""
    if record.template.subject is not None:
        return record.template.subject == request.subject
    return _tags_filter(str(record.template)).covers(Filter.parse(request.content))


def _value_filter(template: Template) -> Filter:
    return _tags_filter(",".join(f"{name}={value}" for name, value in template.tags if value != ANY))


@lru_cache(4_096)
def _tags_filter(tags: str) -> Filter:
    return Filter.parse(tags, "tags")
