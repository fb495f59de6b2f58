"""Taking, waiting, losing, and callbacks that do what they like."""

import logging
import threading

import pytest

from tests.hub.cases import numbers
from tidings.hub import Hub, HubClient, HubSubscription
from tidings.model import Notification
from tidings.model.errors import ClosedError, InvalidValueError
from tidings.model.limits import DEFAULT_INBOX_NOTIFICATIONS, MAX_INBOX_NOTIFICATIONS


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def client(hub: Hub) -> HubClient:
    return hub.client("a")


def publish(client: HubClient, *given: int) -> None:
    for n in given:
        client.publish({"n": n})


def test_take_all_some_or_none(client: HubClient) -> None:
    sub = client.subscribe("n > 0")
    publish(client, 1, 2, 3)
    assert sub.waiting == 3
    assert numbers(sub.take(2)) == [1, 2]
    assert sub.take(0) == []
    assert numbers(sub.take()) == [3]
    assert sub.take(timeout=0.01) == []
    with pytest.raises(InvalidValueError, match="limit"):
        sub.take(-1)


def test_iterating_drains_and_ends(client: HubClient) -> None:
    sub = client.subscribe("n > 0")
    publish(client, 1, 2)
    seen = []
    for note in sub:
        seen.append(note.attributes["n"])
        if note.attributes["n"] == 2:
            publish(client, 3)
    assert seen == [1, 2, 3]
    assert list(sub) == []


def test_take_and_listen_wait_for_what_comes(client: HubClient) -> None:
    sub = client.subscribe("n > 0")
    seen: list[object] = []
    started = threading.Barrier(2)

    def listen() -> None:
        started.wait()
        seen.extend(numbers(sub.take(timeout=60)))
        started.wait()
        seen.extend(numbers(sub.listen()))

    thread = threading.Thread(target=listen)
    thread.start()
    started.wait()
    publish(client, 1)
    started.wait()
    publish(client, 2, 3)
    sub.unsubscribe()
    thread.join(10)
    assert seen == [1, 2, 3]
    assert list(client.subscribe("n > 0").listen(timeout=0.01)) == []


def test_an_inbox_keeps_the_newest_and_says_what_it_lost() -> None:
    hub = Hub()
    client, watcher = hub.client("a"), hub.client("w")
    told = watcher.subscribe("class = 'LostNotifications'")
    sub = client.subscribe("n > 0", limit=3)
    publish(client, *range(1, 12))
    assert numbers(sub.take()) == [9, 10, 11]
    assert (sub.lost, hub.stats().lost) == (8, 8)
    notes = told.take()
    assert numbers(notes, "count") == [1, 2, 4, 8]
    assert notes[0].attributes["subscription"] == sub.id
    assert (notes[0].attributes["client"], notes[0].event.publisher) == ("a", "hub")
    assert [note.event.sequence for note in notes] == [1, 2, 3, 4]


def test_lost_meta_events_are_counted_and_cause_no_others() -> None:
    hub = Hub()
    client = hub.client("a")
    everything = client.subscribe(limit=1)
    publish(client, *range(50))
    assert everything.waiting == 1
    assert everything.lost < 110
    assert hub.stats().told < 20


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, MAX_INBOX_NOTIFICATIONS + 1])
def test_bad_limits(client: HubClient, limit: int) -> None:
    with pytest.raises(InvalidValueError, match="MAX_INBOX_NOTIFICATIONS"):
        client.subscribe("n > 0", limit=limit)


def test_the_default_limit(client: HubClient) -> None:
    assert client.subscribe("n > 0").inbox.limit == DEFAULT_INBOX_NOTIFICATIONS


# Callbacks


def test_a_callback_gets_everything_in_order(client: HubClient) -> None:
    seen: list[Notification] = []
    sub = client.subscribe("n > 0", callback=seen.append)
    publish(client, 1, 2, 3)
    assert numbers(seen) == [1, 2, 3]
    assert sub.take() == []


def test_a_callback_that_raises_is_nobody_elses_problem(
    hub: Hub, client: HubClient, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Notification] = []

    def fragile(note: Notification) -> None:
        if note.attributes["n"] == 1:
            raise ValueError("not this one")
        seen.append(note)

    sub = client.subscribe("n > 0", callback=fragile)
    publish(client, 1, 2)
    assert numbers(seen) == [2]
    assert sub.failed == 1
    assert "not this one" in caplog.text
    assert hub.stats().callback_errors == 1


