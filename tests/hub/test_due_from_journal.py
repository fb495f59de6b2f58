"""Reading on in a journal that grows meanwhile: nothing that was passed over, whatever comes when."""

from pathlib import Path

import pytest

from tests.hub.cases import NOW, numbers
from tests.journal.cases import UnsyncedDisk
from tidings.engine import journal_codec
from tidings.engine.operations import Publish
from tidings.filters import Filter
from tidings.hub import Hub
from tidings.journal import Journal
from tidings.model import Event, Subscription, uuid7
from tidings.runtime.due_from_journal import JournalHistory


class Growing(Journal):
    """Somebody publishes right before this is looked at for the given time."""

    grows_at = -1

    @property
    def synced(self) -> int:
        self.grows_at -= 1
        if self.grows_at == 0:
            publish(self)
        return super().synced


def publish(journal: Journal) -> None:
    number = journal.next
    event = Event(id=uuid7(NOW, number.to_bytes(10, "big")), publisher="p", timestamp=NOW, sequence=number)
    journal.commit([journal_codec.row(Publish(event), {"$due": ["s1"]})], NOW)


@pytest.mark.parametrize("at", range(1, 12))
def test_what_is_passed_over_was_found(tmp_path: Path, at: int) -> None:
    with Growing.open(tmp_path, disk=UnsyncedDisk()) as journal:
        for _ in range(5):
            publish(journal)
        read = JournalHistory(journal).due_to(Subscription.of(Filter.parse("TRUE"), id="s1", subscriber="a"))
        journal.grows_at = at
        position = 0
        for _ in range(3):
            entries, next_position = read(position, 100)
            assert [offset for offset, _ in entries] == list(range(position, next_position))
            position = next_position


def test_many_that_are_behind_share_a_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.runtime.due_from_journal._READERS", 2)
    with Hub(tmp_path, disk=UnsyncedDisk()) as hub:
        client = hub.client("a")
        subs = [client.subscribe("n > 0", durable=f"d{number}", limit=2) for number in range(5)]
        for n in range(1, 21):
            client.publish({"n": n}, safe="accepted")
        seen: list[list[object]] = [[] for _ in subs]
        for _ in range(10):
            for number, sub in enumerate(subs):
                seen[number] += numbers(sub.take())
                sub.acknowledge_all()
        assert seen == [list(range(1, 21))] * 5
        journal_store = hub.processor.journal_store
        assert journal_store is not None
        assert journal_store.history.reader_count <= 2
