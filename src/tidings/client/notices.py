"""What centres and the authority tell everybody over the overlay, as far as it concerns a member."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tidings.client.security import now
from tidings.model.errors import SecurityError, TidingsError
from tidings.model.notification import Notification
from tidings.security.credentials import Credentials
from tidings.security.notices import SignedNotice
from tidings.security.proclaimed import KIND, NOTICE, REVOCATIONS, TOPIC
from tidings.security.revocation import Update

if TYPE_CHECKING:
    from tidings.client.client import Client

_LOG = logging.getLogger("tidings.client")
_NAMED = 1_000  # topics, one by one; who has more is told of all


class Notices:
    """`noticed` is called with a topic of which something new was told, `missed` where entries of the list of
    revocations are missing here."""

    def __init__(
        self,
        client: "Client",
        credentials: Credentials,
        noticed: Callable[[bytes], None],
        missed: Callable[[], None],
    ) -> None:
        self._client, self._credentials, self._noticed, self._missed = client, credentials, noticed, missed
        self._id = f"notices.{secrets.token_hex(16)}"
        self._watched: set[bytes] = set()
        self._changing = asyncio.Lock()

    async def watch(self, topics: Iterable[bytes]) -> None:
        """From now on those of these topics too."""
        async with self._changing:
            wanted = self._watched | set(topics)
            if wanted == self._watched:
                return
            ids = ", ".join(f"'{one.hex()}'" for one in sorted(wanted))
            named = f"{KIND} = '{NOTICE}' AND {TOPIC} IN ({ids})" if len(wanted) <= _NAMED else f"{KIND} = '{NOTICE}'"
            content = f"{KIND} = '{REVOCATIONS}' OR {named}"
            try:
                await self._client.subscribe(content, id=self._id, callback=self._came)
            except TidingsError as error:
                _LOG.warning("%s is not told of new keys: %s", self._client.name, error)
                return
            self._watched = wanted

    def _came(self, note: Notification) -> None:
        payload = note.payload
        if payload is None:
            return
        try:
            if note.attributes[KIND] == REVOCATIONS:
                self._revoke(Update.read(payload))
                return
            notice = SignedNotice(payload)
            if self._credentials.heed(notice, now()):
                self._noticed(notice.notice.topic)
        except SecurityError as error:  # anybody may publish such events; what counts is who has signed them
            _LOG.debug("a notice that counts for nothing: %s", error)

    def _revoke(self, update: Update) -> None:
        if update.after > self._credentials.revocations.version:
            self._missed()
        else:
            self._credentials.revoke(update)
