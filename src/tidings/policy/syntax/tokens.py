"""Scanner of the policy language: split a text into tokens for the parser."""

import re

from lark import Token

from tidings.model.errors import PolicyError
from tidings.model.limits import MAX_NAME_CHARACTERS, MAX_POLICY_ELEMENTS, MAX_POLICY_NESTING
from tidings.policy.call_checks import CONTROL_CHARACTERS

_TOKEN = re.compile(
    r"""(?P<BLANK>\s+|//[^\n]*)
    | (?P<STRING>"(?:[^"]|"")*"|'(?:[^']|'')*'|`(?:[^`]|``)*`)
    | (?P<NUMBER>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.$"'`])
    | (?P<WORD>[A-Za-z_][\w.]*)
    | (?P<VARIABLE>\$[A-Za-z_]\w*)
    | (?P<QUALIFIER>@[A-Za-z_]\w*)
    | (?P<_AND>&&) | (?P<_OR>\|\|)
    | (?P<COMPARE><=|>=|<>|!=|==|=|<|>)
    | (?P<_LBRACE>\{) | (?P<_RBRACE>\}) | (?P<_LPAR>\() | (?P<_RPAR>\)) | (?P<_LSQB>\[) | (?P<_RSQB>\])
    | (?P<_COMMA>,) | (?P<_COLON>:)""",
    re.VERBOSE | re.ASCII,
)
_KEYWORDS = {
    "policystatement": "_POLICYSTATEMENT",
    "on": "ON",
    "if": "IF",
    "elseif": "ELSEIF",
    "then": "_THEN",
    "onexception": "_ONEXCEPTION",
}
_HINTS = {
    "&": "both must hold is written &&",
    "|": "one must hold is written ||",
    "!": "there is no negation; put the other case into an Elseif",
    "#": "comments start with //",
    "/": "comments start with // and end with the line",
    ";": "actions are separated by commas",
    ".": "a list names all its members",
    "$": "a variable has a name, as in $Message",
    "@": "a qualifier has a name, as in @broker",
    **dict.fromkeys("\u2018\u2019\u201c\u201d", "a typeset quote; strings stand in plain quotes"),
}
_UNCLOSED = "the string is not closed; a quote inside of a string is written twice"


def scan(text: str) -> list[Token]:
    """Return all tokens of a text; raise a `PolicyError` at the first character that begins no token.

    Also enforces the limits on nesting, on the number of elements and on the length of words, before the parser runs.
    """
    control_character = CONTROL_CHARACTERS.search(text)
    if control_character is not None:
        raise PolicyError("a control character; a policy cannot hold one", text, control_character.start())
    tokens: list[Token] = []
    open_signs: list[str] = []  # open parentheses and brackets; inside "value" no word is a keyword
    position = elements = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise PolicyError(_character_complaint(text, position), text, position)
        kind, word = str(match.lastgroup), match.group()
        before = tokens[-1].type if tokens else ""
        if kind == "WORD":
            in_value = before in ("COMPARE", "IN") or "value" in open_signs[-1:]
            kind = _word_kind(word, before) if not in_value else kind
            if len(word) > MAX_NAME_CHARACTERS:
                limit = f"MAX_NAME_CHARACTERS ({MAX_NAME_CHARACTERS})"
                raise PolicyError(f"the word is longer than {limit}", text, position)
        elif kind in ("_LPAR", "_LSQB"):
            called = kind == "_LSQB" or before in ("WORD", "ON")
            open_signs.append("value" if called else "group")
            if len(open_signs) > MAX_POLICY_NESTING:
                raise PolicyError(f"nested deeper than MAX_POLICY_NESTING ({MAX_POLICY_NESTING})", text, position)
            elements += kind == "_LPAR" and before == "WORD"
            if elements > MAX_POLICY_ELEMENTS:
                limit = f"MAX_POLICY_ELEMENTS ({MAX_POLICY_ELEMENTS:,})"
                raise PolicyError(f"more than {limit} conditions and actions", text, tokens[-1].start_pos or 0)
        elif kind in ("_RPAR", "_RSQB"):
            del open_signs[-1:]
        elif kind in ("_LBRACE", "_RBRACE"):
            open_signs.clear()
        if kind != "BLANK":
            tokens.append(Token(kind, word, start_pos=position))
        position = match.end()
    return tokens


def unquote(word: str) -> str:
    """Return the content of a STRING token."""
    quote = word[0]
    return word[1:-1].replace(quote * 2, quote)


def _word_kind(word: str, before: str) -> str:
    if word.lower() == "in" and before == "_RPAR":
        return "IN"
    return _KEYWORDS.get(word.lower(), "WORD")


def _character_complaint(text: str, position: int) -> str:
    character = text[position]
    if character in "\"'`":
        return _UNCLOSED
    if text.startswith("...", position):
        return "... has no meaning here; a list names all its members"
    if character.isdigit() or (character in "+-." and text[position + 1 : position + 2].isdigit()):
        return "a number runs into what follows; a word that starts with a digit stands in quotes"
    hint = _HINTS.get(character, "words with other letters or signs stand in quotes")
    return f"{character!r} has no meaning here; {hint}"
