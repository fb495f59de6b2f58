"""The reference of the client: every method with its parameters, and which of them are awaited."""

import doctest
import inspect
import pydoc
import re
from typing import Any

import msgspec
import pytest

import tidings as td
from tests.docs.shell import ROOT
from tests.docs.tables import cells_of
from tidings.client import (
    Client,
    ClientSubscription,
    ConnectionState,
    SyncClient,
    SyncSubscription,
    TlsIdentity,
    connect,
    connect_sync,
)
from tidings.client.secure.settings import Security

PAGE = (ROOT / "docs" / "reference" / "client.md").read_text()
# What the table of a client's subscriptions calls.
INSIDE = {
    *("begun", "next", "take_waiting", "notified", "is_full", "end", "put", "refuse", "count_lost", "count_refused"),
}
ONLY_ASYNCHRONOUS = {"session", "membership", "subscriptions", "sequence", "publish_soon"}


def rows_of(first: str) -> list[list[str]]:
    found = re.search(rf"^\| {re.escape(first)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert found is not None
    return [cells_of(line) for line in found[1].splitlines()]


def told(name: str, member: Any) -> list[str]:
    """How a member is written, and whether it is awaited."""
    if isinstance(member, property):
        return [name, ""]
    signature = inspect.signature(member)
    given = [one.replace(annotation=one.empty) for one in list(signature.parameters.values())[1:]]
    plain = signature.replace(parameters=given, return_annotation=signature.empty)
    return [f"{name}{plain}", "*" if is_awaited(member) else ""]


def is_awaited(member: Any) -> bool:
    return inspect.iscoroutinefunction(member) or inspect.signature(member).return_annotation is ClientSubscription


def members_of(kind: type) -> dict[str, Any]:
    return {name: one for name, one in vars(kind).items() if not name.startswith("_") and is_member(one)}


def is_member(one: Any) -> bool:
    return inspect.isfunction(one) or isinstance(one, property)


@pytest.mark.parametrize(
    ("table", "kind", "inside"),
    [("of a client", Client, set()), ("of a subscription", ClientSubscription, INSIDE)],
)
def test_every_member_is_described(table: str, kind: type, inside: set[str]) -> None:
    expected = [told(name, one) for name, one in members_of(kind).items() if name not in inside]
    rows = [row[:2] for row in rows_of(table)]
    assert sorted(rows) == sorted(expected)


def test_the_synchronous_face_has_what_is_told() -> None:
    more = {name.partition("(")[0] for name, *_ in rows_of("only synchronous")}
    of_client, of_subscription = members_of(SyncClient), members_of(SyncSubscription)
    assert set(of_client) - more == set(members_of(Client)) - ONLY_ASYNCHRONOUS
    assert set(of_subscription) - more >= {"id", "lost", "waiting", "findings", "take", "acknowledge", "close"}
    assert set(of_subscription) - more - {"lost", "refused", "findings"} <= set(members_of(ClientSubscription)) - INSIDE
    for name, *_ in rows_of("only synchronous"):
        key = name.partition("(")[0]
        assert told(key, (of_client | of_subscription)[key])[0] == name


@pytest.mark.parametrize("function", [connect, connect_sync])
def test_every_parameter_of_connect_is_described_with_its_default(function: Any) -> None:
    expected = {name: repr(one.default) for name, one in inspect.signature(function).parameters.items()}
    assert {row[0]: row[1] for row in rows_of("parameter of `connect`")} == expected


def test_every_field_of_a_state_is_described() -> None:
    assert [row[0] for row in rows_of("field of a `ConnectionState`")] == list(ConnectionState.__struct_fields__)


@pytest.mark.parametrize("kind", [TlsIdentity, Security])
def test_every_parameter_of_an_identity_is_described_with_its_default(kind: type[msgspec.Struct]) -> None:
    fields = msgspec.structs.fields(kind)
    expected = {one.name: "" if one.required else repr(one.default) for one in fields}
    assert {row[0]: row[1] for row in rows_of(f"parameter of `{kind.__name__}`")} == expected


def test_help_says_where_to_begin_and_its_example_runs() -> None:
    assert doctest.testmod(td, extraglobs={"td": td}).failed == 0
    description = pydoc.plain(pydoc.render_doc(td)).partition("PACKAGE CONTENTS")[0]
    named = set(re.findall(r"td\.(\w+)", description))
    assert {"Hub", "connect", "connect_sync", "ClientApi", "Filter", "Policy"} <= named <= set(td.__all__)
