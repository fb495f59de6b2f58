"""The commands `tidings overlay status | stats | tables | forget`: ask running brokers for their state."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from tidings.cli.connection import BrokerConnection
from tidings.cli.output import out, print_json, table
from tidings.cli.overlay.local import read_broker_addresses
from tidings.model.errors import RequestTimeoutError, TidingsError, UnreachableError

_UNREACHABLE = "unreachable"
_COUNTERS = ("accepted", "delivered", "refused", "lost", "bytes_in", "bytes_out")
_KINDS = ("advertisements", "subscriptions", "contexts", "policies", "schemas")


class StatusTargets(NamedTuple):
    """The brokers to ask: the brokers of the overlay in `folder`, else those at `addresses`, else the one at
    `default_address`."""

    addresses: list[str]
    folder: Path | None
    name: str
    identity: Path | None
    default_address: str

    def addresses_to_ask(self) -> list[str]:
        """Return the addresses of the brokers to ask."""
        if self.folder is not None:
            return list(read_broker_addresses(self.folder).values())
        return [address for option in self.addresses for address in option.split(",")] or [self.default_address]

    def ask_all(self, question: str, **arguments: Any) -> list[dict[str, Any]]:
        """Ask each broker, and return the answers in order. For an unreachable broker it is the address and the error.

        Raises UnreachableError if no broker answers.
        """
        answers = [self._ask(address, question, arguments) for address in self.addresses_to_ask()]
        if all(_UNREACHABLE in answer for answer in answers):
            raise UnreachableError("; ".join(answer[_UNREACHABLE] for answer in answers))
        return answers

    def _ask(self, address: str, question: str, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            with BrokerConnection(address, self.name, self.identity).connect(observer=True) as client:
                return dict(client.ask(question, **arguments))
        except (UnreachableError, RequestTimeoutError) as error:
            return {"address": address, _UNREACHABLE: str(error)}


def status(targets: StatusTargets, *, as_json: bool) -> None:
    """Print the state of each broker: links, clients, subscriptions, journal, uptime and security."""

    def row(answer: dict[str, Any]) -> tuple[str, ...]:
        links = [name if name in answer["links"] else f"{name} (down)" for name in answer["wanted_links"]]
        journal = answer["journal"]
        return (
            answer["broker"],
            answer["address"],
            "settled" if answer["settled"] else "settling",
            ", ".join(links),
            f"{answer['clients']:,}",
            f"{answer['subscriptions']:,}",
            "none" if journal is None else f"{journal['synced']:,}",
            f"{answer['uptime']:,.0f} s",
            *([_security(answer["security"])] if has_security else []),
        )

    answers = targets.ask_all("status")
    has_security = any(answer.get("security") for answer in answers)
    columns = ("broker", "address", "tables", "links", "clients", "subscriptions", "journal", "up")
    _print_answers(answers, (*columns, "security") if has_security else columns, row, as_json=as_json)


def _security(state: dict[str, Any] | None) -> str:
    """Describe a broker's security state: its topics, its revocation list, and how many operations it refused."""
    if state is None:
        return "none"
    revocations = state["revocations"]
    text = (
        "no list of revocations"
        if revocations is None
        else f"list {revocations['version']:,}, {revocations['age']:,.0f} s old"
    )
    if revocations is not None and not revocations["in_force"]:
        text += ", out of date"
    refused = sum(state["refused"].values())
    return f"{state['topics']:,} topics, {text}, {refused:,} refused"


def stats(targets: StatusTargets, *, as_json: bool) -> None:
    """Print the counters of each broker and of its links."""

    def row(answer: dict[str, Any]) -> tuple[str, ...]:
        links = [f"{name} {link['sent']:,}/{link['received']:,}" for name, link in answer["links"].items()]
        return answer["broker"], *(f"{answer[name]:,}" for name in _COUNTERS), ", ".join(links)

    columns = ("broker", *(name.replace("_", " ") for name in _COUNTERS), "links (sent/received)")
    _print_answers(targets.ask_all("stats"), columns, row, as_json=as_json)


def tables(targets: StatusTargets, *, as_json: bool) -> None:
    """Print the routing tables of each broker."""
    answers = targets.ask_all("tables")
    if as_json:
        print_json(answers)
        return
    for answer in answers:
        if _UNREACHABLE in answer:
            out.print(answer[_UNREACHABLE], markup=False, soft_wrap=True)
            continue
        counts = ", ".join(f"{kind} {len(answer[kind]):,}" for kind in _KINDS)
        out.print(f"{answer['broker']}: {counts}", markup=False, soft_wrap=True)
        for rows in (_advertisements(answer), _subscriptions(answer), _contexts(answer)):
            if rows.row_count:
                out.print(rows, markup=False)
    _check_all_answered(answers)


def forget(targets: StatusTargets, broker: str, *, as_json: bool) -> None:
    """Tell the brokers that `broker` will not come back, so that they drop the messages that they store for it."""

    def row(answer: dict[str, Any]) -> tuple[str, ...]:
        return answer["broker"], f"{broker} is forgotten" if answer["forgotten"] else f"has never heard of {broker}"

    _print_answers(targets.ask_all("forget", broker=broker), ("broker", ""), row, as_json=as_json)


def _advertisements(answer: dict[str, Any]) -> Table:
    rows = table("  advertisement", "publisher", "from", "content")
    for entry in answer["advertisements"]:
        rows.add_row(
            f"  {entry['id']}", entry["publisher"], _hop(answer, entry["id"]), entry["content"] or "everything"
        )
    return rows


def _subscriptions(answer: dict[str, Any]) -> Table:
    rows = table("  subscription", "subscriber", "from", "content", "publishers")
    for entry in answer["subscriptions"]:
        content, publishers = entry.get("content") or "everything", entry.get("publishers") or ""
        rows.add_row(f"  {entry['id']}", entry.get("subscriber", ""), _hop(answer, entry["id"]), content, publishers)
    return rows


def _contexts(answer: dict[str, Any]) -> Table:
    rows = table("  context of", "values")
    for name, values in answer["contexts"].items():
        rows.add_row(f"  {name}", " ".join(f"{key}={value}" for key, value in values.items()))
    return rows


def _hop(answer: dict[str, Any], entry_id: str) -> str:
    """Return the neighbour that an advertisement or a subscription came from, or `here` for a client of this broker."""
    return str(answer["hops"].get(entry_id) or "here")


def _print_answers(
    answers: list[dict[str, Any]], columns: tuple[str, ...], row: Callable[[dict[str, Any]], Any], *, as_json: bool
) -> None:
    """Print the answers as JSON or as a table, and raise TidingsError for brokers that did not answer."""
    if as_json:
        print_json(answers)
        return
    rows = table(*columns)
    for answer in answers:
        if _UNREACHABLE not in answer:
            rows.add_row(*row(answer))
    out.print(rows, markup=False)
    _check_all_answered(answers)


def _check_all_answered(answers: list[dict[str, Any]]) -> None:
    """Raise TidingsError for the brokers that did not answer, after the answers of the others were printed."""
    missing = [answer["address"] for answer in answers if _UNREACHABLE in answer]
    if missing:
        raise TidingsError(f"no answer from {', '.join(missing)}")
