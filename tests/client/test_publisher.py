"""Many events at once: by one task, in their order, as many under way as the broker allows."""

import asyncio
from collections.abc import Iterator

import pytest

import tidings as td
from tests.broker.cases import connect, run, running, until


def test_an_event_that_goes_soon_is_under_way_before_it_is_answered() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car, connect(broker, "cam-1") as camera:
            held = await car.subscribe("")
            answers = [await camera.publish_soon({"n": n}, payload=b"%d" % n) for n in range(50)]
            assert not any(answer.done() for answer in answers)
            receipts = [await answer for answer in answers]
            assert [one.event.sequence for one in receipts] == list(range(1, 51))
            assert len({one.event.id for one in receipts}) == 50
            await until(lambda: held.waiting == 50)
            assert [note.payload for note in await held.take()] == [b"%d" % n for n in range(50)]

    run(scenario())


def test_no_more_goes_soon_than_the_broker_allows() -> None:
    async def scenario() -> None:
        async with running(limits={"in_flight": 4}) as broker, connect(broker, "cam-1") as camera:
            answers = []
            for n in range(20):
                answers.append(await camera.publish_soon({"n": n}))
                assert sum(not answer.done() for answer in answers) <= 4
            assert [(await answer).event.sequence for answer in answers] == list(range(1, 21))

    run(scenario())


def test_many_are_published_by_no_task_of_their_own_and_in_order() -> None:
    async def scenario() -> None:
        async with (
            running(limits={"in_flight": 8}) as broker,
            connect(broker, "car-1") as car,
            connect(broker, "cam-1") as camera,
        ):
            held = await car.subscribe("")
            most = len(asyncio.all_tasks())

            def events() -> Iterator[dict[str, int]]:
                for n in range(100):
                    assert len(asyncio.all_tasks()) <= most
                    yield {"n": n}

            receipts = await camera.publish_many(events(), safe="accepted", payload=b"same")
            assert [one.event.attributes["n"] for one in receipts] == list(range(100))
            await until(lambda: held.waiting == 100)
            assert [(note.attributes["n"], note.payload) for note in await held.take()] == [
                (n, b"same") for n in range(100)
            ]

    run(scenario())


@pytest.mark.parametrize(
    ("events", "published", "told"),
    [
        ([{"n": 1}, {"n": ["a list"]}, {"n": 3}, {"n": ("x",)}], [1, 3], "n: a value is a bool, int, float or str"),
        ([{"n": ["a list"]}], [], "n: a value is a bool, int, float or str"),
        ([{"n": 1}, {"$n": 2}, {"n": 3}], [1, 3], "such names are the system's"),
    ],
)
def test_of_many_the_first_error_is_raised_and_the_others_are_published(
    events: list[dict[str, object]], published: list[int], told: str
) -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car, connect(broker, "cam-1") as camera:
            held = await car.subscribe("")
            with pytest.raises(td.InvalidValueError, match=told.replace("$", r"\$")):
                await camera.publish_many(events)
            await camera.publish({"n": 0})
            await until(lambda: held.waiting == len(published) + 1)
            assert [note.attributes["n"] for note in await held.take()] == [*published, 0]

    run(scenario())


def test_who_gives_up_waiting_for_many_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        async with running(limits={"in_flight": 4}) as broker, connect(broker, "cam-1") as camera:
            publishing = asyncio.create_task(camera.publish_many({"n": n} for n in range(100)))
            await asyncio.sleep(0)
            publishing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await publishing
            receipt = await camera.publish({"n": -1})  # there is room for it
            assert 1 <= receipt.event.sequence <= 6

    run(scenario())


def test_many_of_a_client_that_is_closed_say_so() -> None:
    async def scenario() -> None:
        async with running() as broker:
            async with connect(broker, "cam-1") as camera:
                assert await camera.publish_many([]) == []
            with pytest.raises(td.ClosedError):
                await camera.publish_many([{"n": 1}, {"n": 2}])

    run(scenario())
