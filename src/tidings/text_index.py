"""The public index: takes subscriptions and context filters as text, and tables of subscriptions as Arrow."""

import base64
import binascii
from collections.abc import Mapping
from threading import Lock
from typing import Any

import pyarrow as pa

from tidings import language
from tidings.filters import ContextFilter, Filter
from tidings.language.tokens import TextShape, split
from tidings.matching.index import index as matching
from tidings.matching.index.arrow_tables import columns_of, has_rows_of_names, mappings, whole
from tidings.matching.index.bulk_load import BulkLoad, Plan, plan_of, predicates_of
from tidings.matching.index.index import MatchExplanation, Positions
from tidings.matching.index.positions import SCHEMA
from tidings.model import filter as values
from tidings.model.advertisement import checked_id
from tidings.model.errors import FilterError, InvalidValueError
from tidings.model.event import checked_client
from tidings.model.limits import MAX_CACHED_TEMPLATES, MAX_FILTER_CHARACTERS
from tidings.model.schema import structure_of, structure_text
from tidings.model.subscription import Subscription

COLUMNS = SCHEMA.names


_TEMPLATE_CHARACTERS_MAX = MAX_FILTER_CHARACTERS // 8  # longer texts are always parsed in full


class FilterTemplates:
    """A cache of filter shapes: filters that differ only in literals share a plan, so later ones need no parsing."""

    def __init__(self) -> None:
        self._plans: dict[TextShape, Plan] = {}
        self._plans_lock = Lock()  # for changes; looking up needs no lock

    def find(self, text: str) -> tuple[Plan, list[str]] | None:
        """Return the plan that fits an sql filter, and its literals; None if the text must be parsed in full."""
        if len(text) > _TEMPLATE_CHARACTERS_MAX:
            return None
        shape, literals = split(text)
        plan = self._plans.get(shape)
        if plan is None:
            plan = self._learn(text, shape, literals)
        return None if plan is None else (plan, literals)

    def _learn(self, text: str, shape: TextShape, literals: list[str]) -> Plan | None:
        try:
            plan = plan_of(language.parse_content(text), literals)
        except FilterError:
            return None  # parsing it in full reports the error
        if plan is not None:
            with self._plans_lock:
                if len(self._plans) >= MAX_CACHED_TEMPLATES:
                    del self._plans[next(iter(self._plans))]
                self._plans[shape] = plan
        return plan


class SubscriptionRows:
    """A checked Arrow table of subscriptions, with `id`, `content` and some of the other columns.

    Of several rows with the same id, the last counts.

    Raises:
        InvalidValueError: A column is missing or not text, or a row has an invalid id or subscriber.
    """

    def __init__(self, table: pa.Table) -> None:
        missing = {"id", "content"} - set(table.column_names)
        if missing:
            raise InvalidValueError(f"the table has no column {sorted(missing)[0]}")
        columns = [name for name in COLUMNS if name in table.column_names]
        try:
            table = table.select(columns).cast(pa.schema([(name, pa.string()) for name in columns]))
        except pa.ArrowException as error:
            raise InvalidValueError(f"subscriptions are a table of texts: {error}") from None
        names = table["id"].to_pylist()
        if len(set(names)) < len(names):
            table = table.take(sorted({name: row for row, name in enumerate(names)}.values()))
            names = table["id"].to_pylist()
        self.table = table.combine_chunks()
        self.names: list[str] = names
        self.subscribers: list[str] = self._column("subscriber", names)
        filters = self._column("publishers", [None] * len(names))
        read_once = {text: _context_filter(text) for text in dict.fromkeys(filters)}  # usually few different ones
        self.publishers: list[values.ContextFilterValue | None] = [read_once[text] for text in filters]
        for row, (name, subscriber) in enumerate(zip(names, self.subscribers, strict=True)):
            try:
                checked_client(name)
                checked_client(subscriber)
            except InvalidValueError as error:
                raise InvalidValueError(f"row {row}: {error}") from None

    def _column(self, name: str, defaults: list[Any]) -> list[Any]:
        if name not in self.table.column_names:
            return defaults
        values = self.table[name].to_pylist()
        return [default if value is None else value for value, default in zip(values, defaults, strict=True)]

    def fill(self, bulk: BulkLoad, plans: FilterTemplates) -> None:
        """Add the content of every row to the bulk load; filters of a cached shape skip parsing.

        Raises:
            FilterError: A row's filter cannot be parsed; the message names the row.
        """
        numbers: dict[int, int] = {}  # numbers of the plans in this bulk load
        special = {"format", "subject", "structure"} & set(self.table.column_names)
        for row, text in enumerate(self.table["content"].to_pylist()):
            planned = None if special or text is None else plans.find(text)
            if planned is not None:
                plan, literals = planned
                number = numbers.get(id(plan))
                if number is None:
                    number = numbers[id(plan)] = bulk.plan(plan)
                if bulk.add_planned(row, number, literals):
                    continue
            try:
                bulk.add(row, self._parse_row(row))
            except FilterError as error:
                raise FilterError(f"row {row}: {error.message}", error.text, error.position) from None

    def _parse_row(self, row: int) -> Subscription:
        return subscription_of(self.table.slice(row, 1).to_pylist()[0])


def subscription_of(row: dict[str, Any]) -> Subscription:
    """Return the subscription that a row describes."""
    structure = row.get("structure")
    return Subscription.of(
        Filter.parse(row.get("content") or "", row.get("format") or "sql"),
        id=row["id"],
        subscriber=row.get("subscriber") or row["id"],
        publishers=_context_filter(row.get("publishers")),
        subject=row.get("subject"),
        structure=None if structure is None else structure_of(structure),
        policy=row.get("policy"),
        durable=row.get("durable"),
        notify=row.get("notify") or "subscription",
        token=_token(row.get("token")),
    )


