"""Convergence: after a topology change, all brokers of a sub-overlay rebuild complete routing tables.

Rules:

1. Link states are flooded. A topology has a digest, under which filters, contexts and announcements are sent.
2. When the topology has changed and then been quiet for the settling time, every broker adopts the new digest and sends
   everything of its own again under it: advertisements, subscriptions, contexts, schemas (`_begin`).
3. Entries under older digests stay in use until convergence is complete. A broker reports `PhaseDone` up the shared
   tree once it and its whole subtree have sent everything; the root answers with `PhaseComplete` down the tree. Links
   are FIFO, so everything has arrived by then, and entries that were not sent again are dropped (`_sweep`). Some
   routing strategies need several such phases.
4. So the tables after a change are those that a freshly started network would build.
5. Until then publications wait at their ingress broker, for at most `PATIENCE`; after that they are flooded, and no
   broker handles an event twice. With redelivery from journals they are sent once the tables are complete.

The module also handles clients that move between brokers: their new broker claims them (`ClaimClients`), and their old
broker hands over notifications and contexts (`TransferBacklog`).
"""

from collections.abc import Iterable, Mapping

from tidings.engine.effects import (
    ClientMoved,
    Deliver,
    Effect,
    HandOver,
    HandoverDone,
    Reject,
    RestoreContext,
    Send,
    TopologyChanging,
    TopologySettled,
    Wake,
)
from tidings.engine.message import PublicationMessage
from tidings.engine.operations import (
    BacklogStored,
    ClaimClients,
    Define,
    PhaseComplete,
    PhaseDone,
    TellLinks,
    TransferBacklog,
    Travelling,
)
from tidings.engine.overlay import context_announcements, peers
from tidings.engine.security import sealed_events
from tidings.engine.state import registration
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.links import add_neighbour, is_current
from tidings.engine.state.registration import forget_sent_state
from tidings.engine.steps import emit, propagation
from tidings.engine.turn import Turn
from tidings.model.errors import InvalidValueError
from tidings.model.limits import MAX_DEFERRED_MESSAGES, MAX_RESIDENTS
from tidings.routing.advertisement_table import META
from tidings.routing.linkstate import LinkState, LinkStates

GATHERING = 20_000  # microseconds: link states within this time are sent together
PATIENCE = 5_000_000  # microseconds that publications wait for complete tables
ATTRACTING = 2_000_000  # microseconds that subscriptions may be in flight to a publisher that has moved


