"""The past: what a topic's centre had told at each moment, to judge what was accepted then."""

from bisect import bisect_right

from tidings.model.errors import SecurityError
from tidings.security.certificates import Anchor
from tidings.security.credentials import Credentials
from tidings.security.notices import Notice, SignedNotice
from tidings.security.records import TopicRecord


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
        said = notice.notice
        self._check_notice(notice, now)
        told = self._told.setdefault(said.topic, [])
        if any(one.version >= said.version for _, one in told):
            return False
        told.append((now, said))
        return True

    def notice(self, topic: bytes, now: int | None = None) -> Notice | None:
        told = self._told.get(topic, ())
        place = len(told) if now is None else bisect_right(told, now, key=lambda one: one[0])
        return told[place - 1][1] if place else None
