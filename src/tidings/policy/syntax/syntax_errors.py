"""Error messages for policy texts that the grammar refuses: what is wrong, where, and what was probably meant."""

from lark import Token, UnexpectedToken

from tidings.model.errors import did_you_mean
from tidings.policy.registry import KEYWORDS

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
    place = next((number for number, one in enumerate(tokens) if one.start_pos == position), 0)
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
