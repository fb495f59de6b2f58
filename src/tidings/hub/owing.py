"""To whom a decision about a publication is owed: what its row in the journal says of those who were being asked.

With it, what was accepted while its receiver was being challenged is decided about after a restart, as it would have
been. A row of its own says when that is done.
"""

from typing import Any
from uuid import UUID

import msgspec

from tidings import journal
from tidings.engine import records
from tidings.engine.effects import Decided
from tidings.engine.journey import NEW, Journey
from tidings.engine.operations import Judge
from tidings.filters import ContextFilter

OWED = "$owed"
DECIDED = "decided"  # the kind of the rows that say that it is


class Owed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A `Judge` beside the event, which the row has itself."""

    client: str
    subscriptions: tuple[str, ...]
    journey: Journey = NEW
    sender: str = ""
    answers: tuple[tuple[str, bool], ...] = ()


def written(judge: Judge) -> Any:
    owed = Owed(judge.client, judge.subscriptions, judge.journey, judge.sender, judge.answers)
    return msgspec.json.decode(msgspec.json.encode(owed))


def decision(decided: Decided) -> journal.Operation:
    return journal.Operation.control(DECIDED, client=decided.client, id=str(decided.event))


def owed_by(row: journal.Operation) -> list[Judge]:
    """The decisions that were owed when a publication was written."""
    said = records.notes(row).get(OWED, ())
    if not said:
        return []
    event = row.event(ContextFilter.parse)
    owed = msgspec.convert(said, list[Owed])
    return [Judge(event, one.client, one.subscriptions, one.journey, one.sender, one.answers) for one in owed]


def decided_by(row: journal.Operation) -> tuple[UUID, str]:
    """Of which event, and for which client."""
    return UUID(row.id or ""), row.client or ""
