"""A directory: the subscriptions of a moment by place, as columns. Deliveries name places, so that none of the very
many that get something has to become an object."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.model.subscription import Subscription

Ints = npt.NDArray[np.int64]


def is_known_by_name(subscription: Subscription) -> bool:
    """Whether a delivery to it has nothing to ask but its id and its subscriber."""
    return subscription.notify == "subscription" and subscription.durable is None and subscription.token is None


class Directory:
    """Ids and subscribers; `others` are those of which more has to be known."""

    def __init__(
        self,
        ids: pa.Array,
        subscribers: pa.Array,
        others: dict[int, Subscription] | None = None,
        positions: Ints | None = None,
    ) -> None:
        """`positions` are those in the index that it was made of."""
        self.ids, self.subscribers, self.positions = ids, subscribers, positions
        self.others = others or {}

    @classmethod
    def of(cls, subscriptions: list[Subscription]) -> "Directory":
        return cls(
            pa.array([one.id for one in subscriptions], pa.string()),
            pa.array([one.subscriber for one in subscriptions], pa.string()),
            {place: one for place, one in enumerate(subscriptions) if not is_known_by_name(one)},
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, place: int) -> Subscription:
        found = self.others.get(place)
        if found is not None:
            return found
        return Subscription(id=self.ids[place].as_py(), subscriber=self.subscribers[place].as_py())

    @property
    def together(self) -> npt.NDArray[np.bool_]:
        """Which of them want one notification for all subscriptions of their client."""
        found = np.zeros(len(self), bool)
        found[[place for place, one in self.others.items() if one.notify == "client"]] = True
        return found

    def those(self, places: Ints) -> "Directory":
        """A smaller one, of these."""
        chosen = pa.array(places)
        others = {}
        if self.others:
            others = {at: self.others[place] for at, place in enumerate(places.tolist()) if place in self.others}
        return Directory(self.ids.take(chosen), self.subscribers.take(chosen), others)


class Addressed(NamedTuple):
    """Copies: of which event, for which place in a directory, and in which shape."""

    event: Ints
    place: Ints
    shape: npt.NDArray[np.int32]
    directory: Directory


def joined(parts: list[Addressed]) -> Addressed:
    """All copies, part by part, in one directory."""
    event, shape = (np.concatenate([one[at] for one in parts]) for at in (0, 2))
    if all(one.directory is parts[0].directory for one in parts):
        return Addressed(event, np.concatenate([one.place for one in parts]), shape, parts[0].directory)
    places, smaller, others, start = [], [], dict[int, Subscription](), 0
    for one in parts:  # each may be a directory of very many: only those who get something go on
        used, place = np.unique(one.place, return_inverse=True)
        places.append(place + start)
        smaller.append(one.directory.those(used))
        others |= {start + at: special for at, special in smaller[-1].others.items()}
        start += len(used)
    ids, subscribers = (
        pa.concat_arrays(each) for each in ([one.ids for one in smaller], [one.subscribers for one in smaller])
    )
    return Addressed(event, np.concatenate(places), shape, Directory(ids, subscribers, others))