def test_a_callback_that_publishes_is_not_entered_again(client: HubClient) -> None:
    seen: list[object] = []
    depth = 0

    def chain(note: Notification) -> None:
        nonlocal depth
        depth += 1
        assert depth == 1
        n = note.attributes["n"]
        assert isinstance(n, int)
        seen.append(n)
        if n < 2000:
            client.publish({"n": n + 1})
        depth -= 1

    client.subscribe("n > 0", callback=chain)
    publish(client, 1)
    assert seen == list(range(1, 2001))


def test_callbacks_that_call_for_each_other_do_not_nest(client: HubClient) -> None:
    seen: list[str] = []

    def answer(kind: str, other: str) -> None:
        def callback(note: Notification) -> None:
            n = note.attributes["n"]
            assert isinstance(n, int)
            seen.append(f"{kind}{n}")
            if n < 3000:
                client.publish({"kind": other, "n": n + 1})
            seen.append("end")

        client.subscribe(f"kind = '{kind}'", callback=callback)

    answer("ping", "pong")
    answer("pong", "ping")
    client.publish({"kind": "ping", "n": 1})
    assert seen[:6] == ["ping1", "end", "pong2", "end", "ping3", "end"]
    assert len(seen) == 6000


def test_a_callback_may_unsubscribe_subscribe_and_close(client: HubClient) -> None:
    seen: list[object] = []
    more: list[HubSubscription] = []

    def once(note: Notification) -> None:
        seen.append(note.attributes["n"])
        sub.unsubscribe()
        more.append(client.subscribe("n > 0"))
        publish(client, 5)

    sub = client.subscribe("n > 0", callback=once)
    publish(client, 1, 2)
    assert seen == [1]
    assert numbers(more[0].take()) == [5, 2]
    hub = Hub()
    other = hub.client("b")
    other.subscribe("n > 0", callback=lambda _: hub.close())
    publish(other, 1)
    assert hub.processor.closed


def test_an_interrupted_callback_leaves_the_hub_usable(client: HubClient) -> None:
    seen: list[object] = []

    def interrupted(note: Notification) -> None:
        if note.attributes["n"] == 1:
            raise KeyboardInterrupt
        seen.append(note.attributes["n"])

    client.subscribe("n > 0", callback=interrupted)
    other: list[Notification] = []
    client.subscribe("n > 0", callback=other.append)
    with pytest.raises(KeyboardInterrupt):
        publish(client, 1)
    publish(client, 2)
    assert seen == [2]
    assert numbers(other) == [1, 2]


def test_callbacks_run_one_at_a_time_whoever_publishes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    hub = Hub()
    busy = threading.Lock()
    seen: list[tuple[object, object]] = []

    def callback(note: Notification) -> None:
        assert busy.acquire(blocking=False)
        seen.append((note.event.publisher, note.attributes["n"]))
        busy.release()

    hub.client("s").subscribe("n >= 0", callback=callback)

    def work(name: str) -> None:
        client = hub.client(name)
        for n in range(300):
            client.publish({"n": n})

    threads = [threading.Thread(target=work, args=(f"p{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(seen) == 1200
    for number in range(4):
        assert [n for name, n in seen if name == f"p{number}"] == list(range(300))
    assert not caplog.records


@pytest.mark.parametrize("timeout", [0, 0.01, None])
@pytest.mark.parametrize("durable", [None, "all"])
@pytest.mark.parametrize("ends", ["subscription", "client", "hub"])
def test_take_after_a_close_gives_out_what_waits_and_then_raises(
    ends: str, durable: str | None, timeout: float | None
) -> None:
    hub = Hub()
    client = hub.client("car-1")
    sub = client.subscribe("n = 1", durable=durable)
    client.publish({"n": 1})
    {"subscription": sub.close, "client": client.close, "hub": hub.close}[ends]()
    assert len(sub.take(timeout=timeout)) == 1
    for _ in range(2):
        with pytest.raises(ClosedError, match="is closed"):
            sub.take(timeout=timeout)
    assert list(sub) == list(sub.listen()) == []
    hub.close()


def test_a_thread_that_waits_is_told_when_its_subscription_is_closed() -> None:
    with Hub() as hub:
        sub = hub.client("car-1").subscribe("n = 1")
        errors: list[ClosedError] = []

        def take() -> None:
            try:
                sub.take(timeout=None)
            except ClosedError as error:
                errors.append(error)

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        sub.close()
        thread.join(60)
        assert len(errors) == 1
