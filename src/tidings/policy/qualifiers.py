"""The qualifiers of a rule, `@matching`, `@broker`, `@attach` and `@yield_attach`, and the rules that they make."""

from enum import StrEnum
from typing import NamedTuple, TypeVar

from lark import Token

from tidings.model.hints import did_you_mean
from tidings.policy.registry import KEYWORDS
from tidings.policy.statement import ALL_POINTS, Attach, Branch, Matching, MessageType, Operation, Point, Rule

_NAMES = ("matching", "match", "broker", "attach", "yield_attach")
Written = tuple[Token, list[Token], list[Token]]  # the name, the words, and those in parentheses


class _Truth(StrEnum):
    FALSE = "False"
    TRUE = "True"


class QualifierRefused(Exception):  # noqa: N818 - never leaves the room
    def __init__(self, message: str, token: Token) -> None:
        self.message, self.position = message, token.start_pos or 0


class Qualifiers(NamedTuple):
    """What qualifies a rule. `also` are the points in parentheses, as in `Routing (Ingress)`."""

    matching: Matching = Matching.AFTER
    points: frozenset[Point] = ALL_POINTS
    also: frozenset[Point] = frozenset()
    attach: Attach = Attach.NEVER
    yield_attach: bool = False

    @classmethod
    def of(cls, written: list[Written]) -> "Qualifiers":
        found, seen = cls(), set()
        for token, words, in_parentheses in written:
            name = token[1:].lower()
            if name not in _NAMES:
                hint = did_you_mean(name, _NAMES).replace("mean ", "mean @")
                raise QualifierRefused(f"there is no qualifier @{name[:40]}{hint or _THERE_ARE}", token)
            name = "matching" if name == "match" else name  # the paper has both
            if name in seen:
                raise QualifierRefused(f"@{name} is given twice", token)
            seen.add(name)
            if in_parentheses and name != "broker":
                raise QualifierRefused(f"@{name} takes no parentheses", in_parentheses[0])
            if name == "broker":
                points, also = _points(words), _points(in_parentheses)
                if also and not points:
                    raise QualifierRefused("a point is missing before the parenthesis", in_parentheses[0])
                found = found._replace(points=points or ALL_POINTS, also=also)
            elif name == "matching":
                found = found._replace(matching=_single(Matching, words, name, found.matching))
            elif name == "attach":
                found = found._replace(attach=_single(Attach, words, name, found.attach))
            else:
                found = found._replace(yield_attach=_single(_Truth, words, name, _Truth.FALSE) is _Truth.TRUE)
        return found

    def rules(
        self,
        operation: Operation,
        message: MessageType,
        branches: tuple[Branch, ...],
        on_exception: tuple[Branch, ...],
    ) -> list[Rule]:
        """One rule; or two where points stand in parentheses, of which the first alone keeps `@attach`."""
        made = [
            Rule(
                operation=operation,
                message=message,
                branches=branches,
                on_exception=on_exception,
                matching=self.matching,
                points=points,
                attach=attach,
                yield_attach=self.yield_attach,
            )
            for points, attach in ((self.points, self.attach), (self.also, Attach.NEVER))
        ]
        return made if self.also else made[:1]


_THERE_ARE = "; there are @matching, @broker, @attach and @yield_attach"
Word = TypeVar("Word", bound=StrEnum)


def word_of(words: type[Word], token: Token | None, what: str) -> Word:
    """The word of an enumeration, in any case."""
    given = str(token or "")
    for word in words:
        if word.lower() == given.lower():
            return word
    hint = did_you_mean(given, (*words, *KEYWORDS)) or f"; there are {', '.join(words)}"
    raise QualifierRefused(f"{given[:40]} is no {what}{hint}", token or Token("WORD", ""))


def _single(words: type[Word], tokens: list[Token], name: str, default: Word) -> Word:
    if not tokens:
        return default
    word = word_of(words, tokens[0], f"value of @{name}")
    if len(tokens) > 1:
        hint = did_you_mean(tokens[1], KEYWORDS)
        raise QualifierRefused(f"@{name} takes one value{hint}", tokens[1])
    return word


def _points(tokens: list[Token]) -> frozenset[Point]:
    return frozenset(word_of(Point, token, "point of @broker") for token in tokens)
