"""What a running broker takes over from another configuration: links, limits, and what it has of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tests.limits import PATIENCE
from tidings.broker.broker import Broker
from tidings.broker.config import BrokerConfiguration
from tidings.client import connect
from tidings.engine.state.broker_state import governs
from tidings.model.errors import RefusedError


def configured(name: str, **tables: Any) -> BrokerConfiguration:
    broker = {"name": name, "listen": "127.0.0.1:0", **tables.pop("broker", {})}
    return BrokerConfiguration.from_values({"broker": broker, **tables})


def with_brokers(use: Callable[[Broker, Broker], Awaitable[None]]) -> None:
    async def run() -> None:
        brokers = [Broker(configured(name)) for name in ("b1", "b2")]
        for broker in brokers:
            await broker.start()
        try:
            async with asyncio.timeout(PATIENCE):
                await use(*brokers)
        finally:
            for broker in brokers:
                await broker.stop()

    asyncio.run(run())


async def eventually(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.01)


def test_a_link_that_is_named_comes_up_and_one_that_is_not_goes() -> None:
    async def use(one: Broker, other: Broker) -> None:
        await other.reload(configured("b2", links=[{"broker": "b1"}]))
        assert "the link to b1 is down" in list(other.parts.health.not_ready_reasons())
        change = await one.reload(configured("b1", links=[{"broker": "b2", "address": str(other.address)}]))
        assert change.taken_over == ("links",)
        await eventually(lambda: not [*one.parts.health.not_ready_reasons(), *other.parts.health.not_ready_reasons()])
        assert one.parts.health.gauges().links == one.parts.health.gauges().links_configured == 1
        await one.reload(configured("b1"))
        await eventually(lambda: not one.links and not other.links)
        assert list(one.parts.health.not_ready_reasons()) == []
        assert one.node.engine.topology.brokers == {"b1"}

    with_brokers(use)


def test_a_link_with_another_cost_is_made_anew() -> None:
    async def use(one: Broker, other: Broker) -> None:
        await other.reload(configured("b2", links=[{"broker": "b1", "cost": 5}]))
        wanted = {"broker": "b2", "address": str(other.address)}
        await one.reload(configured("b1", links=[wanted]))
        await eventually(lambda: "b2" in one.links)
        before = one.links["b2"]
        await one.reload(configured("b1", links=[{**wanted, "cost": 7}]))
        await eventually(lambda: "b2" in one.links)
        assert one.links["b2"] is not before
        assert one.links["b2"].cost == 7

    with_brokers(use)


def test_limits_hold_for_clients_that_are_there_already() -> None:
    async def use(one: Broker, _: Broker) -> None:
        async with connect(str(one.address), "car") as car:
            await car.subscribe("n = 1")
            await one.reload(configured("b1", limits={"subscriptions_per_client": 1}))
            with pytest.raises(RefusedError, match="the most that this broker allows"):
                await car.subscribe("n = 2")
            await one.reload(configured("b1", limits={"subscriptions_per_client": 2}))
            await car.subscribe("n = 2")

    with_brokers(use)


def test_what_the_broker_itself_has_is_put_changed_and_taken_away() -> None:
    def own(broker: Broker) -> dict[str, str]:
        return {one.id: str(one.value.content) for one in broker.node.engine.state.filters.subscriptions.of("b1")}

    async def use(one: Broker, _: Broker) -> None:
        await one.reload(configured("b1", subscriptions=[{"content": "n = 1"}, {"content": "n = 2"}]))
        assert own(one) == {"b1.subscription.0": "n = 1", "b1.subscription.1": "n = 2"}
        await one.reload(configured("b1", subscriptions=[{"content": "n = 3"}], advertisements=[{"content": "n = 9"}]))
        assert own(one) == {"b1.subscription.0": "n = 3"}
        assert [one.id for one in one.node.engine.state.filters.advertisements.of("b1")] == ["b1.advertisement.0"]
        await one.reload(configured("b1"))
        assert own(one) == {}
        assert not list(one.node.engine.state.filters.advertisements.of("b1"))

    with_brokers(use)


def test_who_governs_may_change_and_a_name_may_not() -> None:
    async def use(one: Broker, _: Broker) -> None:
        change = await one.reload(configured("other", broker={"govern": ["boss"]}))
        assert change.taken_over == ("broker.govern",)
        assert change.restart == ("broker.name",)
        assert one.configuration.broker.name == one.name == "b1"
        assert governs(one.node.engine.state, "boss")

    with_brokers(use)


def test_other_settings_hold_in_every_part_of_the_engine() -> None:
    """Links remember which neighbours belong to another sub-overlay."""

    async def use(one: Broker, _: Broker) -> None:
        one.node.set_settings(msgspec.structs.replace(one.node.processor.settings, abroad=frozenset({"g1"})))
        assert one.node.engine.state.settings.abroad == {"g1"}
        assert one.node.engine.state.links.is_external("g1")

    with_brokers(use)
