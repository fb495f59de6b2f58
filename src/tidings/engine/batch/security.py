"""Check many publications against the gate, and decide which subscriptions may get sealed events.

Of the events without a seal, only those that may be on a secure topic are checked.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from tidings.engine.batch.json_text import Ints
from tidings.engine.batch.publication_columns import PublicationColumns
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.recipients import RecipientColumns
from tidings.model.errors import SecurityError

if TYPE_CHECKING:
    from tidings.engine.batch.value_columns import Bools
    from tidings.engine.security.token_requirements import TokenRequirements
    from tidings.engine.state.filters import FilterEntry
    from tidings.model.subscription import Subscription
    from tidings.security.gate import Gate
    from tidings.security.sealing.envelope import Seal


class BatchSecurity:
    """The gate's decisions about the publications of one `PublicationColumns`."""

    def __init__(
        self,
        state: BrokerState,
        gate: "Gate",
        token_requirements: "TokenRequirements | None",
        events: PublicationColumns,
    ) -> None:
        """Create the checks of some publications.

        Args:
            state: The state of the broker.
            gate: Its gate.
            token_requirements: Which subscriptions need a token.
            events: The publications.
        """
        self._state, self._gate, self._token_requirements, self._events = state, gate, token_requirements, events
        self._topics: dict[int, bytes] = {}  # row -> topic in the seal, of accepted events

    def refused(self, is_accepted: "Bools") -> Iterator[tuple[int, str]]:
        """Check the rows in `is_accepted`; yield those that are refused, with the reason.

        A token that is seen for the first time may reveal a topic. Rows before it are checked without knowing that
        topic, so the rows are checked in sections that end at such tokens.
        """
        events, credentials = self._events, self._gate.credentials
        tokens, version, start = events.tokens, -1, 0
        is_unchecked = np.array([*(not credentials.has_judged(token) for token in tokens.texts), False])
        while start < events.count:
            if credentials.version != version:
                version = credentials.version
                rows = np.flatnonzero((events.is_sealed | self._may_be_secure()) & is_accepted)
            rows = rows[np.searchsorted(rows, start) :]
            new = np.flatnonzero(is_unchecked[tokens.codes[rows]])[:1]
            yield from self._check_rows(rows[: new[0]] if len(new) else rows)
            start = events.count
            for row in rows[new].tolist():
                yield from self._check_rows(rows[new])
                code = tokens.codes[row]
                is_unchecked[code] = not credentials.has_judged(tokens.texts[code])
                start = row + 1

    def _check_rows(self, rows: Ints) -> Iterator[tuple[int, str]]:
        """Check some rows: first all together, then those one by one that the batch verifier did not accept."""
        from tidings.security.batch_verifier import (
            BatchVerifier,  # imports ciphers: only with a gate
        )

        events = self._events
        verified: Mapping[int, Seal] = {}
        if len(rows) > events.count // 16:
            verified = BatchVerifier(self._gate).certain(events.claims(rows.tolist()))
            if len(rows) - len(verified) > events.count // 16:
                events.read_all()
        for place, (row, now) in enumerate(zip(rows.tolist(), events.now[rows].tolist(), strict=True)):
            seal = verified.get(place)
            if seal is not None:
                self._topics[row] = seal.topic
                continue
            reason = self._reason(row, now)
            if reason is not None:
                yield row, reason

    def _reason(self, row: int, now: int) -> str | None:
        """Return why an event is refused, or None."""
        gate = self._gate
        try:
            seal = gate.check(self._events.uncached_event(row), now)
        except SecurityError as error:
            gate.refused[error.check] += 1
            return error.reason
        if seal is not None:
            self._topics[row] = seal.topic
        return None

    def _may_be_secure(self) -> "Bools":
        events, may_be_secure = self._events, np.zeros(self._events.count, bool)
        for name, values in self._gate.topics.required_values.items():
            if name:
                may_be_secure |= events.attributes.may_be(name, values)
            else:
                may_be_secure |= events.subjects.lookup([text in values for text in events.subjects.texts], False, bool)
        return may_be_secure

    def entitled_copies(self, event: Ints, place: Ints, directory: RecipientColumns) -> tuple["Bools", "Bools"]:
        """Return per copy whether its subscription may get it, and per event whether it must be processed alone.

        An event must be if it matches a subscription to a secure topic without a token, which has to be removed. Events
        that are not sealed are for everyone. `event` is the row of each copy's event, and `place` the position of its
        subscription in `directory`.
        """
        events, gate = self._events, self._gate
        may_get = np.ones(len(event), bool)
        is_special = np.zeros(events.count, bool)
        sealed = np.flatnonzero(events.is_sealed[event])
        if not len(sealed):
            return may_get, is_special
        used, entry_number = np.unique(place[sealed], return_inverse=True)
        entries = self._state.filters.subscriptions.get_many(directory.ids.take(used).to_pylist())
        lacks_token = [self._lacks_token(entry) for entry in entries]
        for copy, row, number in zip(sealed.tolist(), event[sealed].tolist(), entry_number.tolist(), strict=True):
            entry, topic = entries[number], self._topics[row]
            may_get[copy] = gate.may_get(entry.value.token, entry.owner, events.event(row), topic, int(events.now[row]))
            is_special[row] |= lacks_token[number]
        return may_get, is_special

    def _lacks_token(self, entry: "FilterEntry[Subscription]") -> bool:
        """Return whether a subscription is to secure topics only and has no token."""
        token_requirements = self._token_requirements
        if token_requirements is None or entry.value.token is not None or entry.is_own:
            return False
        return token_requirements.of(entry.value) is not None
