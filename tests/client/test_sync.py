"""The synchronous face: the same words from any thread, without a loop of one's own."""

import asyncio
import inspect
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pytest

import tidings as td
from tests.broker.cases import address, configuration
from tests.limits import PATIENCE
from tests.sync_client import SECTIONS, TARGET, synchronous
from tidings.broker.broker import Broker
from tidings.client import Client, ClientSubscription, SyncClient, SyncSubscription
from tidings.model.errors import ClosedError, FilterError, InvalidValueError, RefusedError, UnreachableError


@pytest.fixture
def where() -> Iterator[str]:
    """The address of a broker that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    broker = Broker(configuration())
    asyncio.run_coroutine_threadsafe(broker.start(), loop).result(PATIENCE)
    yield address(broker)
    asyncio.run_coroutine_threadsafe(broker.stop(), loop).result(PATIENCE)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_a_program_without_a_loop_does_all_the_same(where: str) -> None:
    with td.connect_sync(where, "car-1") as car, td.connect_sync(where, "cam-1") as camera:
        car.set_context(x=1)
        assert (car.name, car.broker, car.is_connected, car.context) == ("car-1", "b1", True, {"x": 1})
        with car.subscribe("n > 0", publishers="x = this.x") as held:
            camera.set_context(x=1)
            offer = camera.advertise("n > 0", publisher_context=["x"])
            receipts = camera.publish_many([{"n": 1}, {"n": 2}, {"n": 3}])
            assert [one.event.sequence for one in receipts] == [1, 2, 3]
            assert [note.attributes["n"] for note in islice(held.listen(timeout=PATIENCE), 3)] == [1, 2, 3]
            assert not list(held.listen(timeout=0.05))
            assert car.explain({"n": 0}, held)[0].step == "content"
            assert [one["id"] for one in car.topics()["advertisements"]] == [offer.id]
            camera.advertise("n > 0", id=offer.id)
            assert [one["publisher_context_all"] for one in car.topics()["advertisements"]] == [True]
            camera.unadvertise(offer)
        loop = td.Schema("Loop", {"li": int})
        assert car.schema(loop) == camera.schema("Loop") == loop
        with pytest.raises(FilterError, match=r"\^"):
            car.subscribe("a = = 1")
        with pytest.raises(RefusedError, match="no operator"):
            car.ask("tables")
        with pytest.raises(InvalidValueError, match="not list"):
            camera.publish_many([{"n": 4}, {"n": ["a list"]}])
        assert camera.publish({"n": 5}).event.sequence >= 5


def test_many_threads_use_one_client(where: str) -> None:
    with td.connect_sync(where, "car-1") as car, ThreadPoolExecutor(8) as pool:
        held = car.subscribe("")
        list(pool.map(lambda n: car.publish({"n": n}), range(200)))
        taken: list[Any] = []
        while len(taken) < 200 and (more := held.take(timeout=PATIENCE)):
            taken += [note.attributes["n"] for note in more]
        assert sorted(taken) == list(range(200))
        made = list(pool.map(lambda n: car.subscribe(f"n = {n}"), range(40)))
        assert len({one.id for one in made}) == 40


def test_threads_that_wait_are_told_when_the_client_is_closed(where: str) -> None:
    car = td.connect_sync(where, "car-1")
    held = car.subscribe("")
    ends: list[Any] = []

    def listen() -> None:
        try:
            ends.append(list(held))
        except ClosedError as error:
            ends.append(error)

    threads = [threading.Thread(target=listen) for _ in range(4)]
    for thread in threads:
        thread.start()
    car.publish({"n": 1})
    car.close()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    notes = [one for end in ends if isinstance(end, list) for one in end]
    assert len(notes) <= 1
    for use in (lambda: car.publish({"n": 1}), lambda: held.take(), lambda: car.subscribe("")):
        with pytest.raises(ClosedError):
            use()
    car.close()


def test_a_callback_cannot_wait_for_the_thread_that_it_is_called_in(where: str) -> None:
    with td.connect_sync(where, "car-1") as car:
        errors: list[Exception] = []
        told = threading.Event()

        def publish(_: td.Notification) -> None:
            try:
                car.publish({"m": 1})
            except InvalidValueError as error:
                errors.append(error)
            told.set()

        car.subscribe("n = 1", callback=publish)
        car.publish({"n": 1})
        assert told.wait(PATIENCE)
        assert "the client's own thread" in str(errors[0])


def test_where_nobody_answers_no_thread_is_left() -> None:
    before = set(threading.enumerate())
    with pytest.raises(UnreachableError):
        td.connect_sync("tidings://127.0.0.1:1", "car-1", patience=0.1)
    assert set(threading.enumerate()) <= before


def test_a_stream_that_the_broker_ends_says_so(where: str) -> None:
    with td.connect_sync(where, "car-1") as car:
        held = car.subscribe("")
        car.publish({"n": 1})
        stream = iter(held)
        assert next(stream).attributes["n"] == 1
        with td.connect_sync(where, "car-1"), pytest.raises(ClosedError, match="another program has connected as"):
            next(stream)


def test_an_interrupted_take_takes_nothing_later(where: str) -> None:
    with td.connect_sync(where, "car-1") as car:
        inbox = car.subscribe("n > 0")
        former = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(KeyboardInterrupt):
                inbox.take(timeout=PATIENCE)
        finally:
            signal.signal(signal.SIGALRM, former)
        car.publish({"n": 1})
        assert [note.attributes["n"] for note in inbox.take(timeout=PATIENCE)] == [1]


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.process
def test_a_fork_cannot_use_the_client_of_its_parent(where: str) -> None:
    with td.connect_sync(where, "car-1") as car:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that threads do not survive a fork
            child = os.fork()
        if not child:
            signal.alarm(10)  # instead of waiting for ever
            os._exit(0 if is_refused_in_fork(car) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert car.publish({"n": 1})


def is_refused_in_fork(client: SyncClient) -> bool:
    try:
        with client:
            client.publish({"n": 1})
    except ClosedError as error:
        return "connect after the fork" in str(error)
    return False


def test_the_generated_methods_are_current() -> None:
    """`python -m tests.sync_client --write` writes them again."""
    text = TARGET.read_text()
    assert synchronous(text) == text
    stale = text.replace('safe: str = "journaled"', 'safe: str = "accepted"')
    assert stale != text
    assert synchronous(stale) == text


def test_synchronous_methods_have_the_signatures_and_docstrings_of_the_asynchronous_ones() -> None:
    kinds = {"Client": (Client, SyncClient), "ClientSubscription": (ClientSubscription, SyncSubscription)}
    for section in SECTIONS:
        asynchronous, synchronous_kind = kinds[section.asynchronous]
        for name in section.members:
            method, generated = getattr(asynchronous, name), getattr(synchronous_kind, name)
            assert generated.__doc__, name
            if not isinstance(method, property):
                expected = inspect.signature(method).parameters
                assert inspect.signature(generated).parameters.keys() == expected.keys()
                defaults = [one.default for one in inspect.signature(generated).parameters.values()]
                assert defaults == [one.default for one in expected.values()]
    subscribe = inspect.getdoc(SyncClient.subscribe)
    assert subscribe is not None
    assert "await" not in subscribe
    assert inspect.signature(SyncClient.subscribe).return_annotation == "SyncSubscription"
