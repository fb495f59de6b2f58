"""A history: a world and the steps taken in it. It can be run and judged; `reduction.py` makes it smaller, and
`step_file.py` writes it down."""

import traceback
from contextlib import suppress

import msgspec

from tidings.engine.matcher import NaiveMatcher
from tidings.model.errors import RefusedError, UnsettledError
from tidings.simulation.checker import Checker
from tidings.simulation.faults import Heal, Restart, Resume
from tidings.simulation.knowledge import Knowledge
from tidings.simulation.steps import Advertises, Publishes, Returns, Settles, Step
from tidings.simulation.topologies import Topology
from tidings.simulation.violation import Violation
from tidings.simulation.world import World

_PROBE = "probe"


class History(msgspec.Struct, frozen=True, kw_only=True):
    """`homes` are the clients, each with the broker where it is first; `network` is how datagrams fare on all links."""

    topology: Topology
    homes: dict[str, str]
    steps: tuple[Step, ...]
    strategy: str = "advertisement"
    seed: int = 0
    network: dict[str, float] = {}
    resends: bool = True

    def world(self) -> World:
        return World(
            self.topology,
            seed=self.seed,
            strategy=self.strategy,
            matcher=NaiveMatcher,
            resends=self.resends,
            **self.network,  # type: ignore[arg-type]
        )

    def violations(self) -> list[Violation]:
        """What goes wrong first; nothing, if all is well.

        When the steps have been taken, the network heals, and who has left with something to say comes back: then
        tables are those of a fresh network, and an event of every client is told as the reference says.
        """
        try:
            world = self.world()
            for name, broker in self.homes.items():
                world.client(name, broker)
            checker = Checker(world, self.strategy)
            return (
                checker.take_all([*self.steps, *_healing(self.topology)])
                or checker.take_all([*map(Returns, checker.unheard()), Settles()])
                or _differences(world, self._fresh(world))
                or checker.take_all(_probes(world))
            )
        except UnsettledError as error:
            return [Violation("unsettled", str(error))]
        except Exception:
            return [Violation("error", traceback.format_exc())]

    def _fresh(self, world: World) -> World:
        """Another world with the same clients, which have said the same, and nothing has happened to them."""
        fresh = self.world()
        fresh.settle()
        for name, one in world.clients.items():
            client = fresh.client(name, one.broker)
            if one.context:
                client.set_context(one.context)
            for advertisement in one.advertisements():
                client.advertise(
                    advertisement.content,
                    advertisement.publisher_context,
                    advertisement.subscriber_context,
                    advertisement.policy,
                    advertisement.id,
                )
            for wanted in one.subscriptions():
                with suppress(RefusedError):  # what was refused there is refused here
                    client.subscribe(
                        wanted.content,
                        publishers=wanted.publishers,
                        policy=wanted.policy,
                        durable=wanted.durable,
                        id=wanted.id,
                        token=wanted.token,
                    )
            if not one.is_connected:
                client.disconnect()
        fresh.settle()
        return fresh


def _healing(topology: Topology) -> list[Step]:
    healed = [Heal(0, one, other) for one, other, _ in topology.edges]
    back = [one for name in topology.brokers for one in (Restart(0, name), Resume(0, name))]
    return [*healed, *back, Settles()]


def _probes(world: World) -> list[Step]:
    """An event of every client that is there; all of them are advertised."""
    here = [client for client in world.clients.values() if client.is_connected]
    names = sorted({name for client in here for name in client.context})
    steps: list[Step] = [Advertises(one.name, f"{one.name}.{_PROBE}", "", tuple(names)) for one in here]
    steps.append(Settles())
    for number, one in enumerate(here):
        steps += [Publishes(one.name, {"a": number % 4, "b": number % 3}), Settles()]
    return steps


def _differences(world: World, fresh: World) -> list[Violation]:
    return [
        Violation("tables", f"{name}: {difference}")
        for name, broker in world.brokers.items()
        for difference in Knowledge.of(broker.engine).differences(Knowledge.of(fresh.brokers[name].engine))
    ]
