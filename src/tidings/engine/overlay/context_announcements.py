"""Announce which contexts a broker's clients have, along the broker's tree (strategy spcf; paper 004, section 3.1.2).

A change of context is announced as an addition and, separately, a removal. Subscriptions that an added context attracts
travel up the tree, and the acknowledgement follows them. Until it has arrived, events with that context are not pruned:
they go along the whole tree.
"""

from collections import Counter
from collections.abc import Callable

from tidings.engine.effects import Effect, Send
from tidings.engine.operations import Acknowledge, Announce
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.links import is_current
from tidings.engine.steps import propagation
from tidings.engine.turn import Turn
from tidings.routing.context_table import AnnouncedContext, ContextSelection, announced_context_id


class ContextAnnouncer:
    """Announces the contexts of this broker's clients, and handles the announcements of others."""

    def __init__(self, state: BrokerState, acknowledged: Callable[[Turn], list[Effect]]) -> None:
        self._state = state
        self._acknowledged = acknowledged  # called when all contexts are acknowledged after a topology change
        self._number = 0
        self._contexts_by_client: dict[str, set[bytes]] = {}  # client -> its contexts, as subscriber and as publisher
        self._client_counts: Counter[bytes] = Counter()
        self._values: dict[bytes, AnnouncedContext] = {}
        self._unacknowledged: dict[bytes, int] = {}  # unacknowledged contexts -> their announcement's number
        self._waiting: dict[tuple[str, int], set[str]] = {}  # origin, number -> children that have not acknowledged it
        self._first_number = 0  # the number of the announcement of all contexts after a topology change

    @property
    def is_settled(self) -> bool:
        """Whether all announcements have been acknowledged."""
        return not self._unacknowledged and not self._waiting

    def is_known(self, name: bytes) -> bool:
        """Whether all subscriptions that a context attracts have arrived here."""
        return name in self._values and name not in self._unacknowledged

    def set_client_contexts(
        self, turn: Turn, client: str, *contexts: AnnouncedContext
    ) -> tuple[list[Effect], list[Effect]]:
        """Set the contexts that a client has, as subscriber and as publisher; none if it is gone.

        Returns the effects of announcing new contexts, and those of announcing contexts that no client has any more.
        The caller sends the client's changed subscriptions between the two.
        """
        before = self._contexts_by_client.pop(client, set())
        now = {announced_context_id(context): context for context in contexts}
        if now:
            self._contexts_by_client[client] = set(now)
        new = [context for name, context in now.items() if name not in self._values]
        for name in now:
            self._client_counts[name] += 1
        self._values |= now
        return (self._announce(turn, new) if new else []), self._withdraw_contexts(turn, before)

    def begin(self, turn: Turn) -> list[Effect]:
        """Announce all contexts again, after the topology has changed."""
        self._waiting.clear()
        self._unacknowledged.clear()
        if not self._state.strategy.announces:
            return []
        self._first_number = self._number + 1
        return self._announce(turn, list(self._values.values()))

    def _announce(self, turn: Turn, contexts: list[AnnouncedContext]) -> list[Effect]:
        state = self._state
        self._number += 1
        announcement = Announce(state.name, state.links.digest, self._number, tuple(contexts))
        self._unacknowledged |= {announced_context_id(context): self._number for context in contexts}
        effects = self._propagate_selected(turn, state.contexts.announced.add(state.name, contexts))
        return effects + self._forward_announcement(turn, announcement, state.name)

    def _withdraw_contexts(self, turn: Turn, ids: set[bytes]) -> list[Effect]:
        gone_ids = []
        for name in sorted(ids):
            self._client_counts[name] -= 1
            if not self._client_counts[name]:
                del self._client_counts[name], self._values[name]
                self._unacknowledged.pop(name, None)
                gone_ids.append(name)
        if not gone_ids:
            return []
        state = self._state
        announcement = Announce(state.name, state.links.digest, 0, gone=tuple(gone_ids))
        effects = self._propagate_selected(turn, state.contexts.announced.remove(state.name, gone_ids))
        return effects + [Send(name, announcement) for name in self._children(state.name)]

    def take_announcement(self, turn: Turn, announcement: Announce, sender: str) -> list[Effect]:
        """Handle another broker's announcement and forward it along that broker's tree."""
        state = self._state
        if sender != state.links.topology.tree(announcement.origin).parent(state.name):
            return []
        effects = self._propagate_selected(turn, state.contexts.announced.add(announcement.origin, announcement.added))
        effects += self._propagate_selected(
            turn, state.contexts.announced.remove(announcement.origin, announcement.gone)
        )
        if announcement.number:
            return effects + self._forward_announcement(turn, announcement, announcement.origin)
        return effects + [Send(name, announcement) for name in self._children(announcement.origin)]

    def take_acknowledgement(self, turn: Turn, acknowledgement: Acknowledge, sender: str) -> list[Effect]:
        """Handle a child's acknowledgement of an announcement."""
        waiting = self._waiting.get((acknowledgement.origin, acknowledgement.number))
        if waiting is None:
            return []
        waiting.discard(sender)
        return [] if waiting else self._handle_acknowledged(turn, acknowledgement.origin, acknowledgement.number)

    def _forward_announcement(self, turn: Turn, announcement: Announce, origin: str) -> list[Effect]:
        children = self._children(origin)
        effects: list[Effect] = [Send(name, announcement) for name in children]
        self._waiting[origin, announcement.number] = set(children)
        return effects if children else effects + self._handle_acknowledged(turn, origin, announcement.number)

    def _handle_acknowledged(self, turn: Turn, origin: str, number: int) -> list[Effect]:
        """Handle that all children have acknowledged an announcement, after sending what it attracted."""
        state = self._state
        del self._waiting[origin, number]
        if origin != state.name:
            parent = state.links.topology.tree(origin).parent(state.name)
            return [] if parent is None else [Send(parent, Acknowledge(origin, state.links.digest, number))]
        self._unacknowledged = {name: waits for name, waits in self._unacknowledged.items() if waits > number}
        return self._acknowledged(turn) if number == self._first_number else []

    def _propagate_selected(self, turn: Turn, reaches: list[ContextSelection]) -> list[Effect]:
        """Send subscriptions to the neighbours that changed selections require, or withdraw them."""
        state = self._state
        effects: list[Effect] = []
        for name in sorted({user for reach in reaches for user in reach.users}):
            entry = state.filters.subscriptions.get(name)
            if entry is not None and is_current(state.links, entry):
                effects += propagation.propagate(turn, entry)
        return effects

    def _children(self, origin: str) -> tuple[str, ...]:
        return self._state.links.topology.tree(origin).children(self._state.name)
