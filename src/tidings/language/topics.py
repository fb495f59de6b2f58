"""Topics: `/Sports/Football`, `/Sports/*` (one level), `/Sports/#` (the rest). They look at the event's subject."""

from tidings.language.templates import topic_condition
from tidings.model import patterns
from tidings.model.errors import FilterError
from tidings.model.expression import Condition
from tidings.model.patterns import PatternError


def parse(text: str) -> Condition:
    if not text:
        raise FilterError("a topic is not empty; # stands for every topic", text, 0)
    try:
        patterns.topic(text)
    except PatternError as error:
        levels = text.split("/")
        odd = next((i for i, level in enumerate(levels) if ("*" in level or "#" in level) and level != "*"), 0)
        raise FilterError(str(error), text, len("/".join(levels[:odd])) + (odd > 0)) from None
    return topic_condition(text)
