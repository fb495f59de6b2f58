"""Check XPath filters on XML payloads: `/order/item[@price>10]` matches if it selects something.

Only that part of XPath 1.0 is accepted that a bounded number of passes over the document can evaluate, so that no
subscriber can make matching slow for others. The error for everything else names another way to write it.
"""

from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Tree, UnexpectedInput, UnexpectedToken

from tidings.language.words import did_you_mean
from tidings.model.errors import FilterError
from tidings.model.expression import XPath
from tidings.model.limits import (
    MAX_CACHED_PATTERNS,
    MAX_PATTERN_CHARACTERS,
    MAX_XPATH_CALLS,
    MAX_XPATH_NESTING,
    MAX_XPATH_STEPS,
)
from tidings.model.patterns import PatternError

# name -> (minimum, maximum) number of arguments
_FUNCTIONS = {
    **dict.fromkeys(("last", "position", "true", "false"), (0, 0)),
    **dict.fromkeys(
        ("local-name", "name", "namespace-uri", "string", "string-length", "normalize-space", "number"), (0, 1)
    ),
    **dict.fromkeys(("not", "boolean", "count", "sum", "floor", "ceiling", "round"), (1, 1)),
    **dict.fromkeys(("contains", "starts-with", "substring-before", "substring-after"), (2, 2)),
    "substring": (2, 3),
    "concat": (2, 8),
}
_NODES_ONLY = ("count", "sum", "local-name", "name", "namespace-uri")
_AXES = ("child", "attribute", "self", "descendant", "descendant-or-self")


def parse(text: str) -> XPath:
    """Parse an XPath filter; raise `FilterError` if it is not valid or not accepted."""
    try:
        check_xpath(text)
    except _XPathError as error:
        raise FilterError(str(error), text, error.position) from None
    except PatternError as error:
        raise FilterError(str(error), text, 0) from None
    return XPath(text)


class _XPathError(PatternError):
    """An invalid path, with the position in its text."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


@lru_cache(MAX_CACHED_PATTERNS)
def check_xpath(text: str) -> None:
    """Raise `PatternError` for text that is not XPath or that may cost more than a bounded number of passes."""
    if len(text) > MAX_PATTERN_CHARACTERS:
        raise PatternError(f"the path is longer than MAX_PATTERN_CHARACTERS ({MAX_PATTERN_CHARACTERS:,})")
    _check_nesting(text)
    try:
        tree: Tree[Token] | Token = _grammar().parse(text)
    except UnexpectedInput as error:
        ended = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        position = len(text) if ended else error.pos_in_stream or 0
        raise _XPathError(_complaint(text, position), position) from None
    if isinstance(tree, Token):  # a number or a string by itself
        return
    steps = [token for step in tree.find_data("step") for token in _tokens(step)[:1]]
    if len(steps) > MAX_XPATH_STEPS:
        raise _XPathError(f"more than MAX_XPATH_STEPS ({MAX_XPATH_STEPS}) steps", steps[MAX_XPATH_STEPS].start_pos or 0)
    calls = [call.children[0] for call in tree.find_data("call")]
    if len(calls) > MAX_XPATH_CALLS:
        raise _XPathError(f"more than MAX_XPATH_CALLS ({MAX_XPATH_CALLS}) functions", 0)
    _check(tree, inside_predicate=False)


@cache
def _grammar() -> Lark:
    grammar = (Path(__file__).parent / "xpath.lark").read_text()
    return Lark(grammar, parser="lalr", lexer="contextual", maybe_placeholders=True)


def _check_nesting(text: str) -> None:
    depth, quote = 0, ""
    for position, character in enumerate(text):
        if quote or character in "'\"":
            quote = "" if character == quote else quote or character
            continue
        depth += (character in "([") - (character in ")]")
        if depth > MAX_XPATH_NESTING:
            raise _XPathError(f"nested deeper than MAX_XPATH_NESTING ({MAX_XPATH_NESTING})", position)


def _check(node: Any, *, inside_predicate: bool) -> None:
    if not isinstance(node, Tree):
        return
    if node.data == "path":
        _check_path(node, inside_predicate)
    elif node.data == "call":
        _check_call(node)
    elif node.data == "comparison":
        _check_comparison(node)
    for child in node.children:
        _check(child, inside_predicate=inside_predicate or node.data == "predicate")


def _check_path(path: Tree[Token], inside_predicate: bool) -> None:
    for place, child in enumerate(path.children):
        if isinstance(child, Token) and child.type in ("SLASH", "ROOT"):
            if inside_predicate and place == 0:
                message = "inside of [ ] a path starts at the element itself, without a slash"
                raise _XPathError(message, child.start_pos or 0)
            if child == "//" and place > 0:
                raise _XPathError(_ONLY_AT_THE_START, child.start_pos or 0)
        elif isinstance(child, Tree):
            first = child.children[0]
            if isinstance(first, Token) and first.type == "AXIS":
                _check_axis(first, at_the_start=place <= 1 and not inside_predicate)


_ONLY_AT_THE_START = "// and descendant stand only at the start of a path, so that no element is visited twice"


def _check_axis(token: Token, *, at_the_start: bool) -> None:
    axis = token.rstrip(": \t\r\n")
    if axis not in _AXES:
        raise _XPathError(f"the axis {axis} is not taken; there are {', '.join(_AXES)}", token.start_pos or 0)
    if axis.startswith("descendant") and not at_the_start:
        raise _XPathError(_ONLY_AT_THE_START, token.start_pos or 0)


def _check_call(call: Tree[Token]) -> None:
    name = call.children[0]
    arguments = [child for child in call.children[1:] if child is not None]
    if not isinstance(name, Token) or name not in _FUNCTIONS:
        hint = did_you_mean(str(name), _FUNCTIONS)
        raise _XPathError(f"the function {name} is not taken{hint}", getattr(name, "start_pos", 0))
    fewest, most = _FUNCTIONS[str(name)]
    if not fewest <= len(arguments) <= most:
        counts = str(fewest) if fewest == most else f"{fewest} to {most}"
        raise _XPathError(f"{name}() takes {counts} values, not {len(arguments)}", name.start_pos or 0)
    if name in _NODES_ONLY and not all(_is_path(argument) for argument in arguments):
        raise _XPathError(f"{name}() takes a path", name.start_pos or 0)


def _check_comparison(comparison: Tree[Token]) -> None:
    sides = comparison.children[::2]
    if sum(_is_path(side) for side in sides) > 1 and not all(_is_single(side) for side in sides):
        position = _tokens(comparison)[0].start_pos or 0
        raise _XPathError("two paths are compared only if both are a single attribute or '.'", position)


def _is_path(node: Any) -> bool:
    return isinstance(node, Tree) and node.data == "path"


def _is_single(path: Any) -> bool:
    """Return whether a path selects one node at most: `.` or `@name`."""
    words = [token.type for token in _tokens(path)]
    return words in (["SELF"], ["AT", "NAME"])


def _tokens(tree: Any) -> list[Token]:
    if isinstance(tree, Token):
        return [tree]
    return list(tree.scan_values(lambda value: isinstance(value, Token)))


def _complaint(text: str, position: int) -> str:
    rest = text[position:]
    if not rest:
        return "the path ends too early"
    if rest.startswith("|"):
        return "paths are not united with |; say that one or the other is there with or"
    if rest.startswith(".."):
        return "the way up (..) is not taken; start the path higher and put the rest into [ ]"
    if rest.startswith(":"):
        return "names have no prefix; say *[local-name() = 'name']"
    if rest.startswith("$"):
        return "there are no variables"
    return f"{rest[:20]!r} is not expected here"
