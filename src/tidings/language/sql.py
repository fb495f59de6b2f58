"""The native language: `class = 'report' and d1 > 10`, and context filters with `this.`"""

from threading import Lock

from tidings.language.templates import Fill, LiteralRefused, template
from tidings.language.tokens import LiteralToken, Shape, scan, split
from tidings.model.errors import FilterError
from tidings.model.expression import Condition
from tidings.model.limits import MAX_CACHED_TEMPLATE_CHARACTERS, MAX_CACHED_TEMPLATES


class _Language:
    """One of the two faces of the language, with the templates that it has met."""

    def __init__(self, *, context: bool) -> None:
        self._context = context
        self._known: dict[Shape, Fill] = {}
        self._learning = Lock()  # looking up needs none

    def parse(self, text: str) -> Condition:
        shape, literals = split(text)
        fill = self._known.get(shape)
        try:
            if fill is None:
                fill = self._learn(text, shape)
            return fill(literals)  # type: ignore[no-any-return]
        except LiteralRefused as refused:
            places = [token.start_pos or 0 for token in scan(text) if isinstance(token, LiteralToken)]
            raise FilterError(refused.message, text, places[refused.slot]) from None

    def _learn(self, text: str, shape: Shape) -> Fill:
        fill = template(text, context=self._context)
        if len(text) <= MAX_CACHED_TEMPLATE_CHARACTERS:
            with self._learning:
                if len(self._known) >= MAX_CACHED_TEMPLATES:
                    del self._known[next(iter(self._known))]
                self._known[shape] = fill
        return fill

    def __len__(self) -> int:
        return len(self._known)

    def forget(self) -> None:
        with self._learning:
            self._known.clear()


_content, _context = _Language(context=False), _Language(context=True)
parse = _content.parse
parse_context = _context.parse


def template_counts() -> tuple[int, int]:
    """The number of templates that are remembered: of filters, and of context filters."""
    return len(_content), len(_context)


def forget_templates() -> None:
    """As if nothing had been parsed yet: for measuring, and for tests."""
    _content.forget()
    _context.forget()
