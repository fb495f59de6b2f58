"""Meta-events: events that a broker publishes about itself.

The id of a meta-event is derived from what caused it, not drawn at random, so every driver that handles the same
operations publishes the same meta-events. A meta-event names the message that it is about by its id and never repeats
the content: policies may hide that from some receivers of the meta-event.
"""

from collections.abc import Iterator
from hashlib import blake2b
from uuid import UUID

from tidings.model.errors import PolicyError
from tidings.model.expression import Constant
from tidings.model.identity import ENTROPY_BYTES, uuid7
from tidings.model.limits import MAX_STRING_CHARACTERS
from tidings.model.values import Attributes
from tidings.policy.ast import PublishTemplate, Scalar
from tidings.policy.evaluation.compiled import CompiledPolicy

CONFLICT, EXCEPTION, LOST = "PolicyConflict", "PolicyException", "LostNotifications"
EXPELLED = "ExpelledSubscription"
BROKERS_OWN = frozenset({CONFLICT, EXCEPTION, LOST, EXPELLED})  # only the engine itself publishes these
RESERVED = BROKERS_OWN | {"DropMessage", "UnauthorizedSubscribe"}  # no client may publish any of these


def event_id(now: int, *cause: str) -> UUID:
    """Return a UUIDv7 for a meta-event, derived from the time and the texts in `cause`."""
    entropy = blake2b("\0".join(cause).encode(), digest_size=ENTROPY_BYTES).digest()
    return uuid7(now, entropy)


def conflict(broker: str, link: str, one: str, other: str, reason: str, message: str) -> Attributes:
    """Return the attributes of a `PolicyConflict`: two rules disagree about a message on a link.

    Args:
        broker: The broker that found the conflict.
        link: The receiver of the copy.
        one: The first rule.
        other: The second rule.
        reason: Why they conflict and what was done.
        message: The id of the message.
    """
    return _shortened(
        {
            "class": CONFLICT,
            "broker": broker,
            "link": link,
            "first": one,
            "second": other,
            "reason": reason,
            "message": message,
        }
    )


def exception(broker: str, rule: str, cause: str, message: str) -> Attributes:
    """Return the attributes of a `PolicyException`: a rule failed, and no `OnException` handled the failure.

    Args:
        broker: The broker where the rule failed.
        rule: The rule.
        cause: The error.
        message: The id of the message.
    """
    return _shortened({"class": EXCEPTION, "broker": broker, "rule": rule, "cause": cause, "message": message})


def lost(broker: str, client: str, subscription: str, count: int) -> Attributes:
    """Return the attributes of a `LostNotifications`: a driver's queue was full and lost notifications.

    Args:
        broker: The broker whose queue was full.
        client: The subscriber.
        subscription: The id of the subscription.
        count: How many notifications were lost.
    """
    said = {"class": LOST, "broker": broker, "client": client, "subscription": subscription}
    return Attributes.trusted({**_shortened(said), "count": count})


def expelled(broker: str, client: str, subscription: str, reason: str) -> Attributes:
    """Return the attributes of an `ExpelledSubscription`: the broker removed a subscription that has no token.

    Args:
        broker: The broker that removed the subscription.
        client: The subscriber.
        subscription: The id of the subscription.
        reason: Why it was removed.
    """
    said = {"class": EXPELLED, "broker": broker, "client": client, "subscription": subscription, "reason": reason}
    return _shortened(said)


def _shortened(texts: dict[str, str]) -> Attributes:
    """Return the texts as attributes, each shortened to the longest string that an attribute may have."""
    limit = MAX_STRING_CHARACTERS
    return Attributes.trusted(
        {name: text if len(text) <= limit else text[: limit - 3] + "..." for name, text in texts.items()}
    )


def check_published_classes(compiled: CompiledPolicy) -> None:
    """Raise `PolicyError` unless every event that the rules publish has a constant class which rules may use."""
    for event_class in _published_event_classes(compiled):
        if not isinstance(event_class, Constant) or not isinstance(event_class.value, str):
            raise PolicyError("Publish: the event needs a class that is a plain word, as in [class,DropMessage]")
        if event_class.value in BROKERS_OWN:
            raise PolicyError(
                f"Publish: events of the class {event_class.value} are made by the broker itself, not by rules"
            )


def published_classes(compiled: CompiledPolicy) -> frozenset[str]:
    """Return the classes of the events that the rules of a policy can publish."""
    values = (class_name.value for class_name in _published_event_classes(compiled) if isinstance(class_name, Constant))
    return frozenset(value for value in values if isinstance(value, str))


def _published_event_classes(compiled: CompiledPolicy) -> Iterator[Scalar | None]:
    """Yield the class of each event that the rules publish; None where it has none."""
    for rule in compiled.policy.rules:
        for branch in (*rule.branches, *rule.on_exception):
            for call in branch.actions:
                for argument in call.arguments:
                    if isinstance(argument, PublishTemplate):
                        yield dict(argument.attributes).get("class")
