"""Many threads at once: nothing is lost, each publisher's events come in order, nobody waits for ever."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journal.cases import UnsyncedDisk
from tidings.hub import Hub
from tidings.model import Notification

PUBLISHERS, EVENTS = 4, 150


def run(*works: Callable[[], None]) -> None:
    failed: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # told by the thread that started it
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert failed == []


def publishing(hub: Hub, name: str, safe: str = "journaled") -> Callable[[], None]:
    def work() -> None:
        client = hub.client(name)
        for n in range(EVENTS):
            client.publish({"n": n}, safe=safe if n % 2 else "journaled")

    return work


def in_order(notes: list[Notification]) -> dict[str, list[int]]:
    seen: dict[str, list[int]] = {}
    for note in notes:
        seen.setdefault(note.event.publisher, []).append(note.event.sequence)
    return seen


@pytest.fixture(params=["memory", "folder", "accepted"])
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Hub:
    made = Hub() if request.param == "memory" else Hub(tmp_path, disk=UnsyncedDisk())
    made.log.append(request.param)
    return made


def test_publishers_and_takers(hub: Hub) -> None:
    safe = "accepted" if hub.log[0] == "accepted" else "journaled"
    subs = [hub.client(f"s{number}").subscribe("n >= 0") for number in range(3)]
    durable = hub.client("d").subscribe("n >= 0", durable="all", limit=2_000 if hub.log[0] == "memory" else 16)
    seen: list[list[Notification]] = [[] for _ in subs]
    kept: list[Notification] = []

    def taking(number: int) -> Callable[[], None]:
        def work() -> None:
            while len(seen[number]) < PUBLISHERS * EVENTS:
                got = subs[number].take(timeout=60)
                assert got
                seen[number] += got

        return work

    def acknowledging() -> None:
        while len(kept) < PUBLISHERS * EVENTS:
            got = durable.take(5, timeout=60)
            assert got
            kept.extend(got)
            durable.acknowledge(*got)

    run(
        *(publishing(hub, f"p{number}", safe) for number in range(PUBLISHERS)),
        *(taking(number) for number in range(3)),
        acknowledging,
    )
    wanted = {f"p{number}": list(range(1, EVENTS + 1)) for number in range(PUBLISHERS)}
    for one in (*seen, kept):
        assert in_order(one) == wanted
    assert [note.event.id for note in seen[0]] == [note.event.id for note in seen[1]]
    assert [note.event.timestamp for note in seen[0]] == sorted(note.event.timestamp for note in seen[0])
    assert (durable.waiting, durable.lost) == (0, 0)
    hub.close()


def test_when_publish_returns_it_is_in_the_inbox(hub: Hub) -> None:
    def work(name: str) -> Callable[[], None]:
        def check() -> None:
            client = hub.client(name)
            sub = client.subscribe(f"name = '{name}'")
            for n in range(EVENTS):
                client.publish({"name": name, "n": n})
                assert [note.attributes["n"] for note in sub.take()] == [n]

        return check

    run(*(work(f"p{number}") for number in range(PUBLISHERS)))
    hub.close()


def test_everything_at_once(hub: Hub) -> None:
    """Subscribing, unsubscribing, contexts, policies, callbacks that publish, listing and explaining."""
    rule = "PolicyStatement { On(Forward, Publication) { If {} Then { RemoveAttributes([x]) } } }"
    echoed: list[Notification] = []
    hub.client("echo").subscribe("echo = true", callback=echoed.append)

    def answer(note: Notification) -> None:
        hub.client("answer").publish({"echo": True, "n": note.attributes["n"]})

    hub.client("answer").subscribe("n >= 0 and echo is null", callback=answer)

    def changing(name: str) -> Callable[[], None]:
        def work() -> None:
            client = hub.client(name)
            for n in range(40):
                client.set_context(x=n)
                with client.subscribe("n > 5", publishers="x < this.x", callback=lambda _: None) as sub:
                    client.set_policy(sub, rule)
                    client.explain({"n": 7}, sub)
                    hub.tables()
                    hub.stats()

        return work

    run(*(publishing(hub, f"p{number}") for number in range(2)), *(changing(f"c{number}") for number in range(2)))
    assert len(echoed) == 2 * EVENTS
    hub.close()


def test_thousands_of_clients() -> None:
    hub = Hub()
    subs = [hub.client(f"c{number}").subscribe(f"n = {number % 100}") for number in range(3_000)]
    for number in range(0, 3_000, 3):
        hub.client(f"c{number}").close()
    for n in range(100):
        hub.client("p").publish({"n": n})
    assert sum(sub.waiting for sub in subs) == 2_000
    assert (hub.stats().clients, hub.stats().subscriptions) == (2_001, 2_000)
