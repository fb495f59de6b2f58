"""What goes over the wire, drawn: events, notifications, and every operation that brokers send each other."""

from typing import Any

from hypothesis import strategies as st

from tests.strategies import conditions, contents, integers, names, strings, values
from tidings import ContextFilter, Filter
from tidings.engine.headers import CopyChanges, ForwardingHeader, Provenance, Route
from tidings.engine.operations import (
    Acknowledge,
    Advertise,
    Announce,
    AskRevocations,
    BacklogStored,
    ClaimClients,
    Define,
    PhaseComplete,
    PhaseDone,
    Publish,
    SetContext,
    SetPolicy,
    Settle,
    Subscribe,
    TellLinks,
    TellNotices,
    TellRevocations,
    TellTopics,
    TransferBacklog,
    Travelling,
    Unadvertise,
    Unsubscribe,
)
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.model.limits import MAX_INTEGER
from tidings.model.notification import Notification, Trace
from tidings.model.schema import AttributeFilter, Schema
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes, Context
from tidings.policy import policies
from tidings.routing.bloom import Bloom
from tidings.routing.linkstate import LinkState

_counts = st.integers(0, MAX_INTEGER)
_clients = st.sampled_from(["car-1", "cam-1", "größe", "a b", "x" * 255])
_ids = st.sampled_from(["s1", "cam-1.5f.1", "ä", "y" * 255])
_policies = st.sampled_from([None, str(policies.trim()), str(policies.remove("b"))])
_hashes = st.binary(min_size=16, max_size=16)
_digests = st.sampled_from(["", "0badcafe"])
uuids = st.builds(uuid7, st.integers(0, 2**48 * 1000 - 1), st.binary(min_size=10, max_size=10))
contexts = contents.map(Context)
filters = st.one_of(st.just(Filter()), conditions().map(Filter))
context_filters = conditions(context=True).map(ContextFilter)
events = st.builds(
    Event.of,
    contents,
    id=uuids,
    publisher=_clients,
    timestamp=_counts,
    sequence=_counts,
    subject=st.one_of(st.none(), st.sampled_from(["/traffic", "ä" * 300])),
    payload=st.one_of(st.none(), st.binary(max_size=200)),
    context=contents,
    subscribers=st.one_of(st.none(), context_filters),
    policy=_policies,
    token=st.one_of(st.none(), st.binary(max_size=20)),
    signature=st.one_of(st.none(), st.binary(max_size=20)),
)
traces = st.builds(
    Trace,
    _clients,
    st.one_of(st.none(), strings),
    st.one_of(st.none(), st.floats(0, 1)),
    st.one_of(st.none(), _counts),
)


@st.composite
def notifications(draw: st.DrawFn) -> Notification:
    event = draw(events)
    return Notification(
        event=event,
        subscription=draw(_ids),
        subscriber=draw(_clients),
        attributes=event.attributes,
        payload=event.payload,
        subscriptions=tuple(draw(st.lists(_ids, max_size=3))),
        trace=tuple(draw(st.lists(traces, max_size=2))),
    )


schemas = st.builds(
    Schema,
    st.sampled_from(["Loop", "/traffic"]),
    st.dictionaries(names.filter(lambda name: "." not in name), st.sampled_from([bool, int, float, str]), max_size=5),
)


@st.composite
def structures(draw: st.DrawFn) -> AttributeFilter:
    schema = draw(schemas)
    chosen = draw(st.sets(st.sampled_from(list(schema.attributes)))) if schema.attributes else set()
    return AttributeFilter(schema, chosen, set(schema.attributes) - chosen)


