"""Retention of a journal that no hub and no broker has open."""

import msgspec

from tidings.hub.archive import Saved
from tidings.journal import Journal, Retention
from tidings.model.errors import JournalError


def retain(journal: Journal, retention: Retention, now: int) -> int:
    """Removes the oldest files that are too old or too much; how many.

    What a durable subscription has yet to read stays, and what a broker may have to read again. The newest snapshot
    says what that was: since then subscribers can only have acknowledged more, and what has come is not old enough to
    go.
    """
    latest = journal.latest_snapshot()
    keep_from = 0 if latest is None else _waiting_from(latest.data, journal)
    return journal.retain(*retention.limits(now), keep_from=keep_from)


def _waiting_from(data: bytes, journal: Journal) -> int | None:
    try:
        saved = _SAVED.decode(data)
    except msgspec.MsgspecError:
        raise JournalError(
            f"{journal.folder}: its snapshots are not those of a hub or a broker; whoever wrote them knows what is "
            "still needed",
            journal.folder,
        ) from None
    backlogs = [one.backlog for one in saved.subscriptions if one.backlog is not None]
    floors = [floor for floor, _, _, pending in backlogs if pending]
    return min(floors if saved.needed is None else [*floors, saved.needed], default=None)


_SAVED = msgspec.msgpack.Decoder(Saved)
