"""Process a span of publications in columns: admit, match, govern, and record the copies.

Theory of operation:

1. Nothing but contexts changes between the publications of a span; `ContextChanges` gives the matcher the contexts at
   each publication's place.
2. Admit: publications are refused that cannot be read, fail the gate's checks, break a schema, or lack an advertisement
   or a valid policy.
3. Rules before matching are evaluated per combination of branches (`_pre_match_rows`).
4. Match: the index returns pairs of event and subscription for all events at once.
5. Govern: without any rules, copies are recorded as they are. Else events are grouped by their rule sets, and
   `BatchGovernor` decides all copies.
6. Events that columns cannot express are special: user-defined policy elements, actions that emit or store something,
   conflicts, unanswered trust questions. They go through the engine's own steps one by one, in order; one special event
   does not make others special.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.engine import meta_events
from tidings.engine.batch.context_changes import ContextChanges
from tidings.engine.batch.govern import BatchGovernor, CopyDecisions
from tidings.engine.batch.publication_columns import PublicationColumns
from tidings.engine.batch.results import ResultCollector
from tidings.engine.batch.rule_branches import NOBODY, EventCopies, GovernInput, Ints, renumber
from tidings.engine.batch.rule_sets import RuleSetIndex, advertised_events, message_of, rule_sets_of
from tidings.engine.batch.security import BatchSecurity
from tidings.engine.batch.transformations import transformation_of_projection
from tidings.engine.effects import AskTrust, Effect, Reject
from tidings.engine.headers import META
from tidings.engine.matcher import FastMatcher
from tidings.engine.message import Arrival, PublicationMessage, Refusal
from tidings.engine.operations import Publish
from tidings.engine.security import sealed_events
from tidings.engine.state.filter_rules import Ruling
from tidings.engine.state.filters import FilterEntry
from tidings.engine.state.recipients import RecipientColumns
from tidings.engine.steps import admit, emit, govern, match, report
from tidings.engine.steps.admit import names_address
from tidings.engine.steps.govern import Delivery, GovernResult
from tidings.engine.turn import Turn
from tidings.model.event import Event
from tidings.model.subscription import Subscription
from tidings.policy.ast import Matching, MessageType, Point, RuleOperation
from tidings.policy.evaluation.compiled import CompiledPolicy
from tidings.policy.evaluation.evaluation import TrustAnswerNeeded
from tidings.policy.placement import PolicyPlace
from tidings.security.rpc.messages import SERVICE_TOPIC

MAX_SINGLE_ROWS = 32  # up to so many operations are faster one by one
_PLACE = 32  # bits of a sort key for the subscription's position
_FORWARD = RuleOperation.FORWARD
_ENTRY = frozenset({Point.INGRESS})


class PublicationRun:
    """The processing of the publications of one span."""

    def __init__(
        self,
        turn: Turn,
        matcher: FastMatcher,
        publications: PublicationColumns,
        numbers: Ints,
        results: ResultCollector,
        changes: ContextChanges | None = None,
    ) -> None:
        """Create the run of some publications.

        Args:
            turn: The state of the broker, and the operation at hand.
            matcher: Its index.
            publications: The publications.
            numbers: Their row numbers in the batch.
            results: Collects the results.
            changes: The context changes between the publications, or None.
        """
        self._turn, self._matcher, self._events = turn, matcher, publications
        self._numbers, self._results, self._changes = numbers, results, changes
        self._govern_input = GovernInput(turn, publications)
        self._is_accepted = np.ones(publications.count, bool)
        self._is_special = np.zeros(publications.count, bool)
        self._policies: list[CompiledPolicy | None] = []
        self._security: BatchSecurity | None = None
        if turn.gate is not None:
            requirements = None if turn.topic_gossip is None else turn.topic_gossip.token_requirements
            self._security = BatchSecurity(turn.state, turn.gate, requirements, publications)

    def run(self, rule_index: RuleSetIndex | None) -> RuleSetIndex | None:
        """Process the publications, apply all context changes, and return the rule index for the next span.

        `rule_index` is the rule index of the span before; it is used again if the engine's rules are the same.
        """
        rule_index = self._run(rule_index)
        if self._changes is not None:
            self._changes.apply_all()
        return rule_index

    def _run(self, rule_index: RuleSetIndex | None) -> RuleSetIndex | None:
        state = self._turn.state
        self._admit()
        self._pre_match()
        event, place, directory = self._match()
        if not (state.rules.on_publications or self._policies or state.rules.non_trivial):
            event, place, special_entries = self._split_entitled(event, place, directory)
            self._results.copies.add_columns(
                self._numbers[event], place, directory, self._projection_shapes(place, directory)
            )
            self._process_special(special_entries)
            return rule_index
        matched = np.flatnonzero(np.bincount(place)) if len(place) else place
        entries = state.filters.subscriptions.get_many(directory.ids.take(pa.array(matched)).to_pylist())
        position_of = np.zeros(len(directory), np.int64)
        position_of[matched] = np.arange(len(matched))
        place = position_of[place]
        if rule_index is None or not rule_index.is_current(self._turn):
            rule_index = RuleSetIndex(self._turn)
        self._govern(event, place, entries, rule_index)
        return rule_index

    # Admit

    def _admit(self) -> None:
        """Refuse publications as `steps.admit` does; those that columns find doubtful are checked one by one."""
        turn, events = self._turn, self._events
        for row, reason in events.problems.items():
            self._reject(row, "admit", reason)
        if self._security is not None:
            for row, reason in self._security.refused(self._is_accepted):
                self._reject(row, "admit", reason)
        doubtful = events.attributes.any_of("class", meta_events.RESERVED)
        for code, subject in enumerate(events.subjects.texts):
            schema = turn.state.subjects.find(subject)
            if schema is not None:
                doubtful |= (events.subjects.codes == code) & events.attributes.mismatching(schema.attributes)
        if turn.state.settings.advertisements_required:
            doubtful |= ~advertised_events(self._govern_input, self._rows())
        for row in np.flatnonzero(doubtful & self._is_accepted).tolist():
            try:
                admit.admit_event(turn.state, events.event(row))
            except Refusal as refusal:
                self._reject(row, refusal.step, refusal.reason)
        for code, text in enumerate(events.policies.texts):
            try:
                self._policies.append(admit.admit_policy(text, PolicyPlace.ATTACHED_TO_PUBLICATION))
            except Refusal as refusal:
                self._policies.append(None)
                for row in np.flatnonzero((events.policies.codes == code) & self._is_accepted).tolist():
                    self._reject(row, refusal.step, refusal.reason)

    def _reject(self, row: int, step: str, reason: str) -> None:
        self._is_accepted[row] = False
        self._results.reject(int(self._numbers[row]), step, reason)

    def _pre_match(self) -> None:
        """Apply the rules before matching."""
        codes = self._events.policies.codes
        of_all = self._turn.state.rules.pre_match_rulings(MessageType.PUBLICATION)
        for code, policy in [*enumerate(self._policies), (-1, None)]:
            has_own = policy is not None and policy.of(_FORWARD, MessageType.PUBLICATION, Matching.BEFORE)
            rows = np.flatnonzero((codes == code) & self._is_accepted)
            if len(rows) and (has_own or of_all):
                message = self._message(int(rows[0]))
                self._pre_match_rows(rows, (*message.rulings(_FORWARD, Matching.BEFORE), *of_all))

    def _pre_match_rows(self, rows: Ints, rulings: tuple[Ruling, ...]) -> None:
        """Evaluate the rules before matching for some rows: once per combination of branches."""
        copies = EventCopies(self._govern_input, rows, np.full(len(rows), NOBODY), [])
        code = np.zeros(len(rows), np.int64)
        for rule, source in rulings:
            if not rule.rule.points.isdisjoint(_ENTRY):
                branch = copies.branches(rule, source)
                self._is_special[rows[branch < 0]] = True
                code, _ = renumber(code * (len(rule.rule.branches) + 2) + branch + 1)
        code, first = renumber(code)
        for number, place in enumerate(first.tolist()):
            group = rows[code == number]
            if not self._is_special[group[0]]:
                result = govern.apply_pre_match_rules(self._turn.state, self._message(int(rows[place])))
                if result is not None and result.refused is not None:
                    for row in group.tolist():
                        self._reject(row, "govern", f"blocked before matching by {result.refused}")

    # Match

    def _match(self) -> tuple[Ints, Ints, RecipientColumns]:
        """Return the rows and the positions in a directory of all matching pairs, sorted by row, then position.

        Positions in the directory are in the order of subscription ids.
        """
        matcher, rows = self._matcher, self._rows()
        table = self._events.matcher_table(rows, payload=matcher.reads_payload)
        if self._changes is None:
            event, position = matcher.pairs(table)
        else:
            pending = self._changes.pending
            event, position = matcher.match_moving(table, pending if rows is None else pending.select(rows))
        directory, place = matcher.recipients(position)
        key = event.astype(np.int64) << _PLACE
        key |= place[position]
        key.sort()
        event = key >> _PLACE
        key &= (1 << _PLACE) - 1
        event = event if rows is None else rows[event]
        has_address = self._events.attributes.present(SERVICE_TOPIC)[event]
        if has_address.any():
            takes_address = ~has_address
            ids = directory.ids.take(pa.array(key[has_address])).to_pylist()
            takes_address[has_address] = [
                names_address(entry.value) for entry in self._turn.state.filters.subscriptions.get_many(ids)
            ]
            event, key = event[takes_address], key[takes_address]
        return event, key, directory

    def _split_entitled(
        self, event: Ints, place: Ints, directory: RecipientColumns
    ) -> tuple[Ints, Ints, dict[int, list[FilterEntry[Subscription]]]]:
        """Return the copies whose subscriptions may get them, where no rule applies, and those of special events apart.

        An event is special if it matches a subscription that must be removed for lack of a token.
        """
        if self._security is None:
            return event, place, {}
        may_get, is_special = self._security.entitled_copies(event, place, directory)
        self._is_special |= is_special
        is_apart = is_special[event]
        entries_by_row: dict[int, list[FilterEntry[Subscription]]] = {}
        if is_apart.any():
            entries = self._turn.state.filters.subscriptions.get_many(
                directory.ids.take(pa.array(place[is_apart])).to_pylist()
            )
            for row, entry in zip(event[is_apart].tolist(), entries, strict=True):
                entries_by_row.setdefault(row, []).append(entry)
        is_kept = may_get & ~is_apart
        return event[is_kept], place[is_kept], entries_by_row

    def _projection_shapes(self, place: Ints, directory: RecipientColumns) -> npt.NDArray[np.int32]:
        """Return the shapes of copies without conditional rules: as published, or with a fixed projection."""
        projections = self._turn.state.filters.subscriptions.projections_of(directory)
        if projections is None:
            return np.zeros(len(place), np.int32)
        numbers, cuts = projections
        shapes = np.zeros(len(cuts) + 1, np.int32)
        copies = numbers[place]
        for number in np.flatnonzero(np.bincount(copies + 1)[1:]).tolist():
            shapes[number] = self._results.copies.shapes.number(transformation_of_projection(cuts[number]))
        return shapes[copies]  # -1 selects the last shape: as published

    def _rows(self) -> Any:
        return None if self._is_accepted.all() else np.flatnonzero(self._is_accepted)

    # Govern and route

    def _govern(
        self, event: Ints, place: Ints, entries: list[FilterEntry[Subscription]], rule_index: RuleSetIndex
    ) -> None:
        """Decide all copies, record those of events that are not special, and process the special events one by one."""
        if self._security is not None:  # rights to govern and to receive depend on each event's token
            self._is_special |= self._events.is_sealed & self._is_accepted
        rule_set_of_event, rule_sets = rule_sets_of(self._govern_input, self._rows(), self._policies, rule_index)
        for number, rule_set in enumerate(rule_sets):
            if rule_set.refusal is not None:
                for row in np.flatnonzero(rule_set_of_event == number).tolist():
                    self._is_special[row] = True  # rules before matching may have had effects already
        receivers = list(dict.fromkeys(entry.hop for entry in entries))
        numbers = {name: number for number, name in enumerate(receivers)}
        receiver = np.array([numbers[entry.hop] for entry in entries], np.int64)[place]
        governor = BatchGovernor(
            EventCopies(self._govern_input, event, receiver, receivers), entries, place, self._results.copies.shapes
        )
        decisions = governor.decide_copies(rule_set_of_event, rule_sets)
        self._is_special |= (decisions.special | self._sealed_with_conversion(event, decisions)) & self._is_accepted
        order = self._copy_order(event, place, receiver, entries, decisions)
        delivered = order[(decisions.shape[order] >= 0) & ~self._is_special[event[order]]]
        self._results.copies.add_copies(
            self._numbers[event[delivered]], place[delivered], entries, decisions.shape[delivered].astype(np.int32)
        )
        special = self._is_special[event]
        entries_by_row: dict[int, list[FilterEntry[Subscription]]] = {}
        for row, at in zip(event[special].tolist(), place[special].tolist(), strict=True):
            entries_by_row.setdefault(row, []).append(entries[at])
        self._process_special(entries_by_row)

    def _sealed_with_conversion(self, event: Ints, decisions: CopyDecisions) -> npt.NDArray[np.bool_]:
        """Return the sealed events that a rule converts; the refusal of the conversion must be reported."""
        is_converted = np.zeros(self._events.count, bool)
        is_sealed = self._events.is_sealed
        if is_sealed.any():
            converts = np.array(
                [transformation.conversion is not None for transformation in self._results.copies.shapes.distinct], bool
            )
            copies = event[(decisions.shape >= 0) & converts[decisions.shape]]
            is_converted[copies] = is_sealed[copies]
        return is_converted

    def _copy_order(
        self,
        event: Ints,
        place: Ints,
        receiver: Ints,
        entries: list[FilterEntry[Subscription]],
        decisions: CopyDecisions,
    ) -> Ints:
        """Return the order of copies: for events with rules by receiver, with one client's joint notification last."""
        copies = np.arange(len(event))
        governed = decisions.governed[event]
        is_grouped = np.array([entry.value.notify == "client" for entry in entries], bool)
        if not governed.any() or (len(set(receiver.tolist())) == len(entries) and not is_grouped.any()):
            return copies
        governed_copies = np.flatnonzero(governed)
        inverse, first = renumber(event[governed_copies] * (int(receiver.max()) + 1) + receiver[governed_copies])
        key = 2 * copies
        key[governed_copies] = 2 * governed_copies[first][inverse]
        key[governed_copies] += is_grouped[place[governed_copies]]
        return np.argsort(key, kind="stable")

    # One by one

    def _process_special(self, entries_by_row: dict[int, list[FilterEntry[Subscription]]]) -> None:
        rows = np.flatnonzero(self._is_special & self._is_accepted).tolist()
        if len(rows) > self._events.count // 16:
            self._events.read_all()
        for row in rows:
            if self._changes is not None:
                self._changes.apply(int(self._changes.pending.before[row]))
            self._turn.begin(int(self._events.now[row]))
            number = int(self._numbers[row])
            process_by_steps(self._turn, self._message(row), entries_by_row.get(row, []), number, self._results)

    def _message(self, row: int) -> PublicationMessage:
        code = int(self._events.policies.codes[row])
        return message_of(self._turn, self._events.event(row), None if code < 0 else self._policies[code])


