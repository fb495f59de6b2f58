"""A publisher: a series that is given again, from its beginning, publishes nothing twice and leaves nothing out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidings.client import connect_sync
from tidings.client.resumable_publisher import IN_FLIGHT, ResumablePublisher, SeriesEvent, SeriesResult
from tidings.journal import Journal, Span
from tidings.model.errors import InvalidValueError, JournalFullError, TidingsError, UnreachableError
from tidings.model.identity import uuid7
from tidings.model.limits import MAX_REMEMBERED_EVENTS
from tidings.testing import BrokerThread


class StoredPosition:
    """A position that outlives couriers."""

    def __init__(self) -> None:
        self.start: int | None = None
        self.has_begun = False

    def begin(self, last: int) -> int | None:
        if not self.has_begun:
            self.has_begun, self.start = True, last
        return self.start

    def lose_count(self) -> None:
        self.start = None


def letters(count: int, first: int = 0) -> Iterator[SeriesEvent | TidingsError]:
    for number in range(first, first + count):
        yield SeriesEvent(uuid7(1_700_000_000_000_000, number.to_bytes(10, "big")), {"n": number})


def interrupted(count: int, after: int) -> Iterator[SeriesEvent | TidingsError]:
    for number, letter in enumerate(letters(count)):
        if number == after:
            raise RuntimeError("the power went")
        yield letter


@pytest.fixture
def served(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path / "broker") as found:
        yield found


def published(served: BrokerThread, tmp_path: Path) -> list[int]:
    """What is in the journal, in its order; the broker is stopped."""
    served.stop()
    with Journal.open(tmp_path / "broker", name="b1", salt=b"x" * 10) as journal:
        return [
            next(iter(one.operation.event(str).attributes.values()))  # type: ignore[arg-type,misc]
            for one in journal.read()
            if one.operation.kind == "publish"
        ]


def test_a_series_is_published_once_however_often_it_is_given(served: BrokerThread, tmp_path: Path) -> None:
    position, publisher, count = StoredPosition(), ResumablePublisher(served.address, "p"), IN_FLIGHT * 3 + 7
    with pytest.raises(RuntimeError, match="the power went"):
        publisher.publish_series(interrupted(count, IN_FLIGHT * 2 + 5), position)
    done = publisher.publish_series(letters(count), position)
    assert done == SeriesResult(published=count - 2 * IN_FLIGHT, known=2 * IN_FLIGHT)
    assert publisher.publish_series(letters(count), position) == SeriesResult(known=count)
    assert published(served, tmp_path) == list(range(count))


def test_it_is_known_by_its_numbers_after_the_broker_has_forgotten_the_ids(
    served: BrokerThread, tmp_path: Path
) -> None:
    position, publisher = StoredPosition(), ResumablePublisher(served.address, "p")
    assert publisher.publish_series(letters(10), position).published == 10
    others = MAX_REMEMBERED_EVENTS + 10
    assert (
        ResumablePublisher(served.address, "q").publish_series(letters(others, 1_000), StoredPosition()).published
        == others
    )
    served.stop()
    served.start()
    assert publisher.publish_series(letters(12), position) == SeriesResult(published=2, known=10)
    assert [one for one in published(served, tmp_path) if one < 1_000] == list(range(12))


def test_the_next_series_begins_where_the_last_one_ended(served: BrokerThread, tmp_path: Path) -> None:
    publisher = ResumablePublisher(served.address, "p", safe="settled")
    for batch in range(3):
        assert publisher.publish_series(letters(5, 5 * batch), StoredPosition()).published == 5
    assert published(served, tmp_path) == list(range(15))


def test_what_is_refused_is_told_and_the_rest_goes_on(served: BrokerThread, tmp_path: Path) -> None:
    def some() -> Iterator[SeriesEvent | TidingsError]:
        yield from letters(2)
        yield InvalidValueError("attributes: not a JSON object")
        yield SeriesEvent(uuid7(0, bytes(10)), {"n": object()})
        yield from letters(2, 2)

    position = StoredPosition()
    done = ResumablePublisher(served.address, "p").publish_series(some(), position)
    assert (done.published, done.known, done.refused, len(done.reasons)) == (4, 0, 2, 2)
    again = ResumablePublisher(served.address, "p").publish_series(some(), position)
    assert (again.published, again.known) == (0, 6)
    assert published(served, tmp_path) == [0, 1, 2, 3]


def test_a_broker_that_comes_back_gets_the_rest(served: BrokerThread, tmp_path: Path) -> None:
    def stopping() -> Iterator[SeriesEvent | TidingsError]:
        for number, letter in enumerate(letters(IN_FLIGHT * 2)):
            if number == IN_FLIGHT + 1:
                served.stop()
                served.start()
            yield letter

    assert (
        ResumablePublisher(served.address, "p", patience=20).publish_series(stopping(), StoredPosition()).published
        == IN_FLIGHT * 2
    )
    assert published(served, tmp_path) == list(range(IN_FLIGHT * 2))


def test_a_broker_that_does_not_is_named_after_a_while(served: BrokerThread) -> None:
    def stopping() -> Iterator[SeriesEvent | TidingsError]:
        for number, letter in enumerate(letters(IN_FLIGHT * 2)):
            if number == IN_FLIGHT + 1:
                served.stop()
            yield letter

    publisher = ResumablePublisher(served.address, "p", patience=0.5)
    with pytest.raises(UnreachableError, match=r"no answer for 0\.5 seconds"):
        publisher.publish_series(stopping(), StoredPosition())
    if not served.broker.is_stopping:  # on a busy machine it may have been given up before it was stopped
        served.stop()
    with pytest.raises(UnreachableError, match="no broker could be reached"):
        publisher.publish_series(letters(1), StoredPosition())


def test_a_disk_that_was_full_for_a_while(
    served: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal_store, position = served.broker.node.journal_store, StoredPosition()
    assert journal_store is not None
    append, refusals = journal_store.append, [JournalFullError("no room", tmp_path)] * 3

    def full(rows: list[object], now: int) -> Span:
        if refusals and rows[0].kind == "publish":  # type: ignore[attr-defined]
            raise refusals.pop()
        return append(rows, now)  # type: ignore[arg-type]

    monkeypatch.setattr(journal_store, "append", full)
    done = ResumablePublisher(served.address, "p").publish_series(letters(10), position)
    assert done.published == 10
    assert position.start is None
    again = ResumablePublisher(served.address, "p").publish_series(letters(12), position)
    assert (again.published, again.known) == (2, 10)
    assert published(served, tmp_path) == list(range(12))


def test_a_disk_that_stays_full(served: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(rows: list[object], now: int) -> Span:
        raise JournalFullError("no room", tmp_path)

    publisher, position = ResumablePublisher(served.address, "p", patience=0.3), StoredPosition()
    assert publisher.publish_series(letters(1), position).published == 1
    with monkeypatch.context() as patch:
        patch.setattr(served.broker.node.journal_store, "append", full)
        with pytest.raises(TidingsError):
            publisher.publish_series(letters(5), position)
    assert publisher.publish_series(letters(5), position).published == 4
    assert published(served, tmp_path) == list(range(5))


def test_the_number_of_an_event_comes_after_the_last(served: BrokerThread) -> None:
    with connect_sync(served.address, "p") as client:
        assert client.publish({}, sequence=7).event.sequence == 7
        with pytest.raises(InvalidValueError, match="7 does not come after 7"):
            client.publish({}, sequence=7)
        assert client.publish({}).event.sequence == 8
