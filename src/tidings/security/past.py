"""The past: what a topic's centre had told at each moment, to judge what was accepted then."""

from bisect import bisect_right, insort

from tidings.security.certificates import Anchor
from tidings.security.credentials import Credentials
from tidings.security.notices import Notice, SignedNotice


class PastCredentials(Credentials):
    """Every notice counts from when it was issued until the next one was; revocations say themselves since when."""

    def __init__(self, anchor: Anchor, overlay: str = "tidings") -> None:
        super().__init__(anchor, overlay)
        self._told: dict[bytes, list[Notice]] = {}

    def heed(self, notice: SignedNotice, now: int) -> bool:
        said = notice.notice
        self._check_notice(notice, now)
        told = self._told.setdefault(said.topic, [])
        if any(one.version == said.version for one in told):
            return False
        insort(told, said, key=lambda one: one.issued)
        return True

    def notice(self, topic: bytes, now: int | None = None) -> Notice | None:
        told = self._told.get(topic, ())
        place = len(told) if now is None else bisect_right(told, now, key=lambda one: one.issued)
        return told[place - 1] if place else None
