"""What every client can do: that of a broker, asynchronous or synchronous, that of a hub, and that of the simulator."""

from collections.abc import Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Union
from uuid import UUID

from tidings.model.explanation import Explanation
from tidings.model.filter import ContextFilterValue, FilterValue
from tidings.model.receipt import Receipt
from tidings.model.schema import AttributeFilter, Schema
from tidings.model.subscription import Notify
from tidings.model.values import Context

if TYPE_CHECKING:
    from tidings.policy.policy import Policy

Text = str | FilterValue
ContextText = str | ContextFilterValue
_Value = TypeVar("_Value")
Answer = Union[_Value, Awaitable[_Value]]  # noqa: UP007 - an asynchronous client's answer is awaited


class Handle(Protocol):
    """What a program holds of a subscription or an advertisement: its `id`."""

    @property
    def id(self) -> str: ...


class ClientHandle(Protocol):
    """What a program holds of a client: its `name`."""

    @property
    def name(self) -> str: ...


class ContextApi(Protocol):
    """Sets the context of a client, or lets another client set it."""

    @property
    def context(self) -> Context: ...
    def set_context(
        self, mapping: Mapping[str, Any] | None = None, /, *, merge: bool = False, of: str | None = None, **values: Any
    ) -> Answer[None]:
        """Replace the client's context; with `merge`, change only the given values, where None removes one."""

    def let_set_context(self, other: str, allowed: bool = True) -> Answer[None]:
        """Allow another client to set this client's context, or withdraw the permission."""


class PublishingApi(Protocol):
    """Advertises and publishes events."""

    def advertise(
        self,
        content: Text = "",
        publisher_context: Iterable[str] | ContextText | None = None,
        subscriber_context: Iterable[str] | ContextText = (),
        policy: "str | Policy | None" = None,
        id: str | None = None,  # noqa: A002
        format: str = "sql",  # noqa: A002
    ) -> Answer[Handle]:
        """Advertise what this client will publish; an advertisement of this client with the same id is replaced.

        Args:
            content: Filter that the events will match.
            publisher_context: Context names, or a filter, that this client offers; None offers all names.
            subscriber_context: Context names, or a filter, of subscribers that this client will use.
            policy: Policy associated with the advertisement.
            id: The advertisement's id; a new one by default.
            format: The format of `content`.
        """

    def unadvertise(self, id: str, policy: "str | Policy | None" = None) -> Answer[None]:  # noqa: A002
        """Withdraw an advertisement; `policy` holds the rules to run before the removal."""

    def publish(
        self,
        attributes: Mapping[str, Any] | None = None,
        subscribers: ContextText | None = None,
        payload: bytes | None = None,
        subject: str | None = None,
        policy: "str | Policy | None" = None,
        *,
        id: UUID | None = None,  # noqa: A002
    ) -> Answer[Receipt]:
        """Publish an event; return its receipt.

        Args:
            attributes: The event's attributes.
            subscribers: Filter over subscribers' contexts, for whom the event is.
            payload: The event's payload.
            subject: The event's subject.
            policy: Policy attached to the event.
            id: The event's UUIDv7; a new one by default.
        """


class SubscribingApi(Protocol):
    """Subscribes to events."""

    def subscribe(
        self,
        content: Text = "",
        publishers: ContextText | None = None,
        policy: "str | Policy | None" = None,
        durable: str | None = None,
        notify: Notify = "subscription",
        subject: str | None = None,
        structure: AttributeFilter | None = None,
        format: str = "sql",  # noqa: A002
        id: str | None = None,  # noqa: A002
    ) -> Answer[Handle]:
        """Subscribe; a subscription of this client with the same durable name or id is replaced.

        Args:
            content: Filter over the events' attributes.
            publishers: Filter over the publishers' contexts; `this.` is this client's context.
            policy: Policy associated with the subscription.
            durable: A name under which the subscription outlives this client and its process.
            notify: "subscription" for a notification per subscription, "client" for one per client and event.
            subject: The subject of the events.
            structure: Attribute names that must be present or absent.
            format: The format of `content`.
            id: The subscription's id; a new one by default.
        """

    def unsubscribe(self, id: str, policy: "str | Policy | None" = None) -> Answer[None]:  # noqa: A002
        """Remove a subscription, even a durable one; `policy` holds the rules to run before the removal."""


class GovernanceApi(Protocol):
    """Sets policies, defines schemas, and explains decisions."""

    def set_policy(self, id: str, policy: "str | Policy | None") -> Answer[list[str]]:  # noqa: A002
        """Set the policy of a subscription or an advertisement, None removes it; return the remarks on it."""

    def schema(self, schema: Schema) -> Answer[Schema]:
        """Define a subject's schema, or extend it by a longer version."""

    def explain(self, event: Any) -> Answer[list[Explanation]]:
        """Explain, step by step, why an event does or does not reach each of this client's subscriptions."""


class ClientApi(ClientHandle, ContextApi, PublishingApi, SubscribingApi, GovernanceApi, Protocol):
    """What every client can do, whether it is a client of a hub, of a broker over the network, or of the simulator.

    The methods of `tidings.Client` are awaited; those of the others return their result. Code for any client awaits
    what `inspect.isawaitable` says can be awaited.
    """
