"""Operations in a few words, for tests of an engine."""

from collections.abc import Mapping
from typing import Any

from tidings import ContextFilter, Filter, Policy
from tidings.engine.operations import Advertise, Publish, SetContext, Subscribe
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.model.subscription import Subscription
from tidings.model.values import Context


def subscribe(id: str, content: str = "", client: str = "alice", **more: Any) -> Subscribe:  # noqa: A002
    publishers, policy = more.pop("publishers", None), more.pop("policy", None)
    return Subscribe(
        Subscription.of(
            Filter.parse(content),
            id=id,
            subscriber=client,
            publishers=None if publishers is None else ContextFilter.parse(publishers),
            policy=_text(policy),
            **more,
        )
    )


def advertise(id: str, content: str = "", client: str = "bob", policy: Any = None, **more: Any) -> Advertise:  # noqa: A002
    return Advertise(Advertisement.of(Filter.parse(content), id=id, publisher=client, policy=_text(policy), **more))


def publish(attributes: Mapping[str, Any], client: str = "bob", number: int = 1, **more: Any) -> Publish:
    return Publish(event(attributes, client, number, **more))


def event(attributes: Mapping[str, Any], client: str = "bob", number: int = 1, **more: Any) -> Event:
    subscribers, policy = more.pop("subscribers", None), more.pop("policy", None)
    return Event.of(
        attributes,
        id=uuid7(number * 1_000, bytes(10)),
        publisher=client,
        timestamp=number,
        sequence=number,
        subscribers=None if subscribers is None else ContextFilter.parse(subscribers),
        policy=_text(policy),
        **more,
    )


def situate(client: str, **values: Any) -> SetContext:
    return SetContext(client, Context.of(values))


def _text(policy: Any) -> str | None:
    return str(policy) if isinstance(policy, Policy) else policy
