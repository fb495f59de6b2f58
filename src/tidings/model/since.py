"""Since when: a time, or the receipt of a publication, after which something is meant."""

from datetime import UTC, datetime

from tidings.model.errors import InvalidValueError
from tidings.model.receipt import Receipt

Since = datetime | int | Receipt | None
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def start_of(since: Since) -> tuple[int, int]:
    """The offset and the time from which on is meant."""
    match since:
        case None:
            return 0, 0
        case Receipt():
            return max(0, since.offset), 0
        case datetime():
            if since.tzinfo is None:
                raise InvalidValueError("since: a datetime needs a time zone, such as datetime.now(UTC)")
            passed = since - _EPOCH
            return 0, (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
        case bool():
            pass
        case int():
            return 0, since
    raise InvalidValueError("since: a datetime, microseconds since 1970, or the Receipt of a publication")
