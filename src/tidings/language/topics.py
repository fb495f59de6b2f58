"""Parse topics, which match the event's subject: `/Sports/Football`, `/Sports/*` (one level), `/Sports/#` (any rest).

A topic without a wildcard is an equality with the subject.
"""

from tidings.language.templates import topic_condition
from tidings.model import patterns
from tidings.model.errors import FilterError
from tidings.model.expression import Condition
from tidings.model.patterns import PatternError


def parse(text: str) -> Condition:
    """Parse a topic; raise `FilterError` if it is not valid."""
    if not text:
        raise FilterError("a topic is not empty; # stands for every topic", text, 0)
    try:
        patterns.check_mqtt_words(text)
        patterns.parse_topic(text)
    except PatternError as error:
        raise FilterError(str(error), text, _position(text.split("/"))) from None
    return topic_condition(text)


def _position(levels: list[str]) -> int:
    """Return where the first level begins that is not valid."""
    odd = next((place for place, level in enumerate(levels) if _is_odd(level)), 0)
    return len("/".join(levels[:odd])) + (odd > 0)


def _is_odd(level: str) -> bool:
    return level == "+" or (("*" in level or "#" in level) and level != "*")
