"""The public face of the index: subscriptions and context filters as text, tables as Arrow."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tidings import language
from tidings.filters import ContextFilter, Filter
from tidings.index.plans import Plans
from tidings.index.rows import Rows, read, written
from tidings.matching import index as matching
from tidings.matching.index import Explanation, Positions
from tidings.matching.index.bulk import Bulk, predicates_of
from tidings.matching.index.tables import columns_of, has_rows_of_names, mappings, whole
from tidings.model import filter as values
from tidings.model.advertisement import checked_id
from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client
from tidings.model.subscription import Subscription


class Index(matching.Index):
    """Which of very many subscriptions does an event concern, given everyone's context now?"""

    _plans = Plans()  # of all indexes: what a shape of filters says of its literals does not depend on them

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
        name, client = checked_id(id), checked_client(id if subscriber is None else subscriber)
        scope = _context_filter(publishers)
        is_plain = isinstance(content, str) and format == "sql" and subject is None and structure is None
        if is_plain and self._add_planned(name, str(content), client, scope):
            return
        self.put(
            Subscription.of(
                _filter(content, format),
                id=name,
                subscriber=client,
                subject=subject,
                structure=structure,
                publishers=scope,
            )
        )

    def _add_planned(self, name: str, text: str, client: str, scope: values.ContextFilter | None) -> bool:
        """Adds a subscription whose text has a shape that was met before; whether it has."""
        found = self._plans.find(text)
        if found is None:
            return False
        with self._changing:
            predicates = predicates_of(*found, self._columns)
            if predicates is None:
                return False
            row = {"id": name, "subscriber": client, "content": text}
            if scope is not None:
                row["publishers"] = str(scope)
            self._put(name, row, client, scope, [(0, predicates)])
            return True

    def add_many(self, table: pa.Table) -> None:
        """Adds the rows of a table: `id`, `content`, and optionally `subscriber`, `publishers`, `format` and `subject`.

        A row that cannot be read is named in the error, and nothing is added.
        """
        given = Rows(table)
        with self._changing:
            bulk = Bulk(self._columns)
            given.fill(bulk, self._plans)
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
