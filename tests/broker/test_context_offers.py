"""Which names of their context publishers offer, over the network: all, those that they list, or none."""

from typing import Any

import pytest

from tests.broker.cases import connect, run, running, until

NEAR = "lat BETWEEN this.lat - 0.01 AND this.lat + 0.01"


@pytest.mark.parametrize(("offer", "told"), [({}, [1]), ({"publisher_context": []}, [])])
def test_an_advertisement_that_names_no_context_attracts_filters_of_other_brokers(
    offer: dict[str, Any], told: list[int]
) -> None:
    async def scenario() -> None:
        async with (
            running("b1", links=[{"broker": "b2"}]) as b1,
            running("b2", links=[{"broker": "b1", "address": str(b1.address)}]) as b2,
            connect(b1, "unit") as unit,
            connect(b2, "van") as van,
        ):
            await until(lambda: b1.is_settled and b2.is_settled and bool(b1.links))
            await unit.set_context(lat=48.1)
            await unit.advertise("", **offer)
            await van.set_context(lat=48.101)
            near = await van.subscribe("n = 1", publishers=NEAR)
            last = await van.subscribe("n = 2")
            await until(lambda: b1.node.engine.state.filters.subscriptions.get(last.id) is not None)
            await unit.publish({"n": 1}, safe="settled")
            await unit.publish({"n": 2}, safe="settled")
            assert len(await last.take(timeout=60)) == 1
            assert [note.attributes["n"] for note in await near.take()] == told

    run(scenario())


@pytest.mark.parametrize("offer", [None, [], ["lat"]])
def test_what_is_offered_is_said_again_to_a_broker_that_was_started_anew(offer: list[str] | None) -> None:
    async def scenario() -> None:
        async with running() as broker:
            where = {"listen": str(broker.address)}
            unit = connect(broker, "unit")
            await unit.__aenter__()
            await unit.advertise("", offer, id="offer")
        await until(lambda: not unit.is_connected)
        async with running(broker=where) as broker:
            await until(lambda: broker.node.engine.state.filters.advertisements.get("offer") is not None)
            said = broker.node.engine.state.filters.advertisements["offer"].value.publisher_context
            assert said == (None if offer is None else tuple(offer))
            await unit.close()

    run(scenario())


@pytest.mark.parametrize(
    ("keys", "said"), [({}, None), ({"publisher_context": []}, ()), ({"publisher_context": ["x"]}, ("x",))]
)
def test_an_advertisement_of_the_broker_itself_offers_all_names_unless_it_lists_them(
    keys: dict[str, Any], said: tuple[str, ...] | None
) -> None:
    async def scenario() -> None:
        async with running(advertisements=[{"content": "n > 0", **keys}]) as broker:
            [filed] = broker.node.engine.state.filters.advertisements
            assert filed.value.publisher_context == said

    run(scenario())


def test_who_asks_why_nothing_comes_is_told_which_names_are_not_offered() -> None:
    async def scenario() -> None:
        async with (
            running("b1", links=[{"broker": "b2"}]) as b1,
            running("b2", links=[{"broker": "b1", "address": str(b1.address)}]) as b2,
            connect(b1, "unit") as unit,
            connect(b2, "van") as van,
        ):
            await until(lambda: b1.is_settled and b2.is_settled and bool(b1.links))
            await unit.advertise("", [], id="closed")
            near = await van.subscribe("n = 1", publishers=NEAR)
            await until(lambda: b2.node.engine.state.filters.advertisements.get("closed") is not None)
            [why] = await van.explain({"n": 1}, near, publisher="unit")
            assert (why.delivered, why.step) == (False, "forward")
            assert why.reason == "the advertisement closed of unit does not offer lat of its publisher's context"

    run(scenario())


def test_who_asks_why_nothing_comes_is_told_which_links_are_down() -> None:
    async def scenario() -> None:
        async with running("b1", links=[{"broker": "b2"}]) as broker, connect(broker, "van") as van:
            held = await van.subscribe("n = 1")
            [why] = await van.explain({"n": 1}, held, publisher="unit")
            assert why.reason == "b1 knows no advertisement of unit; the link to b2 is down"

    run(scenario())
