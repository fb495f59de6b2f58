"""Meta-events: what a broker tells about itself, as events of its own.

Their ids are made from what caused them, not drawn at random: every driver that is given the same operations makes
the same ones. They name the message that they are about by its id, and do not repeat it: rules may keep it from some of
those who hear of it.
"""

from hashlib import blake2b
from uuid import UUID

from tidings.model.identity import ENTROPY_BYTES, uuid7
from tidings.model.limits import MAX_STRING_CHARACTERS
from tidings.model.values import Attributes

CONFLICT, EXCEPTION, LOST = "PolicyConflict", "PolicyException", "LostNotifications"
EXPELLED = "ExpelledSubscription"
BROKERS_OWN = frozenset({CONFLICT, EXCEPTION, LOST, EXPELLED})  # only the engine itself makes these
RESERVED = BROKERS_OWN | {"DropMessage", "UnauthorizedSubscribe"}  # and no client publishes any of these


def event_id(now: int, *cause: str) -> UUID:
    entropy = blake2b("\0".join(cause).encode(), digest_size=ENTROPY_BYTES).digest()
    return uuid7(now, entropy)


def conflict(broker: str, link: str, one: str, other: str, reason: str, message: str) -> Attributes:
    return _said(
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
    return _said({"class": EXCEPTION, "broker": broker, "rule": rule, "cause": cause, "message": message})


def lost(broker: str, client: str, subscription: str, count: int) -> Attributes:
    """For drivers whose queues are full."""
    said = {"class": LOST, "broker": broker, "client": client, "subscription": subscription}
    return Attributes.trusted({**_said(said), "count": count})


def expelled(broker: str, client: str, subscription: str, reason: str) -> Attributes:
    """A subscription was removed, since it has no token."""
    said = {"class": EXPELLED, "broker": broker, "client": client, "subscription": subscription, "reason": reason}
    return _said(said)


def _said(texts: dict[str, str]) -> Attributes:
    limit = MAX_STRING_CHARACTERS
    return Attributes.trusted(
        {name: text if len(text) <= limit else text[: limit - 3] + "..." for name, text in texts.items()}
    )
