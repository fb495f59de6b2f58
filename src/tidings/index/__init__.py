"""The public face of the index: subscriptions and context filters as text, tables as Arrow."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tidings import language
from tidings.filters import ContextFilter, Filter
from tidings.index.rows import Rows, read, written
from tidings.matching import index as matching
from tidings.matching.index import Explanation, Positions
from tidings.matching.index.bulk import Bulk
from tidings.matching.index.tables import columns_of, has_rows_of_names, mappings, whole
from tidings.model import filter as values
from tidings.model.errors import InvalidValueError
from tidings.model.subscription import Subscription


class Index(matching.Index):
    """Which of very many subscriptions does an event concern, given everyone's context now?"""

    def add(
        self,
        id: str,  # noqa: A002 - the subscription's own word
        content: str | values.Filter = "",
        *,
        subscriber: str | None = None,
        publishers: str | values.ContextFilter | None = None,
        format: str = "sql",  # noqa: A002
        subject: str | None = None,
        structure: Any = None,
    ) -> None:
        """Adds a subscription, or replaces the one of the same id; it counts from the moment that this returns."""
        self.put(
            Subscription.of(
                _filter(content, format),
                id=id,
                subscriber=id if subscriber is None else subscriber,
                subject=subject,
                structure=structure,
                publishers=_context_filter(publishers),
            )
        )

    def add_many(self, table: pa.Table) -> None:
        """Adds the rows of a table: `id`, `content`, and optionally `subscriber`, `publishers`, `format` and `subject`.

        A row that cannot be read is named in the error, and nothing is added.
        """
        given = Rows(table)
        with self._changing:
            bulk = Bulk(self._columns)
            given.fill(bulk)
            self._put_rows(given, bulk)

    def set_contexts(self, table: pa.Table) -> int:
        """Sets the contexts of many clients: `client`, and `context` or one column a name. How many changed."""
        if "client" not in table.column_names:
            raise InvalidValueError("the table has no column client")
        if table["client"].null_count:
            raise InvalidValueError("client: a row has no client")
        named = table.drop_columns(["client"])
        if has_rows_of_names(named, "context"):
            return sum(map(self.set_context, table["client"].to_pylist(), mappings(table["context"])))
        return self._set_columns(whole(table["client"]), columns_of(named, "context"))

    def match_positions(
        self,
        event: Mapping[str, Any],
        *,
        context: Mapping[str, Any] | None = None,
        subscribers: str | values.ContextFilter | None = None,
        subject: str | None = None,
        payload: bytes | None = None,
        publisher: str | None = None,
    ) -> Positions:
        """The positions of the subscriptions that an event concerns: numbers that `id` knows.

        `context` is the publisher's; `subscribers` says for whom the event is; `subject`, `payload` and `publisher`
        are the event's own.
        """
        return self._positions(event, context, _context_filter(subscribers), subject, payload, publisher)

    def explain(self, event: Mapping[str, Any], subscription: str, **about: Any) -> Explanation:
        """Why the event does, or does not, concern a subscription: the predicate that decided, with its values."""
        return super().explain(
            event, subscription, **{**about, "subscribers": _context_filter(about.get("subscribers"))}
        )

    def covering(self, content: str | values.Filter) -> set[str]:
        """The ids of the subscriptions whose content covers this filter."""
        return super().covering(_filter(content, "sql"))

    def covered_by(self, content: str | values.Filter) -> set[str]:
        """The ids of the subscriptions whose content this filter covers."""
        return super().covered_by(_filter(content, "sql"))

    def _read(self, row: dict[str, Any]) -> Subscription:
        return read(row)

    def _written(self, subscription: Subscription) -> dict[str, Any]:
        return written(subscription)

    def _parse_context(self, text: str) -> values.ContextFilter:
        return ContextFilter(language.parse_context(text))


def _filter(content: str | values.Filter, format: str) -> values.Filter:  # noqa: A002
    return Filter.parse(content, format) if isinstance(content, str) else content


def _context_filter(text: str | values.ContextFilter | None) -> values.ContextFilter | None:
    return ContextFilter.parse(text) if isinstance(text, str) else text
