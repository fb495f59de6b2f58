"""The subscription: which events a subscriber wants, by subject, attribute set, content and the publisher's context."""

from typing import Literal, Self

import msgspec

from tidings.model.advertisement import checked_content, checked_id
from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_bytes, checked_client, checked_policy, checked_subject
from tidings.model.filter import ContextFilterValue, FilterValue
from tidings.model.limits import MAX_TOKEN_BYTES
from tidings.model.schema import AttributeFilter

Notify = Literal["subscription", "client"]


class Subscription(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The events that one subscriber wants, tested in the order subject, structure, content, publishers.

    `Subscription.of` checks every field; the plain constructor checks nothing. A subscription never refers to itself,
    so the garbage collector does not track it (`gc=False`); there are very many subscriptions.
    """

    id: str
    subscriber: str
    subject: str | None = None  # only this subject; patterns are content: topic('/Sports/*')
    structure: AttributeFilter | None = None  # attributes that must be present, and that must be absent
    content: FilterValue = FilterValue()
    publishers: ContextFilterValue | None = None  # over the publisher's context; `this.x` is the subscriber's
    policy: str | None = None
    durable: str | None = None  # the name under which it survives its connection
    notify: Notify = "subscription"
    token: bytes | None = None  # grants the right to subscribe to a secure topic

    @classmethod
    def of(
        cls,
        content: FilterValue,
        *,
        id: str,  # noqa: A002 - the field's own name
        subscriber: str,
        subject: str | None = None,
        structure: AttributeFilter | None = None,
        publishers: ContextFilterValue | None = None,
        policy: str | None = None,
        durable: str | None = None,
        notify: Notify = "subscription",
        token: bytes | None = None,
    ) -> Self:
        """Return a checked subscription.

        Args:
            content: The filter over the attributes and the payload of events.
            id: The id of the subscription.
            subscriber: The client that subscribes.
            subject: The only subject to match, or None for all. Patterns are content: `topic('/Sports/*')`.
            structure: Which attributes events must have and must not have.
            publishers: A filter over the publisher's context, in which `this.x` is the subscriber's.
            policy: The text of the policy that is stored with the subscription.
            durable: The name under which the subscription survives its connection, or None.
            notify: "subscription" for one notification for each subscription, "client" for one for each client and
                event.
            token: The encoded token that grants the right to subscribe to a secure topic.

        Raises:
            InvalidValueError: A field is not acceptable; the message names it.
        """
        if structure is not None and not isinstance(structure, AttributeFilter):
            raise InvalidValueError("structure: must be an AttributeFilter")
        if publishers is not None and not isinstance(publishers, ContextFilterValue):
            raise InvalidValueError("publishers: must be a ContextFilter; ContextFilter.parse reads one from text")
        if notify not in ("subscription", "client"):
            raise InvalidValueError(f"notify: must be 'subscription' or 'client', not {notify!r}")
        return cls(
            id=checked_id(id),
            subscriber=checked_client(subscriber),
            subject=checked_subject(subject),
            structure=structure,
            content=checked_content(content),
            publishers=publishers,
            policy=checked_policy(policy),
            durable=None if durable is None else checked_id(durable),
            notify=notify,
            token=checked_bytes(token, "token", "MAX_TOKEN_BYTES", MAX_TOKEN_BYTES),
        )
