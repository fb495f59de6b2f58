"""A reader of names, quoted strings and plain words, shared by the two small notations: tags and PADRES' brackets."""

import re
from collections.abc import Iterable

from tidings.model.errors import FilterError, InvalidValueError
from tidings.model.errors import did_you_mean as did_you_mean
from tidings.model.expression import Constant
from tidings.model.limits import MAX_FILTER_PATTERNS, MAX_FILTER_PREDICATES
from tidings.model.values import Value, checked_name, checked_value

_WORD = re.compile(r"""\s*(?:'((?:[^']|'')*)'|"((?:[^"]|"")*)"|`((?:[^`]|``)*)`|([^\s,=\[\]'"`][^,=\[\]'"`]*))\s*""")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


class WordReader:
    """Reads a text from left to right and counts its predicates and patterns.

    Its methods raise `FilterError`, with the position, for text that does not fit and for exceeded limits.
    """

    def __init__(self, text: str) -> None:
        self.text, self.position, self._predicates, self._patterns = text, 0, 0, 0

    def more(self) -> bool:
        """Skip blanks; return whether there is more text."""
        self._skip_blanks()
        return self.position < len(self.text)

    def sign(self, sign: str, why: str) -> None:
        """Consume a sign that must come next; `why` is the error's message."""
        self._skip_blanks()
        if not self.text.startswith(sign, self.position):
            raise self.error(why)
        self.position += len(sign)

    def has(self, sign: str) -> bool:
        """Consume a sign if it comes next; return whether it did."""
        self._skip_blanks()
        is_next = self.text.startswith(sign, self.position)
        self.position += len(sign) * is_next
        return is_next

    def name(self) -> str:
        """Consume a name and return it."""
        start = self.position
        word, _ = self.word("a name")
        try:
            return checked_name(word)
        except InvalidValueError as error:
            raise FilterError(str(error), self.text, start) from None

    def word(self, what: str) -> tuple[str, bool]:
        """Consume a word; return it, and whether it was quoted. `what` names it in the error's message."""
        match = _WORD.match(self.text, self.position)
        if match is None:
            raise self.error(f"{what} is missing, or a quote is not closed")
        self.position = match.end()
        for group, quote in ((1, "'"), (2, '"'), (3, "`")):
            if match[group] is not None:
                return match[group].replace(quote * 2, quote), True
        return match[4].rstrip(), False

    def operator(self, operators: Iterable[str]) -> str:
        """Consume the longest of the known operators that comes next as a whole; return it, or "" if there is none."""
        self._skip_blanks()
        for operator in sorted(operators, key=len, reverse=True):
            end = self.position + len(operator)
            if self.text[self.position : end].lower() == operator.lower() and self.text[end : end + 1].strip() in (
                "",
                ",",
                "]",
            ):
                self.position = end
                return operator
        return ""

    def value(self, what: str) -> Constant:
        """Consume a word and return it as a constant: quoted a string, otherwise a number if it looks like one."""
        start = self.position
        word, quoted = self.word(what)
        return Constant(word) if quoted else Constant(plain_value(word, self.text, start))

    def count_predicate(self) -> None:
        """Count one more predicate; raise `FilterError` above the limit."""
        self._predicates += 1
        if self._predicates > MAX_FILTER_PREDICATES:
            raise self.error(f"more than MAX_FILTER_PREDICATES ({MAX_FILTER_PREDICATES:,}) conditions")

    def count_pattern(self) -> None:
        """Count one more pattern; raise `FilterError` above the limit."""
        self._patterns += 1
        if self._patterns > MAX_FILTER_PATTERNS:
            raise self.error(f"more than MAX_FILTER_PATTERNS ({MAX_FILTER_PATTERNS}) patterns")

    def error(self, message: str) -> FilterError:
        """Return an error with this message at the present position."""
        return FilterError(message, self.text, min(self.position, len(self.text)))

    def _skip_blanks(self) -> None:
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1


def plain_value(word: str, text: str, position: int) -> Value:
    """Return an unquoted word as a number if it looks like one, else as a string.

    Raises `FilterError`, with the word's position in `text`, for a number that is no attribute value.
    """
    if not _NUMBER.fullmatch(word):
        return word
    digits = word.lstrip("+-")
    if digits.isdigit() and len(digits) > 19:
        raise FilterError("the integer does not fit into 64 bits; with a decimal point it is a float", text, position)
    try:
        return checked_value(int(word) if digits.isdigit() else float(word), word[:40])
    except InvalidValueError as error:
        raise FilterError(str(error), text, position) from None
