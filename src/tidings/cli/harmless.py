"""What others have chosen, names for instance, on a terminal: no escape code of theirs does anything there."""

import re
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook
from rich.segment import Segment

# All that moves a cursor, changes colours or turns the direction of writing; a tab and a new line do no harm.
_CODES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """The text with such codes written out."""
    return _CODES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class _Written:
    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self._renderable, options):
            yield Segment(text if control else harmless(text), style, control)


class Harmless(RenderHook):
    """For a console, which writes its own codes all the same."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Written(one) for one in renderables]
