"""What durable subscriptions here have been given lately: an event may come by several ways where its subscriber has
moved, or may have, and is given once."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from tidings.hub.subscription import HubSubscription
from tidings.model.limits import MAX_REMEMBERED_GIVEN

_ID = 16  # bytes


class Given:
    """By the subscriptions as they are held: one that has ended and begun anew has been given nothing."""

    def __init__(self) -> None:
        self._given: dict[tuple[HubSubscription, UUID], None] = {}  # the oldest first

    def note(self, held: HubSubscription, event: UUID) -> bool:
        """Whether that is new."""
        key = held, event
        if key in self._given:
            return False
        self._given[key] = None
        if len(self._given) > MAX_REMEMBERED_GIVEN:
            del self._given[next(iter(self._given))]
        return True

    def forget(self, held: HubSubscription, event: UUID) -> None:
        """It was not given after all."""
        self._given.pop((held, event), None)

    # What outlives the process

    def state(self, subscriptions: Iterable[HubSubscription]) -> dict[str, bytes]:
        """Of these subscriptions, by id: the ids of events, one after the other."""
        gathered: dict[HubSubscription, list[bytes]] = {held: [] for held in subscriptions}
        for held, event in self._given:
            if held in gathered:
                gathered[held].append(event.bytes)
        return {held.id: b"".join(events) for held, events in gathered.items() if events}

    def recall(self, state: Mapping[str, bytes], subscriptions: Mapping[str, HubSubscription]) -> None:
        for id, events in state.items():  # noqa: A001
            if (held := subscriptions.get(id)) is not None:
                for start in range(0, len(events), _ID):
                    self.note(held, UUID(bytes=events[start : start + _ID]))
