"""Recipients as columns: deliveries refer to rows of them, so that very many recipients need not become objects."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.model.subscription import Subscription

Ints = npt.NDArray[np.int64]


def is_known_by_name(subscription: Subscription) -> bool:
    """Whether id and subscriber are all that a delivery needs to know of a subscription."""
    return subscription.notify == "subscription" and subscription.durable is None and subscription.token is None


class RecipientColumns:
    """Ids and subscribers of subscriptions, by place; `others` are the subscriptions of which more must be known.

    Args:
        ids: The ids, by place.
        subscribers: The subscribers, by place.
        others: The special subscriptions, by place.
        positions: The positions in the index, if they were taken from one.
    """

    def __init__(
        self,
        ids: pa.Array,
        subscribers: pa.Array,
        others: dict[int, Subscription] | None = None,
        positions: Ints | None = None,
    ) -> None:
        """Create the columns; see the class for the arguments."""
        self.ids, self.subscribers, self.positions = ids, subscribers, positions
        self.others = others or {}

    @classmethod
    def of(cls, subscriptions: list[Subscription]) -> "RecipientColumns":
        """Return columns of these subscriptions, in their order."""
        return cls(
            pa.array([subscription.id for subscription in subscriptions], pa.string()),
            pa.array([subscription.subscriber for subscription in subscriptions], pa.string()),
            {
                place: subscription
                for place, subscription in enumerate(subscriptions)
                if not is_known_by_name(subscription)
            },
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, place: int) -> Subscription:
        subscription = self.others.get(place)
        if subscription is not None:
            return subscription
        return Subscription(id=self.ids[place].as_py(), subscriber=self.subscribers[place].as_py())

    @property
    def together(self) -> npt.NDArray[np.bool_]:
        """Which recipients want one notification for all subscriptions of their client."""
        is_together = np.zeros(len(self), bool)
        is_together[[place for place, subscription in self.others.items() if subscription.notify == "client"]] = True
        return is_together

    def those(self, places: Ints) -> "RecipientColumns":
        """Return columns of only these places."""
        chosen = pa.array(places)
        others = {}
        if self.others:
            others = {at: self.others[place] for at, place in enumerate(places.tolist()) if place in self.others}
        return RecipientColumns(self.ids.take(chosen), self.subscribers.take(chosen), others)


class RecipientCopies(NamedTuple):
    """Notifications as columns: the row of the event, the place in `directory`, and the number of the shape."""

    event: Ints
    place: Ints
    shape: npt.NDArray[np.int32]
    directory: RecipientColumns


def concat_copies(parts: list[RecipientCopies]) -> RecipientCopies:
    """Return all copies, part by part, over one directory of recipients."""
    event, shape = (np.concatenate([part[at] for part in parts]) for at in (0, 2))
    if all(part.directory is parts[0].directory for part in parts):
        return RecipientCopies(event, np.concatenate([part.place for part in parts]), shape, parts[0].directory)
    places, smaller, others, start = [], [], dict[int, Subscription](), 0
    for part in parts:  # a directory may be very large: keep only its recipients of a copy
        used, place = np.unique(part.place, return_inverse=True)
        places.append(place + start)
        smaller.append(part.directory.those(used))
        others |= {start + at: special for at, special in smaller[-1].others.items()}
        start += len(used)
    ids, subscribers = (
        pa.concat_arrays(each) for each in ([part.ids for part in smaller], [part.subscribers for part in smaller])
    )
    return RecipientCopies(event, np.concatenate(places), shape, RecipientColumns(ids, subscribers, others))
