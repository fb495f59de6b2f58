"""Addressed events: what is said to a service, or by it, is for who knows the address, and for nobody else.

The address is the attribute `service_topic`. A key management centre can be asked by everybody who knows its address,
and by nobody who does not: so an address is not to be learnt by subscribing to everything, or to all addresses.
"""

import re
from typing import TYPE_CHECKING

from tidings.engine.refusal import Refused
from tidings.model.event import Event
from tidings.model.expression import And, Attribute, Comparison, Condition, Constant, Like
from tidings.model.subscription import Subscription
from tidings.security.exchange import SERVICE_TOPIC

ADDRESS = 32  # characters that nobody guesses: a number of 128 bits
_WILD = re.compile(r"[%_\\]")

if TYPE_CHECKING:
    from tidings.engine.message import PublicationMessage
    from tidings.engine.tables import Filed


def admit(subscription: Subscription) -> None:
    """Who asks for an address knows it."""
    if names_address(subscription) and not _is_named(subscription.content.expression):
        raise Refused("admit", f"{SERVICE_TOPIC} can only be asked for with =, and joined to the rest with AND")


def names_address(subscription: Subscription) -> bool:
    return SERVICE_TOPIC in subscription.content.names


def addressed(message: "PublicationMessage", wanted: list["Filed[Subscription]"]) -> list["Filed[Subscription]"]:
    """Of those that match, the ones that have named the address, where the event has one."""
    if SERVICE_TOPIC not in message.event.attributes:
        return wanted
    return [one for one in wanted if names_address(one.value)]


def check_receiver(event: Event, subscription: Subscription) -> None:
    """Whether an event that matches is for the subscription."""
    if SERVICE_TOPIC in event.attributes and not names_address(subscription):
        raise Refused("content", f"the event has a {SERVICE_TOPIC}, and the subscription does not name it")


def _is_named(condition: Condition) -> bool:
    match condition:
        case Comparison(Attribute(name), "=", Constant()) | Comparison(Constant(), "=", Attribute(name)):
            return name == SERVICE_TOPIC
        case Like(Attribute(name), pattern):
            return name == SERVICE_TOPIC and len(_WILD.split(pattern, maxsplit=1)[0]) >= ADDRESS
        case And(parts):
            return any(map(_is_named, parts))
    return False
