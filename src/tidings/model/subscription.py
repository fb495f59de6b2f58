"""A subscription: which events concern a subscriber, by subject, structure, content and the publisher's situation."""

from typing import Literal

import msgspec

from tidings.model.filter import ContextFilter, Filter
from tidings.model.schema import AttributeFilter


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """Filtering is always in the order of the fields: subject, structure, content, publishers."""

    id: str
    subscriber: str
    subject: str | None = None  # exactly this one; patterns are content: topic('/Sports/*')
    structure: AttributeFilter | None = None  # which attributes must be there, and which must not
    content: Filter = Filter()
    publishers: ContextFilter | None = None  # over the publisher's context; `this.` is the subscriber's
    policy: str | None = None
    durable: str | None = None  # the name under which it outlives its connection
    notify: Literal["subscription", "client"] = "subscription"