class Convergence:
    """One broker's view of the overlay: link states, topology, the progress of convergence, and moved clients."""

    def __init__(self, state: BrokerState) -> None:
        self._state, self._name, self._links = state, state.name, state.links
        self.states = LinkStates(state.name)
        self.is_complete = True
        self.announcer = context_announcements.ContextAnnouncer(state, self.announcements_acknowledged)
        self.claimed_clients: dict[str, int] = {}  # clients that have moved here -> session
        self._claims_seen: dict[str, int] = {}  # claims of moved clients handled in this topology -> session
        self._reconnected_at: dict[str, int] = {}  # clients that came again recently -> when; oldest first
        self._changed_at = 0  # when the topology changed last
        self._has_pending_change = False  # whether a topology change is not processed yet
        self._unsent_link_states: dict[str, dict[str, LinkState]] = {}  # by neighbour: link states to send, by broker
        self._link_states_sent_at = -GATHERING  # when link states were sent last
        self._is_tick_scheduled = False  # whether a tick is scheduled to send them
        self._phase = self._state.strategy.phases
        self._has_sent_phase = True  # whether this broker has sent everything of this phase
        self._began_at = 0  # when the topology changed or convergence began last
        self._waiting: list[tuple[Travelling, str]] = []  # publications with their senders
        self.has_unforwarded = False  # whether publications were not forwarded, since tables were incomplete
        self._reported: set[str] = set()  # children in the shared tree that are done with the phase
        self._has_reported = True  # whether this broker has reported the phase done

    # Links

    @property
    def is_current(self) -> bool:
        """Whether the routing tables are built for the topology that the known link states give."""
        return self.states.topology()[1] == self._links.digest

    @property
    def is_ready(self) -> bool:
        """Whether routing tables are complete, and no topology change is known since."""
        return self.is_complete and (not self._has_pending_change or self.is_current)

    @property
    def is_settled(self) -> bool:
        """Whether tables are complete and current, all announcements acknowledged, and no publication waits."""
        return self.is_complete and self.is_current and self.announcer.is_settled and not self._waiting

    def join(self, turn: Turn, neighbour: str, cost: int) -> list[Effect]:
        """Add a link to a neighbour of this sub-overlay, and flood the new link states."""
        try:
            own = self.states.join(neighbour, cost, turn.now)
        except InvalidValueError as error:
            return [Reject("admit", str(error))]
        add_neighbour(self._links, neighbour)
        self._queue_link_states(self.states.all(), [neighbour])
        self._queue_link_states([own], self._inner_neighbours())
        return self._handle_topology_change(turn)

    def leave(self, turn: Turn, neighbour: str) -> list[Effect]:
        """Remove a link to a neighbour of this sub-overlay, and flood the new link states."""
        self._unsent_link_states.pop(neighbour, None)
        self.drop_waiting(neighbour)
        self._queue_link_states([self.states.leave(neighbour, turn.now)], self._inner_neighbours())
        return self._handle_topology_change(turn)

    def take_links(self, turn: Turn, message: TellLinks, sender: str) -> list[Effect]:
        """Handle link states from a neighbour, and flood those that are new."""
        new_states = self.states.take(message.states, turn.now)
        if not new_states:
            return []
        inside = self._inner_neighbours()
        self._queue_link_states(new_states, [name for name in inside if name != sender])
        self._queue_link_states([state for state in new_states if state.broker == self._name], inside)
        return self._handle_topology_change(turn)

    def tick(self, turn: Turn) -> list[Effect]:
        """Do what is due: release publications that waited too long, flood link states, begin convergence."""
        now = turn.now
        effects: list[Effect] = []
        if self._waiting and now - self._began_at > PATIENCE and not self._state.settings.resends:
            effects = self._release_waiting(turn)
        if self._unsent_link_states and now - self._link_states_sent_at >= GATHERING:
            effects += self._send_link_states(now)
        if not self._has_pending_change:
            return effects
        remaining = self._changed_at + self._state.settings.settling_microseconds - now
        if remaining > 0:
            return [*effects, Wake(remaining)]
        self._has_pending_change = False
        return effects + (self._resume(turn) if self.is_current else self._begin(turn))

    def _resume(self, turn: Turn) -> list[Effect]:
        """Resume after the topology has changed and changed back."""
        effects: list[Effect] = []
        if self.has_unforwarded and self.is_complete:
            effects = [TopologyChanging(self._links.topology.brokers), *self._topology_settled()]
        return effects + self._release_waiting(turn)

    def _queue_link_states(self, states: Iterable[LinkState], neighbours: Iterable[str]) -> None:
        """Queue link states for neighbours. `_tell` sends the first at once, and those soon after it together."""
        for name in neighbours:
            self._unsent_link_states.setdefault(name, {}).update((state.broker, state) for state in states)

    def _send_link_states(self, now: int) -> list[Effect]:
        """Send the queued link states."""
        unsent, self._unsent_link_states, self._link_states_sent_at, self._is_tick_scheduled = (
            self._unsent_link_states,
            {},
            now,
            False,
        )
        return [Send(name, TellLinks(tuple(states.values()))) for name, states in unsent.items() if states]

    def _handle_topology_change(self, turn: Turn) -> list[Effect]:
        """Note a topology change, send link states, and schedule the start of convergence."""
        now = turn.now
        was_stirred, self._has_pending_change, self._changed_at = self._has_pending_change, True, now
        self._began_at = now
        if not self._inner_neighbours():  # without neighbours there is nothing to wait for
            self._unsent_link_states, self._has_pending_change = {}, False
            return self._resume(turn) if self.is_current else self._begin(turn)
        effects: list[Effect] = []
        if now - self._link_states_sent_at >= GATHERING:
            effects = self._send_link_states(now)
        elif self._unsent_link_states and not self._is_tick_scheduled:
            self._is_tick_scheduled = True
            effects = [Wake(self._link_states_sent_at + GATHERING - now)]
        return effects if was_stirred else [*effects, Wake(self._state.settings.settling_microseconds)]

    def accepts_digest(self, turn: Turn, digest: str) -> tuple[bool, list[Effect]]:
        """Return whether an operation under a digest counts here, and the effects of adopting that digest.

        The sender may have begun convergence before this broker did; then this broker begins, too. An operation under
        another digest does not count: links are FIFO and link states come first, so this broker knows what the sender
        knew, and the sender will send the operation again under the common digest.
        """
        if digest == self._links.digest:
            return True, []
        if digest == self.states.topology()[1]:
            return True, self._begin(turn)
        return False, []

    def _inner_neighbours(self) -> list[str]:
        """Return the neighbours in the same sub-overlay."""
        return [name for name in self._links.neighbours if not self._links.is_external(name)]

    # Rebuilding routing tables

    def _begin(self, turn: Turn) -> list[Effect]:
        """Adopt the topology of the known link states, and send everything of this broker under its digest."""
        effects_first = self._send_link_states(turn.now)  # neighbours must know the digest first
        self._links.adopt(*self.states.topology())
        if self._state.settings.resends:
            effects_first = [TopologyChanging(self._links.topology.brokers), *effects_first]
        self._began_at = turn.now
        self.is_complete, self._has_reported, self._phase = False, False, 1
        self._reported.clear()
        forget_sent_state(self._state)
        tree_neighbours = self._links.topology.shared.neighbours(self._name)
        effects = effects_first + [
            Send(name, Define(self._name, schema)) for name in tree_neighbours for schema in self._state.subjects
        ]
        self._claims_seen.clear()
        if self.claimed_clients:
            claim = ClaimClients(self._name, self._links.digest, dict(self.claimed_clients))
            effects += (Send(name, claim) for name in self._claim_neighbours())
        for advertisement in [
            entry for entry in self._state.filters.advertisements if entry.is_local and not entry.id.startswith(META)
        ]:
            for name in tree_neighbours:
                effects += emit.forward_advertisement(turn, advertisement, name)
        effects += propagation.advertise_meta(turn)
        self._has_sent_phase = not self._state.strategy.announces
        effects += self.announcer.begin(turn)
        for subscription in [entry for entry in self._state.filters.subscriptions if entry.is_local]:
            effects += propagation.propagate(turn, subscription)
        return effects + self.advance(turn)

    def announcements_acknowledged(self, turn: Turn) -> list[Effect]:
        """Note that everything this broker announced is acknowledged, so what it attracted is here."""
        self._has_sent_phase = True
        return self.advance(turn)

    def advance(self, turn: Turn) -> list[Effect]:
        """Report `PhaseDone` to the parent if this broker and its subtree are done; the root completes the phase."""
        effects: list[Effect] = []
        tree = self._links.topology.shared
        while not self._has_reported and self._has_sent_phase and self._reported.issuperset(tree.children(self._name)):
            parent = tree.parent(self._name)
            self._has_reported = True
            if parent is not None:
                return [*effects, Send(parent, PhaseDone(self._links.digest, self._phase))]
            effects += self._complete_phase(turn)
        return effects

    def take_done(self, turn: Turn, message: PhaseDone, sender: str) -> list[Effect]:
        """Handle a child's report that its subtree is done."""
        if message.phase == self._phase:
            self._reported.add(sender)
        return self.advance(turn)

    def take_complete(self, turn: Turn, message: PhaseComplete, sender: str) -> list[Effect]:
        """Handle the parent's message that all brokers are done."""
        if message.phase != self._phase or sender != self._links.topology.shared.parent(self._name):
            return []
        return [*self._complete_phase(turn), *self.advance(turn)]

    def _complete_phase(self, turn: Turn) -> list[Effect]:
        """Complete a phase: begin the next one, or drop outdated entries and release waiting publications."""
        children = self._links.topology.shared.children(self._name)
        effects: list[Effect] = [Send(name, PhaseComplete(self._links.digest, self._phase)) for name in children]
        if self._phase < self._state.strategy.phases:
            self._phase += 1
            self._has_reported = False
            self._reported.clear()
            return effects
        self.is_complete = True
        return effects + self._sweep(turn) + self._topology_settled() + self._release_waiting(turn)

    def _sweep(self, turn: Turn) -> list[Effect]:
        """Drop the filters and contexts that were not sent again after a topology change.

        Neighbours in other sub-overlays that have such a filter get its withdrawal.
        """
        effects: list[Effect] = []
        filters = self._state.filters
        for entry in [entry for entry in filters.entries() if not is_current(self._links, entry)]:
            effects += emit.withdraw_filter(turn, entry)
            registration.remove_filter(self._state, entry)
        for client in filters.remote_subscriptions.contexts():
            if not any(subscription.scoped for subscription in filters.subscriptions.of(client)):
                filters.remote_subscriptions.forget_context(client)
        return effects

    def _topology_settled(self) -> list[Effect]:
        self.has_unforwarded = False
        return [TopologySettled(self._links.topology.brokers)] if self._state.settings.resends else []

    def wait(self, message: PublicationMessage, now: int) -> bool:
        """Queue a publication that enters here until tables are complete.

        Returns False if the queue is full or tables have been incomplete for longer than `PATIENCE`.
        """
        if len(self._waiting) >= MAX_DEFERRED_MESSAGES or now - self._began_at > PATIENCE:
            return False
        self._waiting.append((message.operation, message.arrival.sender))
        return True

    def queue(self, message: PublicationMessage) -> bool:
        """Queue a neighbour's publication if tables are not complete or others wait; return whether it must not go on.

        If the queue is full, the publication is dropped.
        """
        if self.is_ready and not self._waiting:
            return False
        if len(self._waiting) < MAX_DEFERRED_MESSAGES:
            self._waiting.append((message.operation, message.arrival.sender))
        return True

    def drop_waiting(self, neighbour: str) -> None:
        """Drop the waiting publications of a neighbour whose link is down."""
        self._waiting = [waiting for waiting in self._waiting if waiting[1] != neighbour]

    def _release_waiting(self, turn: Turn) -> list[Effect]:
        """Handle the waiting publications."""
        effects: list[Effect] = []
        waiting, self._waiting = self._waiting, []
        for operation, sender in waiting:
            effects += turn.run(operation, sender)
        return effects

    # Clients that move

    def note_reconnection(self, client: str, now: int) -> None:
        """Note that a client has connected that was connected before, here or elsewhere."""
        self._reconnected_at.pop(client, None)
        self._reconnected_at[client] = now
        while now - self._reconnected_at[first := next(iter(self._reconnected_at))] > ATTRACTING:
            del self._reconnected_at[first]

    def has_reconnected_recently(self, client: str, now: int) -> bool:
        """Whether subscriptions that a client's advertisements attract may still be in flight."""
        return now - self._reconnected_at.get(client, -ATTRACTING) < ATTRACTING

    def claim_client(self, client: str) -> list[Effect]:
        """Claim a client that has moved here: tell the other brokers."""
        self.claimed_clients.pop(client, None)
        self.claimed_clients[client] = self._state.contexts.arrivals[client]
        if len(self.claimed_clients) > MAX_RESIDENTS:
            # A broker that was unreachable all the time never learns of the oldest move.
            del self.claimed_clients[next(iter(self.claimed_clients))]
        claim = ClaimClients(self._name, self._links.digest, {client: self.claimed_clients[client]})
        effects: list[Effect] = [Send(name, claim) for name in self._claim_neighbours()]
        return effects + self._client_moved(self._name, claim.clients)

    def _claim_neighbours(self) -> Iterable[str]:
        """Return the neighbours that get claims of moved clients.

        If events follow trees of their sources, claims are flooded over every link: the source of an event must know of
        the move before the event is settled by a broker that knows of it.
        """
        if self._floods_moves:
            return [name for name in self._inner_neighbours() if name in self._links.topology.brokers]
        return self._links.topology.shared.neighbours(self._name)

    @property
    def _floods_moves(self) -> bool:
        return self._state.settings.resends and self._state.strategy.by_source

    def _client_moved(self, broker: str, clients: Mapping[str, int]) -> list[Effect]:
        return [ClientMoved(client, broker, session) for client, session in clients.items()]

    def take_claims(self, turn: Turn, claim: ClaimClients, sender: str) -> list[Effect]:
        """Handle another broker's claim of clients: hand over those with older sessions, and pass the claim on."""
        effects: list[Effect] = []
        if self._floods_moves:
            if claim.origin == self._name or all(
                self._claims_seen.get(client, 0) >= session for client, session in claim.clients.items()
            ):
                return []
            self._claims_seen |= claim.clients
            while len(self._claims_seen) > MAX_RESIDENTS:
                del self._claims_seen[next(iter(self._claims_seen))]
        # After a restart, a broker claims the clients that were there before, which may have moved here since.
        newer = {client: session for client, session in claim.clients.items() if session > self._session_here(client)}
        if claim.origin != self._name:
            for client in [client for client in newer if self._state.contexts.is_here(client)]:
                self.claimed_clients.pop(client, None)
                context = self._state.contexts.context(client)
                effects += peers.give_up(turn, client)
                effects.append(HandOver(client, claim.origin, context, newer[client]))
        onward = (name for name in self._claim_neighbours() if name != sender)
        return effects + self._client_moved(claim.origin, newer) + [Send(name, claim) for name in onward]

    def _session_here(self, client: str) -> int:
        """Return the session in which a client of this broker came here; 0 if the client is elsewhere."""
        arrived = self._state.contexts.arrivals.get(client, 0) if self._state.contexts.is_here(client) else 0
        return max(arrived, self.claimed_clients.get(client, 0))

    def take_backlog(self, turn: Turn, transfer: TransferBacklog) -> list[Effect]:
        """Handle or forward a moved client's backlog; the broker that it is for delivers and confirms it."""
        if transfer.to != self._name:
            return self._send_toward(transfer.to, transfer)
        effects: list[Effect] = [
            Deliver(note, durable)
            for note, durable in transfer.notifications
            if sealed_events.may_keep(self._state, turn.gate, note, turn.now)
        ]
        effects += (
            RestoreContext(client, context)
            for client, context in transfer.contexts.items()
            if self._state.contexts.is_here(client) and client not in self._state.contexts.local
        )
        return effects + self.take_backlog_stored(BacklogStored(transfer.origin, transfer.number))

    def take_backlog_stored(self, confirmation: BacklogStored) -> list[Effect]:
        """Handle or forward the confirmation that a moved client's backlog has arrived."""
        return (
            [HandoverDone(confirmation.number)]
            if confirmation.to == self._name
            else self._send_toward(confirmation.to, confirmation)
        )

    def _send_toward(self, broker: str, operation: TransferBacklog | BacklogStored) -> list[Effect]:
        """Send an operation one hop toward a broker."""
        if broker not in self._links.topology.brokers:
            return [Reject("route", f"{broker} cannot be reached from here")]
        step = self._links.topology.tree(self._name).below(self._name, broker)
        return [] if step is None else [Send(step, operation)]
