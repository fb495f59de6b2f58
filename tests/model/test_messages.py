"""Events, advertisements, subscriptions and notifications as values."""

import pickle
from typing import Any
from uuid import UUID

import msgspec
import pytest

from tidings import (
    Advertisement,
    AttributeFilter,
    ContextFilter,
    Event,
    Filter,
    FilterError,
    InvalidValueError,
    Notification,
    Schema,
    Subscription,
    uuid7,
)
from tidings.model.advertisement import unoffered_names
from tidings.model.limits import MAX_PAYLOAD_BYTES

ID = uuid7(1_700_000_000_000_000, bytes(range(10)))
GIVEN: dict[str, Any] = {"id": ID, "publisher": "cam-1", "timestamp": 1_700_000_000_000_000}


def test_uuid7_has_time_version_variant_and_entropy() -> None:
    assert (ID.version, ID.variant) == (7, "specified in RFC 4122")
    assert ID.int >> 80 == 1_700_000_000_000
    assert uuid7(1, b"\xff" * 10) != uuid7(1, b"\xfe" * 10)
    early, late = uuid7(5_000, b"\xff" * 10), uuid7(6_000, bytes(10))
    assert early < late
    with pytest.raises(ValueError, match="10 bytes"):
        uuid7(0, b"short")
    with pytest.raises(ValueError, match="outside"):
        uuid7(-1, bytes(10))


def test_the_vector_of_rfc_9562_appendix_a() -> None:
    number = UUID("017F22E2-79B0-7CC3-98C4-DC0C0C07398F")
    random = (0xCC3 << 62 | 0x18C4DC0C0C07398F).to_bytes(10, "big")
    assert uuid7(0x017F22E279B0 * 1000, random) == number


def test_an_event_is_checked_once_and_then_frozen() -> None:
    event = Event.of({"msg": "accident"}, **GIVEN, context={"x": 1.0}, payload=b"jpeg")
    assert event.attributes == {"msg": "accident"}
    assert event.payload == b"jpeg"
    assert hash(event) == hash(ID)
    with pytest.raises(AttributeError):
        event.publisher = "other"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(event)) == event  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"id": UUID(int=5)}, "UUIDv7"),
        ({"publisher": ""}, "a client's name"),
        ({"timestamp": -1}, "timestamp"),
        ({"timestamp": 1.5}, "timestamp"),
        ({"sequence": 2**63}, "sequence"),
        ({"subject": ""}, "subject"),
        ({"subject": "s" * 2000}, "MAX_SUBJECT_CHARACTERS"),
        ({"payload": "text"}, "encode text as UTF-8"),
        ({"payload": bytes(MAX_PAYLOAD_BYTES + 1)}, "MAX_PAYLOAD_BYTES"),
        ({"context": {"x": float("nan")}}, "x: nan"),
        ({"subscribers": "x > 3"}, "ContextFilter"),
    ],
)
def test_a_bad_event_is_refused_by_what_is_wrong(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidValueError, match=complaint):
        Event.of({"a": 1}, **{**GIVEN, **change})


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Subscription.of("a = 1", id="s", subscriber="ann"), "Filter.parse reads one"),  # type: ignore[arg-type]
        (lambda: Subscription.of(Filter(), id="", subscriber="ann"), "an id is a string"),
        (lambda: Subscription.of(Filter(), id="s", subscriber="\ud800"), "surrogate"),
        (lambda: Subscription.of(Filter(), id="s", subscriber="ann", subject="\ud800"), "surrogate"),
        (lambda: Subscription.of(Filter(), id="s", subscriber="ann", notify="never"), "notify"),  # type: ignore[arg-type]
        (lambda: Subscription.of(Filter(), id="s", subscriber="ann", publishers="x"), "publishers"),  # type: ignore[arg-type]
        (lambda: Subscription.of(Filter(), id="s", subscriber="ann", structure={"a"}), "structure"),  # type: ignore[arg-type]
        (lambda: Subscription.of(Filter(), id="s", subscriber="ann", token="x"), "token: must be bytes"),  # type: ignore[arg-type]
        (lambda: Subscription.of(Filter(), id="s", subscriber="ann", token=bytes(20_000)), "MAX_TOKEN_BYTES"),
        (lambda: Advertisement.of(Filter(), id="a", publisher="p", publisher_context="x"), "a list of names"),
        (lambda: Advertisement.of(Filter(), id="a", publisher="p", subscriber_context=["$x"]), "the system's"),
        (lambda: Event.of({}, **GIVEN, policy=12), "policy: must be a text"),  # type: ignore[arg-type]
        (lambda: Event.of({}, **GIVEN, policy="p" * 70_000), "MAX_POLICY_CHARACTERS"),
        (lambda: Event.of({}, **GIVEN, token="x"), "token: must be bytes"),  # type: ignore[arg-type]
        (lambda: Event.of({}, **GIVEN, signature=bytes(70_000)), "MAX_SIGNATURE_BYTES"),
    ],
)
def test_every_message_has_a_door(make: Any, complaint: str) -> None:
    with pytest.raises(InvalidValueError, match=complaint):
        make()


