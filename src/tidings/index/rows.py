"""Subscriptions as rows of a table: read as far as matching needs, and written so that they can be read again."""

import base64
import binascii
from typing import Any

import pyarrow as pa

from tidings import language
from tidings.filters import ContextFilter, Filter
from tidings.index.plans import Plans
from tidings.matching.index.bulk import Bulk
from tidings.matching.index.register import SCHEMA
from tidings.model import filter as values
from tidings.model.errors import FilterError, InvalidValueError
from tidings.model.event import checked_client
from tidings.model.schematext import structure_of, structure_text
from tidings.model.subscription import Subscription

COLUMNS = SCHEMA.names


class Rows:
    """A table with `id`, `content`, and some of the other columns; of rows with one id, the last counts."""

    def __init__(self, table: pa.Table) -> None:
        missing = {"id", "content"} - set(table.column_names)
        if missing:
            raise InvalidValueError(f"the table has no column {sorted(missing)[0]}")
        known = [name for name in COLUMNS if name in table.column_names]
        try:
            table = table.select(known).cast(pa.schema([(name, pa.string()) for name in known]))
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
        read_once = {text: _context_filter(text) for text in dict.fromkeys(filters)}  # mostly the same few
        self.publishers: list[values.ContextFilter | None] = [read_once[text] for text in filters]
        for row, (name, subscriber) in enumerate(zip(names, self.subscribers, strict=True)):
            try:
                checked_client(name)
                checked_client(subscriber)
            except InvalidValueError as error:
                raise InvalidValueError(f"row {row}: {error}") from None

    def _column(self, name: str, otherwise: list[Any]) -> list[Any]:
        if name not in self.table.column_names:
            return otherwise
        given = self.table[name].to_pylist()
        return [instead if one is None else one for one, instead in zip(given, otherwise, strict=True)]

    def fill(self, bulk: Bulk, plans: Plans) -> None:
        """Hands the content of every row to the index; filters of a shape that was met before go the short way."""
        numbers: dict[int, int] = {}  # of plans in this bulk
        special = {"format", "subject", "structure"} & set(self.table.column_names)
        for row, text in enumerate(self.table["content"].to_pylist()):
            found = None if special or text is None else plans.find(text)
            if found is not None:
                plan, literals = found
                number = numbers.get(id(plan))
                if number is None:
                    number = numbers[id(plan)] = bulk.plan(plan)
                if bulk.fill(row, number, literals):
                    continue
            try:
                bulk.take(row, self._careful(row))
            except FilterError as error:
                raise FilterError(f"row {row}: {error.message}", error.text, error.position) from None

    def _careful(self, row: int) -> Subscription:
        return read(self.table.slice(row, 1).to_pylist()[0])


def read(row: dict[str, Any]) -> Subscription:
    """The subscription that a row describes."""
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


def written(subscription: Subscription) -> dict[str, Any]:
    """The row that describes a subscription."""
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
