"""The public face of filters: parse, match and compare them, in a few words."""

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


class Filter(values.Filter, frozen=True, eq=False):
    """Which events are meant, by content. Equal filters are equal in structure; `str` gives the canonical text."""

    @classmethod
    def parse(cls, text: str, format: str = "sql") -> Self:  # noqa: A002 - the public name
        """Reads a filter in one of the formats sql, topic, tags, regex, xpath and padres, or raises a `FilterError`."""
        return cls(language.parse_content(text, format))

    @classmethod
    def parse_many(cls, texts: Iterable[str], format: str = "sql") -> list[Self]:  # noqa: A002
        """Reads many; texts that differ only in their literals are parsed once."""
        return [cls(language.parse_content(text, format)) for text in texts]

    def matches(
        self, attributes: Mapping[str, Any], *, subject: str | None = None, payload: bytes | None = None
    ) -> bool:
        """Whether the filter is true of an event with these attributes; `None` and absence are the same."""
        return reference.truth(self.expression, _scope(attributes, subject, payload)) is True

    def strictly_matches(
        self, attributes: Mapping[str, Any], *, subject: str | None = None, payload: bytes | None = None
    ) -> bool:
        """It matches, and the attributes are exactly those that the filter speaks of."""
        return reference.strictly_matches(self, _scope(attributes, subject, payload))

    def covers(self, other: values.Filter) -> bool:
        """Everything that the other matches, this one matches. A no may mean 'cannot tell'."""
        return covering.covers(self, _of_kind(other, values.Filter))

    def overlaps(self, other: values.Filter) -> bool:
        """Something matches both. A yes may mean 'cannot tell'."""
        return covering.overlaps(self, _of_kind(other, values.Filter))

    def relation(self, other: values.Filter) -> Relation:
        """Equal, covers, covered, overlaps or disjoint."""
        return covering.relation(self, _of_kind(other, values.Filter))


class ContextFilter(values.ContextFilter, frozen=True, eq=False):
    """Which situations of the other party are meant; `this.` is one's own."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a context filter, or raises a `FilterError`."""
        return cls(language.parse_context(text))

    def matches(self, context: Mapping[str, Any], this: Mapping[str, Any] | None = None) -> bool:
        """Whether the filter is true of the other party's context, given one's own."""
        return reference.truth(self.expression, Scope(Context.of(context), Context.of(this))) is True

    def covers(self, other: values.ContextFilter) -> bool:
        """In every pair of contexts where the other matches, this one matches. A no may mean 'cannot tell'."""
        return covering.covers(self, _of_kind(other, values.ContextFilter))

    def overlaps(self, other: values.ContextFilter) -> bool:
        """Some pair of contexts matches both. A yes may mean 'cannot tell'."""
        return covering.overlaps(self, _of_kind(other, values.ContextFilter))


def merge(filters: Iterable[values.Filter], added: float = 0.0) -> list[Filter]:
    """As few filters as can be found for what the given ones match; see `tidings.matching.merging`."""
    given = [_of_kind(one, values.Filter) for one in filters]
    return [Filter(one.expression) for one in covering.merge(given, added)]


def _of_kind(given: object, kind: type[_Kind]) -> _Kind:
    if not isinstance(given, kind):
        raise FilterError(f"a {kind.__name__} is needed, not {type(given).__name__}; {kind.__name__}.parse reads text")
    return given


def _scope(attributes: Mapping[str, Any], subject: str | None, payload: bytes | None) -> Scope:
    return Scope(Attributes.of(attributes), subject=checked_subject(subject), payload=checked_payload(payload))
