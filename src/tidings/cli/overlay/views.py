"""`tidings overlay status | stats | tables | forget`: running brokers, asked how they are and what they know."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from tidings.cli.caller import Caller
from tidings.cli.overlay.files import addresses_in
from tidings.cli.terminal import out, print_json, table
from tidings.model.errors import RequestTimeoutError, TidingsError, UnreachableError

_UNREACHABLE = "unreachable"
_COUNTED = ("accepted", "delivered", "refused", "lost", "bytes_in", "bytes_out")
_KINDS = ("advertisements", "subscriptions", "contexts", "policies", "schemas")


class Asked(NamedTuple):
    """Whom to ask: the brokers of the overlay in a folder, else those at these addresses, else the usual one."""

    addresses: list[str]
    folder: Path | None
    name: str
    identity: Path | None
    usual: str

    def places(self) -> list[str]:
        if self.folder is not None:
            return list(addresses_in(self.folder).values())
        return [one for given in self.addresses for one in given.split(",")] or [self.usual]

    def answers(self, question: str, **about: Any) -> list[dict[str, Any]]:
        """The answers in order; of who cannot be reached, just that. Without any answer there is an error."""
        found = [self._answer(place, question, about) for place in self.places()]
        if all(_UNREACHABLE in one for one in found):
            raise UnreachableError("; ".join(one[_UNREACHABLE] for one in found))
        return found

    def _answer(self, place: str, question: str, about: dict[str, Any]) -> dict[str, Any]:
        try:
            with Caller(place, self.name, self.identity).opened(observer=True) as client:
                return dict(client.ask(question, **about))
        except (UnreachableError, RequestTimeoutError) as error:
            return {"address": place, _UNREACHABLE: str(error)}


def status(asked: Asked, *, as_json: bool) -> None:
    def row(one: dict[str, Any]) -> tuple[str, ...]:
        links = [name if name in one["links"] else f"{name} (down)" for name in one["wanted_links"]]
        journal = one["journal"]
        return (
            one["broker"],
            one["address"],
            "settled" if one["settled"] else "settling",
            ", ".join(links),
            f"{one['clients']:,}",
            f"{one['subscriptions']:,}",
            "none" if journal is None else f"{journal['synced']:,}",
            f"{one['uptime']:,.0f} s",
            *([_security(one["security"])] if has_security else []),
        )

    found = asked.answers("status")
    has_security = any(one.get("security") for one in found)
    columns = ("broker", "address", "tables", "links", "clients", "subscriptions", "journal", "up")
    _show(found, (*columns, "security") if has_security else columns, row, as_json=as_json)


def _security(state: dict[str, Any] | None) -> str:
    """In a few words: which topics it guards, and with which list of revocations."""
    if state is None:
        return "none"
    known = state["revocations"]
    told = "no list of revocations" if known is None else f"list {known['version']:,}, {known['age']:,.0f} s old"
    if known is not None and not known["in_force"]:
        told += ", out of date"
    refused = sum(state["refused"].values())
    return f"{state['topics']:,} topics, {told}, {refused:,} refused"


def stats(asked: Asked, *, as_json: bool) -> None:
    def row(one: dict[str, Any]) -> tuple[str, ...]:
        links = [f"{name} {link['sent']:,}/{link['received']:,}" for name, link in one["links"].items()]
        return one["broker"], *(f"{one[name]:,}" for name in _COUNTED), ", ".join(links)

    columns = ("broker", *(name.replace("_", " ") for name in _COUNTED), "links (sent/received)")
    _show(asked.answers("stats"), columns, row, as_json=as_json)


def tables(asked: Asked, *, as_json: bool) -> None:
    found = asked.answers("tables")
    if as_json:
        print_json(found)
        return
    for one in found:
        if _UNREACHABLE in one:
            out.print(one[_UNREACHABLE], markup=False, soft_wrap=True)
            continue
        counts = ", ".join(f"{kind} {len(one[kind]):,}" for kind in _KINDS)
        out.print(f"{one['broker']}: {counts}", markup=False, soft_wrap=True)
        for shown in (_advertisements(one), _subscriptions(one), _contexts(one)):
            if shown.row_count:
                out.print(shown, markup=False)
    _check(found)


def forget(asked: Asked, broker: str, *, as_json: bool) -> None:
    """A broker that will not come back: those that are asked keep nothing for it any more."""

    def row(one: dict[str, Any]) -> tuple[str, ...]:
        return one["broker"], f"{broker} is forgotten" if one["forgotten"] else f"has never heard of {broker}"

    _show(asked.answers("forget", broker=broker), ("broker", ""), row, as_json=as_json)


def _advertisements(one: dict[str, Any]) -> Table:
    shown = table("  advertisement", "publisher", "from", "content")
    for filed in one["advertisements"]:
        shown.add_row(f"  {filed['id']}", filed["publisher"], _hop(one, filed["id"]), filed["content"] or "everything")
    return shown


def _subscriptions(one: dict[str, Any]) -> Table:
    shown = table("  subscription", "subscriber", "from", "content", "publishers")
    for filed in one["subscriptions"]:
        content, publishers = filed.get("content") or "everything", filed.get("publishers") or ""
        shown.add_row(f"  {filed['id']}", filed.get("subscriber", ""), _hop(one, filed["id"]), content, publishers)
    return shown


def _contexts(one: dict[str, Any]) -> Table:
    shown = table("  context of", "values")
    for name, values in one["contexts"].items():
        shown.add_row(f"  {name}", " ".join(f"{key}={value}" for key, value in values.items()))
    return shown


def _hop(one: dict[str, Any], filed: str) -> str:
    """The neighbour that it came from; a client here, if there is none."""
    return str(one["hops"].get(filed) or "here")


def _show(
    found: list[dict[str, Any]], columns: tuple[str, ...], row: Callable[[dict[str, Any]], Any], *, as_json: bool
) -> None:
    if as_json:
        print_json(found)
        return
    shown = table(*columns)
    for one in found:
        if _UNREACHABLE not in one:
            shown.add_row(*row(one))
    out.print(shown, markup=False)
    _check(found)


def _check(found: list[dict[str, Any]]) -> None:
    """Who cannot be reached is a failure, after all others were told of."""
    missing = [one["address"] for one in found if _UNREACHABLE in one]
    if missing:
        raise TidingsError(f"no answer from {', '.join(missing)}")
