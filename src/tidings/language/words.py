"""What the two small notations, tags and PADRES' brackets, have in common: names, quoted strings and plain words."""

import re
from collections.abc import Iterable

from tidings.model.errors import FilterError, InvalidValueError
from tidings.model.expression import Constant
from tidings.model.limits import MAX_FILTER_PATTERNS, MAX_FILTER_PREDICATES
from tidings.model.values import Value, checked_name, checked_value

_WORD = re.compile(r"""\s*(?:'((?:[^']|'')*)'|"((?:[^"]|"")*)"|`((?:[^`]|``)*)`|([^\s,=\[\]'"`][^,=\[\]'"`]*))\s*""")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


class Words:
    """Reads a text from left to right; what does not fit is a `FilterError` where it stands."""

    def __init__(self, text: str) -> None:
        self.text, self.position, self._predicates, self._patterns = text, 0, 0, 0

    def more(self) -> bool:
        self._skip_blanks()
        return self.position < len(self.text)

    def sign(self, sign: str, why: str) -> None:
        """Takes the sign that must come next."""
        self._skip_blanks()
        if not self.text.startswith(sign, self.position):
            raise self.error(why)
        self.position += len(sign)

    def has(self, sign: str) -> bool:
        """Takes the sign if it comes next."""
        self._skip_blanks()
        found = self.text.startswith(sign, self.position)
        self.position += len(sign) * found
        return found

    def name(self) -> str:
        start = self.position
        word, _ = self.word("a name")
        try:
            return checked_name(word)
        except InvalidValueError as error:
            raise FilterError(str(error), self.text, start) from None

    def word(self, what: str) -> tuple[str, bool]:
        """The next word, and whether it was quoted."""
        found = _WORD.match(self.text, self.position)
        if found is None:
            raise self.error(f"{what} is missing, or a quote is not closed")
        self.position = found.end()
        for group, quote in ((1, "'"), (2, '"'), (3, "`")):
            if found[group] is not None:
                return found[group].replace(quote * 2, quote), True
        return found[4].rstrip(), False

    def operator(self, known: Iterable[str]) -> str:
        """Takes the longest of the known operators that comes next and ends there; nothing if there is none."""
        self._skip_blanks()
        for one in sorted(known, key=len, reverse=True):
            end = self.position + len(one)
            if self.text[self.position : end].lower() == one.lower() and self.text[end : end + 1].strip() in (
                "",
                ",",
                "]",
            ):
                self.position = end
                return one
        return ""

    def value(self, what: str) -> Constant:
        """The next word as a value: quoted it is a string, otherwise a number if it looks like one."""
        start = self.position
        word, quoted = self.word(what)
        return Constant(word) if quoted else Constant(self.plain_value(word, start))

    def plain_value(self, word: str, position: int) -> Value:
        """A number if the word looks like one, else the word."""
        if not _NUMBER.fullmatch(word):
            return word
        digits = word.lstrip("+-")
        if digits.isdigit() and len(digits) > 19:
            complaint = "the integer does not fit into 64 bits; with a decimal point it is a float"
            raise FilterError(complaint, self.text, position)
        try:
            return checked_value(int(word) if digits.isdigit() else float(word), word[:40])
        except InvalidValueError as error:
            raise FilterError(str(error), self.text, position) from None

    def count_predicate(self) -> None:
        self._predicates += 1
        if self._predicates > MAX_FILTER_PREDICATES:
            raise self.error(f"more than MAX_FILTER_PREDICATES ({MAX_FILTER_PREDICATES:,}) conditions")

    def count_pattern(self) -> None:
        self._patterns += 1
        if self._patterns > MAX_FILTER_PATTERNS:
            raise self.error(f"more than MAX_FILTER_PATTERNS ({MAX_FILTER_PATTERNS}) patterns")

    def error(self, message: str) -> FilterError:
        return FilterError(message, self.text, min(self.position, len(self.text)))

    def _skip_blanks(self) -> None:
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1
