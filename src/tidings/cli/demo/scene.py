"""A scene of the demo: what is told to people, and the same for machines."""

from typing import Any, NamedTuple

from rich.markup import escape


class Scene(NamedTuple):
    title: str
    lines: list[str]  # with the terminal's markup; what was not written here is `plain`
    facts: dict[str, Any]


def plainly(title: str, lines: list[str], facts: dict[str, Any]) -> Scene:
    """A scene without any markup."""
    return Scene(title, [plain(line) for line in lines], facts)


def plain(text: object) -> str:
    """Text as it is, whatever brackets it has."""
    return escape(str(text))


def quiet(text: object) -> str:
    return f"[dim]{plain(text)}[/dim]"


def good(text: object) -> str:
    return f"[green]{plain(text)}[/green]"


def bad(text: object) -> str:
    return f"[red]{plain(text)}[/red]"
