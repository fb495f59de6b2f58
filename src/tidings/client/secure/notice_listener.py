"""Receives notices of key management centres and revocation updates over the overlay, as far as a member needs them."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable
from typing import Protocol

from tidings.client.secure.service_rpc import ServiceClient
from tidings.client.secure.settings import now
from tidings.model.errors import SecurityError, TidingsError
from tidings.model.notification import Notification
from tidings.security.ca.revocation import RevocationUpdate, UpdatableTrust
from tidings.security.tokens.notices import KIND, NOTICE, REVOCATIONS, TOPIC, SignedNotice

_LOG = logging.getLogger("tidings.client")
_TOPICS_NAMED_MAX = 1_000  # topics named in the subscription; with more, it takes notices of all topics


class NoticeTrust(UpdatableTrust, Protocol):
    """What takes notices and updates of the revocation list. `Credentials` are one."""

    def heed(self, notice: SignedNotice, now: int) -> bool: ...


class NoticeListener:
    """Subscribes to revocation updates and to notices of a member's topics, and applies them to its credentials.

    `on_notice` is called with a topic that has a valid new notice, `on_gap` when revocation updates before this one are
    missing.
    """

    def __init__(
        self,
        client: ServiceClient,
        credentials: NoticeTrust,
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
                _LOG.warning("%s is not told of new keys: %s", self._client.name, error)
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
            _LOG.debug("a notice that counts for nothing: %s", error)

    def _revoke(self, update: RevocationUpdate) -> None:
        if update.after > self._credentials.revocations.version:
            self._on_gap()
        else:
            self._credentials.revoke(update)
