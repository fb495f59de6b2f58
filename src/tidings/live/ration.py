"""What clients may have at a broker: so much each, and so much all of them together. It stays until they take it back,
and some of it longer than they are connected, so that without an end to it anybody could fill the memory."""

from tidings.live.configuration.tables import Limits
from tidings.live.desk import Desk
from tidings.model.errors import RefusedError


def check_subscription(desk: Desk, limits: Limits, client: str) -> None:
    """Whether there is room for one more."""
    roster = desk.roster
    _check_own(client, "subscriptions", roster.count(client), limits.subscriptions_per_client)
    _check_all("subscriptions", len(roster.subscriptions), limits.subscriptions)


def check_advertisement(desk: Desk, limits: Limits, client: str, id: str) -> None:  # noqa: A002
    table = desk.engine.advertisements
    if table.get(id) is None:
        _check_own(client, "advertisements", table.count(client), limits.advertisements_per_client)
        _check_all("advertisements", len(table), limits.advertisements)


def check_subject(desk: Desk, limits: Limits, subject: str) -> None:
    subjects = desk.engine.subjects
    if subjects.find(subject) is None:
        _check_all("subjects with schemas", len(subjects), limits.subjects)


def check_entrusted(desk: Desk, limits: Limits, client: str, other: str) -> None:
    known = desk.engine.entrusted.get(client, set())
    if other not in known:
        _check_own(client, "others that may set its context", len(known), limits.entrusted_per_client)


def _check_own(client: str, what: str, count: int, most: int) -> None:
    if count >= most:
        raise RefusedError("admit", f"{client} has {most:,} {what}, the most that this broker allows")


def _check_all(what: str, count: int, most: int) -> None:
    if count >= most:
        raise RefusedError("admit", f"there are {most:,} {what}, the most that this broker allows all its clients")
