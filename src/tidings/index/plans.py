"""What filters of a shape that was met before say of their literals: the short way from their text into the index."""

from threading import Lock

from tidings import language
from tidings.language.tokens import Shape, split
from tidings.matching.index.bulk import Plan, plan_of
from tidings.model.errors import FilterError
from tidings.model.limits import MAX_CACHED_TEMPLATES, MAX_FILTER_CHARACTERS

_PLAIN = MAX_FILTER_CHARACTERS // 8  # longer texts are always read with all care


class Plans:
    def __init__(self) -> None:
        self._known: dict[Shape, Plan] = {}
        self._learning = Lock()  # looking up needs none

    def find(self, text: str) -> tuple[Plan, list[str]] | None:
        """The plan that a text in the native language follows, and its literals; None where it must be read."""
        if len(text) > _PLAIN:
            return None
        shape, literals = split(text)
        plan = self._known.get(shape)
        if plan is None:
            plan = self._learned(text, shape, literals)
        return None if plan is None else (plan, literals)

    def _learned(self, text: str, shape: Shape, literals: list[str]) -> Plan | None:
        try:
            plan = plan_of(language.parse_content(text), literals)
        except FilterError:
            return None  # whoever reads it with care will say so
        if plan is not None:
            with self._learning:
                if len(self._known) >= MAX_CACHED_TEMPLATES:
                    del self._known[next(iter(self._known))]
                self._known[shape] = plan
        return plan
