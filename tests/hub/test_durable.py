"""Durable subscriptions: every event until it is acknowledged, with and without a folder, across restarts."""

from pathlib import Path

import pytest

import tidings as td
from tests.hub.cases import numbers
from tests.journal.cases import UnsyncedDisk
from tidings.hub import Hub
from tidings.journal import Journal, JournalOptions
from tidings.model import Notification
from tidings.model.errors import InvalidValueError, JournalLockedError
from tidings.model.receipt import NO_JOURNAL_IN_HUB
from tidings.testing import VirtualClock

TRIM = "PolicyStatement { On(Forward, Publication) { If {} Then { RemoveAttributes([secret]), ToJSON() } } }"


def opened(folder: Path | None, **given: object) -> Hub:
    return Hub(folder, disk=UnsyncedDisk(), **given) if folder else Hub(**given)  # type: ignore[arg-type]


def crash(hub: Hub) -> None:
    """What a killed process leaves: the files as they are, and no lock."""
    journal_store = hub.processor.journal_store
    assert journal_store is not None
    journal_store.journal.release_lock()


@pytest.fixture(params=["memory", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "folder" else None


def test_what_is_not_acknowledged_is_given_again(place: Path | None) -> None:
    with opened(place) as hub:
        client = hub.client("a")
        sub = client.subscribe("n > 0", durable="all")
        for n in (1, 2, 3, 4):
            client.publish({"n": n})
        first = sub.take(3)
        assert (numbers(first), sub.waiting) == ([1, 2, 3], 1)
        assert sub.acknowledge(first[1]) == 1
        assert sub.redeliver() == 2
        assert (numbers(sub.take()), sub.waiting) == ([1, 3, 4], 0)
        assert sub.acknowledge(first[0], first[1], first[2].event.id) == 2
        assert sub.acknowledge_all() == 1
        assert (sub.redeliver(), sub.take(), sub.acknowledge_all()) == (0, [], 0)


def test_a_receipt_says_how_safe_the_event_is(place: Path | None) -> None:
    with opened(place) as hub:
        client = hub.client("a")
        assert client.publish({"n": 1}).safe == ("accepted" if place is None else "journaled")
        assert client.publish({"n": 2}, safe="accepted").safe == "accepted"


def test_a_durable_subscription_has_a_finding_in_memory(place: Path | None) -> None:
    expected = [NO_JOURNAL_IN_HUB] if place is None else []
    trims_what_it_needs = TRIM.replace("secret", "n")
    with opened(place) as hub:
        client = hub.client("a")
        assert client.subscribe("n > 0").findings == []
        assert client.subscribe("n > 0", durable="all").findings == expected
        assert client.subscribe("n > 0", durable="all").findings == expected  # it comes back, and has it once
        of_policy = client.subscribe("n > 0", policy=trims_what_it_needs).findings
        assert of_policy
        for _ in range(2):
            held = client.subscribe("n > 0", policy=trims_what_it_needs, durable="trimmed")
            assert held.findings == [*of_policy, *expected]


def test_what_was_given_back_can_be_acknowledged(place: Path | None) -> None:
    with opened(place) as hub:
        client = hub.client("a")
        sub = client.subscribe("n > 0", durable="all")
        for n in (1, 2, 3):
            client.publish({"n": n})
        taken = sub.take()
        sub.redeliver()
        assert sub.acknowledge(taken[0], taken[2]) == 2
        assert numbers(sub.take()) == [2]


def test_subscribing_again_goes_on_where_it_was(place: Path | None) -> None:
    with opened(place) as hub:
        client = hub.client("a")
        sub = client.subscribe("n > 0", durable="all", policy=None, limit=50)
        client.publish({"n": 1})
        sub.take()
        again = client.subscribe("n > 0", durable="all")
        assert again is sub
        assert (numbers(again.take()), again.inbox.limit) == ([1], 50)
        offset = hub.stats().offset
        client.subscribe("n > 0", durable="all")
        assert hub.stats().offset == offset
        client.subscribe("n > 5", durable="all")
        for n in (2, 7):
            client.publish({"n": n})
        assert numbers(sub.take()) == [1, 7]
        assert hub.client("b").subscribe("n > 0", durable="all").id != sub.id
        with pytest.raises(InvalidValueError, match="durable: 'all' is the subscription"):
            client.subscribe("n > 0", durable="all", id="another")


def test_leaving_and_coming_back(place: Path | None) -> None:
    with opened(place) as hub:
        client = hub.client("a")
        with client.subscribe("n > 0", durable="all") as sub:
            client.publish({"n": 1})
            sub.take()
        assert sub.closed
        assert list(sub.listen()) == []
        client.publish({"n": 2})
        seen: list[Notification] = []
        client.subscribe("n > 0", durable="all", callback=seen.append)
        assert numbers(seen) == [1, 2]
        assert sub.waiting == 0
        sub.unsubscribe()
        assert client.subscriptions() == []
        client.publish({"n": 3})
        assert client.subscribe("n > 0", durable="all").take() == []


def test_callbacks_acknowledge_by_returning(place: Path | None, caplog: pytest.LogCaptureFixture) -> None:
    with opened(place) as hub:
        client = hub.client("a")
        seen: list[object] = []

        def callback(note: Notification) -> None:
            seen.append(note.attributes["n"])
            if note.attributes["n"] == 2 and seen.count(2) == 1:
                raise ValueError("later")

        sub = client.subscribe("n > 0", durable="all", callback=callback)
        for n in (1, 2, 3):
            client.publish({"n": n})
        assert (seen, sub.waiting) == ([1, 2, 3], 0)
        assert sub.redeliver() == 1
        assert seen == [1, 2, 3, 2]
        assert sub.redeliver() == 0


def test_only_durable_ones_are_acknowledged() -> None:
    sub = Hub().client("a").subscribe("n > 0")
    with pytest.raises(InvalidValueError, match="is not durable"):
        sub.acknowledge(td.uuid7(0, bytes(10)))
    assert sub.redeliver() == 0


def test_without_a_folder_the_oldest_is_lost_and_it_is_told() -> None:
    hub = Hub()
    client = hub.client("a")
    told = client.subscribe("class = 'LostNotifications'")
    sub = client.subscribe("n > 0", durable="all", limit=3)
    for n in range(1, 4):
        client.publish({"n": n})
    taken = sub.take(2)
    for n in (4, 5):
        client.publish({"n": n})
    assert numbers(sub.take()) == [5]
    assert (sub.lost, numbers(told.take(), "count")) == (2, [1, 2])
    assert sub.acknowledge(*taken) == 2


def test_without_a_folder_one_that_is_never_acknowledged_costs_one_place() -> None:
    client = Hub().client("a")
    sub = client.subscribe("n > 0", durable="all", limit=3)
    client.publish({"n": 1})
    (stuck,) = sub.take()
    for n in range(2, 20):
        client.publish({"n": n})
        (note,) = sub.take()
        sub.acknowledge(note)
    assert (sub.lost, sub.waiting) == (0, 0)
    assert sub.acknowledge(stuck) == 1


def test_the_window_is_bounded_and_the_journal_has_the_rest(tmp_path: Path) -> None:
    with opened(tmp_path) as hub:
        client = hub.client("a")
        sub = client.subscribe("n > 0", durable="all", limit=4)
        for n in range(1, 31):
            client.publish({"n": n, "payload": "x"}, safe="accepted" if n % 3 else "journaled")
            client.publish({"m": n})
        assert sub.waiting == 30
        seen: list[object] = []
        while notes := sub.take():
            assert len(notes) <= 4
            seen += numbers(notes)
            assert sub.take() == []  # until there is room
            sub.acknowledge_all()
        assert seen == list(range(1, 31))
        client.publish({"n": 31})
        assert numbers(sub.take()) == [31]
        assert sub.lost == 0


def test_one_that_is_never_acknowledged_holds_the_window(tmp_path: Path) -> None:
    with opened(tmp_path) as hub:
        client = hub.client("a")
        sub = client.subscribe("n > 0", durable="all", limit=4)
        for n in range(1, 11):
            client.publish({"n": n})
        (stuck,) = sub.take(1)
        seen: list[object] = []
        while notes := sub.take():
            seen += numbers(notes)
            sub.acknowledge(*notes)
        assert seen == [2, 3, 4]
        sub.acknowledge(stuck)
        assert numbers(sub.take()) == [5, 6, 7, 8]


def test_callbacks_catch_up_from_the_journal(tmp_path: Path) -> None:
    with opened(tmp_path) as hub:
        client = hub.client("a")
        client.subscribe("n > 0", durable="all", limit=4).close()
        for n in range(1, 301):
            client.publish({"n": n}, safe="accepted")
        seen: list[Notification] = []
        sub = client.subscribe("n > 0", durable="all", callback=seen.append)
        assert numbers(seen) == list(range(1, 301))
        client.publish({"n": 301})
        assert (numbers(seen)[-1], sub.waiting) == (301, 0)


@pytest.mark.parametrize("how", ["closed", "killed", "snapshot"])
def test_everything_is_there_again(tmp_path: Path, how: str) -> None:
    hub = opened(tmp_path, name="b1")
    client, other = hub.client("a"), hub.client("b")
    client.set_context(x=1.5, ok=True)
    client.let_set_context(other)
    sub = client.subscribe("n > 0", publishers="x > 0", durable="all", limit=7, policy=TRIM)
    plain = client.subscribe("n > 0", id="plain")
    client.schema(td.Schema("Loop", {"li": int}).extend({"lo": str}))
    ad = client.advertise("n > 0", publisher_context=["x"], policy=None)
    hub.set_load(0.25)
    for n in range(1, 21):
        client.publish({"n": n, "secret": 1}, payload=b"<p>")
    taken = sub.take(5)
    sub.acknowledge(*taken[:2], taken[3])
    if how == "snapshot":
        hub.snapshot()
        client.publish({"n": 21, "secret": 1})
    else:
        client.publish({"n": 21, "secret": 1})
    other.set_context(of="a", x=2.5)
    client.set_policy(plain, TRIM)
    id = client.publish({"n": 0}).event.id  # noqa: A001
    before = hub.tables()
    crash(hub) if how != "closed" else hub.close()

    again = opened(tmp_path)
    assert again.name == "b1"
    assert str(again.tables()) == str(before)
    client = again.client("a")
    assert client.context == {"x": 2.5}
    assert [one.id for one in client.subscriptions()] == [sub.id, "plain"]
    held = client.subscriptions()[0]
    assert (held.durable, held.inbox.limit, held.waiting) == ("all", 7, 18)
    seen: list[Notification] = []
    while notes := held.take():
        seen += notes
        held.acknowledge_all()
    assert numbers(seen) == [3, *range(5, 22)]
    assert all("secret" not in note.attributes and "secret" not in note.event.attributes for note in seen)
    assert seen[0].payload == taken[2].payload
    assert client.schema("Loop").version == 2
    with pytest.raises(td.RefusedError, match="published before"):
        client.publish({}, id=id)
    assert client.publish({"n": 5, "secret": 1}).event.sequence == 23
    assert "secret" not in client.subscriptions()[1].take()[0].attributes
    client.unadvertise(ad)
    assert again.notes == []
    again.close()


def test_changed_notifications_come_back_as_they_were(tmp_path: Path) -> None:
    hub = opened(tmp_path)
    client = hub.client("a")
    sub = client.subscribe("n > 0", durable="all", policy=TRIM)
    client.subscribe("n > 1", durable="once", notify="client")
    client.subscribe("n > 2", durable="twice", notify="client")
    client.publish({"n": 3, "secret": 1, "f": 2.0, "b": True})
    before = [note for one in client.subscriptions() for note in one.take()]
    assert sub.waiting == 0
    crash(hub)
    with opened(tmp_path) as again:
        assert [note for one in again.client("a").subscriptions() for note in one.take()] == before


@pytest.mark.parametrize("attributes", [False, True])
def test_traces_come_back_too(tmp_path: Path, attributes: bool) -> None:
    hub = opened(tmp_path, name="b1", host="h1")
    client = hub.client("a")
    client.advertise("n > 0", policy=td.policies.trace(attributes=attributes))
    sub = client.subscribe("n > 0", durable="all")
    client.publish({"n": 3})
    before = sub.take()
    assert (before[0].trace != ()) != ("$trace.b1.host" in before[0].attributes)
    crash(hub)
    with opened(tmp_path) as again:
        assert again.client("a").subscriptions()[0].take() == before


def test_what_is_refused_is_told_and_not_kept(tmp_path: Path) -> None:
    drop = (
        "PolicyStatement { On(Forward, Publication) { @matching: Before "
        'If {} Then { BlockMessage(), Publish("[class,DropMessage]") } } }'
    )
    hub = opened(tmp_path)
    client = hub.client("a")
    dropped = client.subscribe("class = 'DropMessage'", durable="dropped")
    every = client.subscribe("n > 0", durable="all")
    with pytest.raises(td.RefusedError) as refused:
        client.publish({"n": 1}, policy=drop)
    assert refused.value.step
    assert client.publish({"n": 2}).event.sequence == 1
    assert hub.stats().refused == 1
    crash(hub)
    with opened(tmp_path) as again:
        client = again.client("a")
        dropped, every = client.subscriptions()
        assert [note.attributes["class"] for note in dropped.take()] == ["DropMessage"]
        assert numbers(every.take()) == [2]
        assert client.publish({"n": 3}).event.sequence == 2


def test_meta_events_are_kept_and_counted_on(tmp_path: Path) -> None:
    hub = opened(tmp_path)
    client = hub.client("a")
    client.subscribe("class = 'LostNotifications'", durable="losses")
    client.subscribe("n > 0", limit=1)
    for n in range(1, 4):
        client.publish({"n": n})
    crash(hub)
    with opened(tmp_path) as again:
        client = again.client("a")
        sub = client.subscriptions()[0]
        assert numbers(sub.take(), "count") == [1, 2]
        for n in range(1, 3):
            client.publish({"n": n})
        (note,) = sub.take()
        assert note.event.sequence == 3


def test_trust_and_load_of_then_are_not_asked_again(tmp_path: Path) -> None:
    zone = (
        "PolicyStatement { On(Insert, Subscription) { If { AuthenticateSender(zone) && BrokerLoadIndex() > 0.5 } "
        "Then {} Elseif {} Then { UninsertMessage() } } }"
    )
    asked: list[str] = []

    def trust(party: str, group: str) -> bool:
        asked.append(party)
        return True

    hub = opened(tmp_path, trust=trust, govern=["a"])
    hub.set_load(0.9)
    hub.advertise("n > 0", policy=zone)
    hub.client("a").subscribe("n > 0", id="s1")
    before = str(hub.tables())
    assert asked
    crash(hub)
    with opened(tmp_path, trust=lambda *_: False, govern=["a"]) as again:
        assert str(again.tables()) == before
        assert again.notes == []


def test_what_rules_persist_is_there_again(tmp_path: Path) -> None:
    keep = "PolicyStatement { On(Forward, Publication) { If {} Then { Persist(kept) } } }"
    hub = opened(tmp_path)
    client = hub.client("a")
    client.subscribe("n > 0", policy=keep)
    client.publish({"n": 1})
    hub.snapshot()
    client.publish({"n": 2})
    before = hub.store("kept")
    crash(hub)
    with opened(tmp_path) as again:
        assert again.store("kept") == before
        assert len(before) == 2


def test_one_hub_in_a_folder(tmp_path: Path) -> None:
    with Hub(tmp_path, name="b1"), pytest.raises(JournalLockedError):
        Hub(tmp_path)
    with pytest.raises(InvalidValueError, match="is that of b1, not of b2"):
        Hub(tmp_path, name="b2")
    Hub(tmp_path, name="b1").close()


def test_lost_rows_are_counted_and_told(tmp_path: Path) -> None:
    from tidings.journal import repair

    hub = opened(tmp_path)
    client = hub.client("a")
    client.subscribe("n > 0", durable="all")
    for n in range(1, 6):
        client.publish({"n": n})
    log = next((tmp_path / "log").iterdir())
    crash(hub)
    data = bytearray(log.read_bytes())
    data[data.rindex(b'{"n":3}')] ^= 1
    log.write_bytes(data)
    repair(tmp_path)
    with opened(tmp_path) as hub:
        assert "1 rows of the journal are lost" in " ".join(hub.notes)
        assert numbers(hub.client("a").subscriptions()[0].take()) == [1, 2, 4, 5]


def test_logs_roll_and_old_segments_go_unless_they_are_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.runtime.journal_upkeep.ROWS", 30)
    options = JournalOptions(roll_records=20, convert=False)
    with opened(tmp_path, options=options) as hub:
        client = hub.client("a")
        sub = client.subscribe("n > 0", durable="all", limit=5)
        for n in range(1, 101):
            client.publish({"n": n})
        journal_store = hub.processor.journal_store
        assert journal_store is not None
        assert journal_store.upkeep.wait()
        hub.snapshot()
        hub.snapshot()
        journal_store.journal.roll()
        assert hub.retain(max_bytes=0) == 0
        seen: list[object] = []
        while notes := sub.take():
            seen += numbers(notes)
            sub.acknowledge_all()
        assert seen == list(range(1, 101))
        client.publish({"m": 0})
        hub.snapshot()
        client.publish({"m": 0})
        hub.snapshot()
        assert hub.retain(max_bytes=0) > 0
        client.publish({"n": 7})
        assert numbers(sub.take()) == [7]
    with opened(tmp_path) as hub:
        assert numbers(hub.client("a").subscriptions()[0].take()) == [7]


def test_time_rises_across_restarts(tmp_path: Path) -> None:
    clock = VirtualClock()
    with opened(tmp_path, clock=clock) as hub:
        first = hub.client("a").publish({}).event.timestamp
    clock.time -= 10_000_000
    with opened(tmp_path, clock=clock) as hub:
        assert hub.client("a").publish({}).event.timestamp > first
    with Journal.open(tmp_path) as journal:
        assert journal.verify() == 2


IDLE = "PolicyStatement { On(Insert, Subscription) { If { BrokerLoadIndex() < 0.5 } Then { UninsertMessage() } } }"


def test_what_the_load_let_in_is_there_again_after_a_reopening(tmp_path: Path) -> None:
    hub = opened(tmp_path, govern=["gov"])
    hub.set_load(0.9)
    hub.client("gov").advertise("n > 0", policy=IDLE)
    hub.close()
    hub = opened(tmp_path, govern=["gov"])  # as busy as it was
    hub.snapshot()
    hub.client("a").subscribe("n = 1")
    _is_there_again(hub, tmp_path)


def test_what_the_load_let_in_is_there_again_after_it_had_fallen_for_a_while(tmp_path: Path) -> None:
    hub = opened(tmp_path, govern=["gov"])
    hub.set_load(0.9)
    hub.client("gov").advertise("n > 0", policy=IDLE)
    hub.set_load(0.1)
    hub.snapshot()
    hub.set_load(0.9)
    hub.client("a").subscribe("n = 1")
    _is_there_again(hub, tmp_path)


def _is_there_again(hub: Hub, folder: Path) -> None:
    before = hub.tables()
    crash(hub)
    with opened(folder, govern=["gov"]) as again:
        assert (again.notes, again.tables()) == ([], before)


@pytest.mark.parametrize("how", ["journal", "snapshot"])
def test_an_offer_of_all_names_is_there_again(tmp_path: Path, how: str) -> None:
    def offers(hub: Hub) -> dict[str, object]:
        return {one.id: one.publisher_context for one in hub.tables().advertisements}

    said = {"all": None, "none": (), "some": ("x",)}
    hub = opened(tmp_path)
    client = hub.client("cam")
    client.advertise("", id="all")
    client.advertise("", [], id="none")
    client.advertise("", ["x"], id="some")
    assert offers(hub) == said
    if how == "snapshot":
        hub.snapshot()
    crash(hub)
    with opened(tmp_path) as hub:
        assert offers(hub) == said
