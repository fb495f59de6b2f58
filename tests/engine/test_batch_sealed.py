"""Sealed events in batches: the same as one by one, whoever seals, forges, subscribes, has a token or lacks one."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.security.world import HOUR, NOW, World
from tests.sizes import examples
from tidings.engine import Engine, Settings
from tidings.engine.batch import publication_run
from tidings.engine.effects import Deliver, Effect, Reject, SecurityNewsLearnt, SubscriptionExpelled
from tidings.engine.journal_codec import row
from tidings.engine.operations import Operation, Publish, Subscribe
from tidings.filters import Filter
from tidings.journal.segment import SCHEMA
from tidings.model.event import Event
from tidings.model.subscription import Subscription
from tidings.security import Gate, Right, Token
from tidings.security.tokens.credentials import HistoricalCredentials

WORLD = World()
PART = "Sports=NBA,Team=NYK"
TOKENS: dict[str, Token | None] = {
    "none": None,
    "whole": WORLD.token("bob", Right.SUBSCRIBE),
    "part": WORLD.token("bob", Right.SUBSCRIBE, template=PART),
    "expires": WORLD.token("bob", Right.SUBSCRIBE, until=NOW + 20),
    "not to subscribe": WORLD.token("bob", Right.PUBLISH),
    "of another": WORLD.token("ann"),
    "forged": WORLD.token("bob", Right.SUBSCRIBE, kmc=WORLD.other_kmc),
}
FILTERS = ["Sports = 'NBA' and Team = 'NYK'", "score > 3", "", "Sports = 'NBA' and Team is not null", "city = 'x'"]
TRIMS = (
    "<PolicyStatement><Rule><ForwardRule><Matching>after</Matching><Message>publication</Message>"
    "<Action>RemoveAttributes(score)</Action></ForwardRule></Rule></PolicyStatement>"
)
ATTRIBUTES: list[dict[str, Any]] = [
    {"Sports": "NBA", "Team": "NYK", "score": 4},
    {"Sports": "NBA", "Team": "LAL", "score": 1, "city": "x"},
    {"Sports": "NFL", "Team": "NYG", "score": 9},
    {"city": "x", "score": 5},
]


def gate(*, knows: bool, replays: bool) -> Gate:
    credentials = HistoricalCredentials(WORLD.authority.anchor)
    credentials.revoke(WORLD.authority.revocations(NOW - HOUR))
    if knows:
        credentials.learn(WORLD.record, NOW)
    return Gate(credentials) if replays else Gate(credentials, freshness=None)


SEALERS = {
    "ann": WORLD.sealer(),
    "part": WORLD.sealer(WORLD.token(template=PART)),
    "expires": WORLD.sealer(WORLD.token(until=NOW + 20)),
    "eve": WORLD.sealer(WORLD.token("eve", kmc=WORLD.other_kmc), who="eve"),
}


@st.composite
def published(draw: st.DrawFn, number: int) -> Event:
    said = draw(st.sampled_from(ATTRIBUTES))
    name = draw(st.sampled_from(["plain", *SEALERS]))
    event = WORLD.event(number, publisher="eve" if name == "eve" else "ann", attributes=said)
    if name != "plain" and SEALERS[name].token.template.matches(None, said):
        event = SEALERS[name].seal(event, NOW + number)
        match draw(st.integers(0, 12)):
            case 0:
                changed = type(event.attributes)({**event.attributes, "score": 77})
                event = msgspec.structs.replace(event, attributes=changed)
            case 1:
                event = msgspec.structs.replace(event, payload=b"x" * 40)
            case 2:
                event = msgspec.structs.replace(event, signature=None)
            case 3:
                event = msgspec.structs.replace(event, token=None)
            case 4:
                event = msgspec.structs.replace(event, publisher="bob")
            case 5:
                event = msgspec.structs.replace(event, signature=b"no seal")
    return event


@st.composite
def subscribed(draw: st.DrawFn, number: int) -> Subscription:
    token = TOKENS[draw(st.sampled_from(list(TOKENS)))]
    return Subscription.of(
        Filter.parse(draw(st.sampled_from(FILTERS))),
        id=f"s{number}",
        subscriber="bob",
        token=None if token is None else token.data,
        policy=draw(st.sampled_from([None, None, TRIMS])),
        notify=draw(st.sampled_from(["subscription", "client"])),
    )


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    """Subscriptions, and events between them, of which some come again."""
    many = draw(st.integers(0, 5))
    wanted: list[Operation] = [Subscribe(draw(subscribed(number))) for number in range(many)]
    events: list[Operation] = [Publish(draw(published(number))) for number in range(1, draw(st.integers(1, 25)))]
    again = draw(st.lists(st.sampled_from(events), max_size=2)) if events else []
    first = draw(st.integers(0, many))
    return [*wanted[:first], *events, *wanted[first:], *again]


def table(operations: list[Operation]) -> pa.Table:
    """As rows of a journal."""
    rows = [
        {**msgspec.structs.asdict(row(one)), "journal": "j", "offset": at, "timestamp": NOW + at}
        for at, one in enumerate(operations)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def meant(effects: list[Effect]) -> list[Effect]:
    """Without what a batch has no driver to tell."""
    return [one for one in effects if not isinstance(one, SubscriptionExpelled | SecurityNewsLearnt)]


@examples(60, 2_000)
@given(histories(), st.booleans(), st.booleans(), st.sampled_from([0, 32]))
def test_a_batch_says_what_handle_says(history: list[Operation], knows: bool, replays: bool, few: int) -> None:
    one_by_one = Engine(Settings(name="b1"), gate=gate(knows=knows, replays=replays))
    expected = [meant(one_by_one.handle(one, NOW + at)) for at, one in enumerate(history)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publication_run, "MAX_SINGLE_ROWS", few)
        together = Engine(Settings(name="b1"), gate=gate(knows=knows, replays=replays))
        found = [meant(one) for one in together.batch(table(history)).effects()]
    assert found == expected


@pytest.mark.parametrize("few", [0, 32])
def test_a_subscription_without_a_token_is_removed_once(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Subscription.of(Filter.parse(FILTERS[0]), id="s", subscriber="bob")
    events = [WORLD.event(number, attributes=ATTRIBUTES[0]) for number in (1, 2)]
    history: list[Operation] = [Subscribe(wanted), *(Publish(SEALERS["ann"].seal(one, NOW)) for one in events)]
    one_by_one, together = (Engine(Settings(name="b1"), gate=gate(knows=False, replays=False)) for _ in range(2))
    monkeypatch.setattr(publication_run, "MAX_SINGLE_ROWS", few)
    expected = [meant(one_by_one.handle(one, NOW + at)) for at, one in enumerate(history)]
    assert [len(one) for one in expected] == [0, 1, 0]
    assert [meant(one) for one in together.batch(table(history)).effects()] == expected


def test_something_of_everything_happens() -> None:
    """The history above is not one in which everything is refused."""
    engine = Engine(Settings(name="b1"), gate=gate(knows=True, replays=True))
    token = TOKENS["whole"]
    assert token is not None
    wanted = Subscription.of(Filter.parse(""), id="s", subscriber="bob", token=token.data)
    engine.handle(Subscribe(wanted), NOW)
    effects = engine.handle(Publish(SEALERS["ann"].seal(WORLD.event(1), NOW)), NOW)
    assert [type(one) for one in effects] == [Deliver]
    assert [type(one) for one in engine.handle(Publish(WORLD.event(2)), NOW)] == [Reject]
