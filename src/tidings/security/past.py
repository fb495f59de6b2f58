"""The past: what a topic's centre had told at each moment, to judge what was accepted then."""

from bisect import bisect_right
from collections.abc import Iterable

from tidings.model.errors import SecurityError
from tidings.security.certificates import Anchor
from tidings.security.credentials import Credentials
from tidings.security.notices import Notice, SignedNotice
from tidings.security.records import TopicRecord
from tidings.security.revocation import Update


class PastCredentials(Credentials):
    """Every notice counts from when it was told here until the next one was; revocations say themselves since when.

    `is_complete`: there are no topics but those that it knows.
    """

    def __init__(self, anchor: Anchor, overlay: str = "tidings") -> None:
        super().__init__(anchor, overlay)
        self._told: dict[bytes, list[tuple[int, Notice]]] = {}  # with the time from which on it counts
        self.is_complete = False

    def learn(self, record: TopicRecord, now: int) -> bool:
        if self.is_complete and record.id not in self.topics:
            raise SecurityError("topic", f"the topic {record.template} is none of those that are known here")
        return super().learn(record, now)

    def heed(self, notice: SignedNotice, now: int) -> bool:
        return super().heed(notice, now) and self._tell(notice, now)

    def recall(self, records: Iterable[TopicRecord], notices: Iterable[SignedNotice], update: Update | None) -> None:
        known = list(notices)
        super().recall(records, known, update)
        for one in known:
            self._tell(one, one.notice.issued)

    def notice(self, topic: bytes, now: int | None = None) -> Notice | None:
        told = self._told.get(topic)
        if told is None:
            return None
        if now is None or told[-1][0] <= now:  # as it mostly is
            return told[-1][1]
        place = bisect_right(told, now, key=lambda one: one[0])
        return told[place - 1][1] if place else None

    def _told_of(self, topic: bytes) -> list[tuple[int, Notice]]:
        return self._told.get(topic, [])

    def _tell(self, notice: SignedNotice, since: int) -> bool:
        """Whether it is later than those before; each counts from its own time on."""
        told = self._told.get(notice.notice.topic, [])
        if told and (told[-1][0] > since or told[-1][1].version >= notice.notice.version):
            return False
        self._told[notice.notice.topic] = [*told, (since, notice.notice)]
        return True
