"""Rules as they were in force when a message came, so that it can be judged by them later: by then who set them may be
gone, and its filters with it."""

import msgspec

from tidings.engine.ruled import Ruling
from tidings.filters import Filter
from tidings.policy.application import compiled_rule
from tidings.policy.policy import Policy
from tidings.policy.situation import Source


class Recorded(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rule, with its place in its policy, and whose it is."""

    policy: str
    number: int
    kind: str
    id: str
    owner: str
    content: str | None = None
    governs: bool = False
    operators: bool = False


def recorded(ruling: Ruling) -> Recorded:
    rule, source = ruling
    content = None if source.filter is None else str(source.filter)
    text = str(Policy((rule.rule,)))
    return Recorded(text, rule.number, source.kind, source.id, source.owner, content, source.governs, source.operators)


def recalled(one: Recorded) -> Ruling:
    """Raises a `PolicyError` if this process does not know what the rule is made of."""
    (rule,) = Policy.parse(one.policy).rules
    content = None if one.content is None else Filter.parse(one.content)
    names = frozenset[str]() if content is None else content.names
    source = Source(one.kind, one.id, one.owner, content, names, one.governs, one.operators)
    return compiled_rule(rule, one.number), source
