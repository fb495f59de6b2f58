"""Parse regular expressions, in RE2 syntax, that are searched in the text of the payload: `goal.*(Beckham|Zidane)`."""

from tidings.model import patterns
from tidings.model.errors import FilterError
from tidings.model.expression import PAYLOAD, Attribute, Rlike
from tidings.model.patterns import PatternError


def parse(text: str) -> Rlike:
    """Parse a regular expression; raise `FilterError` if it is not valid."""
    try:
        patterns.compile_regex(text)
    except PatternError as error:
        raise FilterError(str(error), text, 0) from None
    return Rlike(Attribute(PAYLOAD), text)
