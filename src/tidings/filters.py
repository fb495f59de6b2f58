"""The public filters: parse filters, match them against events and contexts, and compare and merge them."""

from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeVar

from tidings import language
from tidings.matching import covering, reference
from tidings.matching.covering import Relation
from tidings.matching.reference import Scope
from tidings.model import filter as values
from tidings.model.errors import FilterError
from tidings.model.event import checked_payload, checked_subject
from tidings.model.values import Attributes, Context

_Kind = TypeVar("_Kind")


class Filter(values.FilterValue, frozen=True, eq=False):
    """A predicate over events: their subject, attributes and payload.

    Filters of equal structure are equal; `str` gives the canonical text.
    """

    @classmethod
    def parse(cls, text: str, format: str = "sql") -> Self:  # noqa: A002 - the public name
        """Parse a filter in one of the formats sql, topic, tags, regex, xpath and padres.

        Raises:
            FilterError: The text is not a filter of that format.
        """
        return cls(language.parse_content(text, format))

    @classmethod
    def parse_many(cls, texts: Iterable[str], format: str = "sql") -> list[Self]:  # noqa: A002
        """Parse several filters of one format. Texts that differ only in their literals are parsed once."""
        return [cls(language.parse_content(text, format)) for text in texts]

    def matches(
        self, attributes: Mapping[str, Any], *, subject: str | None = None, payload: bytes | None = None
    ) -> bool:
        """Return whether the filter is true of an event with these attributes; a value of None counts as missing."""
        return reference.truth(self.expression, _scope(attributes, subject, payload)) is True

    def strictly_matches(
        self, attributes: Mapping[str, Any], *, subject: str | None = None, payload: bytes | None = None
    ) -> bool:
        """Return whether the filter matches and names exactly the attributes that are present."""
        return reference.strictly_matches(self, _scope(attributes, subject, payload))

    def covers(self, other: values.FilterValue) -> bool:
        """Return whether this filter matches everything that the other matches; False if that is undecidable."""
        return covering.covers(self, _of_kind(other, values.FilterValue))

    def overlaps(self, other: values.FilterValue) -> bool:
        """Return whether something matches both filters; True if that is undecidable."""
        return covering.overlaps(self, _of_kind(other, values.FilterValue))

    def relation(self, other: values.FilterValue) -> Relation:
        """Return how the filters relate: equal, covers, covered, overlaps or disjoint."""
        return covering.relation(self, _of_kind(other, values.FilterValue))


class ContextFilter(values.ContextFilterValue, frozen=True, eq=False):
    """A predicate over the context of another party; `this.` refers to the own context."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a context filter.

        Raises:
            FilterError: The text is not a context filter.
        """
        return cls(language.parse_context(text))

    def matches(self, context: Mapping[str, Any], this: Mapping[str, Any] | None = None) -> bool:
        """Return whether the filter is true of the other party's `context`, where `this` is the own context."""
        return reference.truth(self.expression, Scope(Context.of(context), Context.of(this))) is True

    def covers(self, other: values.ContextFilterValue) -> bool:
        """Return whether this filter matches every pair of contexts that the other matches; False if undecidable."""
        return covering.covers(self, _of_kind(other, values.ContextFilterValue))

    def overlaps(self, other: values.ContextFilterValue) -> bool:
        """Return whether some pair of contexts matches both filters; True if undecidable."""
        return covering.overlaps(self, _of_kind(other, values.ContextFilterValue))


def merge(filters: Iterable[values.FilterValue], added: float = 0.0) -> list[Filter]:
    """Return a minimal list of filters, as far as one can be found, that together match the same as the given filters.

    With `added` above 0 they may match a little more; see `tidings.matching.merging`.
    """
    checked = [_of_kind(each, values.FilterValue) for each in filters]
    return [Filter(merged.expression) for merged in covering.merge(checked, added)]


def _of_kind(value: object, kind: type[_Kind]) -> _Kind:
    if not isinstance(value, kind):
        name = kind.__name__.removesuffix("Value")  # the name of the public class
        raise FilterError(f"a {name} is needed, not {type(value).__name__}; {name}.parse reads text")
    return value


def _scope(attributes: Mapping[str, Any], subject: str | None, payload: bytes | None) -> Scope:
    return Scope(Attributes.of(attributes), subject=checked_subject(subject), payload=checked_payload(payload))
