"""An engine's state as bytes and back, for the snapshots that drivers write.

The state is a list of journal rows that would rebuild it, each filter with the hop that it came from. It lacks what
waits for an answer of the trust provider: a driver has the answers before it writes a snapshot. It also lacks what came
from other brokers, which send it again when their links are up.
"""

from typing import Any

import msgspec

from tidings import journal
from tidings.engine import journal_codec
from tidings.engine.operations import Advertise, Define, DelegateContext, SetContext, Subscribe
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.contexts import delegate, restore_arrivals, restore_context
from tidings.engine.state.filter_rules import compiled_text
from tidings.engine.state.registration import insert_entry
from tidings.model.advertisement import Advertisement
from tidings.model.errors import InvalidValueError
from tidings.model.subscription import Subscription

FORMAT = 4
_READABLE = (3, FORMAT)  # format 3 has no security state


class _FilterRecord(msgspec.Struct, frozen=True, array_like=True):
    row: journal.Operation
    hop: str
    operator_policy: str | None


class SavedState(msgspec.Struct, frozen=True, kw_only=True):
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


def encode_state(
    state: BrokerState, claimed_clients: dict[str, int], security_state: bytes, *, subscriptions: bool
) -> bytes:
    """Return the state as bytes.

    Args:
        state: The state.
        claimed_clients: The clients that have moved here: see `Convergence`.
        security_state: The state of `TopicGossip`.
        subscriptions: Whether it contains the subscriptions; False if the caller stores those in an index.
    """
    filed = [
        _FilterRecord(
            journal_codec.row(
                Advertise(entry.value) if isinstance(entry.value, Advertisement) else Subscribe(entry.value)
            ),
            entry.hop,
            None if entry.operator_policy is None else str(entry.operator_policy.policy),
        )
        for entry in (state.filters.entries() if subscriptions else state.filters.advertisements)
        if entry.is_client
    ]
    rows = [
        *(journal_codec.row(Define(state.name, schema)) for schema in state.subjects),
        *(journal_codec.row(SetContext(client, context)) for client, context in state.contexts.local.items()),
        *(
            journal_codec.row(DelegateContext(client, other))
            for client, others in state.contexts.delegates.items()
            for other in sorted(others)
        ),
    ]
    encoded = SavedState(
        format=FORMAT,
        name=state.name,
        filed=filed,
        rows=rows,
        trust=state.trust.saved(),
        conflicts=state.rules.conflicts.reported(),
        load=state.rules.load,
        sequence=state.rules.meta_events.sequence,
        arrivals=dict(state.contexts.arrivals),
        residents=claimed_clients,
        topic_gossip=security_state,
    )
    return msgspec.msgpack.encode(encoded)


def decode_state(data: bytes) -> SavedState:
    """Read a saved state. Raises `InvalidValueError`."""
    try:
        saved = msgspec.msgpack.decode(data, type=SavedState)
    except msgspec.MsgspecError as error:
        raise InvalidValueError(f"this is no saved state of an engine: {error}") from None
    if saved.format not in _READABLE:
        raise InvalidValueError(f"the state has format {saved.format}; this version reads format {FORMAT}")
    return saved


def restore_state(state: BrokerState, saved: SavedState) -> None:
    """Load a saved state into a new one, without applying policies again."""
    restore_arrivals(state.contexts, saved.arrivals)
    for row in saved.rows:
        _apply_row(state, journal_codec.operation(row))
    for record in saved.filed:
        operation: Any = journal_codec.operation(record.row)
        value: Advertisement | Subscription
        value = operation.advertisement if isinstance(operation, Advertise) else operation.subscription
        policy = None if value.policy is None else compiled_text(value.policy)
        entry = insert_entry(state, value, record.hop, policy, None, 0)
        if record.operator_policy is not None:
            entry.govern(compiled_text(record.operator_policy), operator=True)
            state.rules.update(entry)
    state.trust.restore(saved.trust)
    state.rules.conflicts.restore(saved.conflicts)
    state.rules.set_load(saved.load)
    state.rules.meta_events.sequence = saved.sequence


def _apply_row(state: BrokerState, operation: Any) -> None:
    match operation:
        case Define(_, schema):
            state.subjects.define(schema)
        case SetContext(client, context):
            restore_context(state.contexts, client, context)
        case DelegateContext(client, other):
            delegate(state.contexts, client, other)
