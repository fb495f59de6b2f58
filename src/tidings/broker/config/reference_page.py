"""Generate the reference page of the configuration file from the descriptions of tables and keys."""

import json
from typing import Any

import msgspec

from tidings.broker.config.configuration import PREFIX, variable
from tidings.broker.config.layout import ARRAY_TABLES, TABLES
from tidings.broker.config.table_types import ConfigKey, ConfigTable, keys_of

_INTRODUCTION = f"""\
# The broker's file

`tidings broker --config broker.toml` reads its configuration from a TOML file. Every table and every key may be left
out, unless it says otherwise; a key that is not known is refused, with its line. Names of files and folders are
relative to the file's own folder. `tidings config show --config broker.toml` prints what is in force and where each
value is from; this page is what `tidings config reference` writes.

An environment variable wins over the file: `{PREFIX}`, the table and the key, in capitals, as in
`{variable("broker", "name")}` or `{variable("limits", "connections")}`. A list is written with commas, and an empty
text unsets what may be unset. Tables in double brackets are in the file alone.

A running broker reads its file anew on SIGHUP. It takes over the keys that are marked as reloaded, and says in its
log what else has changed and needs a restart. [Operate a broker](../how-to/operate-a-broker.md) shows the rest.
"""
_KINDS: dict[type[msgspec.inspect.Type], str] = {
    msgspec.inspect.BoolType: "true or false",
    msgspec.inspect.IntType: "whole number",
    msgspec.inspect.FloatType: "number",
    msgspec.inspect.StrType: "text",
    msgspec.inspect.VarTupleType: "list of texts",
    msgspec.inspect.DictType: "table of texts",
}


def page() -> str:
    """Return the reference page, in Markdown."""
    return "\n".join([_INTRODUCTION, *(_section(name, table) for name, table in TABLES.items())])


def _section(name: str, table: type[ConfigTable]) -> str:
    head = f"[[{name}]]" if name in ARRAY_TABLES else f"[{name}]"
    description = " ".join((table.__doc__ or "").split())
    lines = ["| key | kind | default | reloaded | says |", "|---|---|---|---|---|"]
    lines += (f"| {' | '.join(_cells(key))} |" for key in keys_of(table))
    return "\n".join([f"## `{head}`", "", description, "", *lines, ""])


def _cells(key: ConfigKey) -> list[str]:
    default = "must be given" if key.is_required else written(key.default)
    return [
        f"`{key.name}`",
        _kind(key.type),
        default if key.is_required or key.default is None else f"`{default}`",
        "yes" if key.is_reloaded else "",
        key.description,
    ]


def _kind(kind: msgspec.inspect.Type) -> str:
    if isinstance(kind, msgspec.inspect.UnionType):
        kind = next(alternative for alternative in kind.types if not isinstance(alternative, msgspec.inspect.NoneType))
    description = _KINDS[type(kind)]
    if not isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType):
        return description
    if kind.gt is not None:
        return f"{description} above {kind.gt}"
    if kind.le is not None:
        return f"{description} from {kind.ge:,} to {kind.le:,}"
    return f"{description} from {kind.ge:,} on"


def written(value: Any) -> str:
    """Return a value as TOML; `unset` for None, which TOML does not have."""
    if value is None:
        return "unset"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {written(element)}" for key, element in value.items()) + "}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(written, value))}]"
    return json.dumps(value, ensure_ascii=False)
