"""Parse filters: six notations whose texts all become the same kind of condition, and context filters."""

from collections.abc import Callable
from typing import Any

from tidings.language import padres, sql, tags, topics, xpath
from tidings.language.words import did_you_mean
from tidings.model.errors import FilterError
from tidings.model.expression import PAYLOAD, Attribute, Condition, Rlike
from tidings.model.limits import MAX_FILTER_CHARACTERS
from tidings.model.patterns import PatternError, compile_regex
from tidings.model.printer import format_expression


def parse_regex(text: str) -> Rlike:
    """Parse a regular expression, in RE2 syntax, that is searched in the text of the payload: `goal.*(Beckham|Zidane)`.

    Raises `FilterError` if it is not valid.
    """
    try:
        compile_regex(text)
    except PatternError as error:
        raise FilterError(str(error), text, 0) from None
    return Rlike(Attribute(PAYLOAD), text)


FORMATS: dict[str, Callable[[str], Condition]] = {
    "sql": sql.parse,
    "topic": topics.parse,
    "tags": tags.parse,
    "regex": parse_regex,
    "xpath": xpath.parse,
    "padres": padres.parse,
}


def parse_content(text: str, format: str = "sql") -> Condition:  # noqa: A002 - the public name
    """Parse a content filter in one of the six formats; raise `FilterError` if it is not valid."""
    parse = FORMATS.get(format) if isinstance(format, str) else None
    if parse is None:
        hint = did_you_mean(str(format), FORMATS) or f"; there are {', '.join(FORMATS)}"
        raise FilterError(f"there is no format {format!r}{hint}")
    return _checked_length(text, parse(_checked(text)))


def parse_context(text: str) -> Condition:
    """Parse a context filter, in which `this.` refers to one's own context; raise `FilterError` if it is not valid."""
    return _checked_length(text, sql.parse_context(_checked(text)))


def _checked(text: Any) -> str:
    """Return the text if it is a string of valid characters within the limit of length; else raise `FilterError`."""
    if not isinstance(text, str):
        raise FilterError(f"a filter is a text, not {type(text).__name__}")
    if len(text) > MAX_FILTER_CHARACTERS:
        raise FilterError(
            f"the filter is longer than MAX_FILTER_CHARACTERS ({MAX_FILTER_CHARACTERS:,})", text, MAX_FILTER_CHARACTERS
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise FilterError(
                "half of a surrogate pair", text.encode("utf-8", "replace").decode(), error.start
            ) from None
    return text


def _checked_length(text: str, condition: Condition) -> Condition:
    """Return the condition if its canonical text is within the limit of length as well; else raise `FilterError`.

    Canonical text is never eight times as long as the original, so that short filters need not be printed.
    """
    if len(text) > MAX_FILTER_CHARACTERS // 8 and len(format_expression(condition)) > MAX_FILTER_CHARACTERS:
        limit = f"MAX_FILTER_CHARACTERS ({MAX_FILTER_CHARACTERS:,})"
        raise FilterError(f"the filter's canonical text is longer than {limit}", text, len(text))
    return condition
