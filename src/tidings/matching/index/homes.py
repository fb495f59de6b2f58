"""The neighbourhoods: which there are, who lives in which of them, and who has to be told when a client moves."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from tidings.matching.index.bulk import Predicate
from tidings.matching.index.contexts import Contexts
from tidings.matching.index.neighbourhood import Neighbourhood
from tidings.matching.index.reach import reach_of
from tidings.matching.index.register import Register
from tidings.matching.index.segment import Conjuncts
from tidings.model.filter import ContextFilter
from tidings.model.limits import MAX_NEIGHBOURHOODS


class Homes:
    """Neighbourhoods by number; 0 is none. Who changes something holds a lock, others may look which there are."""

    def __init__(self, register: Register, contexts: Contexts) -> None:
        self._register = register
        self._contexts = contexts
        self._all: dict[int, Neighbourhood] = {}  # replaced as a whole
        self._movers: Counter[int] = Counter()  # how many subscriptions in them a client has, by its row

    def __len__(self) -> int:
        return len(self._all)

    def values(self) -> Iterable[Neighbourhood]:
        return self._all.values()

    def find(self, publishers: ContextFilter | None, program: int) -> tuple[int, float]:
        """The neighbourhood for subscriptions with such a filter, 0 for none, and how far they reach."""
        reach = None if publishers is None or program < 0 else reach_of(publishers)
        if reach is None:
            return 0, 0.0
        for number, home in self._all.items():
            if (home.names, home.geo) == (reach.names, reach.geo):
                return number, reach.radius
        if len(self._all) == MAX_NEIGHBOURHOODS:
            return 0, 0.0
        number = 1 + max(self._all, default=0)
        self._all = {**self._all, number: Neighbourhood(reach.names, reach.geo)}
        return number, reach.radius

    def move_in(self, position: int, number: int) -> None:
        """A subscription lives there from now on; `put` or `put_many` tell what it asks."""
        self._register.homes[position] = number
        self._movers[int(self._register.clients[position])] += 1

    def put(self, position: int, conjuncts: list[tuple[int, list[Predicate]]], attributes: int, radius: float) -> None:
        client, home = int(self._register.clients[position]), self._all[int(self._register.homes[position])]
        home.put(position, conjuncts, attributes, client, radius, self._contexts.place(client, home.names))

    def put_many(
        self, positions: npt.NDArray[np.int32], conjuncts: Conjuncts, attributes: int, radii: dict[int, float]
    ) -> None:
        """Those of many subscriptions who live in a neighbourhood."""
        register = self._register
        home_of, asking = register.homes[positions], register.homes[conjuncts.owner >> 2]
        for number in np.unique(home_of[home_of > 0]).tolist():
            home = self._all[number]
            home.put_many(conjuncts.those(asking == number), attributes)
            for position in positions[home_of == number].tolist():
                client = int(register.clients[position])
                home.settle(position, client, radii[position], self._contexts.place(client, home.names))

    def remove(self, position: int) -> None:
        number, client = int(self._register.homes[position]), int(self._register.clients[position])
        self._all[number].remove(position)
        if not len(self._all[number]):
            self._all = {other: one for other, one in self._all.items() if other != number}
        self._movers[client] -= 1
        if not self._movers[client]:
            del self._movers[client]

    def moved(self, row: int) -> None:
        """The context of a client has changed."""
        if row in self._movers:
            for home in self._all.values():
                home.move(row, self._contexts.place(row, home.names))

    def moved_many(self, rows: npt.NDArray[np.int64]) -> None:
        for home in self._all.values():
            home.move_many(rows.astype(np.int32), self._contexts.places(rows, home.names))

    def saved(self) -> tuple[dict[str, npt.NDArray[Any]], list[Any]]:
        """Everything, as arrays and as facts that JSON can carry."""
        arrays = {
            f"near{number}_{name}": array for number, one in self._all.items() for name, array in one.saved().items()
        }
        return arrays, [[number, one.names, one.geo] for number, one in self._all.items()]

    def restore(
        self,
        array: Callable[[str], npt.NDArray[Any]],
        names_from: Callable[[str], Iterable[str]],
        facts: list[Any],
        attributes: int,
    ) -> None:
        """What `saved` gave; the register is there already."""
        for number, names, geo in facts:
            prefix = f"near{number}_"
            arrays = {name.removeprefix(prefix): array(name) for name in names_from(prefix)}
            self._all[number] = Neighbourhood.of(tuple(names), geo, arrays, attributes)
        self._movers.update(self._register.clients[self._register.homes > 0].tolist())
