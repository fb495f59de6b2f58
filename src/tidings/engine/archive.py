"""An engine's state as bytes, and back: what a driver writes into a snapshot.

The state is a list of the rows that would make it, each with the hop that it came from. What waits for an answer of
the trust provider is not in it: a driver has the answers before it writes. Nor is what came from other brokers: they
tell it again when their links are up.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from tidings import journal
from tidings.engine import records
from tidings.engine.compiling import compiled_text
from tidings.engine.operations import Advertise, Define, Entrust, SetContext, Subscribe
from tidings.model.advertisement import Advertisement
from tidings.model.errors import InvalidValueError
from tidings.model.subscription import Subscription

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

FORMAT = 4
_READABLE = (3, FORMAT)  # the third had nothing of secure topics


class _Filed(msgspec.Struct, frozen=True, array_like=True):
    row: journal.Operation
    hop: str
    operator_policy: str | None


class _State(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    name: str
    filed: list[_Filed]
    rows: list[journal.Operation]  # schemas, contexts and who may set them
    trust: list[tuple[str, str, bool, int]]
    conflicts: list[tuple[str, str, str]]
    load: float
    sequence: int
    arrivals: dict[str, int]  # client -> the session in which it came
    assurance: bytes = b""  # what is known of secure topics, and what must not come again


def saved(engine: "Engine", *, subscriptions: bool = True) -> bytes:
    """Everything; without `subscriptions` those are left to whoever has them in an index."""
    filed = [
        _Filed(
            records.row(Advertise(one.value) if isinstance(one.value, Advertisement) else Subscribe(one.value)),
            one.hop,
            None if one.operator_policy is None else str(one.operator_policy.policy),
        )
        for one in (engine.filed() if subscriptions else engine.advertisements)
        if one.is_client
    ]
    rows = [
        *(records.row(Define(engine.name, one)) for one in engine.subjects),
        *(records.row(SetContext(client, context)) for client, context in engine.contexts.items()),
        *(
            records.row(Entrust(client, other))
            for client, others in engine.entrusted.items()
            for other in sorted(others)
        ),
    ]
    state = _State(
        format=FORMAT,
        name=engine.name,
        filed=filed,
        rows=rows,
        trust=[(party, group, *answer) for (party, group), answer in engine.trust.items()],
        conflicts=list(engine.news),
        load=engine.load,
        sequence=engine.sequence,
        arrivals=engine.arrivals,
        assurance=engine.unread_assurance if engine.assurance is None else engine.assurance.state(),
    )
    return msgspec.msgpack.encode(state)


def restore(engine: "Engine", data: bytes) -> None:
    """Puts the state into a new engine. Nothing is governed again: what was accepted is accepted."""
    try:
        state = msgspec.msgpack.decode(data, type=_State)
    except msgspec.MsgspecError as error:
        raise InvalidValueError(f"this is no saved state of an engine: {error}") from None
    if state.format not in _READABLE:
        raise InvalidValueError(f"the state has format {state.format}; this version reads format {FORMAT}")
    engine.arrivals.update(state.arrivals)
    if engine.assurance is None:
        engine.unread_assurance = state.assurance
    elif state.assurance:
        engine.assurance.restore(state.assurance)
    for row in state.rows:
        _take(engine, records.operation(row))
    for one in state.filed:
        operation: Any = records.operation(one.row)
        value: Advertisement | Subscription
        value = operation.advertisement if isinstance(operation, Advertise) else operation.subscription
        filed = engine.put_filed(value, one.hop, None if value.policy is None else compiled_text(value.policy))
        if one.operator_policy is not None:
            filed.govern(compiled_text(one.operator_policy), operator=True)
            engine.note_rules(filed)
    engine.trust = {(party, group): (member, until) for party, group, member, until in state.trust}
    engine.remember(state.conflicts)
    engine.set_load(state.load)
    engine.sequence = state.sequence


def _take(engine: "Engine", operation: Any) -> None:
    match operation:
        case Define(_, schema):
            engine.subjects.define(schema)
        case SetContext(client, context):
            engine.contexts[client] = context
            engine.matcher.set_context(client, context)
        case Entrust(client, other):
            engine.entrusted.setdefault(client, set()).add(other)