def process_single(turn: Turn, events: PublicationColumns, row: int, number: int, results: ResultCollector) -> None:
    """Process one publication by itself, in a span that is too short for columns; `number` is its row in the batch.

    Args:
        turn: The state of the broker, and the operation at hand.
        events: The publications that contain it.
        row: Its row in `events`.
        number: Its row in the batch.
        results: Collects the results.
    """
    if row in events.problems:
        results.reject(number, "admit", events.problems[row])
        return
    turn.begin(int(events.now[row]))
    event = events.event(row)
    try:
        sealed_events.check_at_gate(turn, event)
        message = admit.admit_publication(turn, Publish(event), event.publisher)
    except Refusal as refusal:
        results.reject(number, refusal.step, refusal.reason)
    else:
        if process_by_steps(turn, message, None, number, results):
            sealed_events.remember_event(turn, event)


def process_by_steps(
    turn: Turn,
    message: PublicationMessage,
    entries: list[FilterEntry[Subscription]] | None,
    number: int,
    results: ResultCollector,
) -> bool:
    """Process one publication with the engine's own steps, and return whether it was accepted.

    Copies that would wait for the trust provider are withheld.

    Args:
        turn: The state of the broker, and the operation at hand.
        message: The publication.
        entries: The subscriptions that match, if they are known; None: match it here.
        number: The event's number in `results`.
        results: Collects the results.
    """
    state = turn.state
    effects: list[Effect] = []
    deliveries: list[Delivery] = []
    governed: GovernResult | None = None
    try:
        governed = govern.apply_pre_match_rules(state, message)
        if governed is not None and governed.is_final:
            effects = emit.emit_unmatched(turn, message, governed)
        else:
            if entries is None:
                matched = match.match_publication(turn, message)
            else:
                matched = match.match_known_recipients(turn, message, entries)
            if matched.plain is not None:
                results.copies.add_static_copies(number, matched.plain)
            else:
                governed = govern.govern_copies(turn, message, matched, governed or GovernResult())
                deliveries = governed.deliveries
    except Refusal as refusal:
        results.reject(number, refusal.step, refusal.reason)
        return False
    except TrustAnswerNeeded as question:
        results.add_effects(
            number, message.event, [AskTrust(question.party, question.group)], state.filters.subscriptions
        )
        return True
    for delivery in deliveries:
        results.copies.add_delivery(number, delivery)
    if governed is not None:
        meta_attributes = report.meta_events_of(state, message, governed)
        questions = [
            AskTrust(question.party, question.group) for _, question in governed.waiting if question is not None
        ]
        results.add_effects(
            number,
            message.event,
            [*effects, *questions, *report.log_and_store(message, governed)],
            state.filters.subscriptions,
        )
        for place, attributes in enumerate(meta_attributes):
            process_meta_event(turn, report.meta_event(turn, attributes, message.id, str(place)), number, results)
    if message.tokens is not None and message.tokens.subscriptions_without_token:
        results.add_effects(number, message.event, emit.expel_subscriptions(turn, message), state.filters.subscriptions)
    return not any(isinstance(effect, Reject) for effect in effects)


def process_meta_event(turn: Turn, event: Event, cause: int, results: ResultCollector) -> None:
    """Process a meta-event like a publication: match it, apply the rules that it meets, and record the copies.

    Args:
        turn: The state of the broker, and the operation at hand.
        event: The meta-event.
        cause: The number of the event that caused it.
        results: Collects the results.
    """
    message = PublicationMessage(
        Publish(event, META),
        Arrival(turn.state.name, from_broker=False, is_ingress=True),
        attached=None,
        rule_context=turn.rule_context,
    )
    process_by_steps(turn, message, None, results.add_meta_event(event, cause), results)
