"""Parse the native language: `class = 'report' and d1 > 10`, and context filters with `this.`."""

from threading import Lock

from tidings.language.templates import Fill, LiteralRefusal, template
from tidings.language.tokens import LiteralToken, TextShape, scan, split
from tidings.model.errors import FilterError
from tidings.model.expression import Condition
from tidings.model.limits import MAX_CACHED_TEMPLATE_CHARACTERS, MAX_CACHED_TEMPLATES


class _Language:
    """A parser of content filters or of context filters, with a cache of templates.

    A template is the parsed text of a filter without its literals; filters of the same shape share one.
    """

    def __init__(self, *, context: bool) -> None:
        self._context = context
        self._known: dict[TextShape, Fill] = {}
        self._learning = Lock()  # for additions only: a lookup needs no lock

    def parse(self, text: str) -> Condition:
        """Parse a filter; raise `FilterError` if it is not valid."""
        shape, literals = split(text)
        fill = self._known.get(shape)
        try:
            if fill is None:
                fill = self._learn(text, shape)
            return fill(literals)  # type: ignore[no-any-return]
        except LiteralRefusal as refused:
            places = [token.start_pos or 0 for token in scan(text) if isinstance(token, LiteralToken)]
            raise FilterError(refused.message, text, places[refused.slot]) from None

    def _learn(self, text: str, shape: TextShape) -> Fill:
        """Parse a text as a template and add that to the cache, in place of the oldest if it is full."""
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
        """Empty the cache."""
        with self._learning:
            self._known.clear()


_content, _context = _Language(context=False), _Language(context=True)
parse = _content.parse
parse_context = _context.parse


def template_counts() -> tuple[int, int]:
    """Return how many templates are cached: of content filters, and of context filters."""
    return len(_content), len(_context)


def forget_templates() -> None:
    """Empty the caches of templates, for measurements and tests."""
    _content.forget()
    _context.forget()
