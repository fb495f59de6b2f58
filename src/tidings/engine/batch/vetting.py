"""What the gate says of many publications, and whom sealed ones are due to.

Of events without a seal only those are asked about that may be on a secure topic.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from tidings.engine.batch.publications import Publications
from tidings.engine.batch.texts import Ints
from tidings.engine.directory import Directory
from tidings.model.errors import SecurityError

if TYPE_CHECKING:
    from tidings.engine.batch.named import Bools
    from tidings.engine.engine import Engine
    from tidings.engine.tables import Filed
    from tidings.model.subscription import Subscription
    from tidings.security.envelope import Seal
    from tidings.security.gate import Gate


class Vetting:
    def __init__(self, engine: "Engine", gate: "Gate", events: Publications) -> None:
        self._engine, self._gate, self._events = engine, gate, events
        self._topics: dict[int, bytes] = {}  # by row, of the seals of those that were let in

    def refused(self, alive: "Bools") -> Iterator[tuple[int, str]]:
        """The rows that are not to be trusted, and why.

        A token that is met for the first time may tell of a topic: what comes before it is judged without knowing that.
        """
        events, credentials = self._events, self._gate.credentials
        tokens, version, start = events.tokens, -1, 0
        unjudged = np.array([*(not credentials.has_judged(one) for one in tokens.texts), False])
        while start < events.count:
            if credentials.version != version:
                version = credentials.version
                rows = np.flatnonzero((events.sealed | self._may_be_secure()) & alive)
            rows = rows[np.searchsorted(rows, start) :]
            new = np.flatnonzero(unjudged[tokens.codes[rows]])[:1]
            yield from self._judged(rows[: new[0]] if len(new) else rows)
            start = events.count
            for row in rows[new].tolist():
                yield from self._judged(rows[new])
                code = tokens.codes[row]
                unjudged[code] = not credentials.has_judged(tokens.texts[code])
                start = row + 1

    def _judged(self, rows: Ints) -> Iterator[tuple[int, str]]:
        """What the gate says of the rows of which nothing is certain."""
        from tidings.security.inspection import Inspection  # with it come ciphers: only where there is a gate

        events = self._events
        certain: Mapping[int, Seal] = {}
        if len(rows) > events.count // 16:
            certain = Inspection(self._gate).certain(events.claims(rows.tolist()))
            if len(rows) - len(certain) > events.count // 16:
                events.read_all()
        for place, (row, now) in enumerate(zip(rows.tolist(), events.now[rows].tolist(), strict=True)):
            seal = certain.get(place)
            if seal is not None:
                self._topics[row] = seal.topic
                continue
            reason = self._reason(row, now)
            if reason is not None:
                yield row, reason

    def _reason(self, row: int, now: int) -> str | None:
        """Why not to trust an event."""
        gate = self._gate
        try:
            seal = gate.check(self._events.made(row), now)
        except SecurityError as error:
            gate.refused[error.check] += 1
            return error.reason
        if seal is not None:
            self._topics[row] = seal.topic
        return None

    def _may_be_secure(self) -> "Bools":
        events, found = self._events, np.zeros(self._events.count, bool)
        for name, values in self._gate.topics.marks.items():
            if name:
                found |= events.attributes.may_be(name, values)
            else:
                found |= events.subjects.each([text in values for text in events.subjects.texts], False, bool)
        return found

    def entitled(self, event: Ints, place: Ints, directory: Directory) -> tuple["Bools", "Bools"]:
        """By copy whether it may be handed out; by event whether it meets somebody who should not be here.

        What is not sealed is everybody's.
        """
        engine, events, gate = self._engine, self._events, self._gate
        may = np.ones(len(event), bool)
        odd = np.zeros(events.count, bool)
        sealed = np.flatnonzero(events.sealed[event])
        if not len(sealed):
            return may, odd
        used, at = np.unique(place[sealed], return_inverse=True)
        wanted = engine.subscriptions.those(directory.ids.take(used).to_pylist())
        slipped_in = [self._has_slipped_in(one) for one in wanted]
        for copy, row, number in zip(sealed.tolist(), event[sealed].tolist(), at.tolist(), strict=True):
            one, topic = wanted[number], self._topics[row]
            may[copy] = gate.may_get(one.value.token, one.owner, events.event(row), topic, int(events.now[row]))
            odd[row] |= slipped_in[number]
        return may, odd

    def _has_slipped_in(self, filed: "Filed[Subscription]") -> bool:
        """Whether it asks for a secure topic alone, and has no token."""
        assurance = self._engine.assurance
        if assurance is None or filed.value.token is not None or filed.is_own:
            return False
        return assurance.confines.of(filed.value) is not None
