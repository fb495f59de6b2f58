"""A stretch: publications between two changes of the engine, taken together through admit -> match -> govern -> route.
Contexts may change between them: that is known to the step that asks for contexts.

Each step is column work. Events that it leaves over (elements of one's own, what is told, conflicts, questions) go
through the engine's own steps, one by one; never all of them because one is special.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.engine import admission, concern, governing, meta, routes, sealed, telling
from tidings.engine.addressed import names_address
from tidings.engine.batch.contexts import ContextChanges
from tidings.engine.batch.copies import NOBODY, Copies, Ints, Scene, interned
from tidings.engine.batch.publications import Publications
from tidings.engine.batch.record import Record
from tidings.engine.batch.regimes import Rulebook, advertised, message_of, regimes_of
from tidings.engine.batch.shapes import shaping_by
from tidings.engine.batch.verdicts import Court, Verdicts
from tidings.engine.batch.vetting import Vetting
from tidings.engine.directory import Directory
from tidings.engine.effects import Ask, Effect, Reject
from tidings.engine.governing import Delivery, Governed
from tidings.engine.journey import META
from tidings.engine.matcher import FastMatcher
from tidings.engine.message import PublicationMessage
from tidings.engine.operations import Publish
from tidings.engine.refusal import Refused
from tidings.engine.ruled import Ruling
from tidings.engine.tables import Filed
from tidings.model.event import Event
from tidings.model.subscription import Subscription
from tidings.policy.application import CompiledPolicy
from tidings.policy.placement import Where
from tidings.policy.situation import NeedsAnswer
from tidings.policy.statement import Matching, MessageType, Operation, Point
from tidings.security.exchange import SERVICE_TOPIC

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

FEW = 32  # so few operations are faster one by one
_PLACE = 32  # bits
_ENTRY = frozenset({Point.INGRESS})


class Stretch:
    def __init__(
        self,
        engine: "Engine",
        matcher: FastMatcher,
        publications: Publications,
        numbers: Ints,
        record: Record,
        changes: ContextChanges | None = None,
    ) -> None:
        """`numbers` are the rows of the batch that the publications stand in, `changes` what lies between them."""
        self._engine, self._matcher, self._events = engine, matcher, publications
        self._numbers, self._record, self._changes = numbers, record, changes
        self._scene = Scene(engine, publications)
        self._alive = np.ones(publications.count, bool)
        self._special = np.zeros(publications.count, bool)
        self._policies: list[CompiledPolicy | None] = []
        self._vetting = None if engine.gate is None else Vetting(engine, engine.gate, publications)

    def run(self, rulebook: Rulebook | None) -> Rulebook | None:
        """Into the record, with all changes made; the rulebook that was used, for the next stretch."""
        rulebook = self._run(rulebook)
        if self._changes is not None:
            self._changes.make_all()
        return rulebook

    def _run(self, rulebook: Rulebook | None) -> Rulebook | None:
        self._admit()
        self._early()
        event, place, directory = self._matched()
        if not (self._engine.rules or self._policies or self._engine.special):
            event, place, apart = self._entitled(event, place, directory)
            self._record.deliver_to(self._numbers[event], place, directory, self._cut(place, directory))
            self._one_by_one(apart)
            return rulebook
        used = np.flatnonzero(np.bincount(place)) if len(place) else place
        wanted = self._engine.subscriptions.those(directory.ids.take(pa.array(used)).to_pylist())
        among = np.zeros(len(directory), np.int64)
        among[used] = np.arange(len(used))
        place = among[place]
        if rulebook is None or not rulebook.is_of(self._engine):
            rulebook = Rulebook(self._engine)
        self._govern(event, place, wanted, rulebook)
        return rulebook

    # Admit

    def _admit(self) -> None:
        engine, events = self._engine, self._events
        for row, reason in events.problems.items():
            self._reject(row, "admit", reason)
        if self._vetting is not None:
            for row, reason in self._vetting.refused(self._alive):
                self._reject(row, "admit", reason)
        doubtful = events.attributes.any_of("class", meta.RESERVED)
        for code, subject in enumerate(events.subjects.texts):
            schema = engine.subjects.find(subject)
            if schema is not None:
                doubtful |= (events.subjects.codes == code) & events.attributes.unlike(schema.attributes)
        if engine.settings.advertisements_required:
            doubtful |= ~advertised(self._scene, self._rows())
        for row in np.flatnonzero(doubtful & self._alive).tolist():
            try:
                admission.admit_event(engine, events.event(row))
            except Refused as refusal:
                self._reject(row, refusal.step, refusal.reason)
        for code, text in enumerate(events.policies.texts):
            try:
                self._policies.append(admission.admit_policy(text, Where.ATTACHED_TO_PUBLICATION))
            except Refused as refusal:
                self._policies.append(None)
                for row in np.flatnonzero((events.policies.codes == code) & self._alive).tolist():
                    self._reject(row, refusal.step, refusal.reason)

    def _reject(self, row: int, step: str, reason: str) -> None:
        self._alive[row] = False
        self._record.reject(int(self._numbers[row]), step, reason)

    def _early(self) -> None:
        """Rules before matching."""
        codes = self._events.policies.codes
        of_all = self._engine.early_rulings(MessageType.PUBLICATION)
        for code, policy in [*enumerate(self._policies), (-1, None)]:
            attached = policy.of(Operation.FORWARD, MessageType.PUBLICATION, Matching.BEFORE) if policy else ()
            rows = np.flatnonzero((codes == code) & self._alive)
            if len(rows) and (attached or of_all):
                message = self._message(int(rows[0]))
                self._before(rows, (*((rule, message.source) for rule in attached), *of_all))

    def _before(self, rows: Ints, rulings: tuple[Ruling, ...]) -> None:
        copies = Copies(self._scene, rows, np.full(len(rows), NOBODY), [])
        code = np.zeros(len(rows), np.int64)
        for rule, source in rulings:
            if not rule.rule.points.isdisjoint(_ENTRY):
                branch = copies.branches(rule, source)
                self._special[rows[branch < 0]] = True
                code, _ = interned(code * (len(rule.rule.branches) + 2) + branch + 1)
        code, first = interned(code)
        for number, place in enumerate(first.tolist()):
            those = rows[code == number]
            if not self._special[those[0]]:
                early = governing.before(self._engine, self._message(int(rows[place])))
                if early is not None and early.refused is not None:
                    for row in those.tolist():
                        self._reject(row, "govern", f"blocked before matching by {early.refused}")

    # Match

    def _matched(self) -> tuple[Ints, Ints, Directory]:
        """Rows and places in a directory by ids, in the order of both."""
        matcher, rows = self._matcher, self._rows()
        table = self._events.matchable(rows, payload=matcher.asks_payload)
        if self._changes is None:
            event, position = matcher.pairs(table)
        else:
            moves = self._changes.moves
            event, position = matcher.match_moving(table, moves if rows is None else moves.those(rows))
        directory, place = matcher.directory(position)
        key = event.astype(np.int64) << _PLACE
        key |= place[position]
        key.sort()
        event = key >> _PLACE
        key &= (1 << _PLACE) - 1
        event = event if rows is None else rows[event]
        has_address = self._events.attributes.present(SERVICE_TOPIC)[event]
        if has_address.any():
            hears = ~has_address
            ids = directory.ids.take(pa.array(key[has_address])).to_pylist()
            hears[has_address] = [names_address(one.value) for one in self._engine.subscriptions.those(ids)]
            event, key = event[hears], key[hears]
        return event, key, directory

    def _entitled(
        self, event: Ints, place: Ints, directory: Directory
    ) -> tuple[Ints, Ints, dict[int, list[Filed[Subscription]]]]:
        """The copies that may be handed out, where no rule has a say. Events that meet somebody who should not be here
        are taken one by one: they have consequences."""
        if self._vetting is None:
            return event, place, {}
        may, odd = self._vetting.entitled(event, place, directory)
        self._special |= odd
        apart = odd[event]
        mine: dict[int, list[Filed[Subscription]]] = {}
        if apart.any():
            wanted = self._engine.subscriptions.those(directory.ids.take(pa.array(place[apart])).to_pylist())
            for row, one in zip(event[apart].tolist(), wanted, strict=True):
                mine.setdefault(row, []).append(one)
        left = may & ~apart
        return event[left], place[left], mine

    def _cut(self, place: Ints, directory: Directory) -> npt.NDArray[np.int32]:
        """The shapes of copies for those who get them plainly: as published, or always cut alike."""
        found = self._engine.subscriptions.cuts_at(directory)
        if found is None:
            return np.zeros(len(place), np.int32)
        numbers, cuts = found
        shapes = np.zeros(len(cuts) + 1, np.int32)
        copies = numbers[place]
        for number in np.flatnonzero(np.bincount(copies + 1)[1:]).tolist():
            shapes[number] = self._record.shapes.number(shaping_by(cuts[number]))
        return shapes[copies]  # the last one is for those without

    def _rows(self) -> Any:
        return None if self._alive.all() else np.flatnonzero(self._alive)

    # Govern and route

    def _govern(self, event: Ints, place: Ints, wanted: list[Filed[Subscription]], rulebook: Rulebook) -> None:
        if self._vetting is not None:  # who may govern it, and who may have it, is asked of each
            self._special |= self._events.sealed & self._alive
        regime, regimes = regimes_of(self._scene, self._rows(), self._policies, rulebook)
        for number, one in enumerate(regimes):
            if one.refusal is not None:
                for row in np.flatnonzero(regime == number).tolist():
                    self._special[row] = True  # rules before matching may have told something already
        receivers = list(dict.fromkeys(one.hop for one in wanted))
        numbers = {name: number for number, name in enumerate(receivers)}
        receiver = np.array([numbers[one.hop] for one in wanted], np.int64)[place]
        court = Court(Copies(self._scene, event, receiver, receivers), wanted, place, self._record.shapes)
        verdicts = court.judge(regime, regimes)
        self._special |= (verdicts.special | self._unconverted(event, verdicts)) & self._alive
        order = self._order(event, place, receiver, wanted, verdicts)
        left = order[(verdicts.shape[order] >= 0) & ~self._special[event[order]]]
        self._record.deliver(self._numbers[event[left]], place[left], wanted, verdicts.shape[left].astype(np.int32))
        special = self._special[event]
        mine: dict[int, list[Filed[Subscription]]] = {}
        for row, at in zip(event[special].tolist(), place[special].tolist(), strict=True):
            mine.setdefault(row, []).append(wanted[at])
        self._one_by_one(mine)

    def _unconverted(self, event: Ints, verdicts: Verdicts) -> npt.NDArray[np.bool_]:
        """Sealed events that a rule wants converted: that it does not happen is told."""
        found = np.zeros(self._events.count, bool)
        is_sealed = self._events.sealed
        if is_sealed.any():
            converts = np.array([one.conversion is not None for one in self._record.shapes.known], bool)
            copies = event[(verdicts.shape >= 0) & converts[verdicts.shape]]
            found[copies] = is_sealed[copies]
        return found

    def _order(
        self, event: Ints, place: Ints, receiver: Ints, wanted: list[Filed[Subscription]], verdicts: Verdicts
    ) -> Ints:
        """Where rules were asked, receiver by receiver; what is for a client together, last of its own."""
        copies = np.arange(len(event))
        governed = verdicts.governed[event]
        together = np.array([one.value.notify == "client" for one in wanted], bool)
        if not governed.any() or (len(set(receiver.tolist())) == len(wanted) and not together.any()):
            return copies
        chosen = np.flatnonzero(governed)
        inverse, first = interned(event[chosen] * (int(receiver.max()) + 1) + receiver[chosen])
        key = 2 * copies
        key[chosen] = 2 * chosen[first][inverse]
        key[chosen] += together[place[chosen]]
        return np.argsort(key, kind="stable")

    # One by one

    def _one_by_one(self, wanted: dict[int, list[Filed[Subscription]]]) -> None:
        rows = np.flatnonzero(self._special & self._alive).tolist()
        if len(rows) > self._events.count // 16:
            self._events.read_all()
        for row in rows:
            if self._changes is not None:
                self._changes.make(int(self._changes.moves.before[row]))
            self._engine.at(int(self._events.now[row]))
            number = int(self._numbers[row])
            one_by_one(self._engine, self._message(row), wanted.get(row, []), number, self._record)

    def _message(self, row: int) -> PublicationMessage:
        code = int(self._events.policies.codes[row])
        return message_of(self._engine, self._events.event(row), None if code < 0 else self._policies[code])


def alone(engine: "Engine", events: Publications, row: int, number: int, record: Record) -> None:
    """A publication in a stretch that is too short for columns; `number` is its row in the batch."""
    if row in events.problems:
        record.reject(number, "admit", events.problems[row])
        return
    engine.at(int(events.now[row]))
    event = events.event(row)
    try:
        sealed.admit(engine, event)
        message = admission.publication(engine, Publish(event), event.publisher)
    except Refused as refusal:
        record.reject(number, refusal.step, refusal.reason)
    else:
        if one_by_one(engine, message, None, number, record):
            sealed.note(engine, event)


def one_by_one(
    engine: "Engine",
    message: PublicationMessage,
    wanted: list[Filed[Subscription]] | None,
    number: int,
    record: Record,
) -> bool:
    """One publication through the engine's own steps; where it would wait for an answer, it is withheld. Whether it was
    accepted.

    `wanted` are those that it is due to, if that is known; `number` is the event's in the record.
    """
    effects: list[Effect] = []
    deliveries: list[Delivery] = []
    governed: Governed | None = None
    try:
        governed = governing.before(engine, message)
        if governed is not None and governed.is_final:
            effects = routes.unmatched(engine, message, governed)
        else:
            if wanted is None:
                concerned = concern.of_publication(engine, message)
            else:
                concerned = concern.of_those(engine, message, wanted)
            if concerned.plain is not None:
                record.deliver_plainly(number, concerned.plain)
            else:
                governed = governing.publication(engine, message, concerned, governed or Governed())
                deliveries = governed.deliveries
    except Refused as refusal:
        record.reject(number, refusal.step, refusal.reason)
        return False
    except NeedsAnswer as question:
        record.take(number, message.event, [Ask(question.party, question.group)], engine)
        return True
    for one in deliveries:
        record.deliver_one(number, one)
    if governed is not None:
        news = telling.said(engine, message, governed)
        asked = [Ask(question.party, question.group) for _, question in governed.waiting if question is not None]
        record.take(number, message.event, [*effects, *asked, *telling.kept(message, governed)], engine)
        for place, attributes in enumerate(news):
            tell(engine, engine.meta_event(attributes, message.id, str(place)), number, record)
    if message.intruders:
        record.take(number, message.event, sealed.expelled(engine, message), engine)
    return not any(isinstance(one, Reject) for one in effects)


def tell(engine: "Engine", event: Event, cause: int, record: Record) -> None:
    """A meta-event goes its own way: it is due to whoever asked for it, under the rules that it meets."""
    message = PublicationMessage(
        event,
        META,
        Publish(event, META),
        engine.name,
        from_broker=False,
        enters=True,
        attached=None,
        situation=engine.situation,
    )
    one_by_one(engine, message, None, record.told(event, cause), record)
