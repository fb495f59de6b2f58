"""An engine's state as bytes and back, for the snapshots that drivers write.

The state is a list of journal rows that would rebuild it, each filter with the hop that it came from. It lacks what
waits for an answer of the trust provider: a driver has the answers before it writes a snapshot. It also lacks what came
from other brokers, which send it again when their links are up.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from tidings import journal
from tidings.engine import journal_codec
from tidings.engine.operations import Advertise, Define, DelegateContext, SetContext, Subscribe
from tidings.engine.state.filter_rules import compiled_text
from tidings.model.advertisement import Advertisement
from tidings.model.errors import InvalidValueError
from tidings.model.subscription import Subscription

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

FORMAT = 4
_READABLE = (3, FORMAT)  # format 3 has no security state


class _FilterRecord(msgspec.Struct, frozen=True, array_like=True):
    row: journal.Operation
    hop: str
    operator_policy: str | None


class _State(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    name: str
    filed: list[_FilterRecord]
    rows: list[journal.Operation]  # schemas, contexts and context delegations
    trust: list[tuple[str, str, bool, int]]
    conflicts: list[tuple[str, str, str]]
    load: float
    sequence: int
    arrivals: dict[str, int]  # client -> the session in which it came
    # Secure topics, revocations and the replay memory. Version 0.1.0 writes it under this name.
    topic_gossip: bytes = msgspec.field(default=b"", name="assurance")
    residents: dict[str, int] = {}  # clients that came from another broker -> the session in which they came


def encode_state(engine: "Engine", *, subscriptions: bool = True) -> bytes:
    """Return the engine's state as bytes; without `subscriptions` if the caller stores those in an index."""
    filed = [
        _FilterRecord(
            journal_codec.row(
                Advertise(entry.value) if isinstance(entry.value, Advertisement) else Subscribe(entry.value)
            ),
            entry.hop,
            None if entry.operator_policy is None else str(entry.operator_policy.policy),
        )
        for entry in (engine.entries() if subscriptions else engine.advertisements)
        if entry.is_client
    ]
    rows = [
        *(journal_codec.row(Define(engine.name, schema)) for schema in engine.subjects),
        *(journal_codec.row(SetContext(client, context)) for client, context in engine.contexts.items()),
        *(
            journal_codec.row(DelegateContext(client, other))
            for client, others in engine.context_delegates.items()
            for other in sorted(others)
        ),
    ]
    state = _State(
        format=FORMAT,
        name=engine.name,
        filed=filed,
        rows=rows,
        trust=[(party, group, *answer) for (party, group), answer in engine.trust.items()],
        conflicts=list(engine.reported_conflicts),
        load=engine.load,
        sequence=engine.sequence,
        arrivals=engine.arrivals,
        residents=engine.convergence.claimed_clients,
        topic_gossip=engine.unread_security_state if engine.topic_gossip is None else engine.topic_gossip.state(),
    )
    return msgspec.msgpack.encode(state)


def restore(engine: "Engine", data: bytes) -> None:
    """Load a saved state into a new engine, without applying policies again. Raises `InvalidValueError`."""
    try:
        state = msgspec.msgpack.decode(data, type=_State)
    except msgspec.MsgspecError as error:
        raise InvalidValueError(f"this is no saved state of an engine: {error}") from None
    if state.format not in _READABLE:
        raise InvalidValueError(f"the state has format {state.format}; this version reads format {FORMAT}")
    engine.arrivals.update(state.arrivals)
    engine.convergence.claimed_clients.update(state.residents)
    if engine.topic_gossip is None:
        engine.unread_security_state = state.topic_gossip
    elif state.topic_gossip:
        engine.topic_gossip.restore(state.topic_gossip)
    for row in state.rows:
        _apply_row(engine, journal_codec.operation(row))
    for record in state.filed:
        operation: Any = journal_codec.operation(record.row)
        value: Advertisement | Subscription
        value = operation.advertisement if isinstance(operation, Advertise) else operation.subscription
        filed = engine.insert_entry(value, record.hop, None if value.policy is None else compiled_text(value.policy))
        if record.operator_policy is not None:
            filed.govern(compiled_text(record.operator_policy), operator=True)
            engine.update_rule_indexes(filed)
    engine.trust = {(party, group): (member, until) for party, group, member, until in state.trust}
    engine.restore_conflicts(state.conflicts)
    engine.set_load(state.load)
    engine.sequence = state.sequence


def _apply_row(engine: "Engine", operation: Any) -> None:
    match operation:
        case Define(_, schema):
            engine.subjects.define(schema)
        case SetContext(client, context):
            engine.contexts[client] = context
            engine.matcher.set_context(client, context)
        case DelegateContext(client, other):
            engine.context_delegates.setdefault(client, set()).add(other)