def test_doors_make_what_is_asked_for() -> None:
    offer = Advertisement.of(Filter.parse("a > 1"), id="a1", publisher="cam", publisher_context=["x", "y"])
    assert offer.publisher_context == ("x", "y")
    assert hash(offer) == hash(
        Advertisement.of(Filter.parse("a > 1"), id="a1", publisher="cam", publisher_context=("x", "y"))
    )
    wanted = Subscription.of(Filter.parse("a > 1"), id="s1", subscriber="car", subject="S", durable="mine")
    assert wanted == Subscription(id="s1", subscriber="car", content=Filter.parse("a > 1"), subject="S", durable="mine")


def test_a_filter_is_made_by_parsing() -> None:
    for attempt in (lambda: Filter("a = 1"), lambda: ContextFilter("x > 1")):  # type: ignore[arg-type]
        with pytest.raises(FilterError, match=r"parse\(\.\.\.\)"):
            attempt()
    with pytest.raises(FilterError, match="a Filter is needed, not str"):
        Filter.parse("a = 1").covers("a = 2")  # type: ignore[arg-type]


def test_messages_compare_by_value_and_hash() -> None:
    def made() -> Subscription:
        schema = Schema("Loop", {"li": int})
        content = Filter.parse("a > 3")
        return Subscription(id="s1", subscriber="alice", content=content, structure=AttributeFilter(schema, {"li"}))

    assert made() == made()
    assert hash(made()) == hash(made())
    event = Event.of({"a": 4}, **GIVEN)
    note = Notification(event=event, subscription="s1", subscriber="alice", attributes=event.attributes)
    assert note.event.attributes["a"] == 4


def test_an_offer_of_context_is_a_list_or_a_filter() -> None:
    listed = Advertisement(id="a1", publisher="cam", publisher_context=("x", "y"))
    filtered = Advertisement(id="a2", publisher="cam", publisher_context=ContextFilter.parse("x > 3 and y < this.y"))
    asked = frozenset({"x", "y", "z"})
    assert unoffered_names(listed, asked) == unoffered_names(filtered, asked) == {"z"}


def test_an_offer_of_context_that_is_left_out_is_of_all_names() -> None:
    asked = frozenset({"x", "y"})
    content = Filter.parse("")
    assert unoffered_names(Advertisement.of(content, id="a1", publisher="cam"), asked) == frozenset()
    assert unoffered_names(Advertisement.of(content, id="a2", publisher="cam", publisher_context=[]), asked) == asked
    with pytest.raises(InvalidValueError, match="subscriber_context"):
        Advertisement.of(content, id="a3", publisher="cam", subscriber_context=None)  # type: ignore[arg-type]


def test_filters_encode_and_decode_without_loss() -> None:
    from tidings.model.expression import Condition

    expression = Filter.parse("a in (1, 1.0, TRUE, 'x') and not (b like 'x%' or c + 1 > d)").expression
    encoded = msgspec.msgpack.encode(expression)
    assert msgspec.msgpack.decode(encoded, type=Condition) == expression