def row_of(subscription: Subscription) -> dict[str, Any]:
    """Return the row that describes a subscription."""
    structure = subscription.structure
    return {
        "id": subscription.id,
        "subscriber": subscription.subscriber,
        "content": str(subscription.content),
        "publishers": None if subscription.publishers is None else str(subscription.publishers),
        "format": None,
        "subject": subscription.subject,
        "structure": None if structure is None else structure_text(structure),
        "policy": subscription.policy,
        "durable": subscription.durable,
        "notify": subscription.notify,
        "token": None if subscription.token is None else base64.b64encode(subscription.token).decode(),
    }


def _token(text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidValueError("token: must be written in base64") from None


def _context_filter(text: str | None) -> ContextFilter | None:
    return None if text is None else ContextFilter(language.parse_context(text))


class Index(matching.SubscriptionIndex):
    """An index of many subscriptions, which returns the ones that an event matches in the clients' present contexts."""

    _plans = FilterTemplates()  # shared by all indexes, since a plan does not depend on an index

    def add(
        self,
        id: str,  # noqa: A002 - the subscription's own word
        content: str | values.FilterValue = "",
        *,
        subscriber: str | None = None,
        publishers: str | values.ContextFilterValue | None = None,
        format: str = "sql",  # noqa: A002
        subject: str | None = None,
        structure: Any = None,
    ) -> None:
        """Add a subscription, or replace the one with the same id; it takes effect before this returns.

        Args:
            id: The subscription's id.
            content: Filter over the events' attributes.
            subscriber: The client that subscribes; by default a client named as the id.
            publishers: Filter over the publishers' contexts.
            format: The format of `content`.
            subject: The subject of the events.
            structure: Attribute names that must be present or absent.
        """
        name, client = checked_id(id), checked_client(id if subscriber is None else subscriber)
        scope = _checked_context_filter(publishers)
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

    def _add_planned(self, name: str, text: str, client: str, scope: values.ContextFilterValue | None) -> bool:
        """Add a subscription if its filter has a cached shape; return whether it had one."""
        planned = self._plans.find(text)
        if planned is None:
            return False
        with self._lock:
            predicates = predicates_of(*planned, self._columns)
            if predicates is None:
                return False
            row = {"id": name, "subscriber": client, "content": text}
            if scope is not None:
                row["publishers"] = str(scope)
            self._put(name, row, client, scope, [(0, predicates)])
            return True

    def add_many(self, table: pa.Table) -> None:
        """Add the rows of a table: `id`, `content`, and optionally `subscriber`, `publishers`, `format` and `subject`.

        If a row cannot be read, the error names it, and nothing is added.
        """
        rows = SubscriptionRows(table)
        with self._lock:
            bulk = BulkLoad(self._columns)
            rows.fill(bulk, self._plans)
            self._put_rows(rows, bulk)

    def set_contexts(self, table: pa.Table) -> int:
        """Set the contexts of many clients; return how many changed.

        The table has a column `client`, and either `context` or one column for each context name.
        """
        if "client" not in table.column_names:
            raise InvalidValueError("the table has no column client")
        if table["client"].null_count:
            raise InvalidValueError("client: a row has no client")
        context_columns = table.drop_columns(["client"])
        if has_rows_of_names(context_columns, "context"):
            return sum(map(self.set_context, table["client"].to_pylist(), mappings(table["context"])))
        return self._set_columns(whole(table["client"]), columns_of(context_columns, "context"))

    def match_positions(
        self,
        event: Mapping[str, Any],
        *,
        context: Mapping[str, Any] | None = None,
        subscribers: str | values.ContextFilterValue | None = None,
        subject: str | None = None,
        payload: bytes | None = None,
        publisher: str | None = None,
    ) -> Positions:
        """Return the positions of the subscriptions that an event matches; `id` maps a position to its subscription.

        Args:
            event: The event's attributes.
            context: The publisher's context.
            subscribers: The event's filter over subscribers' contexts.
            subject: The event's subject.
            payload: The event's payload.
            publisher: The event's publisher.
        """
        return self._positions(event, context, _checked_context_filter(subscribers), subject, payload, publisher)

    def explain(self, event: Mapping[str, Any], subscription: str, **about: Any) -> MatchExplanation:
        """Explain why the event matches a subscription or not: the decisive predicate, with its values."""
        return super().explain(
            event, subscription, **{**about, "subscribers": _checked_context_filter(about.get("subscribers"))}
        )

    def covering(self, content: str | values.FilterValue) -> set[str]:
        """Return the ids of the subscriptions whose content covers this filter."""
        return super().covering(_filter(content, "sql"))

    def covered_by(self, content: str | values.FilterValue) -> set[str]:
        """Return the ids of the subscriptions whose content this filter covers."""
        return super().covered_by(_filter(content, "sql"))

    def _read(self, row: dict[str, Any]) -> Subscription:
        return subscription_of(row)

    def _written(self, subscription: Subscription) -> dict[str, Any]:
        return row_of(subscription)

    def _parse_context(self, text: str) -> values.ContextFilterValue:
        return ContextFilter(language.parse_context(text))


def _filter(content: str | values.FilterValue, format: str) -> values.FilterValue:  # noqa: A002
    return Filter.parse(content, format) if isinstance(content, str) else content


def _checked_context_filter(text: str | values.ContextFilterValue | None) -> values.ContextFilterValue | None:
    return ContextFilter.parse(text) if isinstance(text, str) else text
