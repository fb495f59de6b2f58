"""Decide which subscriptions ask only for events of a secure topic, and therefore need a token."""

from decimal import Decimal, InvalidOperation
from itertools import islice

from tidings.matching.covering import overlaps
from tidings.matching.index.index import SubscriptionIndex
from tidings.model.expression import SUBJECT, Attribute, Comparison, Condition, Constant, In, IsNull, Not, all_of
from tidings.model.filter import FilterValue
from tidings.model.limits import MAX_INTEGER, MAX_SECURE_TOPICS
from tidings.model.subscription import Subscription
from tidings.security.template import ANY, Template
from tidings.security.tokens.credentials import SecureTopics
from tidings.security.topic_record import TopicRecord

_NOBODY = "nobody"  # the index needs a subscriber, but only contents matter here


class TokenRequirements:
    """Finds the secure topic that covers a subscription, with an index of the topics as filters."""

    def __init__(self, credentials: SecureTopics) -> None:
        self._credentials = credentials
        self._version = 0
        self._index = SubscriptionIndex()  # topics as filters, by topic id
        self._known: set[str] = set()
        self._broad: dict[str, Subscription] = {}  # cache by id: subscriptions that need no token

    def of(self, subscription: Subscription) -> TopicRecord | None:
        """Return the topic that contains every event the subscription can match; None if it can match others too."""
        if not self._credentials.topics:
            return None
        self._keep_up()
        if self._broad.get(subscription.id) is subscription:
            return None
        found = self._found(subscription)
        if found is None:
            if len(self._broad) >= MAX_SECURE_TOPICS:
                self._broad.clear()
            self._broad[subscription.id] = subscription
        return found

    def _found(self, subscription: Subscription) -> TopicRecord | None:
        content = subscription.content
        if subscription.subject is not None:
            content = FilterValue(all_of([_subject(subscription.subject), content.expression]))
        found = self._index.covering(content)
        if not found or not overlaps(content, content):  # a filter that matches nothing needs no token
            return None
        return self._credentials.topics[bytes.fromhex(min(found))]

    def _keep_up(self) -> None:
        """Index the topics that were learnt since the last call."""
        topics, many = self._credentials.topics, self._credentials.version - self._version
        if not many:
            return
        self._version += many
        self._broad.clear()
        for record in islice(reversed(topics.values()), many):
            name = record.id.hex()
            if name in self._known:
                self._index.remove(name)
            self._known.add(name)
            content = FilterValue(condition_of(record.template))
            self._index.put(Subscription(id=name, subscriber=_NOBODY, content=content))


def condition_of(template: Template) -> Condition:
    """Return the condition that matches exactly the events of a topic."""
    if template.subject is not None:
        return _subject(template.subject)
    return all_of([_tag(Attribute(name), value) for name, value in template.tags])


def _subject(subject: str) -> Condition:
    return Comparison(Attribute(SUBJECT), "=", Constant(subject))


def _tag(attribute: Attribute, value: str) -> Condition:
    """Return the condition for one tag, which is text while the attribute may be typed; as in `Template.matches`."""
    if value == ANY:
        return Not(IsNull(attribute))
    typed = _typed(value)
    if typed is None:
        return Comparison(attribute, "=", Constant(value))
    return In(attribute, (Constant(value), Constant(typed)))


def _typed(value: str) -> bool | int | float | None:
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    if not number.is_finite() or abs(number) > MAX_INTEGER:  # such a number is text only
        return None
    if number == int(number):
        return int(number)
    return float(number) if Decimal(float(number)) == number else None