subscriptions = st.builds(
    Subscription.of,
    filters,
    id=_ids,
    subscriber=_clients,
    subject=st.one_of(st.none(), st.just("/traffic")),
    structure=st.one_of(st.none(), structures()),
    publishers=st.one_of(st.none(), context_filters),
    policy=_policies,
    durable=st.one_of(st.none(), _ids),
    notify=st.sampled_from(["subscription", "client"]),
    token=st.one_of(st.none(), st.binary(max_size=20)),
)
_offers = st.one_of(st.lists(names, max_size=3), context_filters)
advertisements = st.builds(
    Advertisement.of,
    filters,
    id=_ids,
    publisher=_clients,
    publisher_context=st.none() | _offers,
    subscriber_context=_offers,
    policy=_policies,
)
ways = st.one_of(
    st.none(),
    st.builds(
        Provenance,
        st.sampled_from(["b1", "b2"]),
        st.tuples(_counts, _counts),
        _digests,
        st.booleans(),
        st.one_of(st.just(b""), _hashes),
    ),
)
_shapes = st.builds(
    CopyChanges,
    st.booleans(),
    st.frozensets(names, max_size=3),
    st.lists(st.tuples(names, values), max_size=3).map(tuple),
    st.lists(traces, max_size=2).map(tuple),
    st.one_of(st.none(), st.binary(max_size=20)),
)
_routes = st.builds(
    Route,
    st.sampled_from(["", "b1"]),
    _digests,
    st.booleans(),
    st.booleans(),
    st.one_of(st.just(b""), _hashes),
    st.one_of(st.none(), st.lists(_hashes, max_size=5).map(Bloom.of)),
    st.lists(names, max_size=2).map(tuple),
    _counts,
    *[st.lists(_clients, max_size=2).map(tuple)] * 3,
)
journeys = st.builds(
    ForwardingHeader, _policies, st.booleans(), _shapes, st.dictionaries(_ids, _shapes, max_size=2), _routes
)
seen_events = st.builds(Publish, events, journeys)
_links = st.builds(LinkState, _clients, _counts, st.dictionaries(_clients, st.integers(1, 1000), max_size=3))
_numbers = st.integers(0, 1000)
_signed = st.lists(st.binary(max_size=20), max_size=3).map(tuple)


OPERATIONS: tuple[st.SearchStrategy[Any], ...] = (
    st.builds(Advertise, advertisements, ways),
    st.builds(Unadvertise, _clients, _ids, _policies, ways),
    st.builds(Subscribe, subscriptions, ways),
    st.builds(Unsubscribe, _clients, _ids, _policies, ways),
    st.builds(SetContext, _clients, contexts, st.one_of(st.none(), _clients), ways),
    st.builds(SetPolicy, _clients, _ids, _policies, ways),
    st.builds(Define, _clients, schemas),
    st.builds(TellLinks, st.lists(_links, max_size=3).map(tuple)),
    st.builds(PhaseDone, _digests, _numbers),
    st.builds(PhaseComplete, _digests, _numbers),
    st.builds(
        Announce,
        _clients,
        _digests,
        _numbers,
        st.lists(st.one_of(st.none(), contexts), max_size=3).map(tuple),
        st.lists(_hashes, max_size=3).map(tuple),
    ),
    st.builds(Acknowledge, _clients, _digests, _numbers),
    st.builds(ClaimClients, _clients, _digests, st.dictionaries(_clients, integers, max_size=3)),
    st.builds(
        TransferBacklog,
        _clients,
        _clients,
        _numbers,
        st.lists(st.tuples(notifications(), _ids), max_size=2).map(tuple),
        st.dictionaries(_clients, contexts, max_size=2),
    ),
    st.builds(BacklogStored, _clients, _numbers),
    st.builds(Settle, st.lists(st.tuples(uuids, _counts), max_size=3).map(tuple)),
    st.builds(TellTopics, _signed),
    st.builds(TellNotices, _signed),
    st.builds(AskRevocations, _numbers, integers),
    st.builds(TellRevocations, st.binary(max_size=20)),
)
operations: st.SearchStrategy[Travelling] = st.one_of(*OPERATIONS)
attributes = contents.map(Attributes)
