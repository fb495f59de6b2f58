"""A subscription: which events concern a subscriber, by subject, structure, content and the publisher's situation."""

from typing import Literal, Self

import msgspec

from tidings.model.advertisement import checked_content, checked_id
from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_bytes, checked_client, checked_policy, checked_subject
from tidings.model.filter import ContextFilter, Filter
from tidings.model.limits import MAX_TOKEN_BYTES
from tidings.model.schema import AttributeFilter

Notify = Literal["subscription", "client"]


class Subscription(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Filtering is always in the order of the fields: subject, structure, content, publishers.

    Trusted once made; `Subscription.of` is the door that checks. There are very many, and none refers to itself: the
    garbage collector need not look at them.
    """

    id: str
    subscriber: str
    subject: str | None = None  # exactly this one; patterns are content: topic('/Sports/*')
    structure: AttributeFilter | None = None  # which attributes must be there, and which must not
    content: Filter = Filter()
    publishers: ContextFilter | None = None  # over the publisher's context; `this.` is the subscriber's
    policy: str | None = None
    durable: str | None = None  # the name under which it outlives its connection
    notify: Notify = "subscription"
    token: bytes | None = None  # what the subscriber may get of a secure topic

    @classmethod
    def of(
        cls,
        content: Filter,
        *,
        id: str,  # noqa: A002 - the field's own name
        subscriber: str,
        subject: str | None = None,
        structure: AttributeFilter | None = None,
        publishers: ContextFilter | None = None,
        policy: str | None = None,
        durable: str | None = None,
        notify: Notify = "subscription",
        token: bytes | None = None,
    ) -> Self:
        """A checked subscription, or an `InvalidValueError` that names what is wrong."""
        if structure is not None and not isinstance(structure, AttributeFilter):
            raise InvalidValueError("structure: must be an AttributeFilter")
        if publishers is not None and not isinstance(publishers, ContextFilter):
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
