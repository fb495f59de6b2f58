"""Schemas and attribute filters as plain values and texts, and back."""

from typing import Annotated

import msgspec

from tidings.model.errors import SchemaError
from tidings.model.schema import AttributeFilter, Schema


class _Structure(msgspec.Struct, frozen=True):
    """An attribute filter with the schema that it is about, as JSON."""

    subject: str
    versions: Annotated[list[dict[str, str]], msgspec.Meta(min_length=1)]
    names: list[str] = []
    absent: list[str] = []


def versions_of(schema: Schema) -> list[dict[str, str]]:
    """What each version of a schema added: names and types."""
    names = list(schema.attributes.items())
    ends = [len(schema.at_version(version).attributes) for version in range(1, schema.version + 1)]
    return [
        {name: kind.__name__ for name, kind in names[begin:end]}
        for begin, end in zip([0, *ends[:-1]], ends, strict=True)
    ]


def schema_of(subject: str, versions: list[dict[str, str]]) -> Schema:
    """The schema of which `versions_of` tells."""
    if not versions:
        raise SchemaError(f"{subject}: a schema has at least one version")
    first, *others = versions
    schema = Schema(subject, first)
    for added in others:
        schema = schema.extend(added)
    return schema


def structure_text(structure: AttributeFilter) -> str:
    schema = structure.schema
    told = _Structure(schema.subject, versions_of(schema), sorted(structure.names), sorted(structure.absent))
    return msgspec.json.encode(told).decode()


def structure_of(text: str) -> AttributeFilter:
    """The attribute filter that `structure_text` tells; a `SchemaError` if it tells none."""
    try:
        given = msgspec.json.decode(text, type=_Structure)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SchemaError(f"structure: {error}") from None
    return AttributeFilter(schema_of(given.subject, given.versions), given.names, given.absent)
