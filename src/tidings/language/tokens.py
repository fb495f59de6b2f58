"""The lexer of the native language: text to tokens, and the split of a text into its literals and the rest."""

import re
from typing import NamedTuple

from lark import Token

from tidings.language.words import did_you_mean
from tidings.model.errors import FilterError
from tidings.model.expression import SYSTEM_NAMES
from tidings.model.limits import MAX_FILTER_NESTING, MAX_NAME_CHARACTERS
from tidings.model.printer import KEYWORDS

_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_STRING = r"'(?:[^']|'')*'"
_QUOTED = r"`(?:[^`]|``)*`"

_TOKEN = re.compile(
    rf"""(?P<BLANK>\s+)
    | (?P<STRING>{_STRING})
    | (?P<NUMBER>{_NUMBER})(?![\w.`'])
    | (?P<OWN>[Tt][Hh][Ii][Ss]\.(?:[A-Za-z_][\w.]*|{_QUOTED}))
    | (?P<NAME>[A-Za-z_][\w.]*|{_QUOTED})
    | (?P<SYSTEM>\$[\w.]*)
    | (?P<COMPARE><=|>=|<>|!=|(?:=|<|>)(?!=))
    | (?P<PLUS>\+) | (?P<MINUS>-) | (?P<TIMES>[*/%])
    | (?P<LPAR>\() | (?P<_RPAR>\)) | (?P<_COMMA>,)""",
    re.VERBOSE | re.ASCII,
)
# Finds the same literals without a full scan. Text with backquotes needs the second form, which skips the digits
# and quotes inside of names.
_LITERAL = rf"({_STRING}|(?<![\w.$`'])(?:{_NUMBER})(?![\w.`']))"
_SPLIT = re.compile(_LITERAL, re.ASCII)
_SPLIT_QUOTED = re.compile(rf"{_LITERAL}|({_QUOTED})", re.ASCII)

_OPENS = re.compile(r"\s*\(")

_WORDS = {"AND": "_AND", "OR": "_OR", "BETWEEN": "_BETWEEN", "IN": "_IN", "IS": "_IS"}
_INSTEAD = {
    '"': "strings stand in single quotes, unusual names in backquotes",
    "=": "equality is a single =",
    "&": "the word is AND",
    "|": "the word is OR",
    "!": "the word is NOT, the comparison !=",
    "[": "bracketed triples are the format 'padres'",
    ";": "a filter is a single condition; join several with AND or OR",
}
TOO_DEEP = f"nested deeper than MAX_FILTER_NESTING ({MAX_FILTER_NESTING})"
FUNCTIONS = ("distance", "geo_distance", "topic", "xpath")


class LiteralToken(Token):
    """A string or a number; `slot` is its number among the literals of the text, from 0."""

    __slots__ = ("slot",)
    slot: int


class TextShape(NamedTuple):
    """A text without its literals: equal for two texts that differ only in them."""

    kinds: str  # a letter for each literal: s (string), i (integer) or f (float)
    rest: tuple[str, ...]


def split(text: str) -> tuple[TextShape, list[str]]:
    """Return the shape of a text, and its literals as written, in order."""
    if "`" in text:
        pieces = _SPLIT_QUOTED.split(text)
        literals = [piece for piece in pieces[1::3] if piece is not None]
        rest = [quoted or "" for quoted in pieces[2::3]] + pieces[::3]
    else:
        pieces = _SPLIT.split(text)
        literals, rest = pieces[1::2], pieces[::2]
    kinds = "".join(["s" if literal[0] == "'" else "i" if literal.isdigit() else "f" for literal in literals])
    return TextShape(kinds, tuple(rest)), literals


def scan(text: str) -> list[Token]:
    """Return all tokens of a text; raise `FilterError` at the first character that begins none."""
    tokens: list[Token] = []
    position = slots = depth = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if text.startswith("--", position):
            raise FilterError("there are no comments; two minus signs have a blank between them", text, position)
        if match is None:
            raise FilterError(_complaint(text, position), text, position)
        kind, word = str(match.lastgroup), match.group()
        if kind == "NAME":
            kind = _name_kind(text, match.end(), word)
            if kind == "THIS":
                raise FilterError("this needs a name of one's own context, as in this.x", text, position)
        elif kind == "SYSTEM":
            if word not in SYSTEM_NAMES:
                hint = did_you_mean(word, SYSTEM_NAMES) or f"; there are {', '.join(SYSTEM_NAMES)}"
                raise FilterError(f"no system name {word[:40]}{hint}", text, position)
            kind = "NAME"
        elif kind == "LPAR":
            depth += 1
            if depth > MAX_FILTER_NESTING:
                raise FilterError(TOO_DEEP, text, position)
            if tokens and tokens[-1].type in ("FUNCTION", "_IN"):
                kind = "_LPAR"
        elif kind == "_RPAR":
            depth -= 1
        if len(word) > MAX_NAME_CHARACTERS and kind in ("NAME", "OWN") and len(_named(word)) > MAX_NAME_CHARACTERS:
            raise FilterError(f"the name is longer than MAX_NAME_CHARACTERS ({MAX_NAME_CHARACTERS})", text, position)
        if kind in ("STRING", "NUMBER"):
            token = LiteralToken(kind, word, start_pos=position)
            token.slot, slots = slots, slots + 1
            tokens.append(token)
        elif kind != "BLANK":
            tokens.append(Token(kind, word, start_pos=position))
        position = match.end()
    return tokens


def unquoted(name: str) -> str:
    """Return the name that a NAME token, or the part behind `this.`, stands for."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else str(name)  # a plain str instead of a Token


def _named(word: str) -> str:
    return unquoted(word[len("this.") :] if word[:5].lower() == "this." else word)


def _name_kind(text: str, end: int, word: str) -> str:
    upper = word.upper()
    if upper in KEYWORDS:
        return _WORDS.get(upper, upper)
    return "FUNCTION" if _OPENS.match(text, end) and not word.startswith("`") else "NAME"


def _complaint(text: str, position: int) -> str:
    character = text[position]
    if character == "'":
        return "the string is not closed; a quote inside of a string is written twice"
    if character == "`":
        return "the name in backquotes is not closed"
    if character.isdigit() or character == ".":
        return "a number runs into what follows; a name that starts with a digit stands in backquotes"
    hint = _INSTEAD.get(
        character, "names with other letters or signs stand in backquotes" if character.isalpha() else ""
    )
    return f"{character!r} has no meaning here" + (f"; {hint}" if hint else "")
