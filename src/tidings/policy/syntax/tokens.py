"""Scanner of the policy language: split a text into tokens for the parser.

`unexpected_token` says what is wrong with a token that the grammar refuses, where, and what was probably meant.
"""

import re

from lark import Token, UnexpectedToken

from tidings.model.errors import PolicyError, did_you_mean
from tidings.model.limits import MAX_NAME_CHARACTERS, MAX_POLICY_ELEMENTS, MAX_POLICY_NESTING
from tidings.policy.call_checks import CONTROL_CHARACTERS
from tidings.policy.registry import KEYWORDS

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


_SIGNS = {
    "_LBRACE": "{",
    "_RBRACE": "}",
    "_LPAR": "(",
    "_RPAR": ")",
    "_RSQB": "]",
    "_COLON": ":",
    "_POLICYSTATEMENT": "PolicyStatement",
    "ON": "On",
    "IF": "If",
    "ELSEIF": "Elseif",
    "_THEN": "Then",
    "_ONEXCEPTION": "OnException",
}
_WORDS = {"and": "both must hold is written &&", "or": "one must hold is written ||", "not": "there is no negation"}
_ELSE = "the other cases are written Elseif {} Then {...}"


def unexpected_token(error: UnexpectedToken, tokens: list[Token], text: str) -> tuple[str, str, int]:
    """Return the arguments of the `PolicyError` for an unexpected token: message, text and position."""
    token = error.token
    if token.type == "$END":
        return _early_end(set(error.accepts or error.expected)), text, len(text)
    position = token.start_pos or 0
    place = next((number for number, token_before in enumerate(tokens) if token_before.start_pos == position), 0)
    before = tokens[place - 1] if place else None
    expected = set(error.accepts or error.expected)
    if before is not None and before.type == "WORD" and token.type == "_LBRACE":  # probably a misspelt keyword
        hint = did_you_mean(before, [sign for kind, sign in _SIGNS.items() if kind in expected and sign in KEYWORDS])
        return f"{before[:40]} is not expected here{hint}", text, before.start_pos or 0
    return _message(token, before, expected), text, position


def _message(token: Token, before: Token | None, expected: set[str]) -> str:
    word = str(token)[:40]
    if before is None:
        return f"a policy starts with PolicyStatement {{{did_you_mean(word, ['PolicyStatement'])}"
    if token.type == "WORD" and token.lower() in ("else", "otherwise"):
        return f"{word} is not expected here; {_ELSE}"
    if before.type == "WORD" and expected == {"_LPAR"}:
        return f"an element is followed by parentheses, as in {before[:40]}()"
    if token.type == "WORD" and token.lower() in _WORDS:
        return f"{word} is not expected here; {_WORDS[token.lower()]}"
    if token.type == "WORD":
        near = [sign for kind, sign in _SIGNS.items() if kind in expected and sign in KEYWORDS]
        if did_you_mean(word, near):
            return f"{word} is not expected here{did_you_mean(word, near)}"
    if token.type in ("NUMBER", "STRING", "VARIABLE") and expected == {"WORD", "_LPAR", "_RBRACE"}:
        return f"a condition starts with an element, as in BrokerLoadIndex() > 0.75, not with {word}"
    if token.type == "QUALIFIER" and "_RBRACE" in expected:
        return "qualifiers stand before the If"
    if before.type == "COMPARE":
        return f"a value is missing before {word}"
    if token.type == "COMPARE" and "_AND" in expected:
        return "comparisons do not chain; write both, with && between them"
    if token.type == "_RBRACE" and {"IF", "_THEN"} <= expected:
        return "a rule needs an If"
    return f"{word} is not expected here{_missing_signs(expected)}"


def _early_end(expected: set[str]) -> str:
    if expected == {"_POLICYSTATEMENT"}:
        return "the policy is empty; it starts with PolicyStatement {"
    for kind in ("_RBRACE", "_RPAR", "_RSQB"):
        if kind in expected:
            return f"the policy ends too early; a {_SIGNS[kind]} is missing"
    return f"the policy ends too early{_missing_signs(expected)}"


def _missing_signs(expected: set[str]) -> str:
    signs = [sign for kind, sign in _SIGNS.items() if kind in expected]
    return f"; {signs[0]} is missing" if len(signs) == 1 else f"; one of {' '.join(signs)} is missing" if signs else ""
